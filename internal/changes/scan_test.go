package changes

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// steps runs the calls until one fails.
func steps(calls ...func() error) error {
	for _, c := range calls {
		if err := c(); err != nil {
			return err
		}
	}
	return nil
}

func write(p, content string) func() error {
	return func() error { return os.WriteFile(p, []byte(content), 0o644) }
}

func init() {
	acts["everything"] = func(d string) error {
		in := func(p string) string { return filepath.Join(d, p) }
		return steps(
			write(in("new"), "new\n"),
			write(in("changed"), "other\n"),
			write(in("same-size"), "b\n"),
			func() error { return os.Remove(in("gone")) },
			func() error { return os.Chmod(in("mode"), 0o755) },
			// Copied up, and as before.
			func() error { return os.Chmod(in("touched"), 0o600) },
			func() error { return os.Chmod(in("touched"), 0o644) },
			write(in("rewritten"), "rewritten\n"),
			// A folder gone with all below; one gone and made again.
			func() error { return os.RemoveAll(in("tree")) },
			func() error { return os.RemoveAll(in("again")) },
			func() error { return os.Mkdir(in("again"), 0o755) },
			write(in("again/kept"), "kept\n"),
			write(in("again/fresh"), "fresh\n"),
			// One kind in another's place.
			func() error { return os.RemoveAll(in("dir2file")) },
			write(in("dir2file"), "now a file\n"),
			func() error { return os.Remove(in("file2dir")) },
			func() error { return os.Mkdir(in("file2dir"), 0o755) },
			write(in("file2dir/x"), "x"),
			func() error { return os.Remove(in("file2link")) },
			func() error { return os.Symlink("changed", in("file2link")) },
			func() error { return os.Remove(in("link")) },
			func() error { return os.Symlink("elsewhere", in("link")) },
			func() error { return os.Symlink("../../etc/passwd", in("escape")) },
			func() error { return os.Symlink("/etc/passwd", in("absolute")) },
			func() error { return unix.Mkfifo(in("fifo"), 0o600) },
			write(in("bin"), "a\x00b"),
			func() error { return os.MkdirAll(in(".git/hooks"), 0o755) },
			write(in(".git/hooks/pre-commit"), "#!/bin/sh\n"),
			write(in("odd \n\x1b[31m\xff"), "odd"),
			func() error { return os.Chmod(in("dirmode"), 0o700) },
			func() error { return unix.Setxattr(in("xattr"), "user.note", []byte("2"), 0) },
			// Made and removed: nothing.
			write(in("temporary"), ""),
			func() error { return os.Remove(in("temporary")) },
			func() error { return os.Rename(in("moved"), in("moved-to")) },
		)
	}
}

// before fills the workspace that the act "everything" works on.
func before(t testing.TB, ws string) {
	for _, n := range []string{"changed", "gone", "mode", "touched", "rewritten", "tree/a", "tree/b/c", "again/kept", "again/lost", "dir2file/x", "dir2file/y/z",
		"file2dir", "file2link", "dirmode/f", "xattr", "moved", "untouched/deep/er"} {
		put(t, filepath.Join(ws, n), filepath.Base(n)+"\n")
	}
	put(t, filepath.Join(ws, "same-size"), "a\n")
	must(t, os.Symlink("target", filepath.Join(ws, "link")))
	must(t, os.Symlink("target", filepath.Join(ws, "tree", "link")))
	must(t, unix.Setxattr(filepath.Join(ws, "xattr"), "user.note", []byte("1"), 0))
}

var everything = []string{
	"added new file", "modified changed content", "modified same-size content", "deleted gone file", "modified mode mode !executable",
	"deleted tree folder", "deleted tree/a file", "deleted tree/b folder", "deleted tree/b/c file", "deleted tree/link symlink",
	"added again/fresh file", "deleted again/lost file",
	"modified dir2file folder>file", "deleted dir2file/x file", "deleted dir2file/y folder", "deleted dir2file/y/z file",
	"modified file2dir file>folder", "added file2dir/x file", "modified file2link file>symlink", "modified link content",
	"added escape symlink !link_outside", "added absolute symlink !link_outside", "added fifo fifo", "added bin file binary",
	"added .git folder", "added .git/hooks folder", "added .git/hooks/pre-commit file !git_hook", `added odd \n\x1b[31m\xff file`,
	"modified dirmode mode", "modified xattr xattr", "deleted moved file", "added moved-to file",
}

