//go:build bailey_faults

package faults

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

const (
	variable = "BAILEY_FAULT"
	list     = "BAILEY_FAULT_LIST"
)

// Trace is called before each step of the parent.
func Trace(step string) {
	note(step)
	if os.Getenv(variable) == step {
		// To this thread: a signal to the process is another thread's to take, and
		// this one would go on until that has happened.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		syscall.Tgkill(syscall.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
	}
}

// stop is read before anything opens descriptors: the gate is number 3, which
// the sandbox's first process wants for itself.
var stop = func() Stop {
	s := Stop{Steps: steps}
	number, ok := strings.CutPrefix(os.Getenv(variable), "child:")
	after, err := strconv.Atoi(number)
	if !ok || err != nil {
		return s
	}
	const inherited, high = 3, 900
	gate, _, errno := syscall.Syscall(syscall.SYS_FCNTL, inherited, syscall.F_DUPFD_CLOEXEC, high)
	if errno != 0 {
		return s
	}
	syscall.Close(inherited)
	s.After, s.Gate = after, int(gate)
	return s
}()

// Child says where the sandbox's first process stops.
func Child() Stop { return stop }

func steps(names []string) {
	for _, n := range names {
		note("child:" + n)
	}
}

// note writes a step down where the suite asked for the list of them.
func note(step string) {
	path := os.Getenv(list)
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	f.WriteString(step + "\x00")
}
