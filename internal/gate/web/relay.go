package web

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

const (
	// maxOutgoing bounds a message of the sandbox that is looked into as a whole.
	maxOutgoing = 1 << 20
	// maxIncoming bounds a message of a server that is scrubbed.
	maxIncoming = 16 << 20
)

// socket is an open WebSocket.
type socket struct {
	x        *exchange
	received atomic.Int64
	sent     atomic.Int64

	mu     sync.Mutex // of toClient: answers of the gate come between
	client *bufio.Writer
	server *bufio.Writer
	peer   io.Closer
	late   *time.Timer // ends a socket whose server does not answer a close frame
}

// relay passes frames on both ways, until either side ends.
func (h *h1) relay(x *exchange) {
	resp := x.answer
	peer, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		resp.Body.Close()
		x.finish(0, coded("upstream_protocol"))
		return
	}
	s := &socket{x: x, client: h.w, server: bufio.NewWriterSize(peer, 8<<10), peer: peer}
	h.w.WriteString("HTTP/1.1 101 " + http.StatusText(http.StatusSwitchingProtocols) + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
	writeFields(h.w, resp.Header)
	h.w.WriteString("\r\n")
	err := h.w.Flush()
	if err == nil {
		stop := func() {
			// A little time is left to say why.
			peer.Close()
			h.conn.SetReadDeadline(longAgo)
			h.conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		}
		if !x.writing(stop) {
			stop()
		}
		down := make(chan error, 1)
		go func() {
			err := guarded(func() error { return s.down(bufio.NewReaderSize(peer, 8<<10)) })
			h.conn.SetReadDeadline(longAgo)
			down <- err
		}()
		err = guarded(func() error { return s.up(h.r) })
		peer.Close()
		// The side that ended by itself says why; the other was ended.
		if e := <-down; errors.Is(err, os.ErrDeadlineExceeded) || err == nil {
			err = e
		}
	}
	h.conn.SetWriteDeadline(time.Now().Add(time.Second))
	if d := x.forbidden(); d != nil {
		s.close(&closing{closePolicy, d.Reason, d.Why})
	} else if c := (*closing)(nil); errors.As(err, &c) {
		s.close(c)
	} else if errors.Is(err, act.Fault) {
		s.close(&closing{closeFault, act.Fault.Reason, act.Fault.Why})
	} else if errors.Is(err, io.EOF) || errors.Is(err, errEnd) {
		err = nil
	}
	peer.Close()
	if s.late != nil {
		s.late.Stop()
	}
	x.up = &upload{}
	x.up.sent.Store(s.sent.Load())
	x.finish(s.received.Load(), err)
}

// guarded makes an error of a fault.
func guarded(f func() error) (err error) {
	defer func() {
		if act.Caught(recover()) {
			err = act.Fault
		}
	}()
	return f()
}

// errEnd is the end of a socket by a close frame.
var errEnd = errors.New("closed")

// up passes what the sandbox sends.
func (s *socket) up(r *bufio.Reader) error {
	look := s.x.secret != nil
	message := message{limit: maxOutgoing, ctx: s.x.ctx}
	defer message.free()
	for {
		f, err := readFrame(r, true)
		if err != nil {
			return err
		}
		s.sent.Add(f.size)
		if !s.x.a.Count(policy.Usage{Upload: f.size}) {
			return &closing{closePolicy, policy.ReasonLimitUpload, "a limit of the rule is passed"}
		}
		if err := message.order(f); err != nil {
			return err
		}
		if !look && !f.control() {
			writeFrame(s.server, f)
			if _, err := io.CopyN(s.server, r, f.size); err != nil {
				return unexpected(err)
			}
			if err := s.server.Flush(); err != nil {
				return err
			}
			continue
		}
		op, whole, err := message.add(r, f)
		if err != nil {
			return err
		}
		if whole == nil {
			continue
		}
		if look {
			if whole, err = s.x.secret.Outgoing(whole, s.x.pr, s.x.rule); err != nil {
				return closingOf(err)
			}
		}
		err = writeMessage(s.server, op, whole, true)
		if !message.open {
			message.free()
		}
		if err != nil {
			return err
		}
		if op == opClose {
			// The server answers it; down ends with that.
			s.late = time.AfterFunc(5*time.Second, func() { s.peer.Close() })
		}
	}
}

