package terminal

import "golang.org/x/sys/unix"

const (
	getTermios      = unix.TCGETS
	setNow     uint = unix.TCSETS
	setDrain   uint = unix.TCSETSW // after output has gone
	setFlush   uint = unix.TCSETSF // and without the input that nobody read
)
