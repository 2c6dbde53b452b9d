package changes

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// writable makes a workspace with a snapshot of it, as a run has that writes
// straight through.
func writable(t *testing.T, named func(int, string) bool, files ...string) (ws string, run *folder.Run, snap *ExecSnapshot) {
	t.Helper()
	base := t.TempDir()
	ws = filepath.Join(base, "ws")
	for _, n := range files {
		put(t, filepath.Join(ws, n), "base\n")
	}
	data, err := folder.OpenAt(filepath.Join(base, "data"))
	must(t, err)
	plan, err := workspace.New(ws, workspace.Options{DataFolder: data.Path()})
	must(t, err)
	run, err = data.Create(folder.Record{Command: []string{"x"}})
	must(t, err)
	t.Cleanup(func() { run.Close() })
	snap, err = SnapshotExecClass(ctx, run, plan.Roots, named)
	must(t, err)
	return ws, run, snap
}

// A run that writes straight through and whose owner is killed leaves nothing
// that executes on the host; what the person does afterwards stays.
func TestRecover(t *testing.T) {
	for _, tc := range []struct {
		name string
		died time.Duration // before the files were changed
		want []string
	}{
		{"at once", 0, []string{"modified Makefile", "added .git/hooks/pre-commit"}},
		{"long ago", time.Hour, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ws, run, snap := writable(t, func(_ int, p string) bool { return p == "package.json" }, "main.c", "Makefile", ".envrc", ".git/config", "package.json")
			stop, err := snap.Beat([]string{"package.json"})
			must(t, err)
			was := shape(t, ws)
			put(t, filepath.Join(ws, "Makefile"), "evil\n")
			put(t, filepath.Join(ws, ".git/hooks/pre-commit"), "evil\n")
			put(t, filepath.Join(ws, "package.json"), "named\n")
			must(t, os.Remove(filepath.Join(ws, ".envrc")))
			stop() // and no more: its owner is dead
			death := time.Now().Add(-tc.died)
			must(t, os.Chtimes(filepath.Join(run.Dir(), execCopies, execList), death, death))

			if !NeedsRecover(run) {
				t.Fatal("nothing tells that the run needs it")
			}
			found, err := Recover(ctx, run)
			must(t, err)
			var got []string
			for _, f := range found {
				got = append(got, string(f.Op)+" "+f.Path)
			}
			same(t, got, tc.want)
			if NeedsRecover(run) {
				t.Error("it is not over")
			}
			now := shape(t, ws)
			if restored := now["Makefile"] == was["Makefile"]; restored != (tc.want != nil) {
				t.Errorf("Makefile is %s, was %s", now["Makefile"], was["Makefile"])
			}
			if _, err := os.Lstat(filepath.Join(ws, ".git/hooks/pre-commit")); os.IsNotExist(err) != (tc.want != nil) {
				t.Errorf("the hook: %v", err)
			}
			set, err := Scan(ctx, run)
			must(t, err)
			var kept []string
			for _, c := range set.Changes {
				if c.Is == File {
					kept = append(kept, string(c.Op)+" "+c.Path)
				}
			}
			slices.Sort(kept)
			slices.Sort(tc.want)
			same(t, kept, tc.want)
		})
	}
}

func TestRecoverRefusesDamage(t *testing.T) {
	_, run, snap := writable(t, nil, "Makefile")
	stop, err := snap.Beat(nil)
	must(t, err)
	stop()
	put(t, filepath.Join(run.Dir(), execCopies, execList), "no list")
	if _, err := Recover(ctx, run); err == nil {
		t.Error("a damaged list is believed")
	}
	if !NeedsRecover(run) {
		t.Error("the copies are gone")
	}
}

// Where git's hooks lie is decided by a file that the command can change, and
// that is put back afterwards: both places count.
func TestHooksPathOfBefore(t *testing.T) {
	ws, _, snap := writable(t, nil, ".git/HEAD")
	must(t, snap.Close())
	put(t, filepath.Join(ws, ".git/config"), "[core]\n\thooksPath = tools/checks\n")
	put(t, filepath.Join(ws, "tools/checks/pre-commit"), "good\n")
	plan, err := workspace.New(ws, workspace.Options{})
	must(t, err)
	snap, err = SnapshotExecClass(ctx, snap.run, plan.Roots, nil)
	must(t, err)
	defer snap.Close()
	put(t, filepath.Join(ws, ".git/config"), "[core]\n\thooksPath = elsewhere\n")
	put(t, filepath.Join(ws, "tools/checks/pre-commit"), "evil\n")
	put(t, filepath.Join(ws, "elsewhere/pre-push"), "evil\n")
	found, err := snap.FindNewExecClass(ctx, nil)
	must(t, err)
	var got []string
	for _, f := range found {
		got = append(got, f.Path)
	}
	same(t, got, []string{".git/config", "elsewhere/pre-push", "tools/checks/pre-commit"})
}

// Git takes any folder for a repository that looks like one, and obeys what
// lies in it when it is called there.
func TestRepositoriesByAnotherName(t *testing.T) {
	ws, _, snap := writable(t, nil, "fixture.git/HEAD", "fixture.git/config", "plain/config", "plain/hooks/x")
	defer snap.Close()
	for _, n := range []string{"fixture.git/config", "plain/config", "plain/hooks/x", "lib/HEAD", "lib/config", "lib/hooks/post-checkout", "lib/refs/x"} {
		put(t, filepath.Join(ws, n), "evil\n")
	}
	found, err := snap.FindNewExecClass(ctx, nil)
	must(t, err)
	var got []string
	for _, f := range found {
		got = append(got, f.Path+" "+f.Class)
	}
	same(t, got, []string{"fixture.git/config git_config", "lib/config git_config", "lib/hooks/post-checkout git_hook"})
}

// What the layer cannot take is off the host all the same, and holds up
// nothing else.
func TestQuarantineWithoutRoom(t *testing.T) {
	ws, run, snap := writable(t, nil, "Makefile", "a/Makefile")
	stop, err := snap.Beat(nil)
	must(t, err)
	stop()
	for _, n := range []string{"Makefile", "a/Makefile", "a/.envrc"} {
		put(t, filepath.Join(ws, n), "evil\n")
	}
	// A file where the layer's folder would be: only what is not in a can go there.
	dir, err := run.LayerDir()
	must(t, err)
	put(t, filepath.Join(dir, "layers/exec-0/upper/a"), "in the way")
	found, err := snap.FindNewExecClass(ctx, nil)
	must(t, err)
	if err := snap.Quarantine(ctx, found); err == nil {
		t.Error("nothing tells of it")
	}
	must(t, snap.Leave())
	now := shape(t, ws)
	for _, n := range []string{"Makefile", "a/Makefile"} {
		data, err := os.ReadFile(filepath.Join(ws, n))
		if err != nil || string(data) != "base\n" {
			t.Errorf("%s: %q, %v", n, data, err)
		}
	}
	if _, there := now["a/.envrc"]; there {
		t.Error(".envrc is still there")
	}
	if !NeedsRecover(run) {
		t.Error("the copies are gone")
	}
}
