package main

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func iopl() error {
	_, _, e := unix.RawSyscall(unix.SYS_IOPL, 3, 0, 0)
	answer(e)
	return errno(e)
}

func init() {
	// int80 VALUE: personality(VALUE) by the entry for programs of 32 bits, from
	// machine code of its own: mov ebx, VALUE; mov eax, 136; int 0x80; ret. The
	// register that Go keeps nothing in across a call is saved all the same.
	attacks["int80"] = func(args []string) error {
		page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		v := uint32(number(args[0]))
		copy(page, []byte{0x53, 0xbb, byte(v), byte(v >> 8), byte(v >> 16), byte(v >> 24), 0xb8, 136, 0, 0, 0, 0xcd, 0x80, 0x5b, 0xc3})
		code := &page[0]
		fn := unsafe.Pointer(&code)
		(*(*func())(unsafe.Pointer(&fn)))()
		tell("look")
		return nil
	}
	// x32 VALUE: personality(VALUE) by a number of the x32 table.
	attacks["x32"] = func(args []string) error {
		_, _, e := unix.RawSyscall(unix.SYS_PERSONALITY|0x40000000, uintptr(number(args[0])), 0, 0)
		tell("look")
		return errno(e)
	}
}
