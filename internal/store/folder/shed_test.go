package folder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What was shed is out of the run at once, and Sweep ends what death interrupted.
func TestShed(t *testing.T) {
	f := open(t)
	r := create(t, f)
	path := filepath.Join(r.Dir(), "scratch")
	if err := os.MkdirAll(filepath.Join(path, "home/deep"), 0o700); err != nil {
		t.Fatal(err)
	}
	gone, moved := r.Shed(path)
	if _, err := os.Lstat(path); !moved || err == nil {
		t.Fatal("it is still there", moved)
	}
	if !strings.HasPrefix(filepath.Base(gone), gonePrefix) || filepath.Dir(gone) != filepath.Dir(r.Dir()) {
		t.Fatal(gone)
	}
	if list, err := f.List(); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if n, err := f.Sweep(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := RemoveTree(gone); err != nil {
		t.Error("removing what Sweep has removed:", err)
	}
	if same, moved := r.Shed(path); moved || same != path {
		t.Error("what is not there was moved:", same)
	}
	if gone, err := r.Leave(); err != nil || RemoveTree(gone) != nil {
		t.Fatal(gone, err)
	}
	if _, err := r.Leave(); err == nil {
		t.Error("a run was left without its lock")
	}
	if left, _ := filepath.Glob(filepath.Join(f.Path(), "runs", ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
