package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// asked runs `bailey policy` in this process.
func asked(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = policyCommand(context.Background(), args, &out, &errs)
	return status, out.String(), errs.String()
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPolicyExitCodes(t *testing.T) {
	ask := write(t, "ask.yaml", "version: 1\negress: {rules: [{hosts: [a.test], action: ask}, {name: b, hosts: [b.test]}]}")
	bad := write(t, "bad.yaml", "version: 1\negress:\n  rules:\n  - {hosts: ['*']}")
	suite := write(t, "suite.yaml", "version: 1\nallow: [a.test]\nexpect: [{deny: https://a.test/}]")
	for _, c := range []struct {
		args []string
		want int
		code bailey.Code
	}{
		{[]string{"check", "--allow", "a.test", "https://a.test/"}, 0, ""},
		{[]string{"check", "--allow", "a.test", "https://b.test/"}, 1, ""},
		{[]string{"check", "https://b.test/"}, 1, ""},
		{[]string{"check", "--policy", ask, "https://a.test/"}, 3, ""},
		{[]string{"check", "--policy", ask, "--allow", "c.test", "https://c.test/"}, 0, ""},
		{[]string{"check", "--policy", bad, "https://a.test/"}, 125, bailey.CodePolicyInvalid},
		{[]string{"check", "--policy", ask + ".no", "https://a.test/"}, 125, bailey.CodeNotFound},
		{[]string{"check", "--policy", ask + "/no", "https://a.test/"}, 125, bailey.CodeUsage},
		{[]string{"check", "--policy", filepath.Dir(ask), "https://a.test/"}, 125, bailey.CodeUsage},
		{[]string{"check", "--allow", "*.com", "https://a.test/"}, 125, bailey.CodePolicyInvalid},
		{[]string{"check", "https://0x7f.1/"}, 125, bailey.CodeUsage},
		{[]string{"check", "--method", "A B", "https://a.test/"}, 125, bailey.CodeUsage},
		{[]string{"check"}, 125, bailey.CodeUsage},
		{[]string{"check", "https://a.test", "https://b.test"}, 125, bailey.CodeUsage},
		{[]string{"check", "--colour"}, 125, bailey.CodeUsage},
		{[]string{"judge"}, 125, bailey.CodeUsage},
		{[]string{"explain", "--policy", ask}, 0, ""},
		{[]string{"explain", "--policy", ask, "/home/u"}, 0, ""},
		{[]string{"explain", "--policy", ask, "https://b.test/"}, 0, ""},
		{[]string{"diff", ask, ask}, 0, ""},
		{[]string{"diff", "--allow", "c.test", ask, ask}, 0, ""},
		{[]string{"diff", ask, bad}, 125, bailey.CodePolicyInvalid},
		{[]string{"test", suite}, 1, ""},
		{[]string{"test", ask}, 125, bailey.CodePolicyInvalid},
		{[]string{"profiles"}, 0, ""},
	} {
		// With --json, all that is printed is JSON, a line for each answer.
		status, out, errs := asked(append([]string{c.args[0], "--json"}, c.args[1:]...)...)
		if status != c.want {
			t.Errorf("%q: exit code %d: %s%s", c.args, status, out, errs)
			continue
		}
		if c.code == "" {
			if !json.Valid([]byte(out)) || errs != "" {
				t.Errorf("%q prints %q, %q", c.args, out, errs)
			}
			continue
		}
		var e bailey.Error
		if err := json.Unmarshal([]byte(errs), &e); err != nil || e.Code != c.code || out != "" {
			t.Errorf("%q: %v, %s%s, want %s", c.args, err, out, errs, c.code)
		}
	}
	if status, _, errs := asked(); status != bailey.ExitBailey || !strings.HasPrefix(errs, "Usage: bailey policy") {
		t.Errorf("%d, %s", status, errs)
	}
	if status, out, _ := asked("check", "--help"); status != 0 || !strings.Contains(out, "--profile") {
		t.Errorf("%d, %s", status, out)
	}
}

// TestPolicyErrorsNameLineAndFix holds what a person reads of a document that
// is wrong.
func TestPolicyErrorsNameLineAndFix(t *testing.T) {
	bad := write(t, "bad.yaml", "version: 1\negress:\n  rules:\n  - hosts: [a.test]\n    method: [GET]\n")
	_, _, errs := asked("check", "--policy", bad, "https://a.test/")
	for _, want := range []string{bad, "line 5", `there is no field "method"`, "write methods", "[policy_invalid]"} {
		if !strings.Contains(errs, want) {
			t.Errorf("%q does not say %q", errs, want)
		}
	}
}

// TestPolicyOutputIsPrintable: a document may be anybody's, and a terminal
// does what escape sequences say.
func TestPolicyOutputIsPrintable(t *testing.T) {
	p := write(t, "p.yaml", "version: 1\negress: {rules: [{name: \"\\e]0;x\\a\", hosts: [a.test], description: \"\\e[2J\"}]}")
	for _, args := range [][]string{{"explain", "--policy", p}, {"explain", "--policy", p, "https://a.test/"}, {"check", "--policy", p, "https://a.test/"}} {
		if _, out, errs := asked(args...); out == "" || strings.ContainsAny(out+errs, "\x1b\x07") {
			t.Errorf("%q: %q %q", args, out, errs)
		}
	}
}

var (
	docFile    = regexp.MustCompile("(?s)<!-- file: (\\S+) -->\n```yaml\n(.*?)```")
	docConsole = regexp.MustCompile("(?s)```console\n(.*?)```")
	docDigest  = regexp.MustCompile("sha256:[0-9a-f]{64}")
)

// TestPolicyDocument does what docs/policy.md shows, and gets what it shows.
func TestPolicyDocument(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "policy.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "bailey")); err != nil {
		t.Fatal(err)
	}
	files := docFile.FindAllSubmatch(text, -1)
	for _, m := range files {
		if err := os.WriteFile(filepath.Join(dir, string(m[1])), m[2], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n := bytes.Count(text, []byte("```yaml")); n != len(files) || n == 0 {
		t.Errorf("%d examples, %d of them named", n, len(files))
	}
	commands := 0
	for _, block := range docConsole.FindAllSubmatch(text, -1) {
		for _, part := range strings.Split(string(block[1]), "$ ")[1:] {
			command, want, _ := strings.Cut(part, "\n")
			cmd := exec.Command("sh", "-c", command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), asBaileyd+"=1", "PATH="+dir+":"+os.Getenv("PATH"))
			out, _ := cmd.CombinedOutput() // exit codes are part of what is shown
			if got := docDigest.ReplaceAllString(string(out), "sha256:…"); got != want {
				t.Errorf("$ %s\n%s\nthe document shows\n%s", command, got, want)
			}
			commands++
		}
	}
	if commands < 8 {
		t.Errorf("only %d commands were found", commands)
	}
}

// TestPolicyInterrupted: while it waits for a document that does not come, a
// signal ends it, as it does other programs that read.
func TestPolicyInterrupted(t *testing.T) {
	t.Parallel()
	pipe := filepath.Join(t.TempDir(), "policy")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := baileyd("policy", "check", "--policy", pipe, "https://a.test/")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer time.AfterFunc(time.Minute, func() { cmd.Process.Kill() }).Stop()
	f, err := os.OpenFile(pipe, os.O_WRONLY, 0) // when the program has it open too
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd.Process.Signal(syscall.SIGTERM)
	cmd.Wait()
	if s := cmd.ProcessState.Sys().(syscall.WaitStatus); s.Signal() != syscall.SIGTERM {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}
