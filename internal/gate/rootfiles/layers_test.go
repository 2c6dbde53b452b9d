package rootfiles

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLayersLookAsOverlayfs: what lies highest counts, marks hide what is below,
// and links stay inside.
func TestLayersLookAsOverlayfs(t *testing.T) {
	base := t.TempDir()
	low, high, usr := filepath.Join(base, "low"), filepath.Join(base, "high"), filepath.Join(base, "usr")
	write := func(root, name, text string) {
		t.Helper()
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(root, name, to string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(low, "etc/both", "low")
	write(high, "etc/both", "high")
	write(low, "etc/only", "low")
	write(low, "opaque/hidden", "low")
	write(high, "opaque/own", "high")
	write(low, "was/folder", "low")
	write(high, "was", "a file now")
	write(low, "jvm/a/cacerts", "a")
	write(high, "jvm/b/cacerts", "b")
	write(usr, "share/x", "bound")
	write(base, "outside", "of the host")
	link(low, "etc/absolute", "/etc/only")
	link(high, "etc/up", "../../../../etc/only")
	link(high, "certs", "etc")
	link(low, "bin", "usr/share")
	link(low, "loop", "loop")
	link(low, "escape", filepath.Join(base, "outside"))
	if err := os.MkdirAll(filepath.Join(low, "usr"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(filepath.Join(high, "opaque"), "user.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	l := layers{Root{Layers: []string{low, high}, Binds: []Bind{{Source: usr, Target: "/usr"}}}}
	for path, want := range map[string]string{
		"/etc/both": "high", "/etc/only": "low", "/etc/absolute": "low", "/etc/up": "low", "/certs/both": "high",
		"/opaque/own": "high", "/opaque/hidden": "", "/was": "a file now", "/was/folder": "", "/usr/share/x": "bound", "/bin/x": "bound",
		"/loop": "", "/escape": "", "/absent/x": "", "/etc": "", "/../etc/only": "low",
	} {
		text, err := l.read(path)
		if string(text) != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", path, text, err, want)
		}
	}
	for path, want := range map[string]string{
		"/certs/both": "/etc/both", "/certs/new/deep": "/etc/new/deep", "/etc/absolute": "/etc/only", "/bin/new": "/usr/share/new", "/none/x": "/none/x",
	} {
		if got := l.real(path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if got := l.glob("/jvm/*/cacerts"); !reflect.DeepEqual(got, []string{"/jvm/a/cacerts", "/jvm/b/cacerts"}) {
		t.Errorf("found %q", got)
	}
}
