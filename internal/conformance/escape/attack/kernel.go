//go:build linux

package main

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneThree makes a child that does nothing but wait to be killed.
//
//go:norace
func cloneThree(args unsafe.Pointer, size uintptr) (int, unix.Errno) {
	pid, _, e := unix.RawSyscall(unix.SYS_CLONE3, uintptr(args), size, 0)
	if e == 0 && pid == 0 {
		for {
			unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
	}
	return int(pid), e
}

// sent hands over what a call gave.
func sent(fd uintptr, e unix.Errno) error {
	if e != 0 {
		return e
	}
	tell("loot", int(fd))
	return nil
}

func init() {
	attacks["userfaultfd"] = func([]string) error {
		fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|1, 0, 0) // 1: faults of user mode only
		return sent(fd, e)
	}
	attacks["bpf"] = func([]string) error {
		attr := struct{ kind, key, value, max uint32 }{2, 4, 4, 1} // an array
		fd, _, e := unix.Syscall(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
		return sent(fd, e)
	}
	attacks["perf"] = func([]string) error {
		attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
			Config: unix.PERF_COUNT_SW_CPU_CLOCK, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
		fd, err := unix.PerfEventOpen(attr, 0, -1, -1, 0)
		if err != nil {
			return err
		}
		return sent(uintptr(fd), 0)
	}
	attacks["memfd-secret"] = func([]string) error {
		fd, _, e := unix.Syscall(unix.SYS_MEMFD_SECRET, 0, 0, 0)
		return sent(fd, e)
	}
	attacks["fanotify"] = func([]string) error {
		fd, err := unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID, 0)
		if err != nil {
			return err
		}
		return sent(uintptr(fd), 0)
	}
	attacks["personality"] = func(args []string) error {
		_, _, e := unix.RawSyscall(unix.SYS_PERSONALITY, uintptr(number(args[0])), 0, 0)
		tell("look")
		return errno(e)
	}
	attacks["mempolicy"] = func([]string) error {
		const interleave = 3
		nodes := uint64(1)
		_, _, e := unix.RawSyscall(unix.SYS_SET_MEMPOLICY, interleave, uintptr(unsafe.Pointer(&nodes)), 64)
		tell("look")
		return errno(e)
	}
	attacks["syslog"] = func([]string) error {
		const readAll = 3
		buf := make([]byte, 16<<10)
		n, err := unix.Klogctl(readAll, buf)
		if err == nil {
			tell("loot " + string(buf[:n]))
		}
		return err
	}
	// timezone: the kernel's idea of daylight saving, which nothing uses.
	attacks["timezone"] = func(args []string) error {
		tz := [2]int32{0, int32(number(args[0]))}
		_, _, e := unix.RawSyscall(unix.SYS_SETTIMEOFDAY, 0, uintptr(unsafe.Pointer(&tz)), 0)
		return errno(e)
	}
	// The calls that follow must not do what they are for. Arguments are wrong
	// on purpose, so that a kernel that listens answers something else than EPERM.
	attacks["reboot"] = func([]string) error {
		_, _, e := unix.RawSyscall6(unix.SYS_REBOOT, 0x0bad, 0x0bad, 0x0bad, 0, 0, 0)
		answer(e)
		return errno(e)
	}
	attacks["acct"] = func(args []string) error {
		err := unix.Acct(args[0])
		e, _ := err.(unix.Errno)
		answer(e)
		return err
	}
	attacks["quota"] = func([]string) error {
		const qQuotaOn, user = 0x800002, 0
		_, _, e := unix.Syscall6(unix.SYS_QUOTACTL, qQuotaOn<<8|user, 0, 0, 0, 0, 0)
		answer(e)
		return errno(e)
	}
	attacks["iopl"] = func([]string) error { return iopl() }
	attacks["vhangup"] = func([]string) error {
		_, _, e := unix.Syscall(unix.SYS_VHANGUP, 0, 0, 0)
		return errno(e)
	}
	// keyring DESCRIPTION: looks for a key of whoever started the sandbox.
	attacks["keyring"] = func(args []string) error {
		id, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", args[0], 0)
		if err != nil {
			return failed("search", err)
		}
		buf := make([]byte, 256)
		n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, buf, 0)
		if err != nil {
			return failed("read", err)
		}
		tell("loot " + string(buf[:n]))
		return nil
	}
	// ioctl FD COMMAND TEXT: one request for every byte.
	attacks["ioctl"] = func(args []string) error {
		for _, c := range []byte(args[2]) {
			c := c
			_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(number(args[0])), uintptr(number(args[1])), uintptr(unsafe.Pointer(&c)))
			if e != 0 {
				return e
			}
		}
		return nil
	}
}
