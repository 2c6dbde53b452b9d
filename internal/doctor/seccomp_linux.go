package doctor

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seccompGetActionAvail is SECCOMP_GET_ACTION_AVAIL of linux/seccomp.h.
const seccompGetActionAvail = 2

// seccompHas asks whether filters can answer with an action; see seccomp(2).
func seccompHas(action uint32) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, seccompGetActionAvail, 0, uintptr(unsafe.Pointer(&action)))
	runtime.KeepAlive(&action)
	if errno != 0 {
		return errno
	}
	return nil
}
