package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

const (
	// handshakeTimeout bounds TLS with a server, and with the sandbox.
	handshakeTimeout = 15 * time.Second
	// idleUpstream is how long an unused connection to a server is kept.
	idleUpstream = 30 * time.Second
	// idlePerRoute bounds the unused connections of one route.
	idlePerRoute = 32
	// maxAnswerHead bounds the fields of an answer.
	maxAnswerHead = 256 << 10
)

// route is what requests must agree in to share a connection. Two sandboxes
// never do, nor two rules, since these may have different secrets and ranges; a
// new policy version has new rules.
type route struct {
	box  act.Box
	rule *policy.Rule
	to   policy.Authority
	tls  bool
}

// upstream is one connection to a server.
type upstream struct {
	*http.ClientConn
	raw    *counted
	addr   string // that was dialled
	h2     bool
	reused bool      // by the request that has it
	since  time.Time // unused since
}

// counted counts the bytes that were written to a server, to know whether a
// request that failed had begun.
type counted struct {
	net.Conn
	written atomic.Int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// pool holds a route's connections.
type pool struct {
	idle    []*upstream // HTTP/1, the last used at the end
	shared  []*upstream // HTTP/2
	h1      bool        // the server speaks no HTTP/2
	dialing *dialing    // that others wait for
}

// dialing is a dial to a server of which it is not known yet whether it takes
// many requests on one connection.
type dialing struct {
	done chan struct{}
	err  error // set before done is closed
}

// upstreams holds the connections to servers of one lineage.
type upstreams struct {
	roots     func() *x509.CertPool
	transport *http.Transport

	mu     sync.Mutex
	pools  map[route]*pool
	sweep  *time.Timer
	closed bool
}

// dialled is the context key of a connection that a transport is to use.
type dialled struct{}

func newUpstreams(roots func() *x509.CertPool) *upstreams {
	u := &upstreams{roots: roots, pools: map[route]*pool{}}
	take := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, ok := ctx.Value(dialled{}).(net.Conn)
		if !ok {
			return nil, errors.New("nothing but the gate dials")
		}
		return c, nil
	}
	u.transport = &http.Transport{
		DialContext: take, DialTLSContext: take,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true,
		MaxResponseHeaderBytes: maxAnswerHead,
		WriteBufferSize:        16 << 10,
		ReadBufferSize:         16 << 10,
		HTTP2:                  &http.HTTP2Config{MaxReceiveBufferPerStream: 1 << 20},
	}
	return u
}

