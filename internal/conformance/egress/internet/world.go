//go:build linux

package internet

import (
	"net"
	"net/http"
	"net/netip"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// World is the internet at work.
type World struct {
	Record *Record
	CA     *Authority

	mu       sync.Mutex
	streams  map[string]func(net.Conn) // by host:port: what is spoken there in place of the usual
	handlers map[string]http.Handler   // by host
	asked    map[string]int            // DNS questions so far, by name
	open     map[net.Conn]bool
	closers  []func()
	tasks    sync.WaitGroup
	h1, h2   chan net.Conn // to the servers of HTTP/1 and of HTTP/2
	closed   bool
}

// Start lets the internet serve until Close.
func Start(s Sockets, ca *Authority) (*World, error) {
	w := &World{Record: newRecord(), CA: ca, streams: map[string]func(net.Conn){}, handlers: map[string]http.Handler{}, asked: map[string]int{},
		open: map[net.Conn]bool{}, h1: make(chan net.Conn), h2: make(chan net.Conn)}
	var h1, h2 http.Protocols
	h1.SetHTTP1(true)
	h2.SetUnencryptedHTTP2(true) // TLS was taken off before
	w.web(w.h1, &h1)
	w.web(w.h2, &h2)
	for port, fd := range s.TCP {
		l, err := listener(fd)
		if err != nil {
			return nil, err
		}
		w.Serve(l, "conn", port)
	}
	for _, fd := range s.Host {
		l, err := listener(fd)
		if err != nil {
			return nil, err
		}
		w.Serve(l, "host", 0)
	}
	for port := range s.UDP {
		c, err := s.packets(port)
		if err != nil {
			return nil, err
		}
		w.closers = append(w.closers, func() { c.Close() })
		if port == 53 {
			w.names(c)
		} else {
			w.tasks.Go(func() { w.datagrams(c, port) })
		}
	}
	w.frames(s.Frames)
	return w, nil
}

// web answers the connections that are handed over.
func (w *World) web(conns chan net.Conn, speaks *http.Protocols) {
	s := &http.Server{Handler: http.HandlerFunc(w.serve), ConnContext: withConn, Protocols: speaks}
	handed := &handedOver{conns, make(chan struct{}), sync.Once{}}
	w.closers = append(w.closers, func() { s.Close(); handed.Close() })
	w.tasks.Go(func() { s.Serve(handed) })
}

// Handle lets h answer HTTP at a host.
func (w *World) Handle(host string, h http.Handler) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.handlers[host] = h
}

// Stream lets f speak at a host's port in place of what is usual there.
func (w *World) Stream(hostPort string, f func(net.Conn)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.streams[hostPort] = f
}

// Close ends all that the world does.
func (w *World) Close() {
	w.mu.Lock()
	w.closed = true
	for c := range w.open {
		c.Close()
	}
	w.mu.Unlock()
	for _, f := range w.closers {
		f()
	}
	w.tasks.Wait()
}

// Serve takes connections as events of a kind and speaks as a port does, at port
// 0 nothing. Kind "host" is for services of the host, to which nobody may come.
func (w *World) Serve(l net.Listener, kind string, port int) {
	w.closers = append(w.closers, func() { l.Close() })
	w.tasks.Go(func() { w.accept(l, kind, port) })
}

func (w *World) accept(l net.Listener, kind string, port int) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		to, from := ends(c)
		e := w.Record.add(Event{Kind: kind, Host: plan.HostAt(to.Addr()), To: to, From: from})
		rc := &recorded{Conn: c, w: w, e: e}
		w.mu.Lock()
		if w.closed {
			c.Close()
		}
		w.open[c] = true
		w.mu.Unlock()
		w.tasks.Go(func() { w.speak(rc, port) })
	}
}

func ends(c net.Conn) (to, from netip.AddrPort) {
	plain := func(a net.Addr) netip.AddrPort {
		t, ok := a.(*net.TCPAddr)
		if !ok {
			return netip.AddrPort{} // a unix socket
		}
		return netip.AddrPortFrom(t.AddrPort().Addr().Unmap(), t.AddrPort().Port())
	}
	return plain(c.LocalAddr()), plain(c.RemoteAddr())
}

// recorded is a connection whose other side's bytes are kept.
type recorded struct {
	net.Conn
	w *World
	e *Event
}

func (c *recorded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.w.Record.more(c.e, p[:n])
	}
	return n, err
}

func (c *recorded) Close() error {
	c.w.mu.Lock()
	delete(c.w.open, c.Conn)
	c.w.mu.Unlock()
	return c.Conn.Close()
}

// handedOver is a listener for connections that were accepted elsewhere.
type handedOver struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *handedOver) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *handedOver) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *handedOver) Addr() net.Addr { return &net.TCPAddr{} }
