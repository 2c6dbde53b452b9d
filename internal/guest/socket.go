//go:build unix

package guest

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is one end of a connected unix stream socket, over which descriptors
// are passed. It is made by Pair or NewSocket.
type Socket struct {
	f   *os.File
	raw syscall.RawConn
	oob []byte // for receiving; used by one goroutine

	closeOnce sync.Once
	closeErr  error
}

// NewSocket takes over f, a connected unix stream socket.
func NewSocket(f *os.File) (*Socket, error) {
	fd := int(f.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	// A file that was opened as blocking is not known to the poller: start over
	// with a copy of the descriptor.
	nfd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	name := f.Name()
	f.Close()
	return socketOf(nfd, name)
}

func socketOf(fd int, name string) (*Socket, error) {
	f := os.NewFile(uintptr(fd), name)
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &Socket{f: f, raw: raw, oob: make([]byte, unix.CmsgSpace(4*maxFrameFDs))}, nil
}

// Pair makes the two ends of a conversation: the owner's, and the file that
// bailey-init inherits (as descriptor 3 unless told otherwise). Both are
// close-on-exec.
func Pair() (*Socket, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|sockFlags, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		unix.Close(fds[0])
		unix.Close(fds[1])
		return nil, nil, os.NewSyscallError("fcntl", err)
	}
	s, err := socketOf(fds[0], "guest")
	if err != nil {
		unix.Close(fds[1])
		return nil, nil, err
	}
	return s, os.NewFile(uintptr(fds[1]), "guest"), nil
}

// File gives a copy of the descriptor, for a keeper to hold. The caller closes
// it.
func (s *Socket) File() (*os.File, error) {
	var nfd int
	var err error
	if e := s.raw.Control(func(fd uintptr) { nfd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(nfd), s.f.Name()), nil
}

// Read implements io.Reader. Descriptors that come with the bytes are closed.
func (s *Socket) Read(p []byte) (int, error) {
	n, fds, err := s.receive(p)
	closeAll(fds)
	return n, err
}

// Write implements io.Writer.
func (s *Socket) Write(p []byte) (int, error) { return len(p), s.send(p, nil) }

// Close closes this end, once. Reads and writes that wait return.
func (s *Socket) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.f.Close() })
	return s.closeErr
}

var errTruncated = errors.New("more descriptors arrived than were announced")

// receive reads bytes and the descriptors that came with them.
func (s *Socket) receive(p []byte) (n int, fds []int, err error) {
	var oobn, flags int
	e := s.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), p, s.oob, recvFlags)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if e != nil {
		return 0, nil, e
	}
	if err != nil {
		return 0, nil, os.NewSyscallError("recvmsg", err)
	}
	if oobn > 0 {
		msgs, perr := unix.ParseSocketControlMessage(s.oob[:oobn])
		if perr != nil {
			return 0, nil, perr
		}
		for i := range msgs {
			got, perr := unix.ParseUnixRights(&msgs[i])
			if perr == nil {
				fds = append(fds, got...)
			}
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		closeAll(fds)
		return 0, nil, errTruncated
	}
	if n == 0 {
		return 0, fds, io.EOF
	}
	return n, fds, nil
}

// send writes all of p; fds go with its first byte.
func (s *Socket) send(p []byte, fds []int) error {
	for len(p) > 0 {
		var oob []byte
		if len(fds) > 0 {
			oob = unix.UnixRights(fds...)
		}
		var n int
		var err error
		e := s.raw.Write(func(fd uintptr) bool {
			for {
				n, err = unix.SendmsgN(int(fd), p, oob, nil, sendFlags)
				if err != unix.EINTR {
					return err != unix.EAGAIN && err != unix.ENOBUFS
				}
			}
		})
		if e != nil {
			return e
		}
		if err != nil {
			return os.NewSyscallError("sendmsg", err)
		}
		p, fds = p[n:], nil
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func dupFD(fd uintptr) (int, error) {
	n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
	return n, os.NewSyscallError("fcntl", err)
}
