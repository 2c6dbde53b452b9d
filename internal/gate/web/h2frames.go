package web

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"
)

// net/http refuses by itself a request of HTTP/2 whose fields are malformed: the
// handler never hears of it. So the frames of a connection are watched both
// ways, their heads only (RFC 9113, 4.1): a request that the server answered or
// reset, and that no handler has had, was refused.
const (
	frameHeaders = 1
	frameReset   = 3
	frameGoAway  = 7
)

// preface begins a client's side of a connection (RFC 9113, 3.4).
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frames follows one direction's frames.
type frames struct {
	head [9 + 8]byte // and of what follows as much as a GOAWAY's code needs
	have int
	left int // bytes to come of the frame behind what is in head
}

// feed takes bytes in and calls each for every frame whose head is complete.
func (f *frames) feed(p []byte, each func(kind byte, id, code uint32)) {
	for len(p) > 0 {
		if f.left > 0 {
			n := min(f.left, len(p))
			f.left -= n
			p = p[n:]
			continue
		}
		want := 9
		if f.have >= 9 {
			want += min(8, f.size())
		}
		n := copy(f.head[f.have:want], p)
		f.have += n
		p = p[n:]
		if f.have == 9 && want == 9 && f.size() > 0 && f.head[3] == frameGoAway {
			continue
		}
		if f.have < want {
			continue
		}
		code := uint32(0)
		if f.have == 17 {
			code = binary.BigEndian.Uint32(f.head[13:])
		}
		f.left, f.have = f.size()-(f.have-9), 0
		each(f.head[3], binary.BigEndian.Uint32(f.head[5:])&(1<<31-1), code)
	}
}

func (f *frames) size() int { return int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2]) }

// watched is a connection whose frames are watched.
type watched struct {
	*tls.Conn
	refused func() // called for each request that was refused

	in, out frames // each used by one goroutine of the server's

	mu       sync.Mutex
	last     uint32              // stream that the client opened
	open     map[uint32]struct{} // and that the server has not answered
	opened   int
	answered int
	handled  int // that a handler has had
	recorded int // as refused
	broken   bool
	more     chan struct{} // has a place; filled when a handler begins
}

func newWatched(t *tls.Conn, refused func()) *watched {
	return &watched{Conn: t, refused: refused, open: map[uint32]struct{}{}, more: make(chan struct{}, 1)}
}

// unencrypted is how net/http is given a connection of HTTP/2 that is not a
// *tls.Conn: under the name unencrypted_http2, with the preface read.
type unencrypted struct {
	net.Conn
	real net.Conn
}

func (c unencrypted) UnencryptedNetConn() net.Conn { return c.real }

// begins reads the preface. Something else is refused; a client that says
// nothing has gone, maybe since it does not trust our certificate.
func (w *watched) begins() bool {
	var got [len(preface)]byte
	w.SetReadDeadline(time.Now().Add(headTimeout))
	n, err := io.ReadFull(w.Conn, got[:])
	w.SetReadDeadline(time.Time{})
	if n > 0 && string(got[:n]) != preface {
		w.refused()
		return false
	}
	return err == nil
}

// Read implements net.Conn.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.in.feed(p[:n], func(kind byte, id, _ uint32) {
		if kind != frameHeaders || id&1 == 0 {
			return
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if id > w.last { // else they are trailers
			w.last = id
			w.opened++
			w.open[id] = struct{}{}
		}
	})
	return n, err
}

// Write implements net.Conn.
func (w *watched) Write(p []byte) (int, error) {
	w.out.feed(p, func(kind byte, id, code uint32) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch kind {
		case frameGoAway:
			w.broken = w.broken || code != 0
		case frameHeaders, frameReset:
			if _, ok := w.open[id]; ok {
				delete(w.open, id)
				w.answered++
			}
		}
	})
	w.settle()
	return w.Conn.Write(p)
}

// handling notes that a request has come through to the handler.
func (w *watched) handling() {
	w.mu.Lock()
	w.handled++
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// settle records refusals as far as they are certain: more requests have been
// answered than handlers have had.
func (w *watched) settle() {
	w.mu.Lock()
	n := w.answered - w.handled - w.recorded
	if n > 0 {
		w.recorded += n
	}
	w.mu.Unlock()
	for range n {
		w.refused()
	}
}

// end records the rest, when the connection has ended. Handlers that are about
// to begin are waited for, but not where the connection was broken: net/http
// has let a second pass then.
func (w *watched) end() {
	late := time.NewTimer(time.Second)
	defer late.Stop()
	for waits := true; waits; {
		w.mu.Lock()
		n, broken := w.opened-w.handled-w.recorded, w.broken
		w.mu.Unlock()
		if n <= 0 || broken {
			break
		}
		select {
		case <-w.more:
		case <-late.C:
			waits = false
		}
	}
	w.mu.Lock()
	n := w.opened - w.handled - w.recorded
	if n <= 0 && w.broken && w.recorded == 0 {
		n = 1 // what broke the connection was no request
	}
	w.recorded += max(n, 0)
	w.mu.Unlock()
	for range n {
		w.refused()
	}
}
