package web

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
)

const (
	// idleClient is how long a connection of the sandbox may be unused.
	idleClient = 3 * time.Minute
	// headTimeout bounds the wait for a request's head once it has begun.
	headTimeout = 30 * time.Second
	// drain is how much of a refused request's body is read over, so that its
	// connection can be used again.
	drain = 256 << 10
	// watchAfter is how long an answer may take before the gate looks whether
	// the client is still there.
	watchAfter = 100 * time.Millisecond
)

// h1 is a connection that speaks HTTP/1.
type h1 struct {
	*stream
	r *bufio.Reader
	w *bufio.Writer

	connect act.Open         // of a proxy, nil otherwise
	tunnel  func(c net.Conn) // set when a CONNECT was answered
}

// readSize holds most heads whole; longer ones are put together.
const readSize = 8 << 10

// serve reads requests and answers them, one after the other, until the
// connection ends. It tells whether there was any.
func (s *stream) serveH1() bool {
	h := &h1{stream: s, r: bufio.NewReaderSize(s.conn, readSize), w: bufio.NewWriterSize(s.conn, 8<<10)}
	return h.serve()
}

func (h *h1) serve() (any bool) {
	for ; h.ctx.Err() == nil; any = true {
		text, err := h.readHead(!any)
		if err != nil {
			var e *malformed
			if errors.As(err, &e) {
				h.reject(nil, e)
				return true
			}
			return any
		}
		req, e := parseHead(text)
		if e != nil {
			h.reject(req, e)
			return true
		}
		if req.method == http.MethodConnect && h.connect != nil {
			h.openTunnel(req)
			return true
		}
		if !h.one(req) {
			return true
		}
	}
	return any
}

// readHead reads up to the empty line.
func (h *h1) readHead(first bool) (string, error) {
	timed := false
	if h.r.Buffered() == 0 {
		idle := idleClient
		if first {
			idle = headTimeout
		}
		h.conn.SetReadDeadline(time.Now().Add(idle))
		timed = true
		if _, err := h.r.Peek(1); err != nil {
			return "", err
		}
	}
	// One empty line before a request is what RFC 9112, 2.2, asks to be read over.
	if b, _ := h.r.Peek(min(2, h.r.Buffered())); string(b) == "\r\n" {
		h.r.Discard(2)
	}
	for seen, began := 0, false; ; {
		b, _ := h.r.Peek(h.r.Buffered())
		if i := bytes.Index(b[max(0, seen-3):], []byte("\r\n\r\n")); i >= 0 {
			text := string(b[:max(0, seen-3)+i+4])
			h.r.Discard(len(text))
			if timed {
				h.conn.SetReadDeadline(time.Time{})
			}
			return text, nil
		}
		if e := hopeless(b, seen); e != nil {
			return "", e
		}
		seen = len(b)
		if !began {
			h.conn.SetReadDeadline(time.Now().Add(headTimeout))
			began, timed = true, true
		}
		if seen == h.r.Size() {
			if seen >= maxHead {
				return "", &malformed{http.StatusRequestHeaderFieldsTooLarge, "request_too_large", "its head is longer than 64 KiB"}
			}
			h.r = bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(b)), h.conn), maxHead)
		}
		if _, err := h.r.Peek(seen + 1); err != nil {
			return "", err
		}
	}
}

// hopeless tells that b will be no head, so that there is no point in waiting
// for its end: HTTP/0.9, TLS, binary protocols. Of b, seen bytes were looked at
// before.
func hopeless(b []byte, seen int) *malformed {
	if len(b) > 0 && (b[0] < 'A' || b[0] > 'Z') {
		return bad("it begins like no request")
	}
	for i := seen; i < len(b); i++ {
		switch b[i] {
		case 0:
			return bad("the head has a NUL")
		case '\n':
			if i == 0 || b[i-1] != '\r' {
				return bad("a line does not end with CR LF")
			}
			if bytes.IndexByte(b, '\n') == i {
				if e := new(head).line(string(b[:i-1])); e != nil {
					return e
				}
			}
		}
	}
	return nil
}

// one answers one request, and tells whether another may follow.
func (h *h1) one(req *head) bool {
	in := &inbound{conn: h.conn, body: body{r: h.r, left: max(req.length, 0), chunked: req.length < 0, first: true}}
	if req.expect {
		in.before = func() error {
			h.w.WriteString("HTTP/1.1 100 Continue\r\n\r\n")
			return h.w.Flush()
		}
	}
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	r := (&http.Request{
		Method: req.method, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: req.header, Host: req.host, RequestURI: req.target, ContentLength: req.length,
	}).WithContext(ctx)
	if req.length != 0 {
		r.Body = in
	}
	w := h.watch(in, cancel)
	defer w.stop()
	x := h.exchange(r, req.upgrade, req.hasHost, cancel)
	if !x.writing(func() { h.conn.SetWriteDeadline(longAgo) }) {
		x.withdraw()
	}
	if x.socket {
		w.stop()
		h.relay(x)
		return false
	}
	// An answer of the gate's own comes before the body was read. A short rest is
	// read over, so that the connection can go on; a long one is not worth it.
	keep := !req.close && !x.broken && (!x.own || in.finish())
	err := h.write(x, req, keep)
	w.stop()
	ended := in.finish()
	if !ended && err == nil {
		lingering(h.conn)
	}
	return ended && err == nil && keep && !w.gone.Load()
}

// reject answers what is no request. The connection ends, since nobody knows
// where the next one would begin.
func (h *h1) reject(req *head, e *malformed) {
	var method string
	if req != nil {
		method = req.method
	}
	d := h.refuse(method, e.reason, e.why)
	h.write(&exchange{stream: h.stream, answer: denied(d, e.status, nil), own: true}, &head{minor: 1, close: true}, false)
	lingering(h.conn)
}

// lingering ends the sending half and reads over what still comes, for a short
// time, so that the answer is not lost to a reset.
func lingering(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	c.SetReadDeadline(time.Now().Add(time.Second))
	io.CopyN(io.Discard, c, 16*drain)
}
