package layers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// volume mounts a file system of a kind and gives its folder.
func volume(t testing.TB, kind string) string {
	t.Helper()
	testneeds.Root(t, "mounts a file system")
	mkfs := testneeds.Tool(t, "mkfs."+kind)
	testneeds.Host(t, testneeds.MountOf(kind))
	dir := t.TempDir()
	img, at := dir+"/img", dir+"/at"
	must(t, os.WriteFile(img, nil, 0o600))
	must(t, os.Truncate(img, 400<<20))
	if out, err := exec.Command(mkfs, "-q", img).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	must(t, os.Mkdir(at, 0o755))
	if out, err := exec.Command("mount", "-o", "loop", img, at).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, 0); err != nil {
			t.Error(err)
		}
	})
	return at
}

// Where the file system can share blocks a capture takes none, and says so.
func TestReflink(t *testing.T) {
	for _, kind := range []string{"xfs", "btrfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			at := volume(t, kind)
			s := open(t, at)
			up := filepath.Join(at, "upper")
			must(t, os.MkdirAll(up, 0o755))
			must(t, os.WriteFile(up+"/big", make([]byte, 0), 0o644))
			f, err := os.OpenFile(up+"/big", os.O_WRONLY, 0)
			must(t, err)
			for i := range 64 {
				_, err := f.Write([]byte(fmt.Sprintf("%01048576d", i)))
				must(t, err)
			}
			must(t, f.Close())
			must(t, syncFS(at))
			before := room(t, at)
			l, err := s.Capture(ctx, "x", "", up, IDs{})
			must(t, err)
			must(t, syncFS(at))
			took := before - room(t, at)
			want, most := Reflinked, int64(16<<20)
			if kind == "ext4" {
				want, most = Copied, 80<<20
			}
			if l.Method != want || took > most || l.Bytes != 64<<20 {
				t.Errorf("method %s, %d bytes taken, %d told; want %s", l.Method, took, l.Bytes, want)
			}
			a := hashed(t, s, "x")
			must(t, os.WriteFile(up+"/big", []byte("changed"), 0o644))
			if ok, err := s.Verify(ctx, "x", true); !ok || err != nil {
				t.Errorf("after the original has changed: %v %v", ok, err)
			}
			other := open(t, tempDir(t))
			m, err := other.Capture(ctx, "y", "", l.Dir, IDs{})
			must(t, err)
			if m.Method != Copied || hashed(t, other, "y") != a {
				t.Errorf("to another file system: %+v", m)
			}
		})
	}
}

// An upper folder on another file system is copied and then taken away.
func TestSealAcrossFileSystems(t *testing.T) {
	at := volume(t, "ext4")
	s := open(t, tempDir(t))
	up := sample(t, at)
	_, err := s.Capture(ctx, "a", "", up, IDs{})
	must(t, err)
	l, err := s.Seal(ctx, "b", "", up, IDs{})
	must(t, err)
	if l.Method != Copied || hashed(t, s, "a") != hashed(t, s, "b") {
		t.Errorf("%+v", l)
	}
	if _, err := os.Lstat(up); !os.IsNotExist(err) {
		t.Errorf("the upper folder: %v", err)
	}
}

func room(t testing.TB, path string) int64 {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(path, &st))
	return int64(st.Bfree) * st.Bsize
}

// files makes n small files in folders of a hundred.
func files(t testing.TB, up string, n int) {
	t.Helper()
	for i := range n {
		dir := fmt.Sprintf("%s/d%d", up, i/100)
		if i%100 == 0 {
			must(t, os.MkdirAll(dir, 0o755))
		}
		must(t, os.WriteFile(fmt.Sprintf("%s/f%d", dir, i), []byte("content"), 0o644))
	}
}

// What a snapshot costs against the number of files that were written.
func BenchmarkSeal(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			dir := tempDir(b)
			s := open(b, dir)
			up := filepath.Join(dir, "upper")
			must(b, os.Mkdir(up, 0o755))
			files(b, up, n)
			i := 0
			for b.Loop() {
				i++
				l, err := s.Seal(ctx, fmt.Sprintf("l%d", i), "", up, IDs{})
				must(b, err)
				b.StopTimer()
				must(b, os.Rename(l.Dir, up))
				b.StartTimer()
			}
		})
	}
}

func BenchmarkCaptureAndHash(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		dir := tempDir(b)
		s := open(b, dir)
		up := filepath.Join(dir, "upper")
		must(b, os.Mkdir(up, 0o755))
		files(b, up, n)
		i := 0
		for _, what := range []string{"capture", "hash", "verify"} {
			b.Run(fmt.Sprintf("%s/%d", what, n), func(b *testing.B) {
				for b.Loop() {
					i++
					id := fmt.Sprintf("l%d", i)
					if what == "capture" {
						_, err := s.Capture(ctx, id, "", up, IDs{})
						must(b, err)
						continue
					}
					l, err := s.Get("l1")
					must(b, err)
					if what == "hash" {
						must(b, s.compute(ctx, &l))
						s.mu.Lock()
						s.known["l1"].Hash = l.Hash
						s.mu.Unlock()
						continue
					}
					_, err = s.Verify(ctx, "l1", false)
					must(b, err)
				}
			})
		}
	}
}
