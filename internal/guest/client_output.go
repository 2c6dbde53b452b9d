package guest

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Output is one output of an execution, with byte offsets. It is read by one
// goroutine at a time.
type Output struct {
	p      *proc
	i      int      // 0 stdout, 1 stderr
	f      *os.File // where descriptors were passed
	raw    syscall.RawConn
	manual bool

	mu       sync.Mutex
	changed  sync.Cond
	offset   int64    // of the next byte that Read gives
	limit    int64    // Read ends here; -1: at the end of the stream
	received int64    // of the next byte expected
	chunks   [][]byte // received and not read
	acked    int64
	eof      bool
	err      error
}

func newOutput(p *proc, i int, f *os.File, manual bool) *Output {
	o := &Output{p: p, i: i, f: f, manual: manual, limit: -1}
	o.changed.L = &o.mu
	if f != nil {
		raw, err := f.SyscallConn()
		if err != nil {
			o.err = err
		}
		o.raw = raw
	}
	return o
}

// start sets where an attached output goes on.
func (o *Output) start(offset int64) { o.offset, o.received, o.acked = offset, offset, offset }

// based takes the offset from which on the bytes are still there.
func (o *Output) based(base int64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if base < o.offset {
		return errMessage
	}
	o.offset, o.received, o.acked = base, base, base // what lies below was acknowledged before
	return nil
}

// feed takes bytes that came over the protocol.
func (o *Output) feed(m bytesMsg) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.offset != o.received || o.eof || len(m.data) == 0 && !m.eof || m.offset+int64(len(m.data))-o.acked > MaxUnacked {
		return errMessage
	}
	if len(m.data) > 0 && o.err == nil {
		o.chunks = append(o.chunks, append([]byte(nil), m.data...))
	}
	o.received += int64(len(m.data))
	o.eof = m.eof
	o.changed.Broadcast()
	return nil
}

// Read implements io.Reader. It waits for output, and gives io.EOF once the
// last process that could write has gone or, through a terminal, let go.
func (o *Output) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if o.f != nil {
		return o.readFile(p)
	}
	o.mu.Lock()
	for len(o.chunks) == 0 && !o.eof && o.err == nil && !o.atLimit() {
		o.changed.Wait()
	}
	if o.atLimit() || len(o.chunks) == 0 {
		defer o.mu.Unlock()
		if o.err != nil && !o.eof {
			return 0, o.err
		}
		return 0, io.EOF
	}
	n := copy(p, o.chunks[0])
	if o.limit >= 0 {
		n = int(min(int64(n), o.limit-o.offset))
	}
	if o.chunks[0] = o.chunks[0][n:]; len(o.chunks[0]) == 0 {
		o.chunks[0] = nil
		o.chunks = o.chunks[1:]
	}
	o.offset += int64(n)
	at := int64(-1)
	if !o.manual && (o.offset-o.acked >= MaxUnacked/8 || o.eof && len(o.chunks) == 0) {
		at = o.offset
		o.acked = at
	}
	o.mu.Unlock()
	if at >= 0 {
		o.sendAck(at)
	}
	return n, nil
}

func (o *Output) atLimit() bool { return o.limit >= 0 && o.offset >= o.limit }

func (o *Output) sendAck(at int64) {
	o.p.send(frameAck, ackMsg{id: o.p.id, stream: uint8(o.i + 1), offset: at}.put)
}

// next waits for bytes that came over the protocol and gives them without a copy, the
// first offset after them, and whether more is there already. Nothing is acknowledged.
func (o *Output) next() (b []byte, end int64, more bool, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.chunks) == 0 && !o.eof && o.err == nil {
		o.changed.Wait()
	}
	if len(o.chunks) == 0 {
		if !o.eof {
			return nil, o.offset, false, o.err
		}
		return nil, o.offset, false, io.EOF
	}
	b = o.chunks[0]
	o.chunks[0] = nil
	if o.chunks = o.chunks[1:]; len(o.chunks) == 0 {
		o.chunks = nil
	}
	o.offset += int64(len(b))
	return b, o.offset, len(o.chunks) > 0, nil
}

// readFile reads from the pipe or terminal itself. Reading and counting are
// one step for waiting.
func (o *Output) readFile(p []byte) (int, error) {
	if o.raw == nil {
		return 0, o.err
	}
	for {
		var n int
		var rerr error
		done := false
		err := o.raw.Read(func(fd uintptr) bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.atLimit() {
				done = true
				return true
			}
			q := p
			if o.limit >= 0 {
				q = p[:min(int64(len(p)), o.limit-o.offset)]
			}
			for {
				n, rerr = unix.Read(int(fd), q)
				if rerr != unix.EINTR {
					break
				}
			}
			if n > 0 {
				o.offset += int64(n)
			}
			return rerr != unix.EAGAIN
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			// The limit was set while this read waited.
			o.f.SetReadDeadline(time.Time{})
			continue
		case err != nil:
			return 0, err
		case done, n == 0 && rerr == nil, rerr == unix.EIO: // EIO: a terminal that nobody has open any more
			return 0, io.EOF
		case rerr != nil:
			return 0, os.NewSyscallError("read", rerr)
		}
		return n, nil
	}
}

