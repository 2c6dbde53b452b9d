package changes

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

func init() {
	acts["delete theirs"] = func(dir string) error { return os.Remove(filepath.Join(dir, "theirs")) }
	acts["close"] = func(dir string) error {
		in := func(name string) string { return filepath.Join(dir, name) }
		for _, step := range []func() error{
			func() error { return os.WriteFile(in("old"), []byte("inside\n"), 0o644) },
			func() error { return os.Chmod(in("old"), 0o200) },
			func() error { return os.WriteFile(in("new"), []byte("secret\n"), 0) },
			func() error { return os.MkdirAll(in("d/e"), 0o755) },
			func() error { return os.WriteFile(in("d/e/f"), []byte("deep\n"), 0o600) },
			func() error { return os.Chmod(in("d/e/f"), 0) },
			func() error { return os.Chmod(in("d/e"), 0o400) },
			func() error { return os.Chmod(in("d"), 0) },
		} {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	}
}

// What a sandbox closes to the user it runs as is seen, shown and applied all
// the same, and stays closed.
func TestClosedFiles(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, opts workspace.Options) {
		ws := filepath.Join(dir, "ws")
		put(t, filepath.Join(ws, "old"), "base\n")
		s := start(t, ws, opts)
		s.do("close")
		set := s.end()
		same(t, lines(set), []string{"added d folder", "added d/e folder", "added d/e/f file", "added new file", "modified old content mode"})
		var b bytes.Buffer
		for range 2 { // looking changes nothing
			b.Reset()
			must(t, Diff(context.Background(), s.run, set, &b, DiffOptions{}))
		}
		for _, want := range []string{"+deep", "+secret", "+inside"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("the diff lacks %q:\n%s", want, b.String())
			}
		}
		layer := workspace.Layer(s.run.Dir(), s.run.Record.Roots[0])
		for name, mode := range map[string]uint32{"old": 0o200, "new": 0, "d": 0} {
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(layer, name), &st))
			if st.Mode&0o777 != mode {
				t.Errorf("%s has mode %o in the layer, not %o", name, st.Mode&0o777, mode)
			}
		}
		r, err := Apply(context.Background(), s.run, set, ApplyOptions{})
		clean(t, r, err)
		for name, want := range map[string]os.FileMode{"d": 0, "new": 0, "old": 0o200} {
			fi, err := os.Lstat(filepath.Join(ws, name))
			must(t, err)
			if fi.Mode().Perm() != want {
				t.Errorf("%s has mode %v on the host, not %v", name, fi.Mode().Perm(), want)
			}
		}
		must(t, os.Chmod(filepath.Join(ws, "d"), 0o755))
		must(t, os.Chmod(filepath.Join(ws, "d/e"), 0o755))
		must(t, os.Chmod(filepath.Join(ws, "d/e/f"), 0o600))
		if data, err := os.ReadFile(filepath.Join(ws, "d/e/f")); err != nil || string(data) != "deep\n" {
			t.Errorf("%q %v", data, err)
		}
	})
}

// A file of somebody else's that this user may delete and not read.
func TestUnreadableFileIsDeleted(t *testing.T) {
	ws := os.Getenv(envForeign)
	if ws == "" {
		testneeds.Root(t, "a file of somebody else has to be there first")
		testneeds.Part(t, "TestAsUser")
	}
	s := start(t, ws, workspace.Options{})
	s.do("delete theirs")
	set := s.end()
	same(t, lines(set), []string{"deleted theirs file binary"})
	must(t, Diff(context.Background(), s.run, set, &bytes.Buffer{}, DiffOptions{}))
	r, err := Apply(context.Background(), s.run, set, ApplyOptions{})
	clean(t, r, err)
	if _, err := os.Lstat(filepath.Join(ws, "theirs")); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	r, err = Revert(context.Background(), s.run)
	clean(t, r, err)
	if fi, err := os.Lstat(filepath.Join(ws, "theirs")); err != nil || fi.Size() != 7 {
		t.Errorf("it is not back: %v", err)
	}
}
