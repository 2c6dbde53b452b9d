package audit

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFile waits for the lock. It belongs to the open file, not to the process.
func lockFile(f *os.File) error { return setLock(f, unix.F_WRLCK) }

func unlockFile(f *os.File) { _ = setLock(f, unix.F_UNLCK) }

func setLock(f *os.File, kind int16) error {
	for {
		lk := unix.Flock_t{Type: kind}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLKW, &lk); err != unix.EINTR {
			return err
		}
	}
}

func fdatasync(fd int) error { return unix.Fdatasync(fd) }

// bootID names this start of the kernel; "-" if it is not told.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if id := strings.TrimSpace(string(b)); err == nil && id != "" && !strings.ContainsAny(id, " \n") {
		return id
	}
	return "-"
}

// beginWriting has the kernel write a file's pages without waiting for it. It is
// a hint.
func beginWriting(f *os.File) {
	_ = unix.SyncFileRange(int(f.Fd()), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}