// get gives a connection with a request reserved on it: an unused one, or a new
// one when fresh is set or there is none.
func (u *upstreams) get(ctx context.Context, r route, a act.Act, fresh bool) (*upstream, error) {
	for {
		u.mu.Lock()
		if u.closed {
			u.mu.Unlock()
			return nil, net.ErrClosed
		}
		p := u.pools[r]
		if p == nil {
			p = &pool{h1: !r.tls}
			u.pools[r] = p
		}
		if !fresh {
			if c := p.take(); c != nil {
				u.mu.Unlock()
				return c, nil
			}
		}
		if p.h1 {
			u.mu.Unlock()
			return u.dial(ctx, r, a, nil)
		}
		// One dials, in case the server takes many requests on one connection.
		if d := p.dialing; d != nil {
			u.mu.Unlock()
			select {
			case <-d.done:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if d.err != nil && !errors.Is(d.err, context.Canceled) {
				return nil, d.err
			}
			fresh = false
			continue
		}
		d := &dialing{done: make(chan struct{})}
		p.dialing = d
		u.mu.Unlock()
		c, err := u.dial(ctx, r, a, nil)
		u.mu.Lock()
		if err == nil {
			p.h1 = !c.h2
			if c.h2 {
				c.since = time.Now()
				p.shared = append(p.shared, c)
				u.later()
			}
		}
		p.dialing = nil
		d.err = err
		close(d.done)
		u.mu.Unlock()
		return c, err
	}
}

// take finds an unused connection and reserves a request on it.
func (p *pool) take() *upstream {
	for i := 0; i < len(p.shared); {
		c := p.shared[i]
		if c.Err() != nil {
			p.shared = append(p.shared[:i], p.shared[i+1:]...)
			continue
		}
		if c.Reserve() == nil {
			c.since = time.Now()
			return &upstream{ClientConn: c.ClientConn, raw: c.raw, addr: c.addr, h2: true, reused: true}
		}
		i++
	}
	for n := len(p.idle); n > 0; n = len(p.idle) {
		c := p.idle[n-1]
		p.idle[n-1] = nil
		p.idle = p.idle[:n-1]
		if c.Err() == nil && c.Reserve() == nil {
			c.reused = true
			return c
		}
		c.Close()
	}
	return nil
}

// dial makes a connection and reserves a request on it. protocols are offered
// to the server; nil is HTTP/2 and HTTP/1.1.
func (u *upstreams) dial(ctx context.Context, r route, a act.Act, protocols []string) (*upstream, error) {
	raw, err := r.box.Dial(ctx, a, r.rule)
	if err != nil {
		return nil, err
	}
	c := &upstream{raw: &counted{Conn: raw}}
	if remote := raw.RemoteAddr(); remote != nil {
		c.addr = remote.String()
	}
	var use net.Conn = c.raw
	scheme := "http"
	if r.tls {
		scheme = "https"
		if protocols == nil {
			protocols = []string{"h2", "http/1.1"}
		}
		t := tls.Client(c.raw, &tls.Config{
			RootCAs: u.roots(), ServerName: r.to.Host().String(), NextProtos: protocols, MinVersion: tls.VersionTLS12,
		})
		shake, cancel := context.WithTimeout(ctx, handshakeTimeout)
		err := t.HandshakeContext(shake)
		cancel()
		if err != nil {
			raw.Close()
			return nil, fmt.Errorf("%w: %w", errHandshake, err)
		}
		c.h2 = t.ConnectionState().NegotiatedProtocol == "h2"
		use = t
	}
	c.ClientConn, err = u.transport.NewClientConn(context.WithValue(ctx, dialled{}, use), scheme, r.to.String())
	if err == nil {
		err = c.Reserve()
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// errHandshake is wrapped around what crypto/tls says of a server.
var errHandshake = errors.New("TLS with the server failed")

// put gives back a connection whose request is over. Of HTTP/1 it is kept when
// the answer was read to its end.
func (u *upstreams) put(r route, c *upstream) {
	if c.h2 {
		return
	}
	if c.Err() != nil || c.Available() == 0 {
		c.Close()
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.pools[r]
	if u.closed || p == nil || len(p.idle) >= idlePerRoute {
		c.Close()
		return
	}
	c.since = time.Now()
	p.idle = append(p.idle, c)
	u.later()
}

// later sees to it that unused connections are closed. mu is held.
func (u *upstreams) later() {
	if u.sweep == nil {
		u.sweep = time.AfterFunc(idleUpstream, func() { u.clean(time.Now().Add(-idleUpstream / 2)) })
	}
}

// clean closes the connections that have not been used since a time, and
// forgets routes without any.
func (u *upstreams) clean(since time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.sweep = nil
	for r, p := range u.pools {
		p.idle = keep(p.idle, since)
		p.shared = keep(p.shared, since)
		if len(p.idle)+len(p.shared) == 0 && p.dialing == nil {
			delete(u.pools, r)
		}
	}
	if len(u.pools) > 0 && !u.closed {
		u.later()
	}
}

func keep(all []*upstream, since time.Time) []*upstream {
	kept := all[:0]
	for _, c := range all {
		if c.Err() == nil && (c.InFlight() > 0 || c.since.After(since)) {
			kept = append(kept, c)
		} else {
			c.Close()
		}
	}
	clear(all[len(kept):])
	return kept
}

// close ends all connections that are not in use by HTTP/1; those end with
// their streams.
func (u *upstreams) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	if u.sweep != nil {
		u.sweep.Stop()
	}
	for r, p := range u.pools {
		for _, c := range append(p.idle, p.shared...) {
			c.Close()
		}
		delete(u.pools, r)
	}
}
