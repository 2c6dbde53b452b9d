package linux

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// rights is a message that carries one descriptor, as sendmsg(2) and cmsg(3)
// lay it out. The last word is wider than the int it stands for, so that a
// step can store its result there.
type rights struct {
	msg  unix.Msghdr
	iov  unix.Iovec
	data [1]byte
	ctl  struct {
		unix.Cmsghdr
		fd uint64
	}
}

// terminal opens a pty inside the sandbox, as its user, gives the command its
// slave and the owner its master. stderr, if not -1, takes the place of the
// slave there. The slave is got from the master and by no path: what lies at
// /dev/pts could be exchanged by an image (CVE-2025-52565).
func (b *builder) terminal(size driver.WindowSize, control, stderr int) {
	ptmx := b.Do("open a terminal", unix.SYS_OPENAT, noFD, b.Str("/dev/pts/ptmx"),
		spawn.Int(unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC), zero)
	r := &rights{}
	ptmx.StoreAt(unsafe.Pointer(&r.ctl.fd))
	master := spawn.Word(&r.ctl.fd)
	b.Do("unlock the terminal", unix.SYS_IOCTL, master, spawn.Uint(unix.TIOCSPTLCK), b.Pointer(unsafe.Pointer(new(int64))))
	slave := b.Do("open the terminal's slave", unix.SYS_IOCTL, master, spawn.Uint(unix.TIOCGPTPEER), spawn.Int(unix.O_RDWR|unix.O_NOCTTY)).Result()
	ws := &unix.Winsize{Row: size.Rows, Col: size.Cols}
	b.Do("size the terminal", unix.SYS_IOCTL, master, spawn.Uint(unix.TIOCSWINSZ), b.Pointer(unsafe.Pointer(ws)))
	r.data[0] = 't'
	r.iov = unix.Iovec{Base: &r.data[0], Len: 1}
	r.ctl.Level, r.ctl.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
	r.ctl.SetLen(unix.CmsgLen(4))
	r.msg = unix.Msghdr{Iov: &r.iov, Iovlen: 1, Control: (*byte)(unsafe.Pointer(&r.ctl)), Controllen: uint64(unix.CmsgSpace(4))}
	b.Do("hand out the terminal", unix.SYS_SENDMSG, spawn.Int(control), b.Pointer(unsafe.Pointer(&r.msg)), spawn.Int(unix.MSG_NOSIGNAL))
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
	data, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(control, data, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil {
		return nil, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil || len(msgs) != 1 {
		return nil, syscall.EBADMSG
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return nil, syscall.EBADMSG
	}
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "terminal"), nil
}
