package main

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func iopl() error {
	_, _, e := unix.RawSyscall(unix.SYS_IOPL, 3, 0, 0)
	answer(e)
	return errno(e)
}

// int80 makes a call by its number of 32 bits, from machine code of its own: mov
// ebx, ARG; mov eax, CALL; int 0x80; ret. The register that Go keeps nothing in
// across a call is saved all the same.
func int80(call, arg uint32) error {
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return err
	}
	copy(page, []byte{0x53, 0xbb, byte(arg), byte(arg >> 8), byte(arg >> 16), byte(arg >> 24), 0xb8, byte(call), byte(call >> 8), 0, 0, 0xcd, 0x80, 0x5b, 0xc3})
	code := &page[0]
	fn := unsafe.Pointer(&code)
	(*(*func())(unsafe.Pointer(&fn)))()
	return nil
}

func init() {
	// int80 VALUE: personality(VALUE) by the entry for programs of 32 bits. Where a
	// harmless call faults there, the machine has no such entry.
	attacks["int80"] = func(args []string) error {
		probe := exec.Command("/proc/self/exe", "int80-probe")
		var end *exec.ExitError
		if errors.As(probe.Run(), &end) && end.Sys().(syscall.WaitStatus).Signal() == unix.SIGSEGV {
			answer(unix.ENOSYS)
			return nil
		}
		if err := int80(136, uint32(number(args[0]))); err != nil {
			return err
		}
		tell("look")
		return nil
	}
	attacks["int80-probe"] = func([]string) error {
		const getpid = 20
		// The fault is to end this process, in place of Go's handler.
		var dfl struct{ handler, flags, restorer, mask uint64 }
		unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGSEGV), uintptr(unsafe.Pointer(&dfl)), 0, 8, 0, 0)
		return int80(getpid, 0)
	}
	// x32 VALUE: personality(VALUE) by a number of the x32 table.
	attacks["x32"] = func(args []string) error {
		_, _, e := unix.RawSyscall(unix.SYS_PERSONALITY|0x40000000, uintptr(number(args[0])), 0, 0)
		tell("look")
		return errno(e)
	}
}
