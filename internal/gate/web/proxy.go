package web

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// ServeProxy implements act.Web.
func (w *Web) ServeProxy(ctx context.Context, box act.Box, c net.Conn, open act.Open) {
	release := at(ctx, c)
	s := &stream{web: w, box: box, conn: c, via: act.HTTPProxy, proxy: true, ctx: ctx}
	h := &h1{stream: s, r: bufio.NewReaderSize(c, readSize), w: bufio.NewWriterSize(c, 8<<10), connect: open}
	func() {
		defer s.survive()
		h.serve()
	}()
	if h.tunnel == nil {
		release()
		c.Close()
		return
	}
	// From here on the connection is whoever's the tunnel is.
	release()
	h.tunnel(&rest{c, h.r})
}

// openTunnel answers a CONNECT, and leaves in h.tunnel whose the connection is
// when it has become one.
func (h *h1) openTunnel(req *head) {
	to, err := policy.ParseAuthority(req.target, 0)
	if err != nil {
		h.reject(req, bad("CONNECT needs a host and a port"))
		return
	}
	if req.hasHost {
		// Many clients leave the port out here, or give the one of the target.
		if at, err := policy.ParseAuthority(req.host, to.Port()); err != nil || at != to {
			h.reject(req, misdirected("the Host is not where CONNECT leads"))
			return
		}
	}
	if req.length != 0 {
		h.reject(req, ambiguous("CONNECT has no body"))
		return
	}
	serve, refused, err := h.connect(h.ctx, to)
	switch {
	case refused != nil:
		h.answer(req, denied(*refused, http.StatusForbidden, nil))
	case err != nil:
		h.answer(req, failed(http.StatusBadGateway, "upstream_failed", "CONNECT "+to.String(), err.Error(), nil))
	default:
		if _, err := io.WriteString(h.conn, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
			serve(nil)
			return
		}
		h.conn.SetDeadline(time.Time{})
		h.tunnel = serve
	}
}

// answer writes an answer of the gate's own after which the connection ends.
func (h *h1) answer(req *head, resp *http.Response) {
	h.write(&exchange{stream: h.stream, answer: resp, own: true}, &head{method: "", minor: req.minor, close: true}, false)
	lingering(h.conn)
}

// rest is a connection of which something was read ahead.
type rest struct {
	net.Conn
	r *bufio.Reader
}

func (c *rest) Read(p []byte) (int, error) { return c.r.Read(p) }

// CloseWrite ends the sending half.
func (c *rest) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
