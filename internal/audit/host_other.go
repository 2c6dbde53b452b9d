//go:build !linux

package audit

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile waits for the lock.
func lockFile(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return err
		}
	}
}

func unlockFile(f *os.File) { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }

func fdatasync(fd int) error { return unix.Fsync(fd) }

func bootID() string { return "-" }

func beginWriting(*os.File) {}
