package workspace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

func wantCode(t *testing.T, err error, code bailey.Code) {
	t.Helper()
	if bailey.CodeOf(err) != code {
		t.Fatalf("got %v, want an error with code %s", err, code)
	}
}

func TestRefuse(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	file := filepath.Join(t.TempDir(), "passwd")
	os.WriteFile(file, []byte("u:x:1:1::/people/u:/bin/sh\nwww:x:2:2::/var/www:/bin/sh\nroot:x:0:0::/root:/bin/sh\nsys:x:3:3::/:/bin/false\nshort:x\n"), 0o644)
	passwd = file
	t.Cleanup(func() { passwd = "/etc/passwd" })
	const data = "/somewhere/bailey"
	for _, dir := range []string{"/", home, filepath.Dir(home), "/people/u", "/people", "/root", "/var/www", "/var", "/usr", "/usr/share/x",
		"/etc", "/etc/ssl", "/tmp", "/home", "/opt", "/proc/1", "/dev", "/run/user", "/dev/shm", "/usr/src"} {
		wantCode(t, refuse(dir, data, false), bailey.CodeWorkspaceRefused)
		// The root holds the data folder, which nothing lifts.
		if err := refuse(dir, data, true); err != nil && dir != "/" {
			t.Errorf("%s with understanding: %v", dir, err)
		}
	}
	for _, dir := range []string{filepath.Join(home, "p"), "/people/u/src", "/people2", "/var/www/site", "/opt/x", "/srv/a", "/usr/src/x",
		"/dev/shm/x", "/tmp/x", "/usrlocal", "/etcetera"} {
		if err := refuse(dir, data, false); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for _, dir := range []string{"/", "/somewhere", data, data + "/runs/x"} {
		wantCode(t, refuse(dir, data, true), bailey.CodeWorkspaceRefused)
	}
}

// plan makes a data folder and plans dir.
func plan(t *testing.T, dir string, opts Options) (*Plan, error) {
	t.Helper()
	if opts.DataFolder == "" {
		opts.DataFolder = t.TempDir()
	}
	return New(dir, opts)
}

func TestPlanResolvesLinks(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "real")
	os.Mkdir(dir, 0o755)
	os.Symlink("real", filepath.Join(base, "link"))
	p, err := plan(t, filepath.Join(base, "link"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Dir != dir || len(p.Roots) != 1 || p.Roots[0].Path != dir || p.Roots[0].Layer != "layers/0" {
		t.Fatalf("%+v", p)
	}
	if p.Roots[0].Mode != folder.ModeOverlay {
		t.Skipf("needs host overlay: %s", p.Roots[0].Why)
	}
	p, err = plan(t, dir, Options{ForceCopy: true})
	if err != nil || p.Roots[0].Mode != folder.ModeCopy {
		t.Fatal(p, err)
	}
	_, err = plan(t, filepath.Join(base, "none"), Options{})
	wantCode(t, err, bailey.CodeUsage)
	os.WriteFile(filepath.Join(base, "file"), nil, 0o644)
	_, err = plan(t, filepath.Join(base, "file"), Options{})
	wantCode(t, err, bailey.CodeUsage)
	// A link cannot bring a refused folder in.
	os.Symlink("/etc", filepath.Join(base, "etc"))
	_, err = plan(t, filepath.Join(base, "etc"), Options{})
	wantCode(t, err, bailey.CodeWorkspaceRefused)
}

func TestPlanSubMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounting")
	}
	dir := filepath.Join(t.TempDir(), "a b\\c")
	sub := filepath.Join(dir, "sub\tmount")
	os.MkdirAll(sub, 0o755)
	if err := unix.Mount("none", sub, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(sub, unix.MNT_DETACH) })
	p, err := plan(t, dir, Options{})
	if err != nil || p.Roots[0].Mode != folder.ModeCopy || !strings.Contains(p.Roots[0].Why, sub) {
		t.Fatal(p, err)
	}
	// The mount point itself is no sub-mount.
	p, err = plan(t, sub, Options{})
	if err != nil || p.Roots[0].Mode != folder.ModeOverlay {
		t.Fatal(p, err)
	}
}

func TestPlanOnOverlay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: mounting")
	}
	base := t.TempDir()
	for _, d := range []string{"l", "u", "w", "m"} {
		os.Mkdir(filepath.Join(base, d), 0o755)
	}
	m := filepath.Join(base, "m")
	if err := unix.Mount("overlay", m, "overlay", 0, "lowerdir="+base+"/l,upperdir="+base+"/u,workdir="+base+"/w"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(m, unix.MNT_DETACH) })
	p, err := plan(t, m, Options{})
	if err != nil || p.Roots[0].Mode != folder.ModeCopy {
		t.Fatal(p, err)
	}
	os.Mkdir(filepath.Join(m, "data"), 0o700)
	p, err = plan(t, filepath.Join(base, "l"), Options{DataFolder: filepath.Join(m, "data", "not", "yet")})
	if err != nil || p.Roots[0].Mode != folder.ModeCopy {
		t.Fatal(p, err)
	}
}