// down passes what the server sends.
func (s *socket) down(r *bufio.Reader) error {
	look := s.x.secret != nil
	message := message{limit: maxIncoming, ctx: s.x.ctx}
	defer message.free()
	for {
		f, err := readFrame(r, false)
		if err != nil {
			return err
		}
		s.received.Add(f.size)
		if err := message.order(f); err != nil {
			return err
		}
		if !look && !f.control() {
			s.mu.Lock()
			writeFrame(s.client, f)
			_, err := io.CopyN(s.client, r, f.size)
			if err == nil {
				err = s.client.Flush()
			}
			s.mu.Unlock()
			if err != nil {
				return unexpected(err)
			}
			continue
		}
		op, whole, err := message.add(r, f)
		if err != nil {
			return err
		}
		if whole == nil {
			continue
		}
		if look {
			whole = s.x.secret.Incoming(whole, func(n int) { s.x.scrubbed.Add(int64(n)) })
		}
		s.mu.Lock()
		err = writeMessage(s.client, op, whole, false)
		s.mu.Unlock()
		if !message.open {
			message.free()
		}
		if err != nil {
			return err
		}
		if op == opClose {
			return errEnd
		}
	}
}

// close tells the sandbox why the gate ends the socket.
func (s *socket) close(c *closing) {
	why := c.why
	if len(why) > 120 {
		why = why[:120]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	writeMessage(s.client, opClose, append(binary.BigEndian.AppendUint16(nil, c.code), why...), false)
}

// closingOf makes a closing of a refusal.
func closingOf(err error) error {
	var refused *act.Refused
	if errors.As(err, &refused) {
		return &closing{closePolicy, refused.Reason, refused.Why}
	}
	return &closing{closePolicy, "secret_failed", "a secret could not be put in"}
}

// message puts the frames of a message together.
type message struct {
	limit int64
	open  bool // more frames of it are to come
	op    byte
	parts []byte
	ctx   context.Context // whose memory it takes
	taken int64
}

// smallMessage is up to how many bytes a message takes none of its sandbox's memory.
const smallMessage = 64 << 10

// free gives back what a message took.
func (m *message) free() {
	act.MemoryOf(m.ctx).Give(m.taken)
	m.taken = 0
}

// order checks that a frame may come now (RFC 6455, 5.4).
func (m *message) order(f frame) error {
	if f.control() {
		return nil
	}
	if m.open != (f.op == opContinue) {
		return errFrame
	}
	if !m.open {
		m.op = f.op
	}
	m.open = !f.fin
	return nil
}

// add reads a frame and gives a message when it is whole: never nil then.
func (m *message) add(r io.Reader, f frame) (op byte, whole []byte, err error) {
	have := m.parts
	if f.control() {
		have = nil
	}
	if f.size > m.limit-int64(len(have)) {
		return 0, nil, &closing{closeTooBig, "message_too_large", "a message is too large to be looked into"}
	}
	// It grows with what has come, not with what was announced.
	p := have
	for at := int64(0); at < f.size; {
		n := min(f.size-at, 32<<10)
		if int64(len(p))+n > smallMessage {
			if err := act.MemoryOf(m.ctx).Take(m.ctx, n); err != nil {
				if refused := refusalOf(err); refused != nil {
					return 0, nil, &closing{closeTooBig, refused.Reason, refused.Why}
				}
				return 0, nil, err
			}
			m.taken += n
		}
		p = append(p, make([]byte, n)...)
		piece := p[int64(len(p))-n:]
		if _, err := io.ReadFull(r, piece); err != nil {
			return 0, nil, unexpected(err)
		}
		if f.masked {
			xor(piece, f.mask, at)
		}
		at += n
	}
	if p == nil {
		p = []byte{}
	}
	if f.control() {
		return f.op, p, nil
	}
	if m.open {
		m.parts = p
		return 0, nil, nil
	}
	m.parts = nil
	return m.op, p, nil
}
