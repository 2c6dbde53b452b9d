package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
)

func openStore(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, unpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func prepare(t testing.TB, s *Store, source string) rootfs.Root {
	t.Helper()
	r, err := s.Prepare(context.Background(), source)
	if err != nil {
		t.Fatalf("prepare %s: %v", source, err)
	}
	if err := r.Check(); err != nil {
		t.Fatalf("prepare %s: %v", source, err)
	}
	for _, l := range r.Layers {
		if st, err := os.Stat(l); err != nil || !st.IsDir() {
			t.Fatalf("layer %s: %v", l, err)
		}
	}
	return r
}

// entry is name -> content; a name that ends in / is a folder, a content that
// begins with -> a link.
type entry struct{ name, content string }

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: e.name, Mode: 0o644, Size: int64(len(e.content))}
		content := e.content
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag, h.Mode, h.Size, content = tar.TypeDir, 0o755, 0, ""
		} else if to, ok := strings.CutPrefix(e.content, "->"); ok {
			h.Typeflag, h.Linkname, h.Size, content = tar.TypeSymlink, to, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func writeFile(t testing.TB, path string, b []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func mkfifo(p string) error { return syscall.Mkfifo(p, 0o600) }

func hexSum(b []byte) string { s := sha256.Sum256(b); return hex.EncodeToString(s[:]) }

func wantCode(t *testing.T, err error, want bailey.Code) *bailey.Error {
	t.Helper()
	if bailey.CodeOf(err) != want {
		t.Fatalf("error %v, want one with code %s", err, want)
	}
	own, ok := err.(*bailey.Error)
	if !ok || own.What == "" || own.Why == "" {
		t.Fatalf("the error does not say what and why: %v", err)
	}
	return own
}

// wantClean fails when the store holds anything half-made.
func wantClean(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(filepath.Join(dir, "tmp")); err != nil || len(left) > 0 {
		t.Errorf("left in tmp: %v (%v)", left, err)
	}
	layers, err := os.ReadDir(filepath.Join(dir, "layers"))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if _, err := os.Stat(filepath.Join(dir, "layers", l.Name(), "layer.json")); err != nil {
			t.Errorf("layer without record: %v", err)
		}
	}
}

// TestAsOrdinaryUser runs this package's other tests once more as uid 65534.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: becoming another user; the other tests run as this one")
	}
	tmp, err := os.MkdirTemp("", "bailey-image-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chown(tmp, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(tmp, "image.test") // the test binary may lie where only root can go
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bin, self, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "-test.run=^Test", "-test.skip=^TestAsOrdinaryUser$", "-test.v")
	cmd.Dir, cmd.Env = tmp, append(os.Environ(), "TMPDIR="+tmp, "HOME="+tmp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestATarIsPreparedOnce")) {
		t.Errorf("as uid 65534: %v\n%s", err, out)
	}
}

func TestATarIsPreparedOnce(t *testing.T) {
	base := t.TempDir()
	layer := tarOf(t, entry{"bin/", ""}, entry{"bin/sh", "#!"}, entry{"etc/", ""}, entry{"etc/x", "->../bin/sh"})
	src := writeFile(t, filepath.Join(base, "root.tar"), layer)
	s := openStore(t, filepath.Join(base, "store"))
	first := prepare(t, s, src)
	if first.Reused || first.Kind != rootfs.KindTar || first.Digest != "sha256:"+hexSum(layer) || len(first.Layers) != 1 || first.IDs != s.ids {
		t.Errorf("first: %+v", first)
	}
	if b, err := os.ReadFile(filepath.Join(first.Layers[0], "bin/sh")); err != nil || string(b) != "#!" {
		t.Errorf("bin/sh holds %q (%v)", b, err)
	}
	second := prepare(t, openStore(t, s.dir), src)
	if !second.Reused || second.Digest != first.Digest || second.Layers[0] != first.Layers[0] {
		t.Errorf("second: %+v", second)
	}
	// The same size at the same place, with other content.
	other := bytes.Replace(layer, []byte("#!"), []byte("##"), 1)
	writeFile(t, src, other)
	if third := prepare(t, s, src); third.Reused || third.Digest != "sha256:"+hexSum(other) {
		t.Errorf("after a change: %+v", third)
	}
	wantClean(t, s.dir)
}

func TestATarThatLosesItsLayerIsUnpackedAgain(t *testing.T) {
	base := t.TempDir()
	src := writeFile(t, filepath.Join(base, "root.tar"), tarOf(t, entry{"f", "x"}))
	s := openStore(t, filepath.Join(base, "store"))
	first := prepare(t, s, src)
	if err := os.RemoveAll(filepath.Dir(first.Layers[0])); err != nil {
		t.Fatal(err)
	}
	if again := prepare(t, s, src); again.Reused || again.Layers[0] != first.Layers[0] {
		t.Errorf("again: %+v", again)
	}
}

