package changes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

func TestQuarantine(t *testing.T) {
	base := t.TempDir()
	ws := filepath.Join(base, "ws")
	for _, n := range []string{"main.c", "Makefile", "package.json", ".git/config", ".git/hooks/update", "sub/Makefile", "gone/Makefile"} {
		put(t, filepath.Join(ws, n), "base\n")
	}
	data, err := folder.OpenAt(filepath.Join(base, "data"))
	must(t, err)
	plan, err := workspace.New(ws, workspace.Options{DataFolder: data.Path()})
	must(t, err)
	run, err := data.Create(folder.Record{Command: []string{"x"}})
	must(t, err)
	t.Cleanup(func() { run.Close() })
	named := func(_ int, p string) bool { return p == "package.json" }
	snap, err := SnapshotExecClass(ctx, run, plan.Roots, named)
	must(t, err)
	found, err := snap.FindNewExecClass(ctx, named)
	must(t, err)
	if len(found) != 0 {
		t.Fatal(found)
	}
	was := shape(t, ws)

	put(t, filepath.Join(ws, "main.c"), "written through\n")
	put(t, filepath.Join(ws, "package.json"), "named\n")
	put(t, filepath.Join(ws, "Makefile"), "evil\n")
	put(t, filepath.Join(ws, ".git/hooks/pre-commit"), "evil\n")
	must(t, os.Chmod(filepath.Join(ws, ".git/hooks/pre-commit"), 0o755))
	must(t, os.Remove(filepath.Join(ws, ".git/hooks/update")))
	must(t, os.Remove(filepath.Join(ws, "sub/Makefile")))
	must(t, os.Symlink("/etc/passwd", filepath.Join(ws, "sub/Makefile")))
	must(t, os.RemoveAll(filepath.Join(ws, "gone")))
	put(t, filepath.Join(ws, "new/.envrc"), "evil\n")

	found, err = snap.FindNewExecClass(ctx, named)
	must(t, err)
	var got []string
	for _, f := range found {
		got = append(got, string(f.Op)+" "+f.Path+" "+f.Class)
	}
	same(t, got, []string{"modified Makefile build", "added .git/hooks/pre-commit git_hook", "deleted .git/hooks/update git_hook",
		"modified sub/Makefile build", "added new/.envrc direnv", "deleted gone/Makefile build"})
	must(t, snap.Quarantine(ctx, found))
	must(t, snap.Close())

	now := shape(t, ws)
	for _, p := range []string{"Makefile", ".git/hooks/update", "sub/Makefile", ".git/config"} {
		if now[p] != was[p] {
			t.Errorf("%s is %s, was %s", p, now[p], was[p])
		}
	}
	for _, p := range []string{".git/hooks/pre-commit", "new/.envrc"} {
		if _, ok := now[p]; ok {
			t.Errorf("%s is still there", p)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(ws, "main.c")); string(b) != "written through\n" {
		t.Errorf("%q", b)
	}
	run.Record.State = folder.StateKept
	must(t, run.Save())
	set, err := Seal(ctx, run)
	must(t, err)
	same(t, lines(set), []string{"modified Makefile content !build", "added .git/hooks/pre-commit file !git_hook !executable", "deleted .git/hooks/update file",
		"modified sub/Makefile file>symlink !build !link_outside", "added new/.envrc file !direnv"})
	r, err := Apply(ctx, run, set, ApplyOptions{})
	clean(t, r, err)
	if b, _ := os.ReadFile(filepath.Join(ws, "Makefile")); string(b) != "evil\n" {
		t.Errorf("%q", b)
	}
}

// A command cannot keep what it made from being taken back by closing the
// folders around it, or by making one file impossible to reach.
func TestQuarantineOfWhatIsClosed(t *testing.T) {
	base := t.TempDir()
	ws := filepath.Join(base, "ws")
	for _, n := range []string{"a/Makefile", "b/deep/Makefile", "z.c"} {
		put(t, filepath.Join(ws, n), "base\n")
	}
	data, err := folder.OpenAt(filepath.Join(base, "data"))
	must(t, err)
	plan, err := workspace.New(ws, workspace.Options{DataFolder: data.Path()})
	must(t, err)
	run, err := data.Create(folder.Record{Command: []string{"x"}})
	must(t, err)
	t.Cleanup(func() { run.Close() })
	snap, err := SnapshotExecClass(ctx, run, plan.Roots, nil)
	must(t, err)
	was := shape(t, ws)

	put(t, filepath.Join(ws, "a/Makefile"), "evil\n")
	must(t, os.Remove(filepath.Join(ws, "b/deep/Makefile")))
	put(t, filepath.Join(ws, "c/.envrc"), "evil\n")
	put(t, filepath.Join(ws, "zz/package.json"), "evil\n")
	deep := filepath.Join(ws, "m"+strings.Repeat("/m", maxDepth+1))
	must(t, os.MkdirAll(deep, 0o755))
	modes := map[string]os.FileMode{"a": 0o555, "b/deep": 0o400, "b": 0, "c": 0}
	for _, n := range []string{"a", "b/deep", "b", "c"} {
		must(t, os.Chmod(filepath.Join(ws, n), modes[n]))
	}

	found, err := snap.FindNewExecClass(ctx, nil)
	if err == nil || !strings.Contains(err.Error(), "too deep") || strings.Contains(err.Error(), ", ") {
		t.Errorf("the folder that is too deep: %v", err)
	}
	var got []string
	for _, f := range found {
		got = append(got, string(f.Op)+" "+f.Path)
	}
	same(t, got, []string{"modified a/Makefile", "deleted b/deep/Makefile", "added c/.envrc", "added zz/package.json"})
	// One that cannot be taken back, in the middle: its folder has gone.
	missing := Found{Path: "nowhere/Makefile", Op: Added, Class: "build"}
	found = append(found[:2], append([]Found{missing}, found[2:]...)...)
	err = snap.Quarantine(ctx, found)
	if err == nil || !strings.Contains(err.Error(), "nowhere/Makefile") || strings.Contains(err.Error(), ", ") {
		t.Errorf("the file that cannot be taken back: %v", err)
	}
	// Going on after that finds nothing new to take back but what is missing.
	found, _ = snap.FindNewExecClass(ctx, nil)
	for _, f := range found {
		t.Errorf("found again: %s %s", f.Op, f.Path)
	}
	must(t, snap.Close())

	for n, mode := range modes {
		if n == "b/deep" {
			continue // b is closed
		}
		fi, err := os.Lstat(filepath.Join(ws, n))
		must(t, err)
		if fi.Mode().Perm() != mode {
			t.Errorf("%s has mode %v and had %v", n, fi.Mode().Perm(), mode)
		}
	}
	for _, n := range []string{"a", "b", "b/deep", "c"} {
		must(t, os.Chmod(filepath.Join(ws, n), 0o755))
	}
	now := shape(t, ws)
	for _, p := range []string{"a/Makefile", "b/deep/Makefile"} {
		if now[p] != was[p] {
			t.Errorf("%s is %s, was %s", p, now[p], was[p])
		}
	}
	for _, p := range []string{"c/.envrc", "zz/package.json"} {
		if _, ok := now[p]; ok {
			t.Errorf("%s is still there", p)
		}
	}
	if n := len(run.Record.Roots); n != 1 {
		t.Errorf("the record has %d roots", n)
	}
}
