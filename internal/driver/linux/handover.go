package linux

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// handover is a message that carries one descriptor, as sendmsg(2) and cmsg(3)
// lay it out. The last word is wider than the int it stands for, so that a
// step can store its result there.
type handover struct {
	msg  unix.Msghdr
	iov  unix.Iovec
	data [1]byte
	ctl  struct {
		unix.Cmsghdr
		fd uint64
	}
}

// newHandover makes a message whose byte says what is handed over.
func newHandover(tag byte) *handover {
	h := &handover{}
	h.data[0] = tag
	h.iov = unix.Iovec{Base: &h.data[0], Len: 1}
	h.ctl.Level, h.ctl.Type = unix.SOL_SOCKET, unix.SCM_RIGHTS
	h.ctl.SetLen(unix.CmsgLen(4))
	h.msg = unix.Msghdr{Iov: &h.iov, Iovlen: 1, Control: (*byte)(unsafe.Pointer(&h.ctl)), Controllen: uint64(unix.CmsgSpace(4))}
	return h
}

// from makes a step's result the descriptor that is handed over, and gives it
// to other steps.
func (h *handover) from(st spawn.Step) spawn.Arg {
	st.StoreAt(unsafe.Pointer(&h.ctl.fd))
	return spawn.Word(&h.ctl.fd)
}

// send is the step that hands it over.
func (b *builder) send(what string, control int, h *handover) {
	b.Do(what, unix.SYS_SENDMSG, spawn.Int(control), b.Pointer(unsafe.Pointer(&h.msg)), spawn.Int(unix.MSG_NOSIGNAL))
}

// receive takes the descriptor that the child handed over with tag. Such
// messages are the first that come from a child, in the order of its script.
func receive(control int, tag byte) (int, error) {
	data, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	var n, nOOB int
	for {
		var err error
		n, nOOB, _, _, err = unix.Recvmsg(control, data, oob, unix.MSG_CMSG_CLOEXEC)
		if err == nil {
			break
		}
		if err != unix.EINTR {
			return -1, err
		}
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:nOOB])
	if err != nil || len(msgs) != 1 {
		return -1, syscall.EBADMSG
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return -1, syscall.EBADMSG
	}
	if n != 1 || data[0] != tag {
		unix.Close(fds[0])
		return -1, syscall.EBADMSG
	}
	return fds[0], nil
}
