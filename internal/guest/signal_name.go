package guest

import (
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// SignalName gives the signal's name as kill -l has it, with SIG in front:
// "SIGTERM", "SIGRTMIN+3"; "SIG99" for what has no name.
func SignalName(s syscall.Signal) string {
	if n := unix.SignalName(s); n != "" {
		return n
	}
	if s >= 34 && s <= 64 {
		return "SIGRTMIN+" + strconv.Itoa(int(s)-34)
	}
	return "SIG" + strconv.Itoa(int(s))
}
