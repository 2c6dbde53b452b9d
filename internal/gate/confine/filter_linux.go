package confine

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// plain are calls that may be made whatever their arguments. They are what the
// Go runtime and package net make on Linux, and what writing a log takes. None
// starts a program, changes rights or mounts, or looks into another process.
var plain = append([]uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64,
	unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_LSEEK, unix.SYS_OPENAT, unix.SYS_FCNTL, unix.SYS_DUP, unix.SYS_DUP3,
	unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FLOCK,
	unix.SYS_RENAMEAT2, unix.SYS_UNLINKAT, unix.SYS_MKDIRAT, unix.SYS_GETDENTS64, unix.SYS_READLINKAT, unix.SYS_FACCESSAT,
	unix.SYS_FACCESSAT2, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FSTATFS, unix.SYS_GETCWD, unix.SYS_MEMFD_CREATE,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_BRK, unix.SYS_MINCORE, unix.SYS_MLOCK, unix.SYS_MUNLOCK,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETPPID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME,
	unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETRANDOM,
	unix.SYS_SETITIMER, unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_GETRUSAGE,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_UNAME, unix.SYS_SYSINFO,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2, unix.SYS_EVENTFD2, unix.SYS_PIPE2, unix.SYS_PPOLL,
	unix.SYS_CONNECT, unix.SYS_BIND, unix.SYS_ACCEPT4, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME,
	unix.SYS_SETSOCKOPT, unix.SYS_GETSOCKOPT, unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_SENDMSG, unix.SYS_RECVMSG,
	unix.SYS_SENDMMSG, unix.SYS_RECVMMSG, unix.SYS_SHUTDOWN, unix.SYS_SPLICE, unix.SYS_SENDFILE,
}, archCalls...)

// condition allows a call when one of its arguments, masked, is one of values.
type condition struct {
	call   uint32
	arg    uint32
	mask   uint32
	values []uint32
}

// anyOnes is the mask of a value that is looked at whole.
const anyOnes = 0xffffffff

// cloneNew are the flags of clone by which a child gets namespaces of its own.
const cloneNew = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

func conditions() []condition {
	self := uint32(os.Getpid())
	return []condition{
		// Threads, no processes.
		{unix.SYS_CLONE, 0, unix.CLONE_THREAD | unix.CLONE_VM | cloneNew, []uint32{unix.CLONE_THREAD | unix.CLONE_VM}},
		// The runtime interrupts its own threads.
		{unix.SYS_TGKILL, 0, anyOnes, []uint32{self}},
		// Memory is data: nothing new becomes code.
		{unix.SYS_MMAP, 2, unix.PROT_EXEC, []uint32{0}},
		{unix.SYS_MPROTECT, 2, unix.PROT_EXEC, []uint32{0}},
		// Unix sockets lead to other programs of this host. Netlink's routes are
		// how net lists this host's own addresses.
		{unix.SYS_SOCKET, 0, anyOnes, []uint32{unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}},
		// The runtime names its memory, and this package looks at what is left.
		{unix.SYS_PRCTL, 0, anyOnes, []uint32{prSetVMA, unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_DUMPABLE, unix.PR_GET_SECCOMP}},
		// Asking for limits, not setting them: the new ones are a null pointer,
		// of which the low half is looked at.
		{unix.SYS_PRLIMIT64, 2, anyOnes, []uint32{0}},
		{unix.SYS_CAPGET, 0, 0, []uint32{0}},
		{unix.SYS_GETRESUID, 0, 0, []uint32{0}},
	}
}

// prSetVMA is PR_SET_VMA of <linux/prctl.h>.
const prSetVMA = 0x53564d41

// Offsets in struct seccomp_data; the low half of an argument comes first on
// the machines of audit.
const (
	offNumber, offArch, offArgs = 0, 4, 16
)

// filter loads the allow list for all threads. A call that is not on it fails
// with EPERM, one of another architecture ends the process.
func filter() error {
	code := program(plain, conditions())
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	r, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	switch {
	case errno != 0:
		return errno
	case r != 0:
		return fmt.Errorf("thread %d cannot take the filter", r)
	}
	return nil
}

// program writes the filter: each call is a test that answers at once, in the
// order of the list, the most frequent first.
func program(calls []uint32, conds []condition) []unix.SockFilter {
	const (
		load   = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		least  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		and    = unix.BPF_ALU | unix.BPF_AND | unix.BPF_K
		answer = unix.BPF_RET | unix.BPF_K
	)
	refuse := uint32(unix.SECCOMP_RET_ERRNO | unix.EPERM)
	code := []unix.SockFilter{
		{Code: load, K: offArch},
		{Code: equal, K: arch, Jt: 1},
		{Code: answer, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: offNumber},
		// The x32 numbers of amd64 are another door to every call.
		{Code: least, K: 0x40000000, Jf: 1},
		{Code: answer, K: unix.SECCOMP_RET_KILL_PROCESS},
	}
	for _, n := range calls {
		code = append(code,
			unix.SockFilter{Code: equal, K: n, Jf: 1},
			unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	}
	for _, c := range conds {
		// Behind the test: load, and, one test per value, refuse, allow.
		n := uint8(len(c.values))
		code = append(code,
			unix.SockFilter{Code: equal, K: c.call, Jf: n + 4},
			unix.SockFilter{Code: load, K: offArgs + 8*c.arg},
			unix.SockFilter{Code: and, K: c.mask})
		for i, v := range c.values {
			code = append(code, unix.SockFilter{Code: equal, K: v, Jt: n - uint8(i)})
		}
		code = append(code,
			unix.SockFilter{Code: answer, K: refuse},
			unix.SockFilter{Code: answer, K: unix.SECCOMP_RET_ALLOW})
	}
	return append(code, unix.SockFilter{Code: answer, K: refuse})
}
