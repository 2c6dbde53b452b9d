package execlog

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// chunk bounds one splice, in bytes.
const chunk = 1 << 20

// moving bounds how many threads wait for the disk at once, whatever the number
// of streams.
var moving = make(chan struct{}, 4*runtime.NumCPU())

// source is where a stream's bytes come from. The descriptors are used under the
// stream's mutex, so that what is read and what is counted is one step.
type source struct {
	in *os.File        // the pipe; of a terminal, its master
	rc syscall.RawConn // of in
	// Of a terminal: both ends of the pipe through which its bytes go.
	r, w     *os.File
	rfd, wfd int
}

func (s *source) close() {
	s.in.Close()
	if s.r != nil {
		s.r.Close()
		s.w.Close()
	}
}

// Pump moves what comes from the pipe to the stream until its last writer has
// gone, and takes the file over. closed, if not nil, is called then, but not
// after Close.
func (l *Log) Pump(i Stream, pipe *os.File, closed func()) error {
	return l.pump(i, &source{in: pipe}, closed)
}

// PumpTerminal moves what a terminal shows to Stdout, through the pipe of which r
// and w are the ends; whoever keeps both loses nothing when this process dies. It
// takes the three files over.
func (l *Log) PumpTerminal(master, r, w *os.File, closed func()) error {
	return l.pump(Stdout, &source{in: master, r: r, w: w}, closed)
}

func (l *Log) pump(i Stream, src *source, closed func()) (err error) {
	defer func() {
		if err != nil {
			src.close()
			err = bailey.Errorf(bailey.CodeInternal, "take the output of a command", "", "%w", err)
		}
	}()
	if src.in, src.rc, err = pollable(src.in); err != nil {
		return err
	}
	if src.r != nil {
		if src.rfd, err = descriptor(src.r); err != nil {
			return err
		}
		if src.wfd, err = descriptor(src.w); err != nil {
			return err
		}
	}
	s := &l.streams[i]
	l.mu.Lock()
	s.mu.Lock()
	if l.stopped || s.src != nil {
		err = errors.New("the stream has its pipe already, or the log was closed")
	} else {
		s.src, s.closed = src, false
		l.wg.Add(1)
	}
	s.mu.Unlock()
	l.mu.Unlock()
	if err != nil {
		return err
	}
	go func() {
		defer l.wg.Done()
		if s.run(src) && closed != nil {
			closed()
		}
	}()
	return nil
}

// pollable makes sure that the runtime's poller knows the file.
func pollable(f *os.File) (*os.File, syscall.RawConn, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return f, nil, err
	}
	nfd := -1
	if e := rc.Control(func(fd uintptr) {
		if err = unix.SetNonblock(int(fd), true); err == nil {
			nfd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
		}
	}); e != nil {
		return f, nil, e
	}
	if err != nil {
		return f, nil, err
	}
	// A file that was made of a blocking descriptor is not known to the poller,
	// and nothing tells: a new one of a copy is.
	g := os.NewFile(uintptr(nfd), f.Name())
	f.Close()
	rc, err = g.SyscallConn()
	return g, rc, err
}

// descriptor gives the number of a file that stays open.
func descriptor(f *os.File) (n int, err error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = rc.Control(func(fd uintptr) { n = int(fd) })
	return n, err
}

// run moves bytes until the stream is at its end, and says whether it is.
func (s *stream) run(src *source) (ended bool) {
	pause := time.Duration(0)
	for {
		var n int64
		var err error
		if e := src.rc.Read(func(fd uintptr) bool {
			n, err = s.move(src, int(fd))
			return err != unix.EAGAIN
		}); e != nil || err == os.ErrClosed {
			return false // Close
		}
		switch {
		case err == nil && n > 0:
			pause = 0
			continue
		case err == nil:
			s.release()
			s.l.tell()
			return true
		}
		// The disk is full, or broken: what comes stays in the pipe, and holds
		// whoever writes, until there is room.
		pause = min(max(2*pause, 10*time.Millisecond), time.Second)
		s.mu.Lock()
		s.closeFile()
		s.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-s.l.stop:
			return false
		}
	}
}