func git(t *testing.T, dir string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("needs tool git")
	}
	cmd := exec.Command("git", append([]string{"-c", "protocol.file.allow=always", "-c", "user.name=x", "-c", "user.email=x@x"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

func TestPlanGit(t *testing.T) {
	base := t.TempDir()
	main := filepath.Join(base, "main")
	os.Mkdir(main, 0o755)
	git(t, main, "init", "-q")
	git(t, main, "commit", "-q", "--allow-empty", "-m", "x")
	git(t, main, "worktree", "add", "-q", filepath.Join(base, "tree"))
	sub := filepath.Join(base, "lib")
	os.Mkdir(sub, 0o755)
	git(t, sub, "init", "-q")
	git(t, sub, "commit", "-q", "--allow-empty", "-m", "x")
	git(t, main, "submodule", "--quiet", "add", sub, "lib")
	sep := filepath.Join(base, "sep")
	os.Mkdir(sep, 0o755)
	git(t, sep, "init", "-q", "--separate-git-dir", filepath.Join(base, "sep.git"))

	for name, want := range map[string][]string{
		"main":     {"main"},
		"tree":     {"tree", "main/.git"},
		"main/lib": {"main/lib", "main/.git/modules/lib"},
	} {
		p, err := plan(t, filepath.Join(base, name), Options{})
		if err != nil {
			t.Fatal(name, err)
		}
		var got []string
		for _, r := range p.Roots {
			rel, _ := filepath.Rel(base, r.Path)
			got = append(got, rel)
		}
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	_, err := plan(t, sep, Options{})
	wantCode(t, err, bailey.CodeWorkspaceRefused)
	if p, err := plan(t, sep, Options{IUnderstand: true}); err != nil || len(p.Roots) != 2 {
		t.Fatal(p, err)
	}

	// What a hostile .git file could try.
	secret := filepath.Join(base, "secret")
	os.Mkdir(secret, 0o700)
	other := filepath.Join(base, "other")
	os.Mkdir(other, 0o755)
	for _, target := range []string{secret, "../secret", "../main/.git", "../main/.git/worktrees/tree", "../main/.git/modules/lib", "/etc"} {
		os.WriteFile(filepath.Join(other, ".git"), []byte("gitdir: "+target+"\n"), 0o644)
		_, err := plan(t, other, Options{})
		wantCode(t, err, bailey.CodeWorkspaceRefused)
	}
	os.Remove(filepath.Join(other, ".git"))
	os.Symlink(filepath.Join(main, ".git"), filepath.Join(other, ".git"))
	_, err = plan(t, other, Options{})
	wantCode(t, err, bailey.CodeWorkspaceRefused)
	// Git does not work with these outside either, and needs no root.
	for _, content := range []string{"gitdir: ../none\n", "gitdir:", "nonsense", ""} {
		os.Remove(filepath.Join(other, ".git"))
		os.WriteFile(filepath.Join(other, ".git"), []byte(content), 0o644)
		if p, err := plan(t, other, Options{}); err != nil || len(p.Roots) != 1 {
			t.Fatal(p, err)
		}
	}
}

func FuzzParseGitFile(f *testing.F) {
	f.Add([]byte("gitdir: ../.git/worktrees/x\n"))
	f.Add([]byte("gitdir: \x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseGitFile(data)
		if err == nil && (p == "" || strings.ContainsAny(p, "\x00\n")) {
			t.Fatalf("%q", p)
		}
	})
}

func FuzzCoreWorktree(f *testing.F) {
	f.Add([]byte("[core]\n\tworktree = ../../../lib\n"))
	f.Add([]byte("[core]\nworktree=\"a\\\\b\""))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p := coreWorktree(data); len(p) > len(data) {
			t.Fatalf("%q", p)
		}
	})
}

func TestCoreWorktree(t *testing.T) {
	for in, want := range map[string]string{
		"[core]\n\tworktree = ../x\n":       "../x",
		"[CORE]\n\tWorkTree=\"a b\"\n":      "a b",
		"[remote \"core\"]\nworktree = x\n": "",
		"worktree = x\n":                    "",
	} {
		if got := coreWorktree([]byte(in)); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