func TestScan(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, opts workspace.Options) {
		ws := filepath.Join(dir, "ws")
		must(t, os.Mkdir(ws, 0o755))
		if unix.Setxattr(ws, "user.note", []byte("x"), 0) != nil {
			t.Skip("needs host user-xattr")
		}
		before(t, ws)
		s := start(t, ws, opts)
		s.do("everything")
		live, err := Scan(context.Background(), s.run)
		must(t, err)
		same(t, lines(live), everything)
		same(t, lines(s.end()), everything)
		again, err := Scan(context.Background(), s.run)
		must(t, err)
		same(t, lines(again), everything)
		for i := 1; i < len(again.Changes); i++ {
			if workspace.ComparePaths(again.Changes[i-1].Path, again.Changes[i].Path) >= 0 {
				t.Errorf("%q comes after %q", again.Changes[i].Path, again.Changes[i-1].Path)
			}
		}
		must(t, Discard(s.run))
		_, err = Scan(context.Background(), s.run)
		wantCode(t, err, bailey.CodeNotFound)
	})
}

func TestScanNothing(t *testing.T) {
	onEach(t, func(t *testing.T, dir string, opts workspace.Options) {
		ws := filepath.Join(dir, "ws")
		before(t, ws)
		s := start(t, ws, opts)
		s.do("touch")
		same(t, lines(s.end()), nil)
	})
}

func init() {
	acts["touch"] = func(d string) error {
		return filepath.WalkDir(d, func(p string, e os.DirEntry, err error) error {
			if err == nil && e.Type()&os.ModeSymlink == 0 {
				err = os.Chtimes(p, time.Unix(1, 0), time.Unix(1, 0))
			}
			return err
		})
	}
}

// TestXattrWhiteouts reads the second kind of whiteout, which only a layer
// that was made by hand has.
func TestXattrWhiteouts(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	before(t, ws)
	s := start(t, ws, workspace.Options{})
	root := s.run.Record.Roots[0]
	if root.Mode != "overlay" {
		t.Skipf("needs host overlay: %s", root.Why)
	}
	prefix := "trusted.overlay."
	if root.UserXattr {
		prefix = "user.overlay."
	}
	up := workspace.Upper(s.run.Dir(), root)
	put(t, filepath.Join(up, "gone"), "")
	must(t, unix.Setxattr(filepath.Join(up, "gone"), prefix+"whiteout", nil, 0))
	must(t, unix.Setxattr(up, prefix+"opaque", []byte("x"), 0))
	// One that is not empty is a file, whatever it says of itself.
	put(t, filepath.Join(up, "moved"), "content")
	must(t, unix.Setxattr(filepath.Join(up, "moved"), prefix+"whiteout", nil, 0))
	same(t, lines(s.end()), []string{"deleted gone file", "modified moved content"})
}

func TestScanRefusesAnotherFolder(t *testing.T) {
	ws := filepath.Join(t.TempDir(), "ws")
	before(t, ws)
	s := start(t, ws, workspace.Options{})
	s.do("everything")
	must(t, os.Rename(ws, ws+".was"))
	must(t, os.Mkdir(ws, 0o755))
	_, err := Scan(context.Background(), s.run)
	wantCode(t, err, bailey.CodeConflict)
}

func TestLeadsOut(t *testing.T) {
	for _, c := range []struct {
		link, target string
		out          bool
	}{
		{"a", "b", false}, {"a/b", "../c", false}, {"a/b", "../../c", true}, {"a", "..", true}, {"a", "/w/x", false}, {"a", "/w", false},
		{"a", "/wx", true}, {"a", "/", true}, {"a", "/w/../etc", true}, {"a", "d/../../x", true}, {"a", "d/../x", true}, {"a", "./b", false}, {"a", "", false},
	} {
		if got := leadsOut("/w", c.link, c.target); got != c.out {
			t.Errorf("%s -> %s: %v", c.link, c.target, got)
		}
	}
}

