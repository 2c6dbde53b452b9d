//go:build unix

package gate

import "golang.org/x/sys/unix"

// connections is how many streams one sandbox may have open, if nobody says:
// each takes up to four descriptors, and sixteen such sandboxes shall fit.
func connections() int {
	const most = 1024
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return most / 16
	}
	return int(max(16, min(most, uint64(l.Cur)/64)))
}
