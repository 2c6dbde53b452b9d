package stream

import (
	"errors"
	"io"
	"net"
	"os"
)

// peeked is a stream whose first bytes were looked at and are read again.
type peeked struct {
	net.Conn
	buf []byte // read, and not yet given out
}

func newPeeked(c net.Conn) *peeked {
	if p, ok := c.(*peeked); ok {
		return p
	}
	return &peeked{Conn: c}
}

// peek gives at least n bytes without taking them, or what there is with an error.
func (p *peeked) peek(n int) ([]byte, error) {
	for len(p.buf) < n {
		if cap(p.buf) == 0 {
			p.buf = make([]byte, 0, 1024)
		}
		if len(p.buf) == cap(p.buf) {
			p.buf = append(p.buf, 0)[:len(p.buf)]
		}
		k, err := p.Conn.Read(p.buf[len(p.buf):cap(p.buf)])
		p.buf = p.buf[:len(p.buf)+k]
		if err != nil && len(p.buf) < n {
			return p.buf, err
		}
	}
	return p.buf, nil
}

// Read gives the bytes that were looked at first.
func (p *peeked) Read(b []byte) (int, error) {
	if len(p.buf) > 0 {
		n := copy(b, p.buf)
		if p.buf = p.buf[n:]; len(p.buf) == 0 {
			p.buf = nil
		}
		return n, nil
	}
	return p.Conn.Read(b)
}

// ReadFrom lets the kernel move what is written, where it can.
func (p *peeked) ReadFrom(r io.Reader) (int64, error) { return io.Copy(p.Conn, r) }

// CloseWrite ends what is sent, if the stream can do so by halves.
func (p *peeked) CloseWrite() error { return closeWrite(p.Conn) }

// SetLinger lets a stream be reset through what is around it.
func (p *peeked) SetLinger(sec int) error {
	if t, ok := p.Conn.(interface{ SetLinger(int) error }); ok {
		return t.SetLinger(sec)
	}
	return errors.ErrUnsupported
}

func closeWrite(c net.Conn) error {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
