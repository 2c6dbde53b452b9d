package terminal

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// action is the kernel's struct sigaction. The order of what follows the
// handler is the architecture's own, and does not matter here.
type action struct {
	handler uintptr
	rest    [64]byte
}

func sigaction(s syscall.Signal, set, old *action) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ignored reports whether the signal is ignored. os/signal knows that only of
// some signals when it was so from the start.
func ignored(s syscall.Signal) bool {
	var old action
	const ignore = 1 // SIG_IGN
	return sigaction(s, nil, &old) == nil && old.handler == ignore
}

// stopSelf gives SIGTSTP its default action and sends it to this process. The
// function that it returns puts the old action back. os/signal cannot do it:
// after Reset the runtime's handler is still there, and does nothing. Unlike
// SIGSTOP this stops nothing that no shell could continue.
func stopSelf() (restore func()) {
	var usual, old action
	if sigaction(unix.SIGTSTP, &usual, &old) != nil {
		return func() {}
	}
	_ = unix.Kill(unix.Getpid(), unix.SIGTSTP)
	return func() { _ = sigaction(unix.SIGTSTP, &old, nil) }
}
