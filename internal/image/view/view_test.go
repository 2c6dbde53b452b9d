package view

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// stack makes layers: "-" is a deletion, a slash at the end a folder, with "!" one
// that hides what is below, and "->" begins a link's text.
func stack(t *testing.T, layers ...map[string]string) *View {
	t.Helper()
	testneeds.Host(t, testneeds.UserXattr)
	base := t.TempDir()
	var dirs []string
	for i, l := range layers {
		dir := filepath.Join(base, string(rune('a'+i)), "fs")
		dirs = append(dirs, dir)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range l {
			p := filepath.Join(dir, name)
			err := os.MkdirAll(filepath.Dir(p), 0o755)
			if err == nil {
				switch link, ok := strings.CutPrefix(content, "->"); {
				case ok:
					err = os.Symlink(link, p)
				case content == "-":
					err = unix.Mknod(p, unix.S_IFCHR, 0)
				case strings.HasSuffix(name, "/"):
					if err = os.MkdirAll(p, 0o755); err == nil && content == "!" {
						err = unix.Setxattr(p, "user.overlay.opaque", []byte("y"), 0)
					}
				default:
					err = os.WriteFile(p, []byte(content), 0o644)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if i == 0 {
			if err := os.WriteFile(filepath.Join(filepath.Dir(dir), "owners"), []byte("7 8 \"d/x\"\nrubbish\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return New(dirs, rootfs.IDsSingle)
}

func TestLayersAreMerged(t *testing.T) {
	v := stack(t,
		map[string]string{"d/x": "1", "d/y": "1", "gone/z": "1", "was": "file", "full/old": "1", "out": "->../../../../../etc", "abs": "->/d", "loop": "->loop", "odd/": ""},
		map[string]string{"d/y": "2", "gone": "-", "was/in": "2", "full/": "!", "full/new": "2"},
		map[string]string{"d/x/": "", "odd": "a file now"},
	)
	for name, want := range map[string]string{"/d/y": "2", "/was/in": "2", "/full/new": "2", "/odd": "a file now", "/abs/y": "2", "/abs/../abs/y": "2"} {
		if got, err := v.ReadFile(name, 100); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	for _, name := range []string{"/gone", "/gone/z", "/full/old", "/odd/x", "/d/x/1", "/nothing"} {
		if _, err := v.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there (%v)", name, err)
		}
	}
	if e, err := v.Lstat("/d/x"); err != nil || !e.Mode.IsDir() {
		t.Errorf("a folder over a file: %+v, %v", e, err)
	}
	top, err := v.Lstat("/")
	if err != nil {
		t.Fatal(err)
	}
	list, err := v.ReadDir(top)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Path)
	}
	if want := []string{"/abs", "/d", "/full", "/loop", "/odd", "/out", "/was"}; !slices.Equal(names, want) {
		t.Errorf("listed %q", names)
	}
}

func TestNoLinkLeadsOut(t *testing.T) {
	v := stack(t, map[string]string{"out": "->../../../../../etc", "abs": "->/out/passwd", "loop": "->loop", "d/up": "->../../.."})
	for name, want := range map[string]string{"/out": "/etc", "/abs": "/etc/passwd", "/d/up": "/", "/d/up/../../x": "/x", "/../..": "/"} {
		if got, err := v.Resolve(name); err != nil || got != want {
			t.Errorf("%s leads to %q, %v", name, got, err)
		}
	}
	if _, err := v.Resolve("/loop"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a link to itself: %v", err)
	}
	if _, err := v.ReadFile("/abs", 1<<20); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the host's file was read: %v", err)
	}
}

func TestOwnersThatAreNotStored(t *testing.T) {
	v := stack(t, map[string]string{"d/x": "1", "d/y": "1"})
	if e, err := v.Lstat("/d/x"); err != nil || e.UID != 7 || e.GID != 8 {
		t.Errorf("%+v, %v", e, err)
	}
	if e, err := v.Lstat("/d/y"); err != nil || e.UID != 0 || e.GID != 0 {
		t.Errorf("%+v, %v", e, err)
	}
}
