package secrets

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// How commands that give values are run.
const (
	// CommandTimeout is how long one may take.
	CommandTimeout = 30 * time.Second
	// CommandTTL is how long its value is used, in memory only.
	CommandTTL = 5 * time.Minute
)

func checkCommand(c []byte) error {
	if len(bytes.TrimSpace(c)) == 0 || len(c) > MaxValue || bytes.IndexByte(c, 0) >= 0 {
		return bailey.Errorf(bailey.CodeUsage, "keep the secret", "give a line for sh, such as 'pass show github'", "the command is empty, too long or holds a NUL")
	}
	return nil
}

// runCommand runs a line with sh, as the user that Bailey runs as, outside of
// any sandbox. What it prints on its standard output is the value; its standard
// error is thrown away, for it may say the value too.
func runCommand(ctx context.Context, name, line string) ([]byte, error) {
	const what = "get the secret from its command"
	ctx, cancel := context.WithTimeout(ctx, CommandTimeout)
	defer cancel()
	var out bounded
	// The line is an argument, which others can see: it names where the value is,
	// and must not hold one.
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", line)
	cmd.Stdout = &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if err != nil {
		clear(out.b)
		why := "it could not be run"
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			why = "it was stopped after " + CommandTimeout.String() + " at most"
		case errors.As(err, &exit):
			why = "it ended with " + strings.TrimSpace(exit.ProcessState.String())
		}
		return nil, bailey.Errorf(bailey.CodeSetupFailed, what, "run it by hand and see what it says", "the command of %s: %s", name, why)
	}
	value := TrimFinalNewline(out.b)
	if err := checkValue(name, value); err != nil {
		clear(out.b)
		return nil, err
	}
	return value, nil
}

// bounded keeps a little more than a value may have.
type bounded struct{ b []byte }

func (w *bounded) Write(p []byte) (int, error) {
	keep := min(len(p), max(0, MaxValue+3-len(w.b)))
	w.b = append(w.b, p[:keep]...)
	return len(p), nil
}
