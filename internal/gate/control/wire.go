package control

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bounds of a message. What is beyond them is an error.
const (
	maxMessage = 4 << 20 // bytes of JSON
	maxFiles   = 32      // descriptors with one message
	maxContent = 8 << 20 // bytes of one File
)

// envelope is one message.
type envelope struct {
	Version int             `json:"v"`
	Op      string          `json:"op"`
	ID      uint64          `json:"id,omitempty"` // of a request, and of its reply
	Files   int             `json:"files,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// socket is one end of the connection.
type socket struct {
	f   *os.File
	raw syscall.RawConn
	oob []byte // for receiving, which one goroutine does

	sending sync.Mutex
}

// newSocket takes f over, a connected unix stream socket.
func newSocket(f *os.File) (*socket, error) {
	defer f.Close()
	// A file that was opened as blocking is not known to the poller: start over
	// with a copy of the descriptor.
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	s := &socket{f: os.NewFile(uintptr(fd), "gate"), oob: make([]byte, unix.CmsgSpace(4*maxFiles))}
	if s.raw, err = s.f.SyscallConn(); err != nil {
		s.f.Close()
		return nil, err
	}
	return s, nil
}

// Pair makes the two ends of a connection. Both are closed on exec.
func Pair() (starter, gate *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|sockFlags, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return os.NewFile(uintptr(fds[0]), "gate"), os.NewFile(uintptr(fds[1]), "gate"), nil
}

// send writes one message. files stay the caller's.
func (s *socket) send(e envelope, files []*os.File) error {
	e.Version, e.Files = Version, len(files)
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if len(text) > maxMessage || len(files) > maxFiles {
		return fmt.Errorf("a message of %d bytes with %d descriptors is too large", len(text), len(files))
	}
	p := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))), text...)
	var oob []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		oob = unix.UnixRights(fds...)
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	for len(p) > 0 {
		var n int
		werr := s.raw.Write(func(fd uintptr) bool {
			for {
				n, err = unix.SendmsgN(int(fd), p, oob, nil, sendFlags)
				if err != unix.EINTR {
					return err != unix.EAGAIN && err != unix.ENOBUFS
				}
			}
		})
		if werr != nil {
			return werr
		}
		if err != nil {
			return os.NewSyscallError("sendmsg", err)
		}
		p, oob = p[n:], nil
	}
	return nil
}

// Read implements io.Reader for the bytes behind a message's first.
// Descriptors are announced with the first byte; later ones are an error.
func (s *socket) Read(p []byte) (int, error) {
	n, fds, err := s.receive(p)
	if len(fds) > 0 {
		closeAll(fds)
		return 0, errors.New("descriptors came in the middle of a message")
	}
	return n, err
}

// next reads one message. The caller closes its files.
func (s *socket) next() (envelope, []*os.File, error) {
	var head [4]byte
	n, fds, err := s.receive(head[:])
	if err != nil {
		closeAll(fds)
		return envelope{}, nil, err
	}
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), "received")
	}
	e, err := decode(head[:n], s)
	if err == nil && e.Files != len(files) {
		err = fmt.Errorf("%d descriptors were announced and %d came", e.Files, len(files))
	}
	if err != nil {
		closeFiles(files)
		return envelope{}, nil, err
	}
	return e, files, nil
}

// decode reads one message whose first bytes are begun already.
func decode(begun []byte, r io.Reader) (envelope, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[copy(head[:], begun):]); err != nil {
		return envelope{}, cut(err)
	}
	n := binary.BigEndian.Uint32(head[:])
	if n == 0 || n > maxMessage {
		return envelope{}, fmt.Errorf("a message of %d bytes; there are at least 1 and at most %d", n, maxMessage)
	}
	// It grows with what really comes, not with what is announced.
	var text bytes.Buffer
	if _, err := io.CopyN(&text, r, int64(n)); err != nil {
		return envelope{}, cut(err)
	}
	var e envelope
	if err := strict(text.Bytes(), &e); err != nil {
		return envelope{}, err
	}
	switch {
	case e.Version != Version:
		return envelope{}, fmt.Errorf("the other end speaks version %d and not %d", e.Version, Version)
	case e.Op == "" || e.Files < 0 || e.Files > maxFiles:
		return envelope{}, errors.New("a message that makes no sense")
	}
	return e, nil
}

// cut is the error for a message that ends early.
func cut(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// strict decodes one JSON value with no unknown fields and nothing behind it.
func strict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return fmt.Errorf("a message that makes no sense: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind a message")
	}
	return nil
}

// receive reads bytes and the descriptors that came with them.
func (s *socket) receive(p []byte) (n int, fds []int, err error) {
	var oobn, flags int
	rerr := s.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), p, s.oob, recvFlags)
			if err != unix.EINTR {
				return err != unix.EAGAIN
			}
		}
	})
	if rerr != nil {
		return 0, nil, rerr
	}
	if err != nil {
		return 0, nil, os.NewSyscallError("recvmsg", err)
	}
	if oobn > 0 {
		msgs, err := unix.ParseSocketControlMessage(s.oob[:oobn])
		if err != nil {
			return 0, nil, err
		}
		for i := range msgs {
			if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
				fds = append(fds, got...)
			}
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
		}
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, fds, errors.New("more descriptors came than fit")
	}
	if n == 0 {
		return 0, fds, io.EOF
	}
	return n, fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}
