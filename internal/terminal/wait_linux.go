package terminal

import (
	"time"

	"golang.org/x/sys/unix"
)

// wait blocks until fd can be read (or written), until wake can be read, or
// until the timeout has passed; a negative timeout is none. A descriptor of -1
// is left out. The descriptors may be blocking ones: the person's files are
// shared with other processes, whose flags are not ours to change.
func wait(fd int, write bool, wake int, timeout time.Duration) (readiness, error) {
	events := int16(unix.POLLIN)
	if write {
		events = unix.POLLOUT
	}
	set := []unix.PollFd{{Fd: int32(fd), Events: events}, {Fd: int32(wake), Events: unix.POLLIN}}
	var limit *unix.Timespec
	if timeout >= 0 {
		ts := unix.NsecToTimespec(int64(timeout))
		limit = &ts
	}
	for {
		_, err := unix.Ppoll(set, limit, nil)
		if err == unix.EINTR {
			continue
		}
		r := readiness{
			ready:  set[0].Revents != 0,
			hangup: set[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0,
			woken:  set[1].Revents != 0,
		}
		return r, err
	}
}
