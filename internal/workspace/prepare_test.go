package workspace

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// onEachFS runs the test on the temporary folder's file system, on tmpfs,
// and on xfs and btrfs images.
func onEachFS(t *testing.T, test func(t *testing.T, dir string)) {
	t.Run("temp", func(t *testing.T) { test(t, t.TempDir()) })
	for _, fs := range []string{"tmpfs", "xfs", "btrfs"} {
		t.Run(fs, func(t *testing.T) {
			if os.Geteuid() != 0 {
				t.Skip("needs root: mounting")
			}
			dir := filepath.Join(t.TempDir(), "m")
			os.Mkdir(dir, 0o755)
			if fs == "tmpfs" {
				if err := unix.Mount("none", dir, "tmpfs", 0, "size=256m"); err != nil {
					t.Fatal(err)
				}
			} else {
				mkfs, err := exec.LookPath("mkfs." + fs)
				if err != nil {
					t.Skip("needs tool mkfs." + fs)
				}
				img := filepath.Join(t.TempDir(), "img")
				os.WriteFile(img, nil, 0o600)
				if err := os.Truncate(img, 400<<20); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command(mkfs, "-q", img).CombinedOutput(); err != nil {
					t.Fatalf("%v %s", err, out)
				}
				if out, err := exec.Command("mount", "-o", "loop", img, dir).CombinedOutput(); err != nil {
					t.Skipf("needs host mount-%s: %s", fs, out)
				}
			}
			t.Cleanup(func() {
				if err := unix.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			})
			test(t, dir)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// zoo fills dir with one of everything.
func zoo(t *testing.T, dir string) {
	t.Helper()
	old := time.Unix(1000000000, 123456789)
	must(t, os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "a", "z"), bytes.Repeat([]byte("content\n"), 100000), 0o640))
	must(t, os.WriteFile(filepath.Join(dir, "a-b"), nil, 0o444))
	must(t, os.WriteFile(filepath.Join(dir, "setuid"), []byte("x"), 0o755))
	must(t, os.Chmod(filepath.Join(dir, "setuid"), 0o755|os.ModeSetuid))
	must(t, os.WriteFile(filepath.Join(dir, "-odd \n\x1b\xff'\"*"), []byte("odd"), 0o600))
	must(t, os.Link(filepath.Join(dir, "a", "z"), filepath.Join(dir, "a", "b", "hard")))
	must(t, os.Symlink("../nowhere", filepath.Join(dir, "a", "dangling")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out")))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o620))
	f, err := os.Create(filepath.Join(dir, "sparse"))
	must(t, err)
	_, err = f.WriteAt([]byte("in the middle"), 32<<20)
	must(t, err)
	must(t, f.Truncate(64<<20))
	must(t, f.Close())
	if err := unix.Setxattr(filepath.Join(dir, "a", "z"), "user.note", []byte("v\x00w"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	if err := unix.Setxattr(dir, "user.root", []byte("r"), 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		must(t, os.Lchown(filepath.Join(dir, "a", "dangling"), 1234, 5678))
		must(t, os.Chown(filepath.Join(dir, "a", "b"), 1234, 5678))
	}
	must(t, os.Chmod(filepath.Join(dir, "a", "b"), 0o2775|os.ModeSetgid))
	for _, p := range []string{"a/z", "a/b", "a", "fifo", "."} {
		must(t, os.Chtimes(filepath.Join(dir, p), old, old))
	}
}

type shape struct {
	mode     uint32
	uid, gid uint32
	nlink    uint64
	size     int64
	mtime    unix.Timespec
	target   string
	content  string
	xattrs   uint64
}

func shapes(t *testing.T, dir string) map[string]shape {
	t.Helper()
	all := map[string]shape{}
	must(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Lstat(p, &st))
		s := shape{mode: st.Mode, uid: st.Uid, gid: st.Gid, mtime: st.Mtim}
		x, err := Xattrs(p)
		must(t, err)
		s.xattrs = HashXattrs(x)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			b, err := os.ReadFile(p)
			must(t, err)
			s.content, s.size, s.nlink = string(b), st.Size, uint64(st.Nlink)
		case unix.S_IFLNK:
			s.target, err = os.Readlink(p)
			must(t, err)
		}
		rel, _ := filepath.Rel(dir, p)
		all[rel] = s
		return nil
	}))
	return all
}

func TestCopy(t *testing.T) {
	onEachFS(t, func(t *testing.T, dir string) {
		ws := filepath.Join(dir, "ws")
		must(t, os.Mkdir(ws, 0o751))
		zoo(t, ws)
		data := filepath.Join(dir, "data")
		must(t, os.Mkdir(data, 0o700))
		p, err := New(ws, Options{DataFolder: data, ForceCopy: true})
		must(t, err)
		must(t, p.Prepare(context.Background(), data))
		want, got := shapes(t, ws), shapes(t, Tree(data, p.Roots[0]))
		for name, w := range want {
			g, ok := got[name]
			if !ok {
				t.Errorf("%q is missing", name)
			} else if g != w {
				g.content, w.content = "", ""
				t.Errorf("%q differs: %+v, want %+v", name, g, w)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%d entries, want %d", len(got), len(want))
		}
		var st unix.Stat_t
		must(t, unix.Stat(filepath.Join(Tree(data, p.Roots[0]), "sparse"), &st))
		if st.Blocks*512 > 1<<20 {
			t.Errorf("the sparse file takes %d bytes", st.Blocks*512)
		}
		m, err := OpenManifest(filepath.Join(data, p.Roots[0].Layer))
		must(t, err)
		defer m.Close()
		n, last := 0, ""
		for {
			e, err := m.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			if n > 0 && ComparePaths(last, e.Path) >= 0 {
				t.Errorf("%q comes after %q", e.Path, last)
			}
			last = e.Path
			n++
		}
		if n != len(want) {
			t.Errorf("the manifest has %d entries, want %d", n, len(want))
		}
	})
}

func TestPrepareOverlay(t *testing.T) {
	onEachFS(t, func(t *testing.T, dir string) {
		ws := filepath.Join(dir, "ws")
		must(t, os.Mkdir(ws, 0o751))
		zoo(t, ws)
		data := filepath.Join(dir, "data")
		must(t, os.Mkdir(data, 0o700))
		p, err := New(ws, Options{DataFolder: data})
		must(t, err)
		if p.Roots[0].Mode != folder.ModeOverlay {
			t.Skipf("needs host overlay: %s", p.Roots[0].Why)
		}
		must(t, p.Prepare(context.Background(), data))
		if got, want := shapes(t, Upper(data, p.Roots[0]))["."], shapes(t, ws)["."]; got != want {
			t.Errorf("the upper's root is %+v, want %+v", got, want)
		}
		if fi, err := os.Stat(Work(data, p.Roots[0])); err != nil || !fi.IsDir() {
			t.Error(err)
		}
	})
}

func TestCopyRefuses(t *testing.T) {
	try := func(name string, limit int64, make func(t *testing.T, dir string), reason string) {
		t.Run(name, func(t *testing.T) {
			ws, data := t.TempDir(), t.TempDir()
			make(t, ws)
			p, err := New(ws, Options{DataFolder: data, ForceCopy: true, CopyLimit: limit})
			must(t, err)
			err = p.Prepare(context.Background(), data)
			wantCode(t, err, bailey.CodeWorkspaceRefused)
			if !strings.Contains(err.Error(), reason) {
				t.Errorf("%v does not say %q", err, reason)
			}
			if _, err := os.Stat(filepath.Join(data, "layers/0/tree")); err == nil {
				t.Error("part of a copy was made")
			}
		})
	}
	try("too large", 4096, func(t *testing.T, dir string) {
		must(t, os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte("x"), 100000), 0o644))
	}, "limit of 4096")
	try("socket", 0, func(t *testing.T, dir string) {
		l, err := net.Listen("unix", filepath.Join(dir, "s"))
		must(t, err)
		t.Cleanup(func() { l.Close() })
	}, "socket")
	try("too deep", 0, func(t *testing.T, dir string) {
		must(t, os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", maxCopyDepth+2)), 0o755))
	}, "deep")
	if os.Geteuid() != 0 {
		t.Skip("needs root: device nodes and mounts")
	}
	try("device", 0, func(t *testing.T, dir string) {
		must(t, unix.Mknod(filepath.Join(dir, "null"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	}, "device")
	try("proc", 0, func(t *testing.T, dir string) {
		sub := filepath.Join(dir, "proc")
		must(t, os.Mkdir(sub, 0o755))
		must(t, unix.Mount("proc", sub, "proc", 0, ""))
		t.Cleanup(func() { unix.Unmount(sub, unix.MNT_DETACH) })
	}, "proc")
}

func TestCopyAcrossMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounting")
	}
	ws, data := t.TempDir(), t.TempDir()
	sub := filepath.Join(ws, "sub")
	must(t, os.Mkdir(sub, 0o755))
	must(t, unix.Mount("none", sub, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { unix.Unmount(sub, unix.MNT_DETACH) })
	must(t, os.WriteFile(filepath.Join(sub, "f"), []byte("x"), 0o644))
	p, err := New(ws, Options{DataFolder: data})
	must(t, err)
	must(t, p.Prepare(context.Background(), data))
	if b, err := os.ReadFile(filepath.Join(Tree(data, p.Roots[0]), "sub", "f")); err != nil || string(b) != "x" {
		t.Fatal(string(b), err)
	}
}

func TestPrepareNoticesReplacement(t *testing.T) {
	base, data := t.TempDir(), t.TempDir()
	ws := filepath.Join(base, "ws")
	must(t, os.Mkdir(ws, 0o755))
	p, err := New(ws, Options{DataFolder: data})
	must(t, err)
	must(t, os.Rename(ws, filepath.Join(base, "was")))
	must(t, os.Mkdir(ws, 0o755))
	wantCode(t, p.Prepare(context.Background(), data), bailey.CodeWorkspaceRefused)
}

func TestCutManifest(t *testing.T) {
	ws, data := t.TempDir(), t.TempDir()
	for _, n := range []string{"a", "b", "c"} {
		must(t, os.WriteFile(filepath.Join(ws, n), nil, 0o644))
	}
	p, err := New(ws, Options{DataFolder: data, ForceCopy: true})
	must(t, err)
	must(t, p.Prepare(context.Background(), data))
	file := filepath.Join(data, "layers/0", ManifestName)
	whole, err := os.ReadFile(file)
	must(t, err)
	for cut := range whole {
		must(t, os.WriteFile(file, whole[:cut], 0o600))
		m, err := OpenManifest(filepath.Dir(file))
		must(t, err)
		for err == nil {
			_, err = m.Next()
		}
		m.Close()
		if errors.Is(err, io.EOF) {
			t.Fatalf("a manifest cut at byte %d of %d was taken for whole", cut, len(whole))
		}
	}
}
