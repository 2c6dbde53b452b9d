package linux

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

const terminalTag = 't'

// terminal opens a pty inside the sandbox, as its user, gives the command its
// slave and the owner its master. stderr, if not -1, takes the place of the
// slave there. The slave is got from the master and by no path: what lies at
// /dev/pts could be exchanged by an image (CVE-2025-52565).
func (b *builder) terminal(size driver.WindowSize, control, stderr int) {
	h := newHandover(terminalTag)
	master := h.from(b.Do("open a terminal", unix.SYS_OPENAT, noFD, b.Str("/dev/pts/ptmx"),
		spawn.Int(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC), zero))
	b.Do("unlock the terminal", unix.SYS_IOCTL, master, spawn.Uint(unix.TIOCSPTLCK), b.Pointer(unsafe.Pointer(new(int64))))
	slave := b.Do("open the terminal's slave", unix.SYS_IOCTL, master, spawn.Uint(unix.TIOCGPTPEER), spawn.Int(unix.O_RDWR|unix.O_NOCTTY)).Result()
	ws := &unix.Winsize{Row: size.Rows, Col: size.Cols}
	b.Do("size the terminal", unix.SYS_IOCTL, master, spawn.Uint(unix.TIOCSWINSZ), b.Pointer(unsafe.Pointer(ws)))
	b.send("hand out the terminal", control, h)
	for fd := range 3 {
		from := spawn.From(slave)
		if fd == 2 && stderr >= 0 {
			from = spawn.Int(stderr)
		}
		b.Do("standard descriptors", unix.SYS_DUP3, from, spawn.Int(fd), zero)
	}
}

// takeTerminal receives the master that the child sent before it executed.
func takeTerminal(control int) (*os.File, error) {
	fd, err := receive(control, terminalTag)
	if err != nil {
		return nil, err
	}
	unix.SetNonblock(fd, true)
	return os.NewFile(uintptr(fd), "terminal"), nil
}
