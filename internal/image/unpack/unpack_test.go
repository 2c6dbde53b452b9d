package unpack_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"golang.org/x/sys/unix"
)

// item is one entry of a tar that a test writes.
type item struct {
	tar.Header
	body string
}

func file(name, body string) item {
	return item{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, body}
}
func dir(name string, mode int64) item {
	return item{tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: mode}, ""}
}
func link(name, to string) item {
	return item{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to, Mode: 0o777}, ""}
}
func hard(name, to string) item {
	return item{tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: to, Mode: 0o644}, ""}
}
func device(name string, kind byte, major, minor int64) item {
	return item{tar.Header{Typeflag: kind, Name: name, Mode: 0o666, Devmajor: major, Devminor: minor}, ""}
}
func (i item) with(change func(*tar.Header)) item { change(&i.Header); return i }
func (i item) xattr(name, value string) item {
	return i.with(func(h *tar.Header) {
		h.Format = tar.FormatPAX
		h.PAXRecords = map[string]string{"SCHILY.xattr." + name: value}
	})
}

func pack(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, i := range items {
		h := i.Header
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(i.body))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatalf("write the header of %q: %v", h.Name, err)
		}
		if _, err := io.WriteString(w, i.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// ids is how layers are stored by whoever runs the test.
func ids() rootfs.IDs {
	if os.Geteuid() == 0 {
		return rootfs.IDsHost
	}
	return rootfs.IDsSingle
}

func opaqueName() string {
	if ids() == rootfs.IDsHost {
		return "trusted.overlay.opaque"
	}
	return "user.overlay.opaque"
}

// unpackInto unpacks a layer into a new folder root below base.
func unpackInto(t testing.TB, base string, layer []byte, limits unpack.Limits) (unpack.Result, string, error) {
	t.Helper()
	root := filepath.Join(base, "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s, err := unpack.NewStream(context.Background(), bytes.NewReader(layer), limits)
	if err != nil {
		return unpack.Result{}, root, err
	}
	defer s.Close()
	var owners bytes.Buffer
	r, err := unpack.Layer(s, d, unpack.Options{IDs: ids(), Limits: limits, Owners: &owners})
	return r, root, err
}

// snapshot describes every file below dir but those below skip: type, mode,
// owner, link count, content.
func snapshot(t testing.TB, dir, skip string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == skip {
			return fs.SkipDir
		}
		var st unix.Stat_t
		if err := unix.Lstat(p, &st); err != nil {
			return err
		}
		what := ""
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			what = fmt.Sprintf("%x", sha256.Sum256(b))
		case unix.S_IFLNK:
			what, _ = os.Readlink(p)
		}
		nlink := st.Nlink
		if d.IsDir() {
			nlink = 0
		}
		lines = append(lines, fmt.Sprintf("%s %o %d:%d %d %s", p, st.Mode, st.Uid, st.Gid, nlink, what))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// TestAsOrdinaryUser runs this package's other tests once more as uid 65534.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: becoming another user; the other tests run as this one")
	}
	tmp, err := os.MkdirTemp("", "bailey-unpack-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Chown(tmp, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	// The test binary may lie where only root can go.
	bin := filepath.Join(tmp, "unpack.test")
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
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestAttacks")) {
		t.Errorf("as uid 65534: %v\n%s", err, out)
	}
}

func TestRemoveAllTakesWhatNobodyMayEnter(t *testing.T) {
	base := t.TempDir()
	deep := filepath.Join(base, "x/a/b/c")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, "f"), nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, "kept"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(base, "kept"), filepath.Join(base, "x/a/link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base, filepath.Join(base, "x/a/dirlink")); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"x/a/b/c", "x/a/b", "x/a", "x"} {
		if err := os.Chmod(filepath.Join(base, d), 0); err != nil {
			t.Fatal(err)
		}
	}
	d, err := os.Open(base)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unpack.RemoveAll(d, "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(base, "x")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(base, "kept")); err != nil {
		t.Errorf("what a link led to is gone: %v", err)
	}
	if err := unpack.RemoveAll(d, "x"); err != nil {
		t.Errorf("removing nothing: %v", err)
	}
}
