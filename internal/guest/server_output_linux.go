//go:build linux && (amd64 || arm64)

package guest

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// outStream reads one output of an execution and keeps what the owner has not
// acknowledged. Its fields are guarded by the execution's mutex; reading goes
// on beyond the end of the main process, because a process that it left behind
// may hold the pipe.
type outStream struct {
	e   *execution
	i   int // 0 stdout or terminal, 1 stderr
	f   *os.File
	raw syscall.RawConn

	base    int64    // offset of the first byte kept
	kept    [][]byte // the bytes kept, in pieces
	total   int64    // offset of the next byte to be read
	sent    int64    // offset of the next byte to send
	eof     bool
	eofSent bool
	to      *follower // whom bytes are sent for, nil before the first answer
}

// follower is an owner's following of a stream since one answer, and what the
// link asks for frames. Each answer makes another: one that the link took up
// before that answer was queued has nothing more to say, so that what comes
// before the answer belongs to who followed before, and what comes after it to
// whom it was given.
type follower struct{ o *outStream }

// newOutStream prepares a stream; its read is started once all streams of the
// execution are known.
func newOutStream(e *execution, i int, f *os.File) *outStream {
	o := &outStream{e: e, i: i, f: f}
	raw, err := f.SyscallConn()
	if err != nil { // the file is ours and open
		panic(err)
	}
	o.raw = raw
	return o
}

const (
	minPiece = 4096
	maxPiece = maxChunk
)

// unacked gives how many bytes are kept for the owner. e.mu is held.
func (e *execution) unacked() (n int64) {
	for _, o := range e.out {
		if o != nil {
			n += o.total - o.base
		}
	}
	return n
}

// read reads until the last writer has gone.
func (o *outStream) read() {
	e := o.e
	for {
		e.mu.Lock()
		for e.unacked() >= MaxUnacked && !e.released {
			e.room.Wait()
		}
		stop := e.released
		e.mu.Unlock()
		if stop {
			return
		}
		var n int
		var rerr error
		// Reading and counting are one step for whoever holds e.mu, so that the
		// end of the main process can tell where its output ends.
		err := o.raw.Read(func(fd uintptr) bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			for {
				n, rerr = o.readOnce(int(fd))
				if rerr != unix.EINTR {
					return rerr != unix.EAGAIN
				}
			}
		})
		if err != nil { // closed by release
			return
		}
		e.mu.Lock()
		if n <= 0 || rerr != nil { // a terminal whose last slave was closed answers EIO
			o.eof = true
		}
		l, to, eof := e.link, o.to, o.eof
		e.mu.Unlock()
		if l != nil {
			l.ready(to)
		}
		if eof {
			if !e.tty {
				o.f.Close()
			}
			return
		}
	}
}

// readOnce reads into the last piece if it has room, or a new one of the size
// of what waits. e.mu is held.
func (o *outStream) readOnce(fd int) (int, error) {
	room := MaxUnacked - int(o.e.unacked())
	if room <= 0 { // the other stream took it meanwhile: go around and wait
		return 1, nil
	}
	if k := len(o.kept); k > 0 && cap(o.kept[k-1]) > len(o.kept[k-1]) {
		last := o.kept[k-1]
		free := last[len(last):min(cap(last), len(last)+room)]
		n, err := unix.Read(fd, free)
		if n > 0 {
			o.kept[k-1] = last[:len(last)+n]
			o.total += int64(n)
		}
		return n, err
	}
	var probe [256]byte
	n, err := unix.Read(fd, probe[:min(len(probe), room)])
	if n <= 0 {
		return n, err
	}
	waits := minPiece
	if w, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil {
		waits = w + n
	}
	piece := make([]byte, n, min(max(waits, minPiece), maxPiece))
	copy(piece, probe[:n])
	o.total += int64(n)
	o.kept = append(o.kept, piece)
	return n, nil
}

// has reports whether the bytes from offset on are there. s.mu is held.
func (o *outStream) has(offset int64) bool {
	o.e.mu.Lock()
	defer o.e.mu.Unlock()
	return offset <= o.total
}

// attach goes on from offset: what lies below is acknowledged. It gives where
// the bytes that are there start. e.mu is held.
func (o *outStream) attach(offset int64) int64 {
	o.dropBelow(offset)
	o.sent, o.eofSent, o.to = o.base, false, &follower{o}
	return o.base
}

// dropBelow forgets the bytes below offset. e.mu is held.
func (o *outStream) dropBelow(offset int64) {
	if offset <= o.base {
		return
	}
	for len(o.kept) > 0 && o.base < offset {
		n := min(int64(len(o.kept[0])), offset-o.base)
		o.base += n
		if o.kept[0] = o.kept[0][n:]; len(o.kept[0]) == 0 {
			o.kept[0] = nil
			o.kept = o.kept[1:]
		}
	}
	if len(o.kept) == 0 {
		o.kept = nil
	}
	o.e.room.Broadcast()
}

// ack takes an acknowledgement. One for bytes that were never sent makes no
// sense.
func (e *execution) ack(m ackMsg) error {
	o := e.out[m.stream-1]
	if o == nil {
		return errMessage
	}
	e.mu.Lock()
	if m.offset > o.sent {
		e.mu.Unlock()
		return errMessage
	}
	o.dropBelow(m.offset)
	deaf := m.closed && !e.tty && !o.eof
	if deaf {
		o.dropBelow(o.total)
		o.sent, o.eof, o.eofSent = o.total, true, true
	}
	e.mu.Unlock()
	if deaf { // whoever writes from now on is told: SIGPIPE
		o.f.Close() // not under e.mu, which a read of it may wait for
	}
	return nil
}

