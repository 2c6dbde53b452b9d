package control

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// seal puts content into a file of memory that nobody can change any more.
func seal(content []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("bailey-gate", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "sealed")
	_, err = f.Write(content)
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sealed refuses a descriptor whose content may change or that may block.
func sealed(f *os.File) error {
	got, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	if err != nil || got&seals != seals {
		return errors.New("a file came that is not sealed")
	}
	return nil
}
