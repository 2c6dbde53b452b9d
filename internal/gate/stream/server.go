package stream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/names"
	"github.com/bailey-sandbox/bailey/policy"
)

// Server serves one sandbox's streams.
type Server struct {
	Box act.Box
	// DNS answers port 53; its table has the names behind the addresses.
	DNS *names.Responder
	Web act.Web
	// SniffTimeout bounds the wait for all the first bytes that are needed to
	// decide.
	SniffTimeout time.Duration
	// Limit is how many streams may be open at a time. At the limit no more are
	// accepted: they wait in the kernel's queue, and nobody else's do.
	Limit int
	// Original gives the destination that a stream had before it was redirected;
	// nil asks the kernel.
	Original func(*net.TCPConn) (netip.AddrPort, error)

	mu    sync.Mutex
	live  map[*net.TCPConn]uint64 // bytes when they were last looked at
	moved int64
}

// Serve accepts streams until l is closed or ctx ends, and returns when all of
// them have ended. The streams end when ctx does.
func (s *Server) Serve(ctx context.Context, l *net.TCPListener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var streams sync.WaitGroup
	defer streams.Wait()
	defer cancel()
	slots := make(chan struct{}, s.Limit)
	for {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		c, err := l.AcceptTCP()
		if err != nil {
			<-slots
			if errors.Is(err, net.ErrClosed) || ctx.Err() != nil {
				return nil
			}
			// No descriptors are left, or the client has gone already. Others may free some.
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
			continue
		}
		streams.Add(1)
		go func() {
			defer streams.Done()
			defer func() { <-slots }()
			s.enter(c)
			defer s.leave(c)
			s.serve(ctx, c)
		}()
	}
}

// serve serves one redirected stream to its end.
func (s *Server) serve(ctx context.Context, c *net.TCPConn) {
	ctx = act.WithClient(ctx, c.RemoteAddr().String())
	original := s.Original
	if original == nil {
		original = redirectedFrom
	}
	var to policy.Authority
	defer func() {
		if act.Caught(recover()) {
			s.refuse(c, to, act.Fault.Reason, act.Fault.Why)
		}
	}()
	dst, err := original(c)
	if err != nil {
		reset(c)
		return
	}
	dst = netip.AddrPortFrom(dst.Addr().Unmap(), dst.Port())
	to = literal(dst)
	if local, ok := c.LocalAddr().(*net.TCPAddr); ok && sameEnd(dst, local.AddrPort()) {
		s.refuse(c, to, "gate_loop", "the listener is reached through a destination, not by itself")
		return
	}
	switch {
	case dst.Port() == 53:
		s.DNS.ServeTCP(ctx, c)
	case names.Gate(dst.Addr()) && dst.Port() == driver.GateProxyPort:
		s.proxy(ctx, c)
	case names.Gate(dst.Addr()):
		s.refuse(c, to, "gate_port", "the gate answers DNS at port 53 and is a proxy at port 3128, and nothing else")
	default:
		s.direct(ctx, c, to)
	}
}

// direct leads a redirected stream to where it wanted to go.
func (s *Server) direct(ctx context.Context, c net.Conn, to policy.Authority) {
	serve, refused, err := s.open(ctx, act.Redirect, to)
	if refused != nil || err != nil {
		reset(c)
		return
	}
	serve(c)
}

// refuse denies a stream that policy has no say in, and resets it.
func (s *Server) refuse(c net.Conn, to policy.Authority, reason, why string) {
	a := s.Box.Begin(act.Stream, act.Redirect, to)
	a.Refuse(reason, why)
	a.Commit() // nothing passes in any case
	reset(c)
}

// literal is the authority of an address.
func literal(a netip.AddrPort) policy.Authority {
	h, err := policy.ParseHost(a.Addr().String())
	if err != nil {
		return policy.Authority{}
	}
	return policy.At(h, a.Port())
}

// sameEnd tells whether two ends are one.
func sameEnd(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() && a.Addr().Unmap() == b.Addr().Unmap()
}

// reset ends a stream with an RST, so that the other end sees an error and not
// an end of data.
func reset(c net.Conn) {
	if t, ok := c.(interface{ SetLinger(int) error }); ok {
		t.SetLinger(0)
	}
	c.Close()
}
