package terminal

import "golang.org/x/sys/unix"

const (
	getTermios      = unix.TIOCGETA
	setNow     uint = unix.TIOCSETA
	setDrain   uint = unix.TIOCSETAW // after output has gone
	setFlush   uint = unix.TIOCSETAF // and without the input that nobody read
)
