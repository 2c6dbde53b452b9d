package web

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// stream is one connection of a sandbox, and what is known of all its requests.
type stream struct {
	web  *Web
	box  act.Box
	conn net.Conn // TLS, when there is
	to   policy.Authority
	via  act.Via
	// proxy: each request names its own destination.
	proxy bool
	tls   bool
	sni   string
	alpn  string
	ctx   context.Context
}

// scheme gives the scheme of the stream's requests.
func (s *stream) scheme() policy.Scheme {
	if s.tls {
		return policy.HTTPS
	}
	return policy.HTTP
}

// refuse records that the stream was refused before a request came through.
// method is "" when none was read.
func (s *stream) refuse(method, reason, why string) act.Denial {
	a := s.box.Begin(act.HTTP, s.via, s.to)
	rec := a.Record()
	s.describe(rec)
	if validMethod(method) {
		rec.Method = method
	}
	a.Refuse(reason, why)
	// Nothing passes, with the record or without.
	_ = a.Commit()
	return a.Denial()
}

// survive is deferred by what serves a stream.
func (s *stream) survive() {
	if act.Caught(recover()) {
		s.refuse("", act.Fault.Reason, act.Fault.Why)
	}
}

// describe puts what is known of the stream into a record.
func (s *stream) describe(rec *audit.Egress) {
	rec.Via = string(s.via)
	rec.Scheme = string(s.scheme())
	rec.Host, rec.Port = s.to.Host().String(), s.to.Port()
	rec.SNI, rec.ALPN = s.sni, s.alpn
}

// buffers are for copying bodies.
var buffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

// at ends c when ctx does, until stop is called.
func at(ctx context.Context, c net.Conn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { c.Close() })
}

// longAgo is a deadline that has passed.
var longAgo = time.Unix(1, 0)
