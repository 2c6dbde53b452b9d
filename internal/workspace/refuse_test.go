package workspace

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRealIsResolveExisting: asking about many paths at once gives what asking
// about each gives, whatever lies on the way.
func TestRealIsResolveExisting(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(top, "a/b/c"), 0o755))
	must(t, os.WriteFile(filepath.Join(top, "file"), nil, 0o644))
	for name, text := range map[string]string{"rel": "a/b", "abs": filepath.Join(top, "a"), "two": "rel/c", "up": "a/../abs", "gone": "nowhere/x",
		"loop": "loop", "a/b/back": "../../rel", "onfile": "file/x"} {
		must(t, os.Symlink(text, filepath.Join(top, name)))
	}
	known := real{}
	for _, first := range []string{"", "a", "a/b", "rel", "abs", "two", "up", "gone", "loop", "a/b/back", "file", "onfile", "none"} {
		for _, rest := range []string{"", "b", "c", "b/c", "back", "back/c", "none/deeper", "../a", "b/back/back"} {
			p := filepath.Join(top, first, rest)
			if got, want := known.resolve(p), resolveExisting(p); got != want {
				t.Errorf("%s is %s, not %s", p, got, want)
			}
		}
	}
	for _, p := range []string{"/", ".", "/bin/sh", "/var/run", "/etc/mtab", "/nonexistent/x"} {
		if got, want := known.resolve(p), resolveExisting(p); got != want {
			t.Errorf("%s is %s, not %s", p, got, want)
		}
	}
}
