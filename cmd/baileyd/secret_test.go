package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/bailey-sandbox/bailey/internal/secrets"
)

const secretSample = "ghp_0123456789abcdefghijklmnopqrstuvwxyz"

// secretCmd is `bailey secret` with a data folder of its own.
func secretCmd(home string, args ...string) *exec.Cmd {
	cmd := baileyd(append([]string{"secret"}, args...)...)
	cmd.Env = append(cmd.Env, "BAILEY_HOME="+home, secrets.EnvKeyFile+"=", secrets.EnvPassphraseFile+"=", "FROM_HERE="+secretSample)
	return cmd
}

func runSecret(t *testing.T, home, stdin string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := secretCmd(home, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	_ = cmd.Run()
	for _, s := range []string{out.String(), errs.String(), strings.Join(cmd.Args, " ")} {
		if strings.Contains(s, secretSample) {
			t.Errorf("bailey secret %v shows the value: %s", args, s)
		}
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// kept gives what the store has.
func kept(t *testing.T, home, name string) string {
	t.Helper()
	t.Setenv(secrets.EnvKeyFile, "")
	t.Setenv(secrets.EnvPassphraseFile, "")
	c, err := secrets.Open(home).Current(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return string(c.Value.Bytes())
}

func TestSecretSources(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secretSample+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		stdin string
		args  []string
	}{
		"STDIN": {secretSample + "\n", nil}, "BARE": {secretSample, nil}, "ENV": {"", []string{"--from-env", "FROM_HERE"}},
		"FILE": {"", []string{"--from-file", file}}, "COMMAND": {"", []string{"--command", "cat " + file}},
	} {
		out, errs, status := runSecret(t, home, c.stdin, append([]string{"set", name}, c.args...)...)
		if status != 0 || out != name+" is kept, version 1\n" || errs != "" {
			t.Errorf("%s: %d, %q, %q", name, status, out, errs)
		}
		if got := kept(t, home, name); got != secretSample {
			t.Errorf("%s: kept %d bytes", name, len(got))
		}
	}
	err := filepath.WalkDir(home, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		for _, n := range []string{secretSample, base64.RawStdEncoding.EncodeToString([]byte(secretSample))[:50]} {
			if bytes.Contains(b, []byte(n)) {
				t.Errorf("%s holds the value", path)
			}
		}
		if fi, e := d.Info(); e != nil || fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be read by others", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(home, "keys", "secrets.age-key"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, errs, status := runSecret(t, home, "", "ls"); status != 0 || !strings.Contains(errs, "can be read by others") {
		t.Errorf("with a key that others can read: %d %q", status, errs)
	}
}

func TestSecretLife(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	if out, _, status := runSecret(t, home, "", "ls", "--json"); status != 0 || out != "[]\n" {
		t.Errorf("an empty list is %d %q", status, out)
	}
	for i := range 2 {
		if _, errs, status := runSecret(t, home, secretSample+strings.Repeat("x", i), "set", "A"); status != 0 {
			t.Fatal(errs)
		}
	}
	var all []secrets.Info
	out, _, _ := runSecret(t, home, "", "ls", "--json")
	if err := json.Unmarshal([]byte(out), &all); err != nil || len(all) != 1 || all[0].Version != 2 || all[0].Old != 1 || all[0].Prefix != "ghp_" {
		t.Errorf("%v: %s", err, out)
	}
	if out, _, _ := runSecret(t, home, "", "ls"); !regexp.MustCompile(`(?m)^A +2 .* stdin +ghp_ +in force$`).MatchString(out) {
		t.Errorf("listed as %s", out)
	}
	if _, errs, status := runSecret(t, home, "", "revoke", "A"); status != 0 {
		t.Error(errs)
	}
	if out, _, _ := runSecret(t, home, "", "ls"); !strings.Contains(out, "revoked") {
		t.Errorf("listed as %s", out)
	}
	if _, errs, status := runSecret(t, home, "", "rm", "A"); status != 0 {
		t.Error(errs)
	}
	for _, c := range []struct {
		stdin, code string
		args        []string
	}{
		{"", "not_found", []string{"rm", "A"}}, {"", "not_found", []string{"revoke", "A"}}, {"short", "usage", []string{"set", "A"}}, {"", "usage", []string{"set", "A"}},
		{"abcdefghijkl\nmno", "usage", []string{"set", "A"}}, {strings.Repeat("x", secrets.MaxValue+1), "usage", []string{"set", "A"}},
		{"", "usage", []string{"set"}}, {"", "usage", []string{"set", "A", "value"}}, {"", "usage", []string{"set", "../A"}}, {"", "usage", []string{"frob", "A"}},
		{"", "usage", []string{"set", "A", "--from-env", "NOT_SET_ANYWHERE"}}, {"", "usage", []string{"set", "A", "--from-file", "/nonexistent"}},
		{"", "usage", []string{"set", "A", "--from-env", "FROM_HERE", "--command", "x"}}, {"", "usage", []string{"ls", "A"}}, {"", "usage", []string{"set", "A", "--nope"}},
	} {
		if _, errs, status := runSecret(t, home, c.stdin, c.args...); status != 125 || !strings.Contains(errs, "["+c.code+"]") {
			t.Errorf("%v: %d %s", c.args, status, errs)
		}
	}
}

// TestSecretPrompt: on a terminal the value is asked for, and not shown.
func TestSecretPrompt(t *testing.T) {
	home := filepath.Join(t.TempDir(), "home")
	cmd := secretCmd(home, "set", "A")
	p, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var seen []byte
	buf := make([]byte, 1000)
	for !bytes.Contains(seen, []byte("Value of A: ")) {
		n, err := p.Read(buf)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen = append(seen, buf[:n]...)
	}
	if _, err := io.WriteString(p, secretSample+"\n"); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(p) // EIO at the end
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	if s := string(seen) + string(rest); strings.Contains(s, secretSample) || !strings.Contains(s, "A is kept, version 1") {
		t.Errorf("the terminal showed %q", s)
	}
	if kept(t, home, "A") != secretSample {
		t.Error("another value was kept")
	}
}

// TestSecretsDocument types what docs/secrets.md says, in its order, with the
// data folder lost before it is restored.
func TestSecretsDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/secrets.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 3 {
		t.Fatalf("the document has %d blocks of commands", len(blocks))
	}
	work := t.TempDir()
	for _, name := range []string{"deploy-key", "vault-key"} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(secretSample+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for i, b := range blocks {
		home := filepath.Join(work, "home")
		if i == 2 {
			if err := os.RemoveAll(home); err != nil {
				t.Fatal(err)
			}
		}
		script := "set -eu; umask 077; mkdir -p \"$SAFE\" \"$BACKUP\"; bailey() { \"$SELF\" \"$@\"; }\n" + b[1]
		cmd := exec.Command("/bin/sh", "-c", script)
		cmd.Dir = work
		cmd.Env = append(os.Environ(), asBaileyd+"=1", "SELF="+self, "BAILEY_HOME="+home, "SAFE="+filepath.Join(work, "safe"), "BACKUP="+filepath.Join(work, "backup"),
			"GITHUB_TOKEN="+secretSample, "API_KEY="+secretSample, secrets.EnvKeyFile+"=", secrets.EnvPassphraseFile+"=")
		if out, err = cmd.CombinedOutput(); err != nil {
			t.Fatalf("block %d: %v: %s", i+1, err, out)
		}
	}
	for _, name := range []string{"GITHUB_TOKEN", "API_KEY", "VAULT_KEY"} {
		if !bytes.Contains(out, []byte(name)) {
			t.Errorf("after the restore the list is %s", out)
		}
	}
	if kept(t, filepath.Join(work, "home"), "API_KEY") != secretSample {
		t.Error("the restored value differs")
	}
}
