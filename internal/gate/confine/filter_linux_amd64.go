package confine

import "golang.org/x/sys/unix"

const arch = unix.AUDIT_ARCH_X86_64

// archCalls are those that only this machine has.
var archCalls = []uint32{unix.SYS_NEWFSTATAT, unix.SYS_EPOLL_WAIT, unix.SYS_ARCH_PRCTL, unix.SYS_GETRLIMIT, unix.SYS_RENAMEAT, unix.SYS_POLL}
