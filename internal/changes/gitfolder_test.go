package changes

import (
	"bytes"
	"crypto/sha1"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// git runs git as nobody has configured it.
func git(dir string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "safe.directory=*", "-c", "gc.auto=0"}, args...)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out)), err
}

func mustGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	out, err := git(dir, args...)
	must(t, err)
	return out
}

func init() {
	acts["git-commit"] = func(d string) error {
		return steps(write(d+"/g", "agent\n"), write(d+"/plain", "agent\n"), gitDo(d, "add", "g"), gitDo(d, "commit", "-qm", "agent"))
	}
	acts["git-gc"] = func(d string) error {
		return steps(write(d+"/g", "agent\n"), gitDo(d, "commit", "-qam", "agent"), gitDo(d, "gc", "-q", "--prune=now"))
	}
	acts["git-socket"] = func(d string) error {
		return steps(acts2("git-commit", d), func() error { return unix.Mknod(d+"/.git/ipc", unix.S_IFSOCK|0o600, 0) })
	}
	acts["git-suid"] = func(d string) error {
		return steps(acts2("git-commit", d), write(d+"/.git/odd", "x"), func() error { return os.Chmod(d+"/.git/odd", 0o755|os.ModeSetuid) })
	}
	acts["git-init"] = func(d string) error {
		return steps(func() error { return os.RemoveAll(d + "/.git") }, gitDo(d, "init", "-q"), gitDo(d, "add", "g"), gitDo(d, "commit", "-qm", "anew"))
	}
}

func acts2(name, d string) func() error { return func() error { return acts[name](d) } }

func gitDo(d string, args ...string) func() error {
	return func() error { _, err := git(d, args...); return err }
}

// repository makes a workspace with one commit.
func repository(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs tool git")
	}
	ws := filepath.Join(t.TempDir(), "ws")
	put(t, filepath.Join(ws, "g"), "base\n")
	put(t, filepath.Join(ws, "plain"), "base\n")
	mustGit(t, ws, "init", "-q")
	mustGit(t, ws, "add", ".")
	mustGit(t, ws, "commit", "-qm", "base")
	return ws
}

func fsck(t *testing.T, ws string) {
	t.Helper()
	mustGit(t, ws, "fsck", "--full", "--strict")
	mustGit(t, ws, "status")
}

// besides is a text of the host's that git keeps in the same folder of its objects as the text base,
// which the sandbox may have removed since.
func besides(base string) string {
	object := func(s string) [sha1.Size]byte { return sha1.Sum(fmt.Appendf(nil, "blob %d\x00%s", len(s), s)) }
	for i := 0; ; i++ {
		if s := fmt.Sprintf("host %d\n", i); object(s)[0] == object(base)[0] {
			return s
		}
	}
}

var hostGit = map[string]struct {
	act  func(t *testing.T, ws string)
	held bool
}{
	"nothing": {func(*testing.T, string) {}, false},
	"commit": {func(t *testing.T, ws string) {
		put(t, filepath.Join(ws, "h"), besides("base\n"))
		mustGit(t, ws, "add", "h")
		mustGit(t, ws, "commit", "-qm", "host")
	}, true},
	"add": {func(t *testing.T, ws string) {
		put(t, filepath.Join(ws, "h"), besides("base\n"))
		mustGit(t, ws, "add", "h")
	}, true},
	"file": {func(t *testing.T, ws string) { put(t, filepath.Join(ws, "h"), "host\n") }, false},
}

func TestGitIsAppliedWhole(t *testing.T) {
	for _, agent := range []string{"git-commit", "git-gc", "git-init"} {
		for name, host := range hostGit {
			t.Run(agent+"/"+name, func(t *testing.T) {
				ws := repository(t)
				s := start(t, ws, workspace.Options{})
				s.do(agent)
				set := s.end()
				host.act(t, ws)
				was := shape(t, filepath.Join(ws, ".git"))
				r, err := Apply(ctx, s.run, set, ApplyOptions{Merge: true})
				must(t, err)
				fsck(t, ws)
				if agent != "git-init" {
					if b, _ := os.ReadFile(filepath.Join(ws, "g")); string(b) != "agent\n" {
						t.Errorf("the file was not applied: %q", b)
					}
				}
				if !host.held {
					clean(t, r, nil)
					return
				}
				if r.Held == 0 || len(r.Conflicts) != 1 || len(r.Refused) != 0 || r.Complete() || s.run.Record.State != folder.StateKept {
					t.Fatalf("%+v", r)
				}
				is := shape(t, filepath.Join(ws, ".git"))
				delete(was, "index") // git status may have refreshed it
				delete(is, "index")
				sameShape(t, is, was)
				var b bytes.Buffer
				must(t, r.Write(&b))
				for _, want := range []string{"nothing of .git was applied", "git add", "--force"} {
					if !strings.Contains(b.String(), want) {
						t.Errorf("the report lacks %q: %s", want, b.String())
					}
				}
				if strings.Contains(b.String(), " 0 ") || strings.Contains(b.String(), "--merge") {
					t.Error(b.String())
				}
				if agent == "git-init" {
					return
				}
				r, err = Apply(ctx, s.run, set, ApplyOptions{Force: true})
				clean(t, r, err)
				if got := mustGit(t, ws, "log", "-1", "--format=%s"); got != "agent" {
					t.Errorf("after force the last commit is %q", got)
				}
			})
		}
	}
}

