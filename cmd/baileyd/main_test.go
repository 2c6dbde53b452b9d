package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// asBaileyd makes the test binary be the real program: a process of its own,
// with its own locks, that can be killed.
const asBaileyd = "BAILEYD_TEST_IS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asBaileyd) != "" {
		main()
	}
	code := m.Run()
	if servedDir != "" {
		os.RemoveAll(servedDir)
	}
	os.Exit(code)
}

func baileyd(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Env = append(os.Environ(), asBaileyd+"=1")
	return cmd
}

func TestItPrintsOneLineThatAReaderAccepts(t *testing.T) {
	base := t.TempDir()
	if err := os.MkdirAll(filepath.Join(base, "root/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		out, err := baileyd("image", "prepare", "--json", "--store", filepath.Join(base, "store"), filepath.Join(base, "root")).Output()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Count(out, []byte("\n")) != 1 {
			t.Errorf("not one line: %q", out)
		}
		r, err := rootfs.Parse(out)
		if err != nil || r.Kind != rootfs.KindFolder {
			t.Errorf("%+v, %v", r, err)
		}
	}
	out, err := baileyd("image", "prepare", "--store", filepath.Join(base, "store"), filepath.Join(base, "root")).Output()
	if err != nil || !strings.Contains(string(out), "layer   "+filepath.Join(base, "root")) {
		t.Errorf("for people: %q, %v", out, err)
	}
}

func TestWhatItCannotDo(t *testing.T) {
	base := t.TempDir()
	store := filepath.Join(base, "store")
	for what, c := range map[string]struct {
		args []string
		code bailey.Code // "" for the usage text
	}{
		"nothing":             {nil, ""},
		"an unknown word":     {[]string{"fly"}, ""},
		"half a command":      {[]string{"image"}, ""},
		"an unknown command":  {[]string{"image", "fly"}, ""},
		"an unknown flag":     {[]string{"image", "prepare", "--json", "--colour"}, bailey.CodeUsage},
		"no store":            {[]string{"image", "prepare", "--json", "host"}, bailey.CodeUsage},
		"two sources":         {[]string{"image", "prepare", "--json", "--store", store, "a", "b"}, bailey.CodeUsage},
		"a source not there":  {[]string{"image", "prepare", "--json", "--store", store, filepath.Join(base, "no")}, bailey.CodeNotFound},
		"a store not ours":    {[]string{"image", "prepare", "--json", "--store", "/proc/x", base}, bailey.CodeStorage},
		"a limit that is nil": {[]string{"image", "prepare", "--json", "--store", store, "--max-bytes", "0", os.Args[0]}, bailey.CodeUsage},
	} {
		t.Run(what, func(t *testing.T) {
			cmd := baileyd(c.args...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run() // its exit code is looked at
			if cmd.ProcessState.ExitCode() != bailey.ExitBailey || out.Len() > 0 {
				t.Errorf("exit code %d, output %q", cmd.ProcessState.ExitCode(), &out)
			}
			if c.code == "" {
				if !strings.HasPrefix(errs.String(), "Usage: baileyd") {
					t.Errorf("no usage: %s", &errs)
				}
				return
			}
			var e bailey.Error
			if err := json.Unmarshal(errs.Bytes(), &e); err != nil || e.Code != c.code || e.What == "" || e.Why == "" {
				t.Errorf("%s: %v, want code %s", &errs, err, c.code)
			}
		})
	}
}

// sources makes images in every wrapping that takes another path through the
// program, all with the same layers, and gives their folders.
func sources(t *testing.T, base string) (all []string, layers []string) {
	t.Helper()
	img := v1.Image(empty.Image)
	for i := range 3 {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for j := range 120 {
			body := strings.Repeat(fmt.Sprint(i, j, " "), j*20)
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("d%d/e%d/f%d", i, j%9, j), Mode: 0o644, Size: int64(len(body))}); err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(w, body); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("d%d/.wh.f", i-1)}); err != nil {
			t.Fatal(err)
		}
		w.Close()
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
		if err != nil {
			t.Fatal(err)
		}
		if img, err = mutate.AppendLayers(img, l); err != nil {
			t.Fatal(err)
		}
		d, err := l.DiffID()
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, d.Hex)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.OS, cf.Architecture = "linux", runtime.GOARCH
	if img, err = mutate.ConfigFile(img, cf); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(base, "layout")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(img); err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag("example.test/a:b")
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(base, "docker.tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	if err := tarball.Write(tag, img, z); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return []string{dir, f.Name()}, layers
}

