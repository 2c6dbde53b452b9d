package cli

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/project"
)

func TestParseUser(t *testing.T) {
	for text, want := range map[string][2]int{"": {-1, -1}, "0": {0, 0}, "1000": {1000, 1000}, "5:7": {5, 7}} {
		uid, gid, err := parseUser(text)
		if err != nil || uid != want[0] || gid != want[1] {
			t.Errorf("%q: %d %d %v", text, uid, gid, err)
		}
	}
	for _, text := range []string{"root", "-1", "1:", ":1", "65536", "1:2:3"} {
		if _, _, err := parseUser(text); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What the command line refuses before anything is made, and says in one line
// with a code.
func TestRefusals(t *testing.T) {
	home := filepath.Join(t.TempDir(), "never-made")
	t.Setenv("BAILEY_HOME", home)
	for _, tc := range []struct {
		args string
		code bailey.Code
	}{
		{"nonsense", bailey.CodeUsage},
		{"run", bailey.CodeUsage},
		{"run --", bailey.CodeUsage},
		{"run --no-such-flag -- true", bailey.CodeUsage},
		{"run --apply --discard -- true", bailey.CodeUsage},
		{"run --writable --apply -- true", bailey.CodeUsage},
		{"run --timeout 0 -- true", bailey.CodeUsage},
		{"run --memory none -- true", bailey.CodeUsage},
		{"run --isolation strong -- true", bailey.CodeUsage},
		{"run --user root -- true", bailey.CodeUsage},
		{"run --pids many -- true", bailey.CodeUsage},
		{"doctor now", bailey.CodeUsage},
		{"version 2", bailey.CodeUsage},
		{"--version 2", bailey.CodeUsage},
		{"trust a b", bailey.CodeUsage},
		{"trust /no/such/folder", bailey.CodeUsage},
		{"run --pids 0 -- true", bailey.CodeUsage},
		{"run --pids -1 -- true", bailey.CodeUsage},
		{"run --cpus 0 -- true", bailey.CodeUsage},
		{"run --cpus NaN -- true", bailey.CodeUsage},
		{"run --net none --allow example.org -- true", bailey.CodeUsage},
		{"run --net all -- true", bailey.CodeUsage},
		{"run --secret TOKEN -- true", bailey.CodeUsage},
		{"changes a b", bailey.CodeUsage},
		{"changes --only /etc", bailey.CodeUsage},
		{"apply --revert --only src", bailey.CodeUsage},
		{"apply --revert --force", bailey.CodeUsage},
	} {
		var out, errs bytes.Buffer
		code := dispatch(strings.Fields(tc.args), &out, &errs)
		if code != bailey.ExitBailey || !strings.Contains(errs.String(), "["+string(tc.code)+"]") || strings.Count(errs.String(), "\n") != 1 ||
			strings.Count(errs.String(), "[") != 1 {
			t.Errorf("%s: exit %d, %q", tc.args, code, errs.String())
		}
		if _, err := os.Lstat(home); err == nil {
			t.Fatalf("%s: the data folder was made", tc.args)
		}
	}
}

func TestHelpNamesEveryCommandAndFlag(t *testing.T) {
	built := filepath.Join(os.Getenv("BAILEY_TEST_PROGRAMS"), "bailey")
	if !filepath.IsAbs(built) {
		built = filepath.Join("..", "..", "bin", "bailey") // by ./scripts/build
	}
	var out, errs bytes.Buffer
	if code := dispatch(nil, &out, &errs); code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, c := range commands() {
		if !strings.Contains(out.String(), "  "+c.Name) {
			t.Errorf("help does not name %s", c.Name)
		}
		switch c.Name {
		case "policy", "secret", "approvals", "audit":
			continue // baileyd has these, and their help with them
		}
		var help bytes.Buffer
		cmd := exec.Command(built, c.Name, "--help") // it may become another program
		cmd.Stdout, cmd.Stderr = &help, &errs
		_ = cmd.Run() // its exit code is looked at
		if code := cmd.ProcessState.ExitCode(); code != 0 || !strings.Contains(strings.ToLower(help.String()), "usage: bailey "+c.Name) {
			t.Errorf("%s --help: exit %d, %q", c.Name, code, help.String())
		}
	}
	if errs.Len() > 0 {
		t.Errorf("help wrote errors: %s", errs.String())
	}
}

// What a message has to say so that a person knows what to do.
func TestMessages(t *testing.T) {
	t.Setenv("BAILEY_HOME", t.TempDir()+"/data")
	dir := t.TempDir()
	file := filepath.Join(dir, "x.go")
	yaml := []byte("memory: 1G\n")
	for name, text := range map[string][]byte{file: nil, filepath.Join(dir, project.FileName): yaml} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hash := fmt.Sprintf("%x", sha256.Sum256(yaml))
	for _, tc := range []struct {
		args        []string
		code        int
		says, hides string
	}{
		{[]string{"run", "--workspace", file, "--", "true"}, 125, "it is a file", project.FileName},
		{[]string{"run", "--cpus", "0", "--", "true"}, 125, "--cpus", ""},
		{[]string{"run", "--memory", "none", "--", "true"}, 125, `cannot read the size "none" for --memory: it is not a number of bytes above zero; write it as 512M or 2G [usage]`, ""},
		{[]string{"run", "--pids", "many", "--", "true"}, 125, `cannot read "many" for --pids`, ""},
		{[]string{"run", "--ask-timeout", "5s", "--", "true"}, 125, "there is no network, so nothing asks", ""}, // bailey.yaml could have given one
		{[]string{"--version"}, 0, "bailey ", ""},
		{[]string{"trust", "--hash", strings.Repeat("0", 64), dir}, 125, "[untrusted]", hash},
		{[]string{"trust", "--hash", hash, dir}, 0, "trusted " + dir, ""},
		{[]string{"trust", "--revoke", dir}, 0, "1 form of ", "forms"},
		{[]string{"trust", "--revoke", dir}, 0, "0 forms of ", ""},
	} {
		var out bytes.Buffer
		code := dispatch(tc.args, &out, &out)
		if code != tc.code || !strings.Contains(out.String(), tc.says) || tc.hides != "" && strings.Contains(out.String(), tc.hides) {
			t.Errorf("%q: exit %d, %q; want %d, %q without %q", tc.args, code, out.String(), tc.code, tc.says, tc.hides)
		}
	}
}

// TestNestedForRoot: nested sandboxes are refused exactly where the command
// would have the id 0 and no rights.
func TestNestedForRoot(t *testing.T) {
	dir := t.TempDir()
	owned := os.Geteuid() == 0 // and so is dir
	for _, tc := range []struct {
		level   bailey.Isolation
		nested  bool
		uid     int
		refused bool
	}{
		{bailey.IsolationProcess, true, 0, true},
		{bailey.IsolationProcess, true, -1, owned},
		{bailey.IsolationProcess, true, 1000, false},
		{bailey.IsolationProcess, false, 0, false},
		{bailey.IsolationContainer, true, 0, false},
	} {
		f := &runFlags{}
		f.Level, f.Nested, f.UID = tc.level, tc.nested, tc.uid
		if err := f.nestable(dir); (err != nil) != tc.refused || err != nil && bailey.CodeOf(err) != bailey.CodeNotAvailable {
			t.Errorf("%+v gives %v", tc, err)
		}
	}
	if owned {
		if err := os.Chown(dir, 1000, 1000); err != nil {
			t.Fatal(err)
		}
		f := &runFlags{}
		f.Level, f.Nested, f.UID = bailey.IsolationProcess, true, -1
		if err := f.nestable(dir); err != nil {
			t.Errorf("in a folder of somebody else: %v", err)
		}
	}
}
