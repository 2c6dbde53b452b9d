package confine

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_AARCH64

// archCalls are those that only this machine has.
var archCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_RENAMEAT}
