//go:build linux

package engine

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	ocilayout "github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// pushLayout pushes the image of an OCI layout in a tar.
func pushLayout(t *testing.T, archive io.Reader, ref string) v1.Image {
	t.Helper()
	dir := t.TempDir()
	for tr := tar.NewReader(archive); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Clean("/"+h.Name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err == nil {
			err = os.WriteFile(to, b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	index, err := ocilayout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := index.IndexManifest()
	if err != nil || len(m.Manifests) != 1 {
		t.Fatalf("its index: %+v, %v", m, err)
	}
	img, err := index.Image(m.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(ref, name.Insecure)
	if err == nil {
		err = remote.Write(tag, img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestAnImageGoesRound builds an image, serves it, pulls it, runs it, forks that,
// exports the fork and imports it into a second data folder: hashes are equal
// everywhere.
func TestAnImageGoesRound(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	one := openEngine(t)
	host := serveRegistry(t, map[string]v1.Image{"box:1": boxImage(t)})
	useRegistry(t, one, host)

	tpl, log, err := buildTemplate(t, one, api.BuildSpec{Name: "app"}, map[string]string{
		"Dockerfile": "FROM box:1\nCOPY data /data\nRUN mkdir -p /opt/a && echo made > /opt/a/b && rm /data/drop && ln -s b /opt/a/link && chmod 1777 /opt\nENV APP=1\n", "data/keep": "kept", "data/drop": "dropped"})
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	var exported bytes.Buffer
	if err := one.ExportTemplate(t.Context(), me, "app", &exported); err != nil {
		t.Fatal(err)
	}
	img := pushLayout(t, &exported, host+"/app:1")
	if d, err := img.Digest(); err != nil || d.String() != tpl.Digest {
		t.Errorf("the registry has %v, built was %s (%v)", d, tpl.Digest, err)
	}

	// A data folder that has not built it.
	two := openEngine(t)
	useRegistry(t, two, host)
	pulled, err := two.PullImage(t.Context(), me, "app:1", nil)
	if err != nil || pulled.Digest != tpl.Digest {
		t.Fatalf("pulled %+v, %v", pulled, err)
	}
	const look = "cd / && find bin etc/passwd etc/group data opt mine 2>/dev/null -xdev | sort | while read f; do if [ -f $f ] && [ ! -L $f ]; then sha256sum $f; else ls -ld $f; fi; done"
	parent := create(t, two, api.SandboxSpec{Image: "app:1"})
	sh(t, two, parent.ID, "echo $APP > /mine && rm /data/keep && mkdir /opt/new")
	forks, err := two.Fork(t.Context(), me, parent.ID, api.ForkRequest{})
	if err != nil || len(forks) != 1 {
		t.Fatal(forks, err)
	}
	fork := forks[0].ID
	want := sh(t, two, fork, look)
	if !strings.Contains(want, "  mine") || !strings.Contains(want, "opt/a/b") || strings.Contains(want, "data/keep") {
		t.Errorf("the fork has\n%s", want)
	}
	snap, err := two.Snapshot(t.Context(), me, fork, api.SnapshotSpec{Name: "round"})
	if err != nil {
		t.Fatal(err)
	}
	var carried bytes.Buffer
	if err := two.ExportSnapshot(t.Context(), me, snap.ID, &carried); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "the snapshot's hash is known", func() bool {
		snap, err = two.SnapshotOf(t.Context(), me, snap.ID)
		return err != nil || snap.Hash != ""
	})

	three := openEngine(t) // which knows no registry
	got, err := three.ImportSnapshot(t.Context(), me, "round", bytes.NewReader(carried.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if got.Hash != snap.Hash || got.Hash == "" {
		t.Errorf("imported with the hash %q, exported with %q", got.Hash, snap.Hash)
	}
	s, err := three.Create(t.Context(), me, api.SandboxSpec{Snapshot: "round"})
	if err != nil {
		t.Fatal(err)
	}
	if have := sh(t, three, s.ID, look); have != want {
		t.Errorf("it has\n%s\nwant\n%s", have, want)
	}
	// What it stands on cannot be taken from under it.
	if _, err := three.GC(t.Context(), Caller{Name: "root", Admin: true}, false); err != nil {
		t.Fatal(err)
	}
	if _, err := three.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	if have := sh(t, three, s.ID, look); have != want {
		t.Errorf("after a collection and a new start it has\n%s\nwant\n%s", have, want)
	}
	// A damaged one is none.
	b := bytes.Clone(carried.Bytes())
	b[len(b)/2] ^= 1
	if _, err := three.ImportSnapshot(t.Context(), me, "broken", bytes.NewReader(b)); err == nil {
		t.Error("a damaged snapshot was imported")
	} else if c := bailey.CodeOf(err); c == bailey.CodeInternal {
		t.Errorf("%v", err)
	}
}
