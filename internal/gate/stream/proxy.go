package stream

import (
	"context"
	"net"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// proxy serves the proxy's port: SOCKS5 if the first byte is its version, and
// HTTP otherwise.
func (s *Server) proxy(ctx context.Context, c net.Conn) {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	p := newPeeked(c)
	p.SetDeadline(time.Now().Add(s.SniffTimeout))
	first, err := p.peek(1)
	if err != nil {
		stop()
		reset(c)
		return
	}
	if first[0] == socksVersion {
		to, err := socksRequest(p)
		s.socks(ctx, p, stop, to, err)
		return
	}
	if stop() {
		p.SetDeadline(time.Time{})
	}
	s.Web.ServeProxy(ctx, s.Box, p, func(ctx context.Context, to policy.Authority) (func(net.Conn), *act.Denial, error) {
		return s.open(ctx, act.HTTPProxy, to)
	})
}

// socks leads a SOCKS5 client to where it asked for. stop ends the watch over ctx
// that made reading fail with it.
func (s *Server) socks(ctx context.Context, p *peeked, stop func() bool, to policy.Authority, err error) {
	if stop() {
		p.SetDeadline(time.Time{})
	}
	if err != nil {
		s.badSOCKS(p, err)
		return
	}
	serve, refused, err := s.open(ctx, act.SOCKS5, to)
	switch {
	case refused != nil:
		socksReply(p, socksNotAllowed)
	case err != nil:
		socksReply(p, socksFailure(err))
	case socksReply(p, socksSucceeded) != nil:
		serve(nil)
	default:
		serve(p)
		return
	}
	p.Conn.Close()
}

// badSOCKS answers a request that is none, and records it if it named something
// that could have been taken for a destination.
func (s *Server) badSOCKS(p *peeked, err error) {
	if bad, ok := err.(*socksError); ok && bad.reply != 0 {
		a := s.Box.Begin(act.Stream, act.SOCKS5, policy.Authority{})
		a.Record().Host = bad.host
		a.Refuse(bad.reason, bad.why)
		a.Commit() // nothing passes in any case
		socksReply(p, bad.reply)
	}
	p.Conn.Close()
}