func TestGitIsRevertedWhole(t *testing.T) {
	after := map[string]struct {
		act  func(t *testing.T, ws string)
		held bool
	}{
		"branch":     {func(t *testing.T, ws string) { mustGit(t, ws, "branch", "mine") }, true},
		"tag":        {func(t *testing.T, ws string) { mustGit(t, ws, "tag", "mine") }, true},
		"stash":      {func(t *testing.T, ws string) { put(t, filepath.Join(ws, "g"), "x\n"); mustGit(t, ws, "stash", "-q") }, true},
		"gc":         {func(t *testing.T, ws string) { mustGit(t, ws, "gc", "-q") }, true},
		"worktree":   {func(t *testing.T, ws string) { mustGit(t, ws, "worktree", "add", "-q", "--detach", ws+".other") }, true},
		"set config": {func(t *testing.T, ws string) { mustGit(t, ws, "config", "core.abbrev", "12") }, false},
	}
	for name, c := range hostGit {
		after[name] = c
	}
	for _, agent := range []string{"git-commit", "git-gc"} {
		for name, host := range after {
			t.Run(agent+"/"+name, func(t *testing.T) {
				ws := repository(t)
				was := shape(t, ws)
				s := start(t, ws, workspace.Options{})
				s.do(agent)
				r, err := Apply(ctx, s.run, s.end(), ApplyOptions{})
				clean(t, r, err)
				host.act(t, ws)
				r, err = Revert(ctx, s.run)
				must(t, err)
				fsck(t, ws)
				if !host.held {
					clean(t, r, nil)
					if name == "nothing" {
						is := shape(t, ws)
						delete(was, ".git/index") // git status may have refreshed it
						delete(is, ".git/index")
						sameShape(t, is, was)
					}
					return
				}
				if r.Held == 0 || r.Complete() || s.run.Record.State != folder.StateApplied {
					t.Fatalf("%+v", r)
				}
				var b bytes.Buffer
				must(t, r.Write(&b))
				if !strings.Contains(b.String(), "nothing of .git was taken back") || strings.Contains(b.String(), "--force") {
					t.Error(b.String())
				}
				if b, _ := os.ReadFile(filepath.Join(ws, "plain")); string(b) != "base\n" {
					t.Errorf("the files were not taken back: %q", b)
				}
				mustGit(t, ws, "cat-file", "-e", "HEAD^{tree}")
			})
		}
	}
}

// TestGitWithOddFiles: what no repository needs does not hold one up; what may
// never be applied does.
func TestGitWithOddFiles(t *testing.T) {
	for act, held := range map[string]bool{"git-socket": false, "git-suid": true} {
		ws := repository(t)
		s := start(t, ws, workspace.Options{})
		s.do(act)
		set := s.end()
		r, err := Apply(ctx, s.run, set, ApplyOptions{})
		must(t, err)
		if len(r.Refused) != 1 || (r.Held > 0) != held {
			t.Errorf("%s: %+v", act, r)
		}
		want := map[bool]string{true: "base", false: "agent"}[held]
		if got := mustGit(t, ws, "log", "-1", "--format=%s"); got != want {
			t.Errorf("%s: the last commit is %q", act, got)
		}
		fsck(t, ws)
		r, err = Apply(ctx, s.run, set, ApplyOptions{Force: true})
		must(t, err)
		if got := mustGit(t, ws, "log", "-1", "--format=%s"); got != "agent" || len(r.Refused) != 1 {
			t.Errorf("%s: forced, the last commit is %q: %+v", act, got, r)
		}
		fsck(t, ws)
	}
}

// TestGitRace has the host change the repository when half of it is applied.
func TestGitRace(t *testing.T) {
	ws := repository(t)
	s := start(t, ws, workspace.Options{})
	s.do("git-commit")
	set := s.end()
	objects := func() int {
		list, _ := filepath.Glob(filepath.Join(ws, ".git/objects/??/[0-9a-f]*"))
		return len(list)
	}
	before, raced := objects(), false
	hook = func() {
		if !raced && objects() > before {
			raced = true
			ref := filepath.Join(ws, ".git", "refs", "heads", mustGit(t, ws, "branch", "--show-current"))
			b, _ := os.ReadFile(ref)
			os.WriteFile(ref, b, 0o644)
			os.Chtimes(ref, time.Unix(1, 0), time.Unix(1, 0))
		}
	}
	defer func() { hook = func() {} }()
	r, err := Apply(ctx, s.run, set, ApplyOptions{})
	hook = func() {}
	must(t, err)
	if !raced || r.Complete() || r.Held == 0 || objects() != before {
		t.Fatalf("raced: %v, objects: %d, were %d: %+v", raced, objects(), before, r)
	}
	fsck(t, ws)
	if got := mustGit(t, ws, "log", "-1", "--format=%s"); got != "base" {
		t.Errorf("the last commit is %q", got)
	}
	r, err = Apply(ctx, s.run, set, ApplyOptions{Force: true})
	clean(t, r, err)
	fsck(t, ws)
}

func TestGitFolderOf(t *testing.T) {
	not := false
	a := &applier{bare: &not}
	for p, want := range map[string]string{".git": ".git", ".git/x": ".git", "a/.git/b/.git/c": "a/.git", "a.git/x": "", ".github/x": "", "a/.git": "a/.git", "x": "", ".": "", ".gitx/.git": ".gitx/.git"} {
		g, ok := a.gitFolderOf(0, p)
		if g.path != want || ok != (want != "") {
			t.Errorf("%s: %q %v", p, g.path, ok)
		}
	}
	if g, ok := a.gitFolderOf(1, "refs/x"); !ok || g.path != "." {
		t.Error(g, ok)
	}
}
