//go:build linux

package seccomp

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	hasX32    = false
)

// What amd64 has here this architecture has not.
var ioportCalls, chmodCalls, openCalls []uint16
