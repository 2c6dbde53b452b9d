package engine

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// PortTCP says where ports are reachable by TCP.
type PortTCP struct {
	Host     string // an address of this machine; "" is 127.0.0.1
	From, To int    // its ports, both ends included
}

func (p PortTCP) zero() bool { return p.From == 0 }

func (p PortTCP) address(port int) string {
	host := p.Host
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

const (
	// maxStreams is how many TCP connections one port may have open at once.
	maxStreams = 1000
	// dialWithin bounds how long a connection waits for its sandbox to be woken.
	dialWithin = time.Minute
)

// ports are the listeners of ports that are reachable by TCP.
type ports struct {
	mu     sync.Mutex
	closed bool
	open   map[int]*tcpPort // by the host's port
}

type tcpPort struct {
	sandbox string
	port    int // inside
	l       net.Listener
	pending bool // its record is not written yet
}

// listenTCP has a port of a sandbox reached at a port of the host, which is given:
// at, or with 0 any that is free. It is the one it has already, if there is one.
func (e *Engine) listenTCP(id string, port, at int) (int, error) {
	what := fmt.Sprintf("make port %d reachable by TCP", port)
	p := &e.ports
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, bailey.Errorf(bailey.CodeDaemonUnavailable, what, "ask again", "the daemon is ending")
	}
	for n, t := range p.open {
		if t.sandbox == id && t.port == port {
			return n, nil
		}
	}
	from, to := e.opt.PortTCP.From, e.opt.PortTCP.To
	if at != 0 {
		from, to = at, at
	}
	var last error
	for n := from; n <= to; n++ {
		if p.open[n] != nil {
			continue
		}
		l, err := net.Listen("tcp", e.opt.PortTCP.address(n))
		if err != nil {
			last = err
			continue
		}
		t := &tcpPort{sandbox: id, port: port, l: l, pending: at == 0}
		if p.open == nil {
			p.open = map[int]*tcpPort{}
		}
		p.open[n] = t
		e.spawn(func(ctx context.Context) { e.serveTCP(ctx, t) })
		return n, nil
	}
	if last != nil {
		return 0, bailey.Errorf(bailey.CodeConflict, what, "free one, or widen ports.tcp_range", "no port of the host is free: %w", last)
	}
	return 0, bailey.Errorf(bailey.CodeQuotaExceeded, what, "close one, or widen ports.tcp_range", "all ports of the host that are for that are in use")
}

// serveTCP joins every connection with one to the sandbox, which it wakes.
func (e *Engine) serveTCP(ctx context.Context, t *tcpPort) {
	defer context.AfterFunc(ctx, func() { t.l.Close() })()
	slots := make(chan struct{}, maxStreams)
	for {
		slots <- struct{}{}
		c, err := t.l.Accept()
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				<-slots
				continue
			}
			return // closed
		}
		e.spawn(func(ctx context.Context) {
			defer func() { <-slots }()
			defer c.Close()
			dialing, cancel := context.WithTimeout(ctx, dialWithin)
			far, err := e.DialPort(dialing, t.sandbox, t.port)
			cancel()
			if err != nil {
				e.log.Debug("a connection is not led into a sandbox", "sandbox", t.sandbox, "port", t.port, "error", err)
				return
			}
			joinTCP(ctx, c, far)
		})
	}
}

// joinTCP copies both ways until both have ended.
func joinTCP(ctx context.Context, a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	defer context.AfterFunc(ctx, func() { a.Close(); b.Close() })()
	half := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if c, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			c.CloseWrite() // who is gone does not wait for an end
			return
		}
		to.Close()
		from.Close()
	}
	var back sync.WaitGroup
	back.Go(func() { half(a, b) })
	half(b, a)
	back.Wait()
}

// settle is keep once it is known whether what was listened for is in the record.
func (p *ports) settle(id string, r *record) {
	p.mu.Lock()
	for _, t := range p.open {
		if t.sandbox == id {
			t.pending = false
		}
	}
	p.mu.Unlock()
	p.keep(id, r)
}

// keep closes the listeners of a sandbox that its record no longer has.
func (p *ports) keep(id string, r *record) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, t := range p.open {
		if t.sandbox != id || t.pending {
			continue
		}
		wanted := false
		for _, x := range r.Ports {
			wanted = wanted || x.TCP == n && x.Port == t.port
		}
		if s := r.Sandbox.State; !wanted || s == api.StateDeleting || s == api.StateEnded || s == api.StateFailed {
			t.l.Close()
			delete(p.open, n)
		}
	}
}

func (p *ports) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for n, t := range p.open {
		t.l.Close()
		delete(p.open, n)
	}
}

// reopenPorts listens again for what was exposed by TCP. What cannot be had is said
// in the log: the sandbox is as well as before.
func (e *Engine) reopenPorts(context.Context) error {
	for _, b := range e.list() {
		for _, x := range b.record().Ports {
			if x.TCP == 0 {
				continue
			}
			if x.TCP < e.opt.PortTCP.From || x.TCP > e.opt.PortTCP.To {
				e.log.Warn("a port that was reachable by TCP no longer is: it lies outside ports.tcp_range", "sandbox", b.id, "port", x.Port, "at", x.TCP)
			} else if _, err := e.listenTCP(b.id, x.Port, x.TCP); err != nil {
				e.log.Error("a port is not reachable by TCP", "sandbox", b.id, "port", x.Port, "error", err)
			}
		}
	}
	return nil
}