// move does one step under the stream's lock, with one of the few places for
// those who wait for the disk. Terminals take none: one whose other side was
// made to block by what runs inside must not hold it.
func (s *stream) move(src *source, fd int) (n int64, err error) {
	if src.r == nil {
		moving <- struct{}{}
		defer func() { <-moving }()
	}
	s.mu.Lock()
	before := s.end
	if s.src == src {
		n, err = s.take(src, fd)
	} else {
		err = os.ErrClosed
	}
	more := s.end != before
	s.mu.Unlock()
	if more {
		s.l.tell()
	}
	return n, err
}

// take moves what waits in the source, whose descriptor fd is, and gives how much
// that was; 0 without an error is the end. s.mu is held.
func (s *stream) take(src *source, fd int) (int64, error) {
	if src.r == nil {
		return s.splice(fd)
	}
	// First what is in the pipe already: a full one could hold the next step.
	if _, err := s.drain(src.rfd); err != nil {
		return 0, err
	}
	n, err := splice(fd, src.wfd, nil, chunk)
	if err == unix.EIO { // a terminal that nobody has open any more
		return 0, nil
	}
	if err != nil || n == 0 {
		return 0, err
	}
	_, err = s.drain(src.rfd)
	return n, err
}

// drain empties a terminal's pipe. s.mu is held.
func (s *stream) drain(fd int) (total int64, err error) {
	for {
		n, err := s.splice(fd)
		total += n
		if err == unix.EAGAIN || err == nil && n == 0 {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

// splice moves bytes from a pipe to the end of the stream. s.mu is held.
func (s *stream) splice(fd int) (int64, error) {
	// A pipe that is empty begins no segment.
	if waits, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil && waits == 0 {
		switch ready, err := poll(fd); {
		case err != nil:
		case ready == 0:
			return 0, unix.EAGAIN
		case ready&unix.POLLIN == 0 && ready&unix.POLLHUP != 0:
			return 0, nil
		}
	}
	room, err := s.room()
	if err != nil {
		return 0, err
	}
	at := s.offset()
	n, err := splice(fd, s.fd, &at, int(min(room, chunk)))
	s.end += n
	return n, err
}

// poll gives what the descriptor is ready for now. A signal, such as the runtime's
// own to take a thread from a goroutine, ends even a poll that does not wait.
func poll(fd int) (int16, error) {
	pfd := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(pfd, 0)
		if err != unix.EINTR {
			return pfd[0].Revents, err
		}
	}
}

func splice(from, to int, at *int64, max int) (int64, error) {
	for {
		n, err := unix.Splice(from, nil, to, at, max, unix.SPLICE_F_NONBLOCK)
		if err != unix.EINTR {
			if n < 0 {
				n = 0
			}
			return int64(n), err
		}
	}
}

// release lets go of the source, and so ends run.
func (s *stream) release() {
	s.mu.Lock()
	src := s.src
	s.src, s.closed = nil, true
	s.closeFile()
	s.mu.Unlock()
	if src != nil {
		src.close()
	}
}

// mark says where the stream would end if nobody wrote any more.
func (s *stream) mark() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, src := s.end, s.src
	if src == nil {
		return at
	}
	if src.r == nil {
		src.rc.Control(func(fd uintptr) {
			if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				at += int64(n)
			}
		})
		return at
	}
	// What a terminal shows has to be read to be counted. Somebody may go on
	// writing: then this is the end.
	for range 64 {
		var n int64
		src.rc.Control(func(fd uintptr) { n, _ = s.take(src, int(fd)) })
		if n == 0 {
			break
		}
	}
	at = s.end
	if n, err := unix.IoctlGetInt(src.rfd, unix.TIOCINQ); err == nil {
		at += int64(n)
	}
	return at
}
