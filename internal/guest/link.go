package guest

import (
	"errors"
	"io"
	"sync"
	"time"
)

// transport carries bytes, and descriptors where it can.
type transport interface {
	receive(p []byte) (n int, fds []int, err error)
	send(p []byte, fds []int) error
	io.Closer
}

// plain is a transport without descriptors over any byte stream.
type plain struct{ io.ReadWriteCloser }

func (t plain) receive(p []byte) (int, []int, error) {
	n, err := t.Read(p)
	if n > 0 {
		err = nil
	}
	return n, nil, err
}

func (t plain) send(p []byte, fds []int) error {
	if len(fds) > 0 {
		return errors.New("this transport passes no descriptors")
	}
	_, err := t.Write(p)
	return err
}

// transportOf gives the transport over rw and whether it passes descriptors.
func transportOf(rw io.ReadWriteCloser) (transport, bool) {
	if t, ok := rw.(transport); ok {
		return t, true
	}
	return plain{rw}, false
}

var errLinkClosed = errors.New("the connection is closed")

// source has bytes to send whenever it is asked, so that nothing is built or
// copied before the transport takes it, and no source can starve another.
type source interface {
	// nextFrame appends one frame to b, and reports whether there is more now.
	// It may append nothing. It must not block.
	nextFrame(b []byte) (_ []byte, more bool)
}

// queued is a frame that waits to be sent.
type queued struct {
	b   []byte
	fds []int // closed once sent
}

// link sends and receives frames over one transport. One goroutine receives;
// frames are sent from a queue by another, so that nobody who has something to
// say waits for a slow reader unless it asks to (sendPaced).
type link struct {
	t   transport
	dec *decoder

	fds  []int // received, not yet taken by a frame
	last int   // how many of fds came with the latest bytes

	mu      sync.Mutex
	wake    sync.Cond // for the writer
	room    sync.Cond // for sendPaced
	queue   []queued
	waiting int      // bytes in queue
	busy    bool     // a send is going on
	sources []source // those that have something to send, in turn
	err     error
	done    chan struct{}
}

const pacedBytes = 256 << 10 // what sendPaced lets pile up

func newLink(t transport, maxPayload int) *link {
	l := &link{t: t, dec: newDecoder(maxPayload), done: make(chan struct{})}
	l.wake.L, l.room.L = &l.mu, &l.mu
	return l
}

// send queues a frame. build appends the payload.
func (l *link) send(typ frameType, req uint32, build func([]byte) []byte) {
	l.sendFDs(typ, req, nil, build)
}

func (l *link) sendFDs(typ frameType, req uint32, fds []int, build func([]byte) []byte) {
	b := beginFrame(make([]byte, 0, 128), typ, len(fds), req)
	if build != nil {
		b = build(b)
	}
	l.push(endFrame(b, 0), fds)
}

// push queues bytes that are whole frames.
func (l *link) push(b []byte, fds []int) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		closeAll(fds)
		return
	}
	l.queue = append(l.queue, queued{b, fds})
	l.waiting += len(b)
	l.wake.Signal()
	l.mu.Unlock()
}

// sendPaced queues a frame once there is room, and reports why it could not.
func (l *link) sendPaced(typ frameType, req uint32, build func([]byte) []byte) error {
	err := l.pace()
	if err == nil {
		l.send(typ, req, build)
	}
	return err
}

// pace waits until there is room for more, and reports why there will be none.
func (l *link) pace() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.waiting > pacedBytes && l.err == nil {
		l.room.Wait()
	}
	return l.err
}

// crowded reports whether so much waits to be sent that what may be left out is.
func (l *link) crowded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting > pacedBytes
}

// ready says that s has something to send. A source is in the list at most
// once; nextFrame is called without any lock of the link.
func (l *link) ready(s source) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, have := range l.sources {
		if have == s {
			return
		}
	}
	l.sources = append(l.sources, s)
	l.wake.Signal()
}

// drop forgets all that waits to be sent: after a reset.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range l.queue {
		closeAll(q.fds)
	}
	l.queue, l.waiting, l.sources = nil, 0, nil
	l.room.Broadcast()
}

// write sends until the link fails.
func (l *link) write() {
	var buf []byte
	for {
		l.mu.Lock()
		if l.busy {
			l.busy = false
			l.room.Broadcast()
		}
		for len(l.queue) == 0 && len(l.sources) == 0 && l.err == nil {
			buf = nil
			l.wake.Wait()
		}
		if l.err != nil {
			l.mu.Unlock()
			return
		}
		var fds []int
		var src source
		b := buf[:0]
		if len(l.queue) > 0 {
			// Small frames go together; descriptors go with the first of a send.
			for i := 0; len(l.queue) > 0 && (i == 0 || len(l.queue[0].fds) == 0 && len(b)+len(l.queue[0].b) <= maxChunk); i++ {
				q := l.queue[0]
				l.queue[0] = queued{}
				l.queue = l.queue[1:]
				l.waiting -= len(q.b)
				if i == 0 {
					fds = q.fds
					if len(l.queue) == 0 {
						b = q.b
						break
					}
				}
				b = append(b, q.b...)
			}
			if len(l.queue) == 0 {
				l.queue = nil
			}
			l.busy = true
			l.room.Broadcast()
		} else {
			src = l.sources[0]
			l.sources = l.sources[1:]
		}
		l.mu.Unlock()
		if src != nil {
			var more bool
			if b, more = src.nextFrame(b); more {
				l.ready(src)
			}
			buf = b
		}
		if len(b) == 0 {
			continue
		}
		err := l.t.send(b, fds)
		closeAll(fds)
		if err != nil {
			l.fail(err)
			return
		}
	}
}

// read receives until the transport ends, and gives the reason.
func (l *link) read() error {
	buf := make([]byte, 4096)
	for {
		n, fds, err := l.t.receive(buf)
		l.fds = append(l.fds, fds...)
		l.last = len(fds)
		if err == nil && len(l.fds) > 8*maxFrameFDs {
			err = errTruncated
		}
		if err != nil {
			closeAll(l.fds)
			l.fds = nil
			return err
		}
		l.dec.feed(buf[:n])
		if n == len(buf) && n < maxChunk {
			buf = make([]byte, maxChunk)
		} else if n < 4096 && len(buf) > 4096 && len(l.dec.plain) == 0 {
			buf = make([]byte, 4096)
		}
	}
}

// take takes the n oldest descriptors that were received.
func (l *link) take(n int) ([]int, error) {
	if n > len(l.fds) {
		return nil, errMessage
	}
	fds := l.fds[:n:n]
	l.fds = l.fds[n:]
	return fds, nil
}

// staleFDs closes the descriptors of frames that a reset cut off. Descriptors
// end a receive, so those that came with the latest bytes belong to a frame
// after the reset.
func (l *link) staleFDs() {
	n := max(0, len(l.fds)-l.last)
	closeAll(l.fds[:n])
	l.fds = l.fds[n:]
}

// fail ends the link with the first reason given.
func (l *link) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return
	}
	if err == nil {
		err = errLinkClosed
	}
	l.err = err
	for _, q := range l.queue {
		closeAll(q.fds)
	}
	l.queue, l.sources = nil, nil
	l.wake.Broadcast()
	l.room.Broadcast()
	close(l.done)
	l.t.Close()
}

func (l *link) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// drain waits until the queue has been handed to the transport, at most for d.
func (l *link) drain(d time.Duration) {
	late := false
	t := time.AfterFunc(d, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		late = true
		l.room.Broadcast()
	})
	defer t.Stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for (l.waiting > 0 || l.busy) && l.err == nil && !late {
		l.room.Wait()
	}
}
