package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

func has(tool string) bool {
	_, err := exec.LookPath(tool)
	return err == nil
}

// prepare makes a command that ends, with all it started in its group, when
// the context does. Standard input is empty.
func prepare(ctx context.Context, dir string, env []string, command ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// output runs a command and gives both its outputs together.
func output(ctx context.Context, dir string, env []string, command ...string) (string, error) {
	out, err := prepare(ctx, dir, env, command...).CombinedOutput()
	return string(out), err
}

// stream runs a command and gives its output to f as it comes; errors of the
// command itself go to standard error.
func stream(ctx context.Context, dir string, env []string, f func(io.Reader), command ...string) error {
	cmd := prepare(ctx, dir, env, command...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	f(out)
	_, _ = io.Copy(io.Discard, out)
	return cmd.Wait()
}

// without gives an environment less the named variables.
func without(env []string, names ...string) []string {
	var out []string
next:
	for _, kv := range env {
		for _, n := range names {
			if strings.HasPrefix(kv, n+"=") {
				continue next
			}
		}
		out = append(out, kv)
	}
	return out
}
