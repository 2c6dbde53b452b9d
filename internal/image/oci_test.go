package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
)

// layerFrom makes a gzip layer of an uncompressed tar.
func layerFrom(t testing.TB, b []byte) v1.Layer {
	t.Helper()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// imageOf makes an image for this machine from uncompressed tars.
func imageOf(t testing.TB, tars ...[]byte) v1.Image {
	t.Helper()
	img := v1.Image(empty.Image)
	for _, b := range tars {
		var err error
		if img, err = mutate.AppendLayers(img, layerFrom(t, b)); err != nil {
			t.Fatal(err)
		}
	}
	return configured(t, img, thisMachine(), v1.Config{})
}

func configured(t testing.TB, img v1.Image, p platform, c v1.Config) v1.Image {
	t.Helper()
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture, cf.Variant, cf.Config = p.OS, p.Architecture, p.Variant, c
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	return img
}

// layoutOf writes images into a layout, under the names given.
func layoutOf(t testing.TB, dir string, images map[string]v1.Image) string {
	t.Helper()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for n, img := range images {
		var opts []layout.Option
		if n != "" {
			opts = append(opts, layout.WithAnnotations(map[string]string{refName: n}))
		}
		if err := p.AppendImage(img, opts...); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func digestOf(t testing.TB, x interface{ Digest() (v1.Hash, error) }) string {
	t.Helper()
	h, err := x.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return h.String()
}

// diffIDs gives the folders that the image's layers must have.
func layerDirs(t testing.TB, s *Store, img v1.Image) []string {
	t.Helper()
	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, l := range layers {
		d, err := l.DiffID()
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, filepath.Join(s.layerDir(d.Hex), "fs"))
	}
	return out
}

func TestALayoutIsPrepared(t *testing.T) {
	base := t.TempDir()
	s := openStore(t, filepath.Join(base, "store"))
	config := v1.Config{
		Env: []string{"PATH=/bin", "EMPTY="}, User: "app:app", WorkingDir: "/srv", Entrypoint: []string{"/bin/e"}, Cmd: []string{"a", "b c"},
		Labels: map[string]string{"l": "v"}, StopSignal: "SIGQUIT",
	}
	img := configured(t, imageOf(t, tarOf(t, entry{"a", "1"}), tarOf(t, entry{"b", "2"}), tarOf(t, entry{"a", "3"})), thisMachine(), config)
	src := layoutOf(t, filepath.Join(base, "layout"), map[string]v1.Image{"": img})
	r := prepare(t, s, src)
	want := rootfs.Config{Env: config.Env, User: "app:app", Workdir: "/srv", Entrypoint: []string{"/bin/e"}, Cmd: []string{"a", "b c"}, Labels: config.Labels, StopSignal: "SIGQUIT"}
	if r.Kind != rootfs.KindOCI || r.Digest != digestOf(t, img) || !reflect.DeepEqual(r.Config, want) || !reflect.DeepEqual(r.Layers, layerDirs(t, s, img)) || r.Reused {
		t.Errorf("%+v", r)
	}
	// The blobs are not needed again.
	layers, _ := img.Layers()
	for _, l := range layers {
		if err := os.Remove(filepath.Join(src, "blobs/sha256", strings.TrimPrefix(digestOf(t, l), "sha256:"))); err != nil {
			t.Fatal(err)
		}
	}
	if again := prepare(t, openStore(t, s.dir), src); !again.Reused || !reflect.DeepEqual(again.Layers, r.Layers) || !reflect.DeepEqual(again.Config, want) {
		t.Errorf("again: %+v", again)
	}
	wantClean(t, s.dir)
}

func TestRandomImagesInEveryWrapping(t *testing.T) {
	base := t.TempDir()
	img, err := random.Image(2000, 4)
	if err != nil {
		t.Fatal(err)
	}
	img = configured(t, img, thisMachine(), v1.Config{})
	tag, err := name.NewTag("example.test/team/app:v1")
	if err != nil {
		t.Fatal(err)
	}
	layoutDir := layoutOf(t, filepath.Join(base, "layout"), map[string]v1.Image{"v1": img})
	var entries []entry
	if err := filepath.Walk(layoutDir, func(p string, i os.FileInfo, err error) error {
		if err != nil || i.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(layoutDir, p)
		entries = append(entries, entry{rel, string(b)})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	ociTar := tarOf(t, entries...)
	docker := filepath.Join(base, "docker.tar")
	if err := tarball.WriteToFile(docker, tag, img); err != nil {
		t.Fatal(err)
	}
	dockerTar, err := os.ReadFile(docker)
	if err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{
		"layout":        layoutDir,
		"oci archive":   writeFile(t, filepath.Join(base, "oci.tar"), ociTar),
		"oci gzip":      writeFile(t, filepath.Join(base, "oci.tar.gz"), squeeze(t, "gzip", ociTar)),
		"docker":        docker,
		"docker zstd":   writeFile(t, filepath.Join(base, "docker.tar.zst"), squeeze(t, "zstd", dockerTar)),
		"docker by tag": docker + ":example.test/team/app:v1",
		"docker short":  docker + ":v1",
		"layout by tag": layoutDir + ":v1",
	}
	for what, src := range sources {
		t.Run(what, func(t *testing.T) {
			s := openStore(t, filepath.Join(t.TempDir(), "store"))
			r := prepare(t, s, src)
			if !reflect.DeepEqual(r.Layers, layerDirs(t, s, img)) {
				t.Errorf("layers %q, want %q", r.Layers, layerDirs(t, s, img))
			}
			if again := prepare(t, s, src); !again.Reused {
				t.Error("the second time was not reused")
			}
			_, err := s.Prepare(context.Background(), strings.TrimSuffix(strings.TrimSuffix(src, ":v1"), ":example.test/team/app")+":other")
			if own := wantCode(t, err, bailey.CodeNotFound); !strings.Contains(own.Fix, "v1") {
				t.Errorf("the advice does not list what there is: %s", own.Fix)
			}
			wantClean(t, s.dir)
		})
	}
}

func squeeze(t testing.TB, how string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	if how == "zstd" {
		z, err := zstd.NewWriter(&out)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestOldDockerArchives(t *testing.T) {
	base := t.TempDir()
	one, two := tarOf(t, entry{"a", "1"}), tarOf(t, entry{"b", "2"})
	cf, err := json.Marshal(map[string]any{"os": "linux", "architecture": thisMachine().Architecture,
		"config": map[string]any{"Cmd": []string{"sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hexSum(one), "sha256:" + hexSum(two), "sha256:" + hexSum(one)}}})
	if err != nil {
		t.Fatal(err)
	}
	id := strings.Repeat("ab", 32)
	manifest, err := json.Marshal([]any{map[string]any{"Config": hexSum(cf) + ".json", "RepoTags": []string{"app:latest"},
		"Layers": []string{id + "/layer.tar", "2/layer.tar", "3/layer.tar"}}})
	if err != nil {
		t.Fatal(err)
	}
	src := writeFile(t, filepath.Join(base, "old.tar"), tarOf(t, entry{id + "/", ""}, entry{id + "/layer.tar", string(one)},
		entry{"2/layer.tar", string(two)}, entry{"3/layer.tar", "->../" + id + "/layer.tar"}, entry{hexSum(cf) + ".json", string(cf)}, entry{"manifest.json", string(manifest)}))
	s := openStore(t, filepath.Join(base, "store"))
	r := prepare(t, s, src+":app")
	// The first layer comes again on top, where it hides itself below.
	want := []string{filepath.Join(s.layerDir(hexSum(two)), "fs"), filepath.Join(s.layerDir(hexSum(one)), "fs")}
	if r.Kind != rootfs.KindDocker || r.Digest != "sha256:"+hexSum(cf) || !reflect.DeepEqual(r.Layers, want) || !reflect.DeepEqual(r.Config.Cmd, []string{"sh"}) {
		t.Errorf("%+v, want layers %q", r, want)
	}
}

func TestZstdLayersAreRead(t *testing.T) {
	base := t.TempDir()
	plain := tarOf(t, entry{"f", strings.Repeat("zstd ", 1000)})
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(squeeze(t, "zstd", plain))), nil
	}, tarball.WithMediaType(types.OCILayerZStd))
	if err != nil {
		t.Fatal(err)
	}
	img, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		t.Fatal(err)
	}
	img = configured(t, img, thisMachine(), v1.Config{})
	s := openStore(t, filepath.Join(base, "store"))
	r := prepare(t, s, layoutOf(t, filepath.Join(base, "layout"), map[string]v1.Image{"": img}))
	if r.Layers[0] != filepath.Join(s.layerDir(hexSum(plain)), "fs") {
		t.Errorf("layers %q", r.Layers)
	}
}

func TestChoosingAmongImages(t *testing.T) {
	base := t.TempDir()
	s := openStore(t, filepath.Join(base, "store"))
	s.machine = platform{OS: "linux", Architecture: "arm64", Variant: "v8"}
	build := func(p platform, content string) v1.Image {
		return configured(t, imageOf(t, tarOf(t, entry{"f", content})), p, v1.Config{})
	}
	amd, arm := build(platform{OS: "linux", Architecture: "amd64"}, "amd"), build(platform{OS: "linux", Architecture: "arm64"}, "arm")
	other := build(platform{OS: "linux", Architecture: "arm64", Variant: "v8"}, "other")
	attachment := build(platform{OS: "unknown", Architecture: "unknown"}, "attachment")
	multi := mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: amd, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}},
		mutate.IndexAddendum{Add: attachment, Descriptor: v1.Descriptor{Annotations: map[string]string{attachmentType: "attestation-manifest"}}},
		mutate.IndexAddendum{Add: arm, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "arm64"}}})
	single := filepath.Join(base, "multi")
	p, err := layout.Write(single, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendIndex(multi); err != nil {
		t.Fatal(err)
	}
	if r := prepare(t, s, single); r.Digest != digestOf(t, arm) {
		t.Errorf("chose %s of a multi-platform image, want %s", r.Digest, digestOf(t, arm))
	}

	both := layoutOf(t, filepath.Join(base, "both"), map[string]v1.Image{"example.test/other:1": other, "amd-only": amd})
	if p, err = layout.FromPath(both); err != nil {
		t.Fatal(err)
	}
	if err := p.AppendIndex(multi, layout.WithAnnotations(map[string]string{imageName: "docker.io/library/multi:latest"})); err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]string{
		both + ":multi":                          digestOf(t, arm),
		both + ":docker.io/library/multi:latest": digestOf(t, arm),
		both + ":example.test/other:1":           digestOf(t, other),
		both + "@" + digestOf(t, multi):          digestOf(t, arm),
		both + "@" + digestOf(t, other):          digestOf(t, other),
	} {
		if r := prepare(t, s, source); r.Digest != want {
			t.Errorf("%s chose %s, want %s", source, r.Digest, want)
		}
	}
	// Plain names need no choice between platforms: other fits arm64/v8 best.
	if _, err := s.Prepare(context.Background(), both+":amd-only"); bailey.CodeOf(err) != bailey.CodeImageInvalid || !strings.Contains(err.Error(), "linux/amd64") {
		t.Errorf("an image for another machine: %v", err)
	}
	third := build(platform{OS: "linux", Architecture: "arm64", Variant: "v8"}, "third")
	if err := p.AppendImage(third); err != nil {
		t.Fatal(err)
	}
	_, err = s.Prepare(context.Background(), both)
	own := wantCode(t, err, bailey.CodeUsage)
	for _, want := range []string{":example.test/other:1", "@" + digestOf(t, third)} {
		if !strings.Contains(own.Fix, want) {
			t.Errorf("the advice %q does not list %s", own.Fix, want)
		}
	}
	_, err = s.Prepare(context.Background(), both+"@sha256:"+strings.Repeat("0", 64))
	wantCode(t, err, bailey.CodeNotFound)
}

func TestPlatforms(t *testing.T) {
	for _, c := range []struct {
		want, have string
		better     string // a have that must fit better, "" if have must not fit
	}{
		{"linux/amd64", "linux/arm64", ""}, {"linux/amd64", "windows/amd64", ""}, {"linux/amd64", "linux/amd64/v3", "linux/amd64"},
		{"linux/arm64/v8", "linux/arm64", "linux/arm64/v8"}, {"linux/arm/v7", "linux/arm/v5", "linux/arm/v6"}, {"linux/arm/v6", "linux/arm/v7", ""},
	} {
		parse := func(s string) platform {
			p, err := v1.ParsePlatform(s)
			if err != nil {
				t.Fatal(err)
			}
			return *p
		}
		got := suits(parse(c.want), parse(c.have))
		if c.better == "" && got != 0 || c.better != "" && (got == 0 || suits(parse(c.want), parse(c.better)) <= got) {
			t.Errorf("%s on %s fits %d (better: %q)", c.have, c.want, got, c.better)
		}
	}
}

// TestSpoiltLayouts changes one thing in a good layout at a time.
func TestSpoiltLayouts(t *testing.T) {
	good := func(t *testing.T) (string, v1.Image) {
		img := imageOf(t, tarOf(t, entry{"a", "1"}), tarOf(t, entry{"b", "2"}))
		return layoutOf(t, filepath.Join(t.TempDir(), "layout"), map[string]v1.Image{"": img}), img
	}
	blob := func(dir, digest string) string {
		return filepath.Join(dir, "blobs/sha256", strings.TrimPrefix(digest, "sha256:"))
	}
	rewrite := func(t *testing.T, img v1.Image, change func(*v1.Manifest, *v1.ConfigFile)) string {
		m, err := img.Manifest()
		if err != nil {
			t.Fatal(err)
		}
		cf, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		m, cf = m.DeepCopy(), cf.DeepCopy()
		dir := layoutOf(t, filepath.Join(t.TempDir(), "layout"), map[string]v1.Image{"": img})
		change(m, cf)
		put := func(v any, mt types.MediaType) v1.Descriptor {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, blob(dir, hexSum(b)), b)
			return v1.Descriptor{MediaType: mt, Size: int64(len(b)), Digest: v1.Hash{Algorithm: "sha256", Hex: hexSum(b)}}
		}
		m.Config = put(cf, m.Config.MediaType)
		index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{put(m, types.OCIManifestSchema1)}}
		b, err := json.Marshal(index)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(dir, "index.json"), b)
		return dir
	}
	for what, spoil := range map[string]func(t *testing.T) string{
		"a layer with other content of the same length": func(t *testing.T) string {
			dir, img := good(t)
			m, _ := img.Manifest()
			p := blob(dir, m.Layers[1].Digest.Hex)
			b, _ := os.ReadFile(p)
			b[4] ^= 1 // the time in gzip's header: the tar inside is the same
			writeFile(t, p, b)
			return dir
		},
		"a layer that is longer": func(t *testing.T) string {
			dir, img := good(t)
			m, _ := img.Manifest()
			p := blob(dir, m.Layers[0].Digest.Hex)
			b, _ := os.ReadFile(p)
			writeFile(t, p, append(b, 0))
			return dir
		},
		"a layer that is absent": func(t *testing.T) string {
			dir, img := good(t)
			m, _ := img.Manifest()
			os.Remove(blob(dir, m.Layers[0].Digest.Hex))
			return dir
		},
		"a layer that is a pipe": func(t *testing.T) string {
			dir, img := good(t)
			m, _ := img.Manifest()
			p := blob(dir, m.Layers[0].Digest.Hex)
			os.Remove(p)
			if err := mkfifo(p); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"a layer that is a link to the outside": func(t *testing.T) string {
			dir, img := good(t)
			m, _ := img.Manifest()
			p := blob(dir, m.Layers[0].Digest.Hex)
			b, _ := os.ReadFile(p)
			os.Remove(p)
			if err := os.Symlink(writeFile(t, filepath.Join(t.TempDir(), "layer"), b), p); err != nil {
				t.Fatal(err)
			}
			return dir
		},
		"a manifest with other content": func(t *testing.T) string {
			dir, img := good(t)
			p := blob(dir, digestOf(t, img))
			b, _ := os.ReadFile(p)
			writeFile(t, p, bytes.Replace(b, []byte(`"schemaVersion":2`), []byte(`"schemaVersion":1`), 1))
			return dir
		},
		"an index of the wrong form": func(t *testing.T) string {
			dir, _ := good(t)
			writeFile(t, filepath.Join(dir, "index.json"), []byte(`{"manifests":7}`))
			return dir
		},
		"an index that is too long": func(t *testing.T) string {
			dir, _ := good(t)
			writeFile(t, filepath.Join(dir, "index.json"), make([]byte, maxManifest+1))
			return dir
		},
		"a wrong diff id": func(t *testing.T) string {
			_, img := good(t)
			return rewrite(t, img, func(_ *v1.Manifest, cf *v1.ConfigFile) { cf.RootFS.DiffIDs[0].Hex = strings.Repeat("0", 64) })
		},
		"fewer diff ids than layers": func(t *testing.T) string {
			_, img := good(t)
			return rewrite(t, img, func(_ *v1.Manifest, cf *v1.ConfigFile) { cf.RootFS.DiffIDs = cf.RootFS.DiffIDs[:1] })
		},
		"no layers": func(t *testing.T) string {
			_, img := good(t)
			return rewrite(t, img, func(m *v1.Manifest, cf *v1.ConfigFile) { m.Layers, cf.RootFS.DiffIDs = nil, nil })
		},
		"a layer of another type": func(t *testing.T) string {
			_, img := good(t)
			return rewrite(t, img, func(m *v1.Manifest, _ *v1.ConfigFile) { m.Layers[0].MediaType += "+encrypted" })
		},
		"an environment without names": func(t *testing.T) string {
			_, img := good(t)
			return rewrite(t, img, func(_ *v1.Manifest, cf *v1.ConfigFile) { cf.Config.Env = []string{"=x"} })
		},
		"a NUL in the command": func(t *testing.T) string {
			_, img := good(t)
			return rewrite(t, img, func(_ *v1.Manifest, cf *v1.ConfigFile) { cf.Config.Cmd = []string{"a\x00b"} })
		},
		"an image for another machine": func(t *testing.T) string {
			_, img := good(t)
			return rewrite(t, img, func(_ *v1.Manifest, cf *v1.ConfigFile) { cf.Architecture = "mips" })
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := openStore(t, filepath.Join(t.TempDir(), "store"))
			_, err := s.Prepare(context.Background(), spoil(t))
			wantCode(t, err, bailey.CodeImageInvalid)
			wantClean(t, s.dir)
			if images, _ := os.ReadDir(filepath.Join(s.dir, "images")); len(images) > 0 {
				t.Errorf("an image was recorded: %v", images)
			}
		})
	}
	t.Run("indexes nested too deep", func(t *testing.T) {
		dir, _ := good(t)
		index, err := os.ReadFile(filepath.Join(dir, "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		for range maxIndexDepth + 1 {
			writeFile(t, blob(dir, hexSum(index)), index)
			d := v1.Descriptor{MediaType: types.OCIImageIndex, Size: int64(len(index)), Digest: v1.Hash{Algorithm: "sha256", Hex: hexSum(index)}}
			if index, err = json.Marshal(v1.IndexManifest{SchemaVersion: 2, Manifests: []v1.Descriptor{d}}); err != nil {
				t.Fatal(err)
			}
		}
		writeFile(t, filepath.Join(dir, "index.json"), index)
		_, err = openStore(t, filepath.Join(t.TempDir(), "store")).Prepare(context.Background(), dir)
		wantCode(t, err, bailey.CodeImageInvalid)
	})
	t.Run("more layers than can be stacked", func(t *testing.T) {
		img := v1.Image(empty.Image)
		var adds []mutate.Addendum
		for i := range maxLayers + 1 {
			adds = append(adds, mutate.Addendum{Layer: static.NewLayer([]byte(fmt.Sprint(i)), types.OCIUncompressedLayer)})
		}
		img, err := mutate.Append(img, adds...)
		if err != nil {
			t.Fatal(err)
		}
		img = configured(t, img, thisMachine(), v1.Config{})
		_, err = openStore(t, filepath.Join(t.TempDir(), "store")).Prepare(context.Background(), layoutOf(t, filepath.Join(t.TempDir(), "layout"), map[string]v1.Image{"": img}))
		wantCode(t, err, bailey.CodeImageInvalid)
	})
}