// nextFrame implements source.
func (f *follower) nextFrame(b []byte) ([]byte, bool) {
	o, e := f.o, f.o.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.link == nil || o.to != f || o.eofSent {
		return b, false
	}
	m := bytesMsg{id: e.id, stream: uint8(o.i + 1), offset: o.sent}
	at := o.base
	for _, p := range o.kept {
		if o.sent < at+int64(len(p)) {
			m.data = p[o.sent-at:]
			break
		}
		at += int64(len(p))
	}
	o.sent += int64(len(m.data))
	m.eof = o.eof && o.sent == o.total
	if len(m.data) == 0 && !m.eof {
		return b, false
	}
	o.eofSent = m.eof
	start := len(b)
	b = endFrame(m.put(beginFrame(b, frameOutput, 0, 0)), start)
	return b, !m.eof && o.sent < o.total || o.eof && !o.eofSent
}

// outputEnd tells where the output of the main process ends: what was read,
// and what waits in the pipes now that it is gone.
func (e *execution) outputEnd() [2]int64 {
	at := [2]int64{-1, -1}
	if e.tty {
		if o := e.out[0]; o != nil {
			at[0] = o.shown()
		}
		return at
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, o := range e.out {
		if o == nil {
			continue
		}
		at[i] = o.total
		o.raw.Control(func(fd uintptr) {
			if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil {
				at[i] += int64(n)
			}
		})
	}
	return at
}

// shown tells where what a terminal shows now ends, which has to be read to be counted.
// Somebody may go on writing: what is kept bounds it.
func (o *outStream) shown() (at int64) {
	e := o.e
	o.raw.Control(func(fd uintptr) {
		e.mu.Lock()
		defer e.mu.Unlock()
		for !o.eof && e.unacked() < MaxUnacked {
			n, err := o.readOnce(int(fd))
			if err == unix.EINTR {
				continue
			}
			if n <= 0 || err != nil {
				break // also its end, which the reading goroutine meets
			}
		}
		at = o.total
		if n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ); err == nil && !o.eof {
			at += int64(n)
		}
	})
	e.mu.Lock()
	l, to := e.link, o.to
	if at < o.total {
		at = o.total
	}
	e.mu.Unlock()
	if l != nil {
		l.ready(to)
	}
	return at
}

// inStream feeds a command's input. The owner is told what was written, and
// sends at most MaxStdin bytes beyond that.
type inStream struct {
	e    *execution
	f    *os.File
	tty  bool
	wake chan struct{}

	// Guarded by e.mu.
	received int64 // offset of the next byte expected
	written  int64
	pending  [][]byte
	eof      bool // no more will come
	closed   bool // nobody reads any more
}

func newInStream(e *execution, f *os.File, tty bool) *inStream {
	in := &inStream{e: e, f: f, tty: tty, wake: make(chan struct{}, 1)}
	go in.write()
	return in
}

// stdin takes input from the owner. What was received before, over an earlier
// connection, is skipped.
func (e *execution) stdin(l *link, m bytesMsg) error {
	in := e.in
	if m.stream != 0 || in == nil {
		return errMessage
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	skip := in.received - m.offset
	if skip < 0 || in.eof && int64(len(m.data)) > skip || m.offset+int64(len(m.data)) > in.written+MaxStdin {
		return errMessage
	}
	if int64(len(m.data)) > skip {
		data := m.data[skip:]
		in.received += int64(len(data))
		if in.closed {
			in.written = in.received
		} else {
			in.pending = append(in.pending, append([]byte(nil), data...))
		}
	}
	in.eof = in.eof || m.eof
	if in.closed {
		in.ack(l)
		return nil
	}
	in.poke()
	return nil
}

func (in *inStream) poke() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// ack tells the owner how far the command has got. e.mu is held.
func (in *inStream) ack(l *link) {
	if l != nil {
		l.send(frameStdinAck, 0, ackMsg{id: in.e.id, closed: in.closed, offset: in.written}.put)
	}
}

// write feeds the pipe until its end.
func (in *inStream) write() {
	e := in.e
	for range in.wake {
		e.mu.Lock()
		for len(in.pending) > 0 && !in.closed && !e.released {
			p := in.pending[0]
			in.pending[0] = nil
			in.pending = in.pending[1:]
			e.mu.Unlock()
			_, err := in.f.Write(p)
			e.mu.Lock()
			in.written += int64(len(p))
			if err != nil {
				in.closed, in.pending, in.written = true, nil, in.received
			}
			in.ack(e.link)
		}
		stop := e.released || in.closed || in.eof
		eof := in.eof && !in.closed
		if stop {
			in.closed = true
		}
		e.mu.Unlock()
		if !stop {
			continue
		}
		if in.tty {
			if eof {
				in.f.Write([]byte{4}) // what a terminal calls the end of input
			}
		} else {
			in.f.Close()
		}
		return
	}
}

// close ends the feeding.
func (in *inStream) close() {
	in.poke()
	if !in.tty {
		in.f.Close()
	}
}
