package hostview

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

var gitUsers = []struct{ text, name, email string }{
	{"", "", ""},
	{"[user]\n\tname = A Person\n\temail = a@example.org\n", "A Person", "a@example.org"},
	{"[core]\n\tname = no\n[USER]\n\tNAME=A  B   # who\n;x\nemail = \"a;b\"@example.org ; y\n[credential]\n\thelper = !name = x\n", "A  B", "a;b@example.org"},
	{"[user \"x\"]\n\tname = no\n\temail = no\n", "", ""},
	{"[user \"a]b\"]\n\tname = no\n", "", ""},
	{"[user] name = on one line\n", "on one line", ""},
	{"[user]\n\tname = first\n[user]\n\tname = second\n[alias]\n\tname = no\n", "second", ""},
	{"[user]\n\tname = \"  kept  \"  \n", "  kept  ", ""},
	{"[user]\n\tname = A \\\n  B\n\temail = \"x\\\"y\\\\z\"\n", "A   B", `x"y\z`},
	{"[user]\r\n\tname = A Person\r\n\temail = a@example.org\r\n", "A Person", "a@example.org"},
	{"[user]\n\tname = Zoë \"Q\" ツ\n", "Zoë Q ツ", ""},
	{"[user]\n\tsigningkey = 1\n\temail = e@example.org", "", "e@example.org"},
	{"[user]\n\tuseConfigOnly\n\temail = e\n", "", "e"},
	{"[user]\n# name = no\n\temail = e#f\n", "", "e"},
	{"\ufeff[user]\n\tname = marked\n", "marked", ""},
}

func TestGitUser(t *testing.T) {
	for _, tc := range gitUsers {
		if name, email := gitUser(tc.text); name != tc.name || email != tc.email {
			t.Errorf("%q gives %q and %q, not %q and %q", tc.text, name, email, tc.name, tc.email)
		}
	}
	// What git refuses, or would put into a line of its own, is no name.
	for _, text := range []string{"[user", "[user\n]\nname = x", "[user]\nname = \"x\n", "[user]\nname = a\\nb", "[user]\nname = a\x1bb", "[user]\nname = \\", "[user]\nname", "[user]\n=x"} {
		if name, email := gitUser(text); name != "" || email != "" {
			t.Errorf("%q gives %q and %q", text, name, email)
		}
	}
}

// TestGitUserIsGits asks git about the same texts.
func TestGitUserIsGits(t *testing.T) {
	testneeds.Tool(t, "git")
	file := filepath.Join(t.TempDir(), "config")
	for _, tc := range gitUsers {
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]string{"user.name": tc.name, "user.email": tc.email} {
			out, err := exec.Command("git", "config", "--file", file, "--default", "", "--get", key).Output()
			if got := strings.TrimSuffix(string(out), "\n"); err != nil || got != want {
				t.Errorf("%q: git says that %s is %q (%v), not %q", tc.text, key, got, err, want)
			}
		}
	}
}

func TestGitUserOfFiles(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is := func(config, wantName, wantEmail string) {
		t.Helper()
		if name, email := GitUser(home, config); name != wantName || email != wantEmail {
			t.Errorf("got %q and %q, not %q and %q", name, email, wantName, wantEmail)
		}
	}
	is("", "", "")
	write(".config/git/config", "[user]\nname = XDG\nemail = xdg@example.org\n")
	is("", "XDG", "xdg@example.org")
	write(".gitconfig", "[user]\nname = Home\n[include]\npath = other\n")
	write("other", "[user]\nname = Other\n")
	is("", "Home", "xdg@example.org")
	write("elsewhere/git/config", "[user]\nemail = else@example.org\n")
	is(filepath.Join(home, "elsewhere"), "Home", "else@example.org")
	is("elsewhere", "Home", "xdg@example.org") // a relative name is none
	// A pipe nobody writes to is not waited for.
	if err := os.Remove(filepath.Join(home, ".gitconfig")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(home, ".gitconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	is("", "XDG", "xdg@example.org")
	if name, email := GitUser("", ""); name != "" || email != "" {
		t.Errorf("without a home: %q and %q", name, email)
	}
}
