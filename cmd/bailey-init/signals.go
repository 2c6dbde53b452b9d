//go:build linux && (amd64 || arm64)

package main

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// asked are the signals for which the Go runtime's handlers have to stay: those by which
// a fault of this process itself comes, and the one that a write to a closed pipe makes
// the runtime look at. A channel takes those of them that somebody sends.
var asked = []os.Signal{unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGPIPE}

// kept are the signals that the runtime itself uses, or waits for, and that never end it.
var kept = []syscall.Signal{unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPROF}

// lastSignal is the highest number.
const lastSignal = 64

// shrugSignals keeps signals from inside from ending this process: one that is not asked
// for would do what the Go runtime thinks right, which for a first process is to exit.
// All but a few are ignored by the kernel. To ask the runtime for each would be as good,
// and each takes it two turns of a thread of its own, which together took longer than all
// else that this process does before it answers.
//
// Three of them, 32 to 34, the runtime leaves to a C library's threads. With their default
// action they do not end a first process, as the kernel promises, unless one of its threads
// has them blocked at that moment and another has not; then they do (complete_signal in
// kernel/signal.c). Commands get the defaults back: see vfork's Reset.
func shrugSignals() {
	signal.Notify(make(chan os.Signal, 1), asked...) // never read; what does not fit is dropped
	ignore := [4]uintptr{1}                          // struct sigaction of the kernel with SIG_IGN, as long as on either machine
	for sig := syscall.Signal(1); sig <= lastSignal; sig++ {
		if !slices.Contains(kept, sig) && !slices.Contains(asked, os.Signal(sig)) {
			syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&ignore)), 0, 8, 0, 0)
		}
	}
}