// waiting tells where the bytes end that are there now.
func (o *Output) waiting() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	at := o.offset
	if o.raw != nil {
		o.raw.Control(func(fd uintptr) {
			if n, err := inQueue(int(fd)); err == nil {
				at += int64(n)
			}
		})
	}
	return at
}

// endAt makes Read give io.EOF at offset at, whoever still holds the stream.
func (o *Output) endAt(at int64) {
	o.mu.Lock()
	o.limit = at
	o.changed.Broadcast()
	o.mu.Unlock()
	if o.f != nil {
		o.f.SetReadDeadline(time.Now())
	}
}

// Offset is that of the next byte that Read gives.
func (o *Output) Offset() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.offset
}

// Ack says that the bytes below offset are safe, so that the sandbox need not
// keep them. Where descriptors were passed, and unless ManualAck was asked
// for, there is no need to call it.
func (o *Output) Ack(offset int64) {
	if o.f != nil {
		return
	}
	o.mu.Lock()
	ok := offset > o.acked && offset <= o.received
	if ok {
		o.acked = offset
	}
	o.mu.Unlock()
	if ok {
		o.sendAck(offset)
	}
}

// ackedNow is the offset that was acknowledged last.
func (o *Output) ackedNow() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.acked
}

// File is the pipe's or terminal's own descriptor where descriptors were
// passed, for a keeper to hold and for splice(2), and nil elsewhere. It is
// closed by Process.Close.
func (o *Output) File() *os.File { return o.f }

func (o *Output) lost(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.err = err
	}
	o.changed.Broadcast()
}

func (o *Output) close() {
	if o.f != nil {
		o.f.Close()
		return
	}
	o.mu.Lock()
	o.chunks = nil
	o.mu.Unlock()
	o.lost(os.ErrClosed)
}

// feeder is a command's input over the protocol.
type feeder struct {
	p *proc

	mu      sync.Mutex
	changed sync.Cond
	sent    int64 // offset of the next byte to send
	written int64 // the command's pipe has taken all below
	closed  bool  // by this end
	gone    bool  // nobody reads it
	err     error
	onGone  func() // called, if not nil, when nobody reads it any more
}

func newFeeder(p *proc) *feeder {
	f := &feeder{p: p}
	f.changed.L = &f.mu
	return f
}

// start sets where the input goes on, as the answer says.
func (f *feeder) start(m *execReply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sent, f.written, f.gone = m.stdin, m.written, m.shut
}

func (f *feeder) ack(m ackMsg) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m.offset > f.sent {
		return errMessage
	}
	f.written = max(f.written, m.offset)
	if m.closed && !f.gone {
		f.gone = true
		if f.onGone != nil {
			go f.onGone()
		}
	}
	f.changed.Broadcast()
	return nil
}

func (f *feeder) lost(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.changed.Broadcast()
}

// Write implements io.Writer. It waits while MaxStdin bytes are under way, and
// gives EPIPE once nobody reads the input any more.
func (f *feeder) Write(b []byte) (int, error) {
	done := 0
	for len(b) > 0 {
		f.mu.Lock()
		for f.sent-f.written >= MaxStdin && !f.closed && !f.gone && f.err == nil {
			f.changed.Wait()
		}
		var err error
		switch {
		case f.err != nil:
			err = f.err
		case f.closed:
			err = os.ErrClosed
		case f.gone:
			err = syscall.EPIPE
		}
		if err != nil {
			f.mu.Unlock()
			return done, err
		}
		n := min(len(b), maxChunk, int(MaxStdin-(f.sent-f.written)))
		m := bytesMsg{id: f.p.id, offset: f.sent, data: b[:n]}
		ok := f.p.send(frameStdin, m.put)
		if ok {
			f.sent += int64(n)
		}
		f.mu.Unlock()
		if !ok {
			return done, os.ErrClosed
		}
		b, done = b[n:], done+n
	}
	return done, nil
}

// Close says that no more input comes.
func (f *feeder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.err != nil {
		return nil
	}
	f.closed = true
	f.changed.Broadcast()
	m := bytesMsg{id: f.p.id, offset: f.sent, eof: true}
	f.p.send(frameStdin, m.put)
	return nil
}