// tree describes names, types, modes and contents below dir.
func tree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %v", strings.TrimPrefix(p, dir), i.Mode())
		if d.Type().IsRegular() {
			c, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %d %q", i.ModTime().Unix(), c)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// killedAtWork starts the program and kills it so long after its store has
// appeared. False is that it ended by itself before.
func killedAtWork(t *testing.T, cmd *exec.Cmd, store string, after time.Duration) bool {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // killed or not, both are fine
		close(ended)
	}()
	over := func(d time.Duration) bool {
		select {
		case <-ended:
			return true
		case <-time.After(d):
			return false
		}
	}
	for !over(100 * time.Microsecond) {
		if _, err := os.Lstat(store); err == nil {
			over(after)
			break
		}
	}
	_ = cmd.Process.Kill() // it may have ended
	<-ended
	ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && ws.Signaled()
}

// TestKilledAtAnyMomentItLeavesNothing kills the program with SIGKILL while it
// prepares, and looks at what the next one finds and leaves.
func TestKilledAtAnyMomentItLeavesNothing(t *testing.T) {
	base := t.TempDir()
	all, layers := sources(t, base)
	for _, source := range all {
		t.Run(filepath.Base(source), func(t *testing.T) {
			good := filepath.Join(t.TempDir(), "good")
			began := time.Now()
			if out, err := baileyd("image", "prepare", "--json", "--store", good, source).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			span := time.Since(began) // of its work, in which it is killed; shorter when that comes too late
			want := map[string]string{}
			for _, l := range layers {
				want[l] = tree(t, filepath.Join(good, "layers", l, "fs"))
			}
			r := rand.New(rand.NewPCG(uint64(len(source)), 3))
			const rounds = 12
			killed, late, leftovers := 0, 0, 0
			for i := 0; killed < rounds; i++ {
				if late > 100 {
					t.Fatalf("killed %d times only: it was always quicker", killed)
				}
				store := filepath.Join(t.TempDir(), "store")
				if killedAtWork(t, baileyd("image", "prepare", "--json", "--store", store, source), store, time.Duration(r.Int64N(int64(span)))) {
					killed++
				} else {
					late++
					span = max(span*3/4, time.Millisecond)
				}
				// Even before anybody cleans up, what bears a layer's name is whole.
				made, _ := filepath.Glob(filepath.Join(store, "layers/*"))
				for _, l := range made {
					if tree(t, filepath.Join(l, "fs")) != want[filepath.Base(l)] {
						t.Errorf("round %d: layer %s is not whole", i, filepath.Base(l))
					}
				}
				if left, _ := filepath.Glob(filepath.Join(store, "tmp/*")); len(left) > 0 {
					leftovers++
				}
				out, err := baileyd("image", "prepare", "--json", "--store", store, source).Output()
				if err != nil {
					t.Fatalf("round %d: after the kill: %v", i, err)
				}
				root, err := rootfs.Parse(out)
				if err != nil {
					t.Fatal(err)
				}
				for _, l := range root.Layers {
					if id := filepath.Base(filepath.Dir(l)); want[id] != "" && tree(t, l) != want[id] {
						t.Errorf("round %d: layer %s differs after the kill", i, id)
					}
				}
				if left, _ := filepath.Glob(filepath.Join(store, "tmp/*")); len(left) > 0 {
					t.Errorf("round %d: left behind: %q", i, left)
				}
			}
			t.Logf("killed %d times, %d of them with something half-made, and %d times too late", killed, leftovers, late)
			if leftovers == 0 {
				t.Error("nothing was ever half-made: nothing has been tested")
			}
		})
	}
}

func TestASignalEndsItCleanly(t *testing.T) {
	base := t.TempDir()
	img, err := random.Image(1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := layout.Write(filepath.Join(base, "layout"), mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: img,
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	code := run(ctx, []string{"image", "prepare", "--json", "--store", filepath.Join(base, "store"), filepath.Join(base, "layout")}, &out, &errs)
	var e bailey.Error
	if err := json.Unmarshal(errs.Bytes(), &e); code != bailey.ExitBailey || err != nil || !strings.Contains(e.Why, "interrupted") || out.Len() > 0 {
		t.Errorf("code %d, %q, %q", code, &out, &errs)
	}
	if left, _ := filepath.Glob(filepath.Join(base, "store/tmp/*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