func TestExecutesOnHost(t *testing.T) {
	for path, class := range map[string]string{
		".git/hooks/pre-commit": "git_hook", "sub/.git/hooks/x": "git_hook", ".git/modules/lib/hooks/post-checkout": "git_hook",
		".git/config": "git_config", ".git/worktrees/x/config.worktree": "git_config", ".git/modules/a/b/config": "git_config", ".gitmodules": "git_modules",
		".gitattributes": "git_attributes", "a/.gitattributes": "git_attributes", ".git/info/attributes": "git_attributes",
		".envrc": "direnv", ".env": "environment", ".env.local": "environment", ".github/workflows/x.yml": "ci", ".gitlab-ci.yml": "ci", "Jenkinsfile": "ci",
		".vscode/tasks.json": "editor", ".idea/workspace.xml": "editor", "p.code-workspace": "editor",
		".claude/settings.json": "agent", ".mcp.json": "agent", "CLAUDE.md": "agent", "AGENTS.md": "agent", "package.json": "package_scripts", "web/package.json": "package_scripts",
		"Makefile": "build", "x.mk": "build", "justfile": "build", "build.rs": "build", "CMakeLists.txt": "build", "setup.py": "python", "tests/conftest.py": "python",
		".bashrc": "shell", ".config/fish/config.fish": "shell", ".pre-commit-config.yaml": "pre_commit", ".husky/pre-push": "git_hook", "bailey.yaml": "bailey",
		".git/rebase-merge/git-rebase-todo": "git_sequence", ".git/worktrees/x/rebase-merge/git-rebase-todo": "git_sequence", ".hg/hgrc": "version_control", ".jj/repo/config.toml": "version_control",
		"Cargo.toml": "build", "a/Directory.Build.props": "build", "app.csproj": "build", "a/b.gradle.kts": "build", ".latexmkrc": "build", "ansible.cfg": "build", "tools/bazel": "build", ".mvn/x": "build",
		".clinerules/a.md": "agent", ".github/hooks/x.json": "agent", ".pylintrc": "python", ".rubocop.yml": "ruby_php_config", ".eslintrc.json": "javascript_config", "x.desktop": "desktop", ".directory": "desktop",
		".bsp/sbt.json": "editor", ".helix/languages.toml": "editor", ".luarc.json": "editor", ".pnp.cjs": "package_scripts", ".Renviron": "shell", ".config/mise/config.toml": "direnv", "mise.local.toml": "direnv",
		".GIT/Hooks/pre-commit": "git_hook", "vite.config.ts": "javascript_config", ".git": "git_config", "sub/.git": "git_config", "node_modules/.bin/x": "installed_code",
	} {
		if got, ok := ExecutesOnHost(path); !ok || got != class {
			t.Errorf("%s: %q, want %q", path, got, class)
		}
	}
	for _, path := range []string{"main.go", "README.md", "hooks/x", ".git/HEAD", ".git/refs/heads/Makefile", ".git/objects/ab/cd", "config", ".github/CODEOWNERS", "src/env", "a.env", ".git/index", "mise/main.c", "config/app.json", "rules"} {
		if class, ok := ExecutesOnHost(path); ok {
			t.Errorf("%s: %s", path, class)
		}
	}
	seen := map[string]bool{}
	for _, r := range rules {
		if r.why == "" || seen[r.class] {
			t.Errorf("class %s: every class has one reason", r.class)
		}
		seen[r.class] = true
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{
		"plain.go": "plain.go", "späth": "späth", "a\x1b[2Jb": `a\x1b[2Jb`, "a\nb": `a\nb`, "\xff": `\xff`, `a\nb`: `a\\nb`, "\u202egpj": `\u202egpj`,
		"\u009b": `\u009b`, "\u200b": `\u200b`, "a b": "a b", "\u2028": `\u2028`, "\x7f": `\x7f`,
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
