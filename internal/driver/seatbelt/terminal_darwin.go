package seatbelt

import (
	"bytes"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
)

// openTerminal makes a pseudo-terminal, as posix_openpt, grantpt, unlockpt and
// ptsname do.
func openTerminal(size driver.WindowSize) (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			_ = master.Close()
		}
	}()
	fd := master.Fd()
	var name [128]byte // what TIOCPTYGNAME fills
	for _, call := range []struct {
		request uintptr
		arg     unsafe.Pointer
	}{{unix.TIOCPTYGRANT, nil}, {unix.TIOCPTYUNLK, nil}, {unix.TIOCPTYGNAME, unsafe.Pointer(&name)}} {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, call.request, uintptr(call.arg)); errno != 0 {
			return nil, nil, errno
		}
	}
	path, _, _ := bytes.Cut(name[:], []byte{0})
	if slave, err = os.OpenFile(string(path), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	if err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Cols}); err != nil {
		_ = slave.Close()
		return nil, nil, err
	}
	return master, slave, nil
}
