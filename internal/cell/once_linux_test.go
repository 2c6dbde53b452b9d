package cell

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// once is a bailey-cell for one command.
func once(t *testing.T, inner ...string) *exec.Cmd {
	t.Helper()
	b, err := json.Marshal(Config{Inner: inner, Env: []string{"PATH=/usr/bin:/bin", "A=b"}, Dir: "/usr"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return exec.Command(program(t, "bailey-cell"), "run", path)
}

func TestOnce(t *testing.T) {
	cmd := once(t, "/bin/sh", "-c", "pwd; echo $A; cat; echo err >&2; exit 42")
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader("input"), &out, &errs
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 42 || out.String() != "/usr\nb\ninput" || errs.String() != "err\n" {
		t.Fatalf("%v %q %q", err, out.String(), errs.String())
	}
	cmd = once(t, "/bin/sh", "-c", "kill -SEGV $$")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 128+int(syscall.SIGSEGV) {
		t.Fatal(err)
	}
	cmd = once(t, "/there/is/no/such/program")
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != ExitUsage {
		t.Fatal(err)
	}
}

// A signal is handed on, and nothing is left of what the program started.
func TestOnceSignals(t *testing.T) {
	cmd := once(t, "/bin/sh", "-c", "trap 'exit 7' TERM; (setsid sleep 300 &); echo up; while :; do sleep 0.01; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	if line, err := r.ReadString('\n'); line != "up\n" {
		t.Fatal(line, err)
	}
	cmd.Process.Signal(syscall.SIGTERM)
	if rest, err := r.ReadString('\n'); rest != "" { // the end: whoever held it is gone
		t.Fatal(rest, err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
		t.Fatal(err)
	}
}
