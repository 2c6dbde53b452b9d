package stream

import (
	"context"
	"net"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// sniffed finds out what a stream speaks and hands it on. The client is not
// connected to anything yet.
func (s *Server) sniffed(ctx context.Context, a act.Act, c net.Conn, to policy.Authority, via act.Via) {
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	p := newPeeked(c)
	p.SetReadDeadline(time.Now().Add(s.SniffTimeout))
	speaks, err := p.sniff()
	if err != nil {
		stop()
		if speaks == nothing { // it left before it said a thing: there was no act
			reset(c)
			return
		}
		a.Refuse("sniff_timeout", "the stream did not begin with a request in time; other protocols need a rule for tcp")
		refusal(a)
		reset(c)
		return
	}
	r := policy.Request{Stage: policy.Connect, To: to, Scheme: speaks.scheme()}
	d := a.Judge(ctx, r)
	switch {
	case d.Verdict == policy.Deny:
		stop()
		refusal(a)
		reset(c)
		return
	case d.Verdict == policy.Allow && speaks == tlsRecord && d.Rule.Protocol != policy.TCP && d.Rule.TLS == policy.Splice:
		s.splice(ctx, a, p, to, d.Rule) // the deadline runs on
		stop()
		return
	}
	if stop() {
		p.SetDeadline(time.Time{})
	}
	switch {
	case d.Verdict == policy.Allow && d.Rule.Protocol == policy.TCP:
		if serve, refused, err := s.raw(ctx, a, to, d.Rule); refused == nil && err == nil {
			serve(p)
			return
		}
	case speaks == plain:
		s.Web.ServePlain(ctx, s.Box, p, to, via)
		return
	case speaks == tlsRecord:
		s.Web.ServeTLS(ctx, s.Box, p, to, via)
		return
	default: // policy waits for a request, and this is none
		a.Refuse("protocol", "the stream speaks neither TLS nor HTTP; other protocols need a rule for tcp")
		refusal(a)
	}
	reset(c)
}

// spoken is what a stream begins with.
type spoken int

const (
	nothing   spoken = iota
	unknown          // something else, or not enough of it
	plain            // a request line, or HTTP/2's preface
	tlsRecord        // a TLS handshake record
)

func (s spoken) scheme() policy.Scheme {
	switch s {
	case plain:
		return policy.HTTP
	case tlsRecord:
		return policy.TLS
	}
	return policy.TCP
}

// maxMethod is the longest method that is taken for one, in bytes.
const maxMethod = 32

// sniff tells what the stream begins with. With an error, which is the
// stream's, it had not said enough: nothing at all, or too little.
func (p *peeked) sniff() (spoken, error) {
	for n := 1; ; n++ {
		b, err := p.peek(n)
		if err != nil {
			if len(b) == 0 {
				if isTimeout(err) {
					return unknown, err
				}
				return nothing, err
			}
			return unknown, err
		}
		if s, done := begins(b); done {
			return s, nil
		}
		n = max(n, len(b))
	}
}

// begins classifies first bytes; done is false while more are needed.
func begins(b []byte) (s spoken, done bool) {
	if b[0] == 0x16 { // TLS handshake (RFC 8446, section 5.1), of any version 3.x
		if len(b) < 3 {
			return unknown, len(b) == 2 && b[1] != 3
		}
		if b[1] == 3 {
			return tlsRecord, true
		}
		return unknown, true
	}
	for i, c := range b {
		switch {
		case c == ' ':
			return map[bool]spoken{true: plain, false: unknown}[i > 0], true
		case !isToken(c) || i >= maxMethod:
			return unknown, true
		}
	}
	return unknown, false
}

// isToken tells whether a byte may be in a method (RFC 9110, section 5.6.2).
func isToken(c byte) bool {
	switch {
	case c|0x20 >= 'a' && c|0x20 <= 'z', c >= '0' && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}