func TestPreparesAtOnceMakeOneLayer(t *testing.T) {
	base := t.TempDir()
	var entries []entry
	for i := range 300 {
		entries = append(entries, entry{fmt.Sprintf("d%d/f%d", i%7, i), strings.Repeat("x", i*10)})
	}
	layer := tarOf(t, entries...)
	var wg sync.WaitGroup
	roots := make([]rootfs.Root, 12)
	errs := make([]error, len(roots))
	for i := range 3 {
		writeFile(t, filepath.Join(base, fmt.Sprint(i), "root.tar"), layer)
	}
	for i := range roots {
		src := filepath.Join(base, fmt.Sprint(i%3), "root.tar")
		wg.Go(func() {
			s, err := Open(filepath.Join(base, "store"), unpack.DefaultLimits)
			if err == nil {
				roots[i], err = s.Prepare(context.Background(), src)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	for i, r := range roots {
		if errs[i] != nil || r.Layers[0] != roots[0].Layers[0] {
			t.Errorf("%d: %+v, %v", i, r, errs[i])
		}
	}
	wantClean(t, filepath.Join(base, "store"))
}

func TestASweepTakesTheDeadAndLeavesTheLiving(t *testing.T) {
	s := openStore(t, filepath.Join(t.TempDir(), "store"))
	living, err := s.bench()
	if err != nil {
		t.Fatal(err)
	}
	defer living.remove()
	dead := filepath.Join(s.dir, "tmp/dead/fs/d")
	if err := os.MkdirAll(dead, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.dir, "tmp/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dead), 0); err != nil {
		t.Fatal(err)
	}
	openStore(t, s.dir)
	left, err := os.ReadDir(filepath.Join(s.dir, "tmp"))
	if err != nil || len(left) != 1 || left[0].Name() != living.name {
		t.Errorf("left %v (%v), want %s alone", left, err, living.name)
	}
}

func TestAStoreIsItsOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	openStore(t, dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	openStore(t, dir)
	if st, err := os.Stat(dir); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("mode %v (%v), want 0700", st.Mode(), err)
	}
	if os.Geteuid() != 0 {
		return
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, unpack.DefaultLimits)
	wantCode(t, err, bailey.CodeStorage)
}

func TestFoldersAreUsedInPlace(t *testing.T) {
	base := t.TempDir()
	s := openStore(t, filepath.Join(base, "store"))
	root := filepath.Join(base, "root")
	writeFile(t, filepath.Join(root, "bin/sh"), nil)
	r := prepare(t, s, root)
	real, _ := filepath.EvalSymlinks(root)
	if r.Kind != rootfs.KindFolder || len(r.Layers) != 1 || r.Layers[0] != real || r.Digest != "" {
		t.Errorf("%+v", r)
	}
	if err := os.Symlink("/", filepath.Join(base, "top")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(base, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for source, code := range map[string]bailey.Code{
		"/":                           bailey.CodeHostRootEquivalent,
		"/proc/self/root":             bailey.CodeHostRootEquivalent,
		filepath.Join(base, "top"):    bailey.CodeHostRootEquivalent,
		base:                          bailey.CodeUsage,
		s.dir:                         bailey.CodeUsage,
		root + ":name":                bailey.CodeUsage,
		filepath.Join(base, "empty"):  bailey.CodeImageInvalid,
		filepath.Join(base, "absent"): bailey.CodeNotFound,
		filepath.Join(base, "pipe"):   bailey.CodeUsage,
		"/dev/zero":                   bailey.CodeUsage,
		"a\x00b":                      bailey.CodeUsage,
		"debian:12":                   bailey.CodeNotFound,
	} {
		_, err := s.Prepare(context.Background(), source)
		if bailey.CodeOf(err) != code {
			t.Errorf("%q: error %v, want code %s", source, err, code)
		}
	}
}

func TestTarsThatAreNone(t *testing.T) {
	base := t.TempDir()
	s := openStore(t, filepath.Join(base, "store"))
	for name, content := range map[string][]byte{
		"empty": nil, "zeros": make([]byte, 4096), "text": bytes.Repeat([]byte("text\n"), 500),
		"cut": tarOf(t, entry{"f", strings.Repeat("x", 9000)})[:3000], "climbs": tarOf(t, entry{"a", ""}, entry{"../b", "x"}),
		"manifest": tarOf(t, entry{"manifest.json", "no"}), "layout": tarOf(t, entry{"oci-layout", "{}"}, entry{"index.json", "no"}),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Prepare(context.Background(), writeFile(t, filepath.Join(base, name), content))
			wantCode(t, err, bailey.CodeImageInvalid)
			wantClean(t, s.dir)
		})
	}
}
