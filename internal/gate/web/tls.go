package web

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/ca"
	"github.com/bailey-sandbox/bailey/policy"
)

// refusal is why a handshake was broken off, with a stable code.
type refusal struct{ reason, why string }

func (e *refusal) Error() string { return e.why }

// ServeTLS implements act.Web.
func (w *Web) ServeTLS(ctx context.Context, box act.Box, c net.Conn, to policy.Authority, via act.Via) {
	defer c.Close()
	defer at(ctx, c)()
	s := &stream{web: w, box: box, to: to, via: via, tls: true, ctx: ctx}
	defer s.survive()
	var no *refusal
	t := tls.Server(c, &tls.Config{
		MinVersion: tls.VersionTLS12,
		// A ticket would let a session of one name go on under another.
		SessionTicketsDisabled: true,
		NextProtos:             []string{"h2", "http/1.1"},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			s.sni = printable(hello.ServerName)
			if no = named(hello.ServerName, to); no != nil {
				return nil, no
			}
			cert, err := w.authority.Leaf(to.Host())
			if err != nil {
				no = &refusal{"certificate", "the gate could not make a certificate for this name"}
				if errors.Is(err, ca.ErrBusy) {
					no = &refusal{"certificate_rate", err.Error()}
				}
				return nil, no
			}
			return cert, nil
		},
	})
	c.SetDeadline(time.Now().Add(handshakeTimeout))
	err := t.Handshake()
	c.SetDeadline(time.Time{})
	if err != nil {
		s.broken(err, no)
		return
	}
	s.conn, s.alpn = t, t.ConnectionState().NegotiatedProtocol
	served := false
	if s.alpn == "h2" {
		served = s.serveH2(t)
	} else {
		served = s.serveH1()
	}
	if !served {
		// In TLS 1.3 a client that does not trust our certificate says so after the
		// server has finished its handshake. The error stays in t.
		t.SetReadDeadline(longAgo)
		if _, err := t.Read(make([]byte, 1)); rejected(err) {
			s.broken(err, nil)
		}
	}
}

// named checks a server name against the name behind the address. An address
// has no server name (RFC 6066, section 3).
func named(sni string, to policy.Authority) *refusal {
	if _, literal := to.Host().Addr(); literal {
		if sni != "" {
			return &refusal{"sni_mismatch", "the client asks for a name where it connected to an address"}
		}
		return nil
	}
	if sni == "" {
		return &refusal{"sni_missing", "the client does not say which name it wants (SNI)"}
	}
	if h, err := policy.ParseHost(sni); err != nil || h != to.Host() {
		return &refusal{"sni_mismatch", "the name that the client asks for (SNI) is not the one that it connected to"}
	}
	return nil
}

// printable makes a server name fit for a record: a host name, or nothing.
func printable(sni string) string {
	if h, err := policy.ParseHost(sni); err == nil {
		return h.String()
	}
	return ""
}

// rejected tells whether a client ended TLS because of our certificate. The
// type of crypto/tls's alerts is not exported; their texts are.
func rejected(err error) bool {
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" || op.Err == nil {
		return false
	}
	switch strings.TrimPrefix(op.Err.Error(), "tls: ") {
	case "unknown certificate authority", "bad certificate", "unknown certificate", "unsupported certificate", "expired certificate", "revoked certificate":
		return true
	}
	return false
}

// broken records a stream whose handshake failed.
func (s *stream) broken(err error, no *refusal) {
	switch {
	case no != nil:
		s.refuse("", no.reason, no.why)
	case rejected(err):
		s.refuse("", "client_rejected_certificate", "the client does not trust the sandbox's certificate authority: it has authorities of its own, "+
			"or pins the server's certificate; a rule with tls: splice lets it through, not looked into")
	default:
		s.refuse("", "tls_failed", "the client's TLS handshake failed")
	}
}
