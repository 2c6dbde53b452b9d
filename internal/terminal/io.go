package terminal

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// readiness is what wait found.
type readiness struct {
	ready  bool // a read or write will not block
	hangup bool // the other end is gone; there may still be something to read
	woken  bool
}

// read is read(2), without interruptions.
func read(fd int, p []byte) (int, error) {
	for {
		n, err := unix.Read(fd, p)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// writeAll writes p, whether or not fd blocks. When wake becomes readable
// first it gives up with ECANCELED.
func writeAll(fd int, p []byte, wake int) error {
	for len(p) > 0 {
		r, err := wait(fd, true, wake, -1)
		if err != nil {
			return err
		}
		if !r.ready {
			return unix.ECANCELED
		}
		n, err := unix.Write(fd, p)
		switch err {
		case nil:
			p = p[n:]
		case unix.EINTR, unix.EAGAIN:
		default:
			return err
		}
	}
	return nil
}

// descriptorWriter is the io.Writer of a descriptor that may or may not block,
// until it is cut off.
type descriptorWriter struct{ fd, cut int }

func (d descriptorWriter) Write(p []byte) (int, error) {
	if err := writeAll(d.fd, p, d.cut); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flag is something that can be waited for together with a descriptor: its
// read end becomes readable, for everyone and for good, once it is raised.
type flag struct {
	read, write *os.File
	once        sync.Once
}

func newFlag() (*flag, error) {
	f := &flag{}
	var err error
	f.read, f.write, err = os.Pipe()
	return f, err
}

func (f *flag) raise() { f.once.Do(func() { _ = f.write.Close() }) }

func (f *flag) close() {
	f.raise()
	_ = f.read.Close()
}
