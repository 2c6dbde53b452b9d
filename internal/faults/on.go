//go:build bailey_faults

package faults

import (
	"os"
	"strings"
	"syscall"
)

const variable = "BAILEY_FAULT"

// Trace is called before each step of the parent.
func Trace(step string) {
	if os.Getenv(variable) == step {
		syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	}
}

// Child names the step of the sandbox's first process to stop after, or "".
func Child() string {
	name, _ := strings.CutPrefix(os.Getenv(variable), "child:")
	if name == os.Getenv(variable) {
		return ""
	}
	return name
}
