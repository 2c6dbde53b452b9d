package terminal

import (
	"time"

	"golang.org/x/sys/unix"
)

// wait blocks until fd can be read (or written), until wake can be read, or
// until the timeout has passed; a negative timeout is none. A descriptor of -1
// is left out. It uses select, because poll does not know all terminal devices
// of macOS; the end of a file shows as ready then, and never as hangup.
func wait(fd int, write bool, wake int, timeout time.Duration) (readiness, error) {
	if fd >= unix.FD_SETSIZE || wake >= unix.FD_SETSIZE {
		return readiness{}, unix.EBADF
	}
	for {
		var reads, writes unix.FdSet
		if fd >= 0 && write {
			writes.Set(fd)
		} else if fd >= 0 {
			reads.Set(fd)
		}
		if wake >= 0 {
			reads.Set(wake)
		}
		var limit *unix.Timeval
		if timeout >= 0 {
			tv := unix.NsecToTimeval(int64(timeout))
			limit = &tv
		}
		_, err := unix.Select(max(fd, wake)+1, &reads, &writes, nil, limit)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return readiness{}, err
		}
		return readiness{
			ready: fd >= 0 && (reads.IsSet(fd) || writes.IsSet(fd)),
			woken: wake >= 0 && reads.IsSet(wake),
		}, nil
	}
}
