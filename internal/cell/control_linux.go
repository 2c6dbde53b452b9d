package cell

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// seqpacket is a socket on which each message is one.
type seqpacket struct {
	f   *os.File
	raw syscall.RawConn
}

func newSeqpacket(fd int) (*seqpacket, error) {
	f := os.NewFile(uintptr(fd), "control")
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &seqpacket{f, raw}, nil
}

func socketAt(path string) (fd int, addr unix.Sockaddr, done func(), err error) {
	// The folder's descriptor stands for its path, which may be longer than an address.
	dir, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil, nil, os.NewSyscallError("open", err)
	}
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		unix.Close(dir)
		return -1, nil, nil, os.NewSyscallError("socket", err)
	}
	return fd, &unix.SockaddrUnix{Name: "/proc/self/fd/" + strconv.Itoa(dir) + "/" + filepath.Base(path)}, func() { unix.Close(dir) }, nil
}

// receive reads one message and at most one descriptor, or -1. A nil message is the end.
func (s *seqpacket) receive() (b []byte, fd int, err error) {
	buf, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4))
	n, oobn, flags := 0, 0, 0
	e := s.raw.Read(func(sock uintptr) bool {
		for {
			if n, oobn, flags, _, err = unix.Recvmsg(int(sock), buf, oob, unix.MSG_CMSG_CLOEXEC); err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if e != nil {
		return nil, -1, e
	}
	if err != nil {
		return nil, -1, os.NewSyscallError("recvmsg", err)
	}
	fd = -1
	if oobn > 0 {
		msgs, perr := unix.ParseSocketControlMessage(oob[:oobn])
		for i := range msgs {
			got, _ := unix.ParseUnixRights(&msgs[i])
			for _, f := range got {
				if fd >= 0 {
					unix.Close(f)
					continue
				}
				fd = f
			}
		}
		err = perr
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errControl
	}
	if err != nil {
		if fd >= 0 {
			unix.Close(fd)
		}
		return nil, -1, err
	}
	if n == 0 {
		return nil, fd, nil
	}
	return buf[:n], fd, nil
}

// send writes one message, with a descriptor unless it is negative.
func (s *seqpacket) send(b []byte, fd int) error {
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	var err error
	if e := s.raw.Write(func(sock uintptr) bool {
		for {
			if _, err = unix.SendmsgN(int(sock), b, oob, nil, unix.MSG_NOSIGNAL); err != unix.EINTR {
				return err != unix.EAGAIN && err != unix.ENOBUFS
			}
		}
	}); e != nil {
		return e
	}
	return os.NewSyscallError("sendmsg", err)
}

// control listens for requests.
type control struct {
	path string
	l    *seqpacket
	free chan struct{} // one token for each act that may be done
}

// listenControl makes the socket, which only its owner can reach.
func listenControl(path string) (*control, error) {
	fd, addr, done, err := socketAt(path)
	if err != nil {
		return nil, err
	}
	defer done()
	os.Remove(path) // of a process that ended without a word
	if err = unix.Bind(fd, addr); err == nil {
		if err = os.Chmod(path, 0o600); err == nil {
			err = unix.Listen(fd, 16)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("listen for the cell's control", err)
	}
	l, err := newSeqpacket(fd)
	return &control{path: path, l: l, free: make(chan struct{}, maxActs)}, err
}

// serve answers requests until it is closed.
func (c *control) serve(s *server) {
	for {
		var fd int
		var err error
		if e := c.l.raw.Read(func(sock uintptr) bool {
			for {
				fd, _, err = unix.Accept4(int(sock), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
				if err != unix.EINTR && err != unix.ECONNABORTED {
					return err != unix.EAGAIN
				}
			}
		}); e != nil || err != nil {
			return
		}
		conn, err := newSeqpacket(fd)
		if err != nil {
			continue
		}
		c.free <- struct{}{}
		go func() {
			defer func() { <-c.free }()
			defer conn.f.Close()
			b, got, err := conn.receive()
			if got >= 0 {
				unix.Close(got)
			}
			if err != nil || b == nil {
				return
			}
			s.answer(conn, b)
		}()
	}
}

func (c *control) close() {
	c.l.f.Close()
	os.Remove(c.path)
}

// Ask asks the cell whose control socket lies at path. The file, of an act that gives one, is
// the caller's. A failure inside is the answer's, Answer.Failed; an error is that the
// cell did not answer. What comes is not to be trusted: the cell holds what is hostile.
func Ask(ctx context.Context, path string, r Request) (a Answer, f *os.File, err error) {
	r.Version = ControlVersion
	b, err := encode(r)
	if err != nil {
		return a, nil, err
	}
	fd, addr, done, err := socketAt(path)
	if err != nil {
		return a, nil, err
	}
	// It connects at once, or has too many to answer.
	err = unix.Connect(fd, addr)
	done()
	if err != nil {
		unix.Close(fd)
		return a, nil, os.NewSyscallError("connect", err)
	}
	s, err := newSeqpacket(fd)
	if err != nil {
		return a, nil, err
	}
	defer s.f.Close()
	stop := context.AfterFunc(ctx, func() { s.f.Close() })
	defer stop()
	if err = s.send(b, -1); err != nil {
		return a, nil, errors.Join(ctx.Err(), err)
	}
	got, rfd, err := s.receive()
	if err == nil && got == nil {
		err = errors.New("the cell has ended")
	}
	if err == nil {
		a, err = ParseAnswer(got)
	}
	if err != nil {
		if rfd >= 0 {
			unix.Close(rfd)
		}
		return a, nil, errors.Join(ctx.Err(), err)
	}
	if rfd >= 0 {
		unix.SetNonblock(rfd, true)
		f = os.NewFile(uintptr(rfd), "port")
	}
	return a, f, nil
}
