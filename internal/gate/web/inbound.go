package web

import (
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
)

// inbound is the body of a request of HTTP/1, as the connection to the server
// reads it in a goroutine of its own. It may do so for a while after the answer
// has come.
type inbound struct {
	conn net.Conn
	mu   sync.Mutex
	body
	over bool
}

// Read implements io.Reader.
func (in *inbound) Read(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.over {
		return 0, http.ErrBodyReadAfterClose
	}
	return in.body.Read(p)
}

// Close implements io.Closer. It leaves the rest unread.
func (in *inbound) Close() error { return nil }

// finish ends the body for its reader, reads over a short rest, and tells
// whether the next request may be read. It waits for a rest no longer than
// the client takes to send what it has begun.
func (in *inbound) finish() bool {
	if !in.mu.TryLock() {
		// It is being read from the client, by a server that has answered already.
		in.conn.SetReadDeadline(longAgo)
		in.mu.Lock()
	}
	defer in.mu.Unlock()
	in.over = true
	if in.ended() {
		return true
	}
	if in.err != nil || in.before != nil {
		return false // broken, or it waits for a 100 that will not come
	}
	if !in.chunked && in.left > drain {
		return false
	}
	in.conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	if _, err := io.CopyN(io.Discard, &in.body, drain); err != nil && err != io.EOF {
		return false
	}
	in.conn.SetReadDeadline(time.Time{})
	return in.ended()
}

// busy tells that bytes of the body are still to come.
func (in *inbound) busy() bool {
	if !in.mu.TryLock() {
		return true
	}
	defer in.mu.Unlock()
	return !in.over && !in.ended()
}

// watch looks whether the client is still there while it waits for a slow
// answer, and gives the request up when it has gone. Fast answers cost a timer.
type watch struct {
	h      *h1
	in     *inbound
	cancel func()
	gone   atomic.Bool

	mu      sync.Mutex
	timer   *time.Timer
	reading chan struct{} // closed when the goroutine no longer reads
	stopped bool
}

func (h *h1) watch(in *inbound, cancel func()) *watch {
	w := &watch{h: h, in: in, cancel: cancel}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(watchAfter, w.look)
	return w
}

func (w *watch) look() {
	defer func() {
		if act.Caught(recover()) {
			w.cancel()
		}
	}()
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		return
	}
	if w.in.busy() {
		w.timer.Reset(10 * watchAfter)
		w.mu.Unlock()
		return
	}
	done := make(chan struct{})
	w.reading = done
	w.mu.Unlock()
	defer close(done)
	// What comes is the next request, which waits in the buffer.
	if _, err := w.h.r.Peek(1); err != nil {
		w.mu.Lock()
		stopped := w.stopped
		w.mu.Unlock()
		if !stopped {
			w.gone.Store(true)
			w.cancel()
		}
	}
}

// stop ends the watch. After it the connection can be read again.
func (w *watch) stop() {
	w.mu.Lock()
	if w.stopped {
		w.mu.Unlock()
		return
	}
	w.stopped = true
	w.timer.Stop()
	reading := w.reading
	w.mu.Unlock()
	if reading != nil {
		w.h.conn.SetReadDeadline(longAgo)
		<-reading
		w.h.conn.SetReadDeadline(time.Time{})
	}
}
