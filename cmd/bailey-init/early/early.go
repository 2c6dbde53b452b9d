// Package early does what has to come before everything else in bailey-init.
//
// Go initialises packages whose imports are ready in the order of their paths,
// and this one imports only package syscall, so it runs before package os,
// which raises the limit on open files, and before anything is read. At that
// moment the sandbox has no other process that could look in.
package early

import "syscall"

const (
	prSetDumpable = 4
	rlimitNofile  = 7
)

// Undumpable reports whether the process could be closed to ptrace(2), to
// /proc/PID/mem and to pidfd_getfd(2) by the other processes of its user.
var Undumpable = func() bool {
	_, _, e := syscall.RawSyscall(syscall.SYS_PRCTL, prSetDumpable, 0, 0)
	return e == 0
}()

// Files is the limit on open files that the process was started with.
var Files = func() (l syscall.Rlimit) {
	syscall.Getrlimit(rlimitNofile, &l)
	return l
}()
