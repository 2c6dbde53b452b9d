//go:build linux

package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	hasX32    = true
)

var ioportCalls = []uint16{unix.SYS_IOPL, unix.SYS_IOPERM}
