package stream

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// splice passes TLS on without looking into it: only the ClientHello is read,
// and must ask for the name behind the address.
func (s *Server) splice(ctx context.Context, a act.Act, c *peeked, to policy.Authority, rule *policy.Rule) {
	rec := a.Record()
	rec.Scheme, rec.Opaque = string(policy.TLS), true
	hello, err := readHello(ctx, c)
	if hello != nil {
		rec.ALPN = strings.Join(printable(hello.alpn), ",")
	}
	if err == nil {
		err = hello.agrees(to)
	}
	if err != nil {
		var refused *act.Refused
		if !errors.As(err, &refused) {
			refused = &act.Refused{Reason: "bad_hello", Why: "the stream did not begin with a whole ClientHello"}
			if isTimeout(err) {
				refused = &act.Refused{Reason: "sniff_timeout", Why: "the ClientHello did not arrive in time"}
			}
		}
		a.Refuse(refused.Reason, refused.Why)
		refusal(a)
		reset(c)
		return
	}
	rec.SNI = to.Host().String()
	begin := time.Now()
	up, err := s.start(ctx, a, rule)
	if err != nil {
		reset(c)
		return
	}
	c.SetDeadline(time.Time{})
	if ctx.Err() != nil { // which the deadline stood for
		reset(c)
		reset(up)
		a.End(audit.Outcome{Duration: time.Since(begin), Error: "closed"})
		return
	}
	s.relay(ctx, &relay{
		act: a, request: policy.Request{Stage: policy.Connect, To: to, Scheme: policy.TLS},
		client: c, server: up, begin: begin,
	})
}

// hello is what is read of a ClientHello.
type hello struct {
	name string
	alpn []string
	ech  bool
}

// extensionECH is the encrypted ClientHello (RFC 9849), with which the name that
// is read is not the one that is meant.
const extensionECH = 0xfe0d

// agrees tells whether a hello asks for the name that the stream goes to.
func (h *hello) agrees(to policy.Authority) error {
	if h.ech {
		return &act.Refused{Reason: "ech", Why: "the ClientHello is encrypted, so that the name it asks for cannot be seen"}
	}
	if h.name == "" {
		return &act.Refused{Reason: "no_sni", Why: "the ClientHello names no server"}
	}
	asked, err := policy.ParseHost(h.name)
	if _, literal := asked.Addr(); err != nil || literal || asked != to.Host() {
		return &act.Refused{Reason: "sni_mismatch", Why: "the ClientHello asks for another name than the stream goes to"}
	}
	return nil
}

// printable keeps what may be in a log of names that came from a client.
func printable(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list[:min(len(list), 8)]), func(s string) bool {
		return len(s) > 32 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == ',' })
	})
}

// maxHello is how many bytes a ClientHello may take with its record headers, the
// bytes read behind it included. crypto/tls has a limit of 64 KiB for the message.
const maxHello = 128 << 10

var (
	errSeen     = errors.New("the ClientHello was read")
	errTooLarge = errors.New("the ClientHello is too large")
)

// readHello reads a ClientHello with crypto/tls's own parser, which joins what
// came in many records, and leaves every byte to be read again.
func readHello(ctx context.Context, c *peeked) (*hello, error) {
	var seen *hello
	rec := &recorder{Conn: c}
	err := tls.Server(rec, &tls.Config{GetConfigForClient: func(i *tls.ClientHelloInfo) (*tls.Config, error) {
		seen = &hello{name: i.ServerName, alpn: i.SupportedProtos, ech: slices.Contains(i.Extensions, extensionECH)}
		return nil, errSeen
	}}).HandshakeContext(ctx)
	c.buf = append(rec.read, c.buf...)
	if seen != nil {
		return seen, nil
	}
	if rec.err != nil {
		err = rec.err
	}
	return nil, err
}

// recorder keeps what is read, and sends nothing: no alert of the parser may
// reach the client.
type recorder struct {
	net.Conn
	read []byte
	err  error
}

func (r *recorder) Read(b []byte) (int, error) {
	if len(r.read) >= maxHello {
		r.err = errTooLarge
		return 0, r.err
	}
	n, err := r.Conn.Read(b[:min(len(b), maxHello-len(r.read))])
	r.read = append(r.read, b[:n]...)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

func (*recorder) Write(b []byte) (int, error) { return len(b), nil }

func (*recorder) Close() error { return nil }

func (*recorder) SetDeadline(time.Time) error { return nil }

func (*recorder) SetReadDeadline(time.Time) error { return nil }

func (*recorder) SetWriteDeadline(time.Time) error { return nil }
