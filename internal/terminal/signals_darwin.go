package terminal

import (
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// ignored reports whether the signal is ignored, as far as os/signal knows.
func ignored(s syscall.Signal) bool { return signal.Ignored(s) }

// stopSelf stops this process, if the parent is of the same session and so
// may be a shell that can continue it.
func stopSelf() (restore func()) {
	parent, err := unix.Getsid(unix.Getppid())
	own, err2 := unix.Getsid(0)
	if err == nil && err2 == nil && parent == own {
		_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	}
	return func() {}
}
