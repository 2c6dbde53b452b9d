package web

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
)

// perStream is what is set aside for a stream, in bytes: its buffers, and part
// of what the server may send before the sandbox reads. Those of HTTP/1 are
// bounded by the number of connections.
const perStream = 256 << 10

// newH2 makes the server whose handler for HTTP/2 serves connections. It never
// listens: Serve only sets the handler up.
func newH2() *http.Server {
	s := &http.Server{
		ErrorLog:       silent,
		MaxHeaderBytes: maxHead,
		IdleTimeout:    idleClient,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          128,
			MaxReceiveBufferPerStream:     256 << 10,
			MaxReceiveBufferPerConnection: 256 << 10,
			SendPingTimeout:               time.Minute,
			WriteByteTimeout:              2 * time.Minute,
		},
	}
	// It fails at once, with the listener's error.
	_ = s.Serve(noListener{})
	return s
}

// noListener accepts nothing.
type noListener struct{}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (noListener) Addr() net.Addr            { return &net.TCPAddr{} }

// h2 serves the streams of one connection of HTTP/2.
type h2 struct {
	*stream
	conn *watched
	any  atomic.Bool
}

// serveH2 serves a connection to its end, and tells whether there was any
// request.
func (s *stream) serveH2(t *tls.Conn) bool {
	h := &h2{stream: s}
	h.conn = newWatched(t, func() {
		h.any.Store(true)
		s.refuse("", "request_malformed", "the request, or its connection, is not what HTTP/2 allows")
	})
	if !h.conn.begins() {
		return h.any.Load()
	}
	s.web.h2.TLSNextProto["unencrypted_http2"](s.web.h2, tls.Client(unencrypted{h.conn, h.conn}, nil), h)
	h.conn.end()
	return h.any.Load()
}

// BaseContext is what net/http takes a connection's context from.
func (h *h2) BaseContext() context.Context { return h.ctx }

// ServeHTTP serves one stream.
func (h *h2) ServeHTTP(w http.ResponseWriter, in *http.Request) {
	h.any.Store(true)
	h.conn.handling()
	ctx, cancel := context.WithCancel(in.Context())
	defer cancel()
	r := in.WithContext(ctx)
	e := pseudo(in)
	if e == nil && act.Hold(ctx, perStream) != nil {
		e = &malformed{http.StatusServiceUnavailable, "gate_memory", "the gate keeps as much for this sandbox as it may: send fewer requests at a time"}
	}
	if e != nil {
		d := h.refuse(in.Method, e.reason, e.why)
		h.write(w, &exchange{stream: h.stream, answer: denied(d, e.status, nil), own: true})
		return
	}
	delete(r.Header, "Host")
	delete(r.Header, "Content-Length")
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	if r.ContentLength == 0 {
		r.Body = nil
	}
	x := h.exchange(r, "", true, cancel)
	control := http.NewResponseController(w)
	if !x.writing(func() { control.SetWriteDeadline(longAgo) }) {
		x.withdraw()
	}
	h.write(w, x)
}

// pseudo checks what net/http lets pass of a request's pseudo-header fields
// (RFC 9113, 8.3.1).
func pseudo(r *http.Request) *malformed {
	if r.Method != http.MethodConnect {
		if r.TLS == nil {
			return ambiguous("its scheme is not https")
		}
		if !strings.HasPrefix(r.RequestURI, "/") {
			return bad("its path does not begin with a slash")
		}
	}
	for _, host := range r.Header["Host"] {
		if host != r.Host {
			return ambiguous("its Host and its authority differ")
		}
	}
	return nil
}

// write writes the answer of an exchange and finishes it.
func (h *h2) write(w http.ResponseWriter, x *exchange) {
	resp := x.answer
	defer resp.Body.Close()
	received, err := h.guarded(w, resp, x.remains())
	if x.a != nil {
		x.finish(received, err)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // resets the stream
	}
}

// guarded writes an answer, and takes a fault for an error.
func (h *h2) guarded(w http.ResponseWriter, resp *http.Response, remains *remainder) (received int64, err error) {
	defer func() {
		if act.Caught(recover()) {
			err = act.Fault
		}
	}()
	return h.writeAnswer(w, resp, remains)
}

func (h *h2) writeAnswer(w http.ResponseWriter, resp *http.Response, remains *remainder) (received int64, err error) {
	if h.ctx.Err() != nil { // the sandbox's way ends: no answer is given that nobody has decided
		return 0, h.ctx.Err()
	}
	header := w.Header()
	for name, values := range resp.Header {
		if !unframed[name] {
			header[name] = values
		}
	}
	// net/http adds these to answers without: what the server did not say the gate
	// does not.
	for _, name := range []string{"Date", "Content-Type"} {
		if _, ok := header[name]; !ok {
			header[name] = nil
		}
	}
	if resp.ContentLength >= 0 {
		header["Content-Length"] = []string{strconv.FormatInt(resp.ContentLength, 10)}
	}
	w.WriteHeader(resp.StatusCode)
	flush, _ := w.(http.Flusher)
	if resp.ContentLength < 0 && remains == nil {
		flush.Flush()
	}
	buf := buffers.Get().(*[32 << 10]byte)
	defer buffers.Put(buf)
	for {
		n, err := resp.Body.Read(buf[:])
		if n > 0 {
			received += int64(n)
			if _, werr := w.Write(buf[:n]); werr != nil {
				if errors.Is(werr, http.ErrBodyNotAllowed) {
					return received, nil
				}
				return received, client(werr)
			}
			if err == nil && remains.coming() && received != resp.ContentLength {
				flush.Flush()
			}
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return received, err
		}
	}
	for name, values := range resp.Trailer {
		header[http.TrailerPrefix+name] = values
	}
	return received, nil
}
