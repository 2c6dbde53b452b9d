package web

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/ca"
	"github.com/bailey-sandbox/bailey/policy"
)

// Options are a Web's. Authority is required.
type Options struct {
	// Authority is the lineage's.
	Authority *ca.Authority
	// Roots gives what verifies servers. It is asked with each new connection over
	// TLS, from several goroutines. nil is the system's.
	Roots func() *x509.CertPool
}

// Web implements act.Web.
type Web struct {
	authority *ca.Authority
	up        *upstreams
	h2        *http.Server
}

var _ act.Web = (*Web)(nil)

// New makes a Web.
func New(o Options) (*Web, error) {
	if o.Authority == nil {
		return nil, errors.New("web needs a certificate authority")
	}
	roots := o.Roots
	if roots == nil {
		text, err := ca.SystemRoots()
		if err != nil {
			return nil, err
		}
		roots = sync.OnceValue(func() *x509.CertPool {
			pool := x509.NewCertPool()
			pool.AppendCertsFromPEM(text)
			return pool
		})
	}
	return &Web{authority: o.Authority, up: newUpstreams(roots), h2: newH2()}, nil
}

// Close ends the connections to servers. Streams end with their contexts.
func (w *Web) Close() { w.up.close() }

// ServePlain implements act.Web.
func (w *Web) ServePlain(ctx context.Context, box act.Box, c net.Conn, to policy.Authority, via act.Via) {
	defer c.Close()
	defer at(ctx, c)()
	s := &stream{web: w, box: box, conn: c, to: to, via: via, ctx: ctx}
	defer s.survive()
	s.serveH1()
}

// silent drops what net/http would log: a sandbox can write what it wants there.
var silent = log.New(io.Discard, "", 0)
