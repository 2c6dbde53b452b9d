//go:build linux

package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	hasX32    = true
)

var ioportCalls = []uint16{unix.SYS_IOPL, unix.SYS_IOPERM}

// Calls of the C library's older kind, which newer architectures lack.
var (
	chmodCalls = []uint16{unix.SYS_CHMOD, unix.SYS_CREAT, unix.SYS_MKNOD}
	openCalls  = []uint16{unix.SYS_OPEN}
)
