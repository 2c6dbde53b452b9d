package names

import (
	"context"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// ttl is that of every answer, in seconds. The address stays a name's for ever;
// a short time lets a name that policy has since refused fail where it is
// looked up, with an explanation, rather than where it is connected to.
const ttl = 30

// Responder answers the DNS queries of one sandbox. It never asks another
// server.
//
// A name that policy knows has an A and an AAAA record, and no data of any
// other type: no HTTPS or SVCB record carries address hints or keys for
// encrypted hellos (RFC 9460). Such an answer has no record of its own in the
// audit log, since the stream that follows has one. A name that policy does not
// know is NXDOMAIN, with the reason as an extended error (RFC 8914) and one
// record. NXDOMAIN and not REFUSED, since resolvers take that for a broken
// server: musl waits until its time is up, and glibc asks again.
type Responder struct {
	Box   act.Box
	Names *Table
	// Search are the suffixes that the sandbox's resolver appends to short
	// names. A name that is known without its suffix is NXDOMAIN with it and has
	// no record: the resolver goes on to the name that was meant.
	Search []string
}

// Answer gives the answer to one query, or nil when there is to be none. query
// is what was received, tcp tells over what.
func (s *Responder) Answer(ctx context.Context, query []byte, tcp bool) (answer []byte) {
	defer func() {
		if act.Caught(recover()) {
			a := s.Box.Begin(act.NameLookup, act.DNS, policy.Authority{})
			a.Refuse(act.Fault.Reason, act.Fault.Why)
			_ = a.Commit() // there is no answer in any case
			answer = nil
		}
	}()
	q, rcode, ok := parse(query)
	if !ok {
		return nil
	}
	if rcode != dns.RcodeSuccess {
		return pack(q, nil, reply(q, rcode), tcp)
	}
	m := reply(q, dns.RcodeSuccess)
	return pack(q, s.resolve(ctx, q.Question[0], m), m, tcp)
}

// resolve fills in the answer to a question; what it returns says why there is
// none.
func (s *Responder) resolve(ctx context.Context, question dns.Question, m *dns.Msg) (extended *dns.EDNS0_EDE) {
	name := strings.ToLower(strings.TrimSuffix(question.Name, "."))
	switch {
	case name == "localhost" || strings.HasSuffix(name, ".localhost"): // RFC 6761, section 6.3
		s.addresses(question, m, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback())
		return nil
	case name == "_dns.resolver.arpa": // does the server offer encrypted DNS (RFC 9462)? It does not
		return nil
	}
	if a, is := reverse(name); is && Synthetic(a) {
		h, known := s.Names.Lookup(a)
		if !known {
			m.Rcode = dns.RcodeNameError
		} else if question.Qtype == dns.TypePTR {
			m.Answer = append(m.Answer, &dns.PTR{Hdr: header(question, dns.TypePTR), Ptr: h.String() + "."})
		}
		return nil
	}
	h, err := policy.ParseHost(name)
	if _, literal := h.Addr(); err != nil || literal {
		// Service names (RFC 6552: _http._tcp.deb.debian.org) are no host names. They
		// have no data where the host is known.
		base, stripped := service(name)
		if b, err := policy.ParseHost(base); stripped && err == nil && s.known(ctx, b) {
			return nil
		}
		return s.refuse(ctx, name, m)
	}
	a := s.Box.Begin(act.NameLookup, act.DNS, policy.At(h, 0))
	d := a.Judge(ctx, policy.Request{Stage: policy.Name, To: policy.At(h, 0)})
	if d.Verdict != policy.Deny {
		v4, v6, err := s.Names.Addresses(h)
		if err == nil {
			s.addresses(question, m, v4, v6)
			return nil
		}
		a.Refuse(string(bailey.CodeOf(err)), err.Error())
		ede := denied(a, m)
		if bailey.CodeOf(err) == bailey.CodeStorage {
			m.Rcode = dns.RcodeServerFailure // it may be there the next time
		}
		return ede
	} else if s.searched(ctx, name) {
		m.Rcode = dns.RcodeNameError
		return nil
	}
	return denied(a, m)
}

// known tells whether policy knows a name, without an act: nothing comes of it.
func (s *Responder) known(ctx context.Context, h policy.Host) bool {
	if _, literal := h.Addr(); literal {
		return false
	}
	to := policy.At(h, 0)
	return s.Box.Begin(act.NameLookup, act.DNS, to).Judge(ctx, policy.Request{Stage: policy.Name, To: to}).Verdict != policy.Deny
}

// searched tells whether a name is a known one with a search suffix.
func (s *Responder) searched(ctx context.Context, name string) bool {
	for _, suffix := range s.Search {
		if short, ok := strings.CutSuffix(name, "."+strings.Trim(strings.ToLower(suffix), ".")); ok {
			if h, err := policy.ParseHost(short); err == nil && s.known(ctx, h) {
				return true
			}
		}
	}
	return false
}

// refuse denies what is no host name. Its record has the name as zone files
// write it, so that no byte of it acts on whoever reads the log.
func (s *Responder) refuse(ctx context.Context, name string, m *dns.Msg) *dns.EDNS0_EDE {
	a := s.Box.Begin(act.NameLookup, act.DNS, policy.Authority{})
	a.Record().Host = name
	a.Refuse("bad_name", "this is not a host name")
	return denied(a, m)
}

// denied records a refused lookup and makes its answer.
func denied(a act.Act, m *dns.Msg) *dns.EDNS0_EDE {
	m.Rcode = dns.RcodeNameError
	if a.Commit() != nil {
		m.Rcode = dns.RcodeServerFailure
		return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeOther, ExtraText: "the audit log cannot be written, so nothing passes"}
	}
	return &dns.EDNS0_EDE{InfoCode: dns.ExtendedErrorCodeBlocked, ExtraText: explain(a.Denial())}
}

// explain puts a denial into the few bytes that an answer has for it.
func explain(d act.Denial) string {
	text := d.Reason + ": " + d.Why
	if d.Ask != "" {
		text += ". " + d.Ask
	}
	if d.Hint != "" {
		text += ". " + d.Hint
	}
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:300], "")
	}
	return text
}

// addresses answers A and AAAA questions.
func (s *Responder) addresses(question dns.Question, m *dns.Msg, v4, v6 netip.Addr) {
	if question.Qtype == dns.TypeA {
		m.Answer = append(m.Answer, &dns.A{Hdr: header(question, dns.TypeA), A: v4.AsSlice()})
	}
	if question.Qtype == dns.TypeAAAA {
		m.Answer = append(m.Answer, &dns.AAAA{Hdr: header(question, dns.TypeAAAA), AAAA: v6.AsSlice()})
	}
}

// header has the name as it was asked for, letter case and all: clients that
// mix cases against forgery want it back.
func header(question dns.Question, t uint16) dns.RR_Header {
	return dns.RR_Header{Name: question.Name, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
}

// service takes the labels that begin with an underscore off a name.
func service(name string) (base string, stripped bool) {
	for strings.HasPrefix(name, "_") {
		_, rest, more := strings.Cut(name, ".")
		if !more {
			return "", false
		}
		name, stripped = rest, true
	}
	return name, stripped
}

// reverse reads the name of a PTR query (RFC 1035, section 3.5; RFC 3596,
// section 2.5).
func reverse(name string) (netip.Addr, bool) {
	if labels, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		part := strings.Split(labels, ".")
		if len(part) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(part[3] + "." + part[2] + "." + part[1] + "." + part[0])
		return a, err == nil
	}
	labels, ok := strings.CutSuffix(name, ".ip6.arpa")
	part := strings.Split(labels, ".")
	if !ok || len(part) != 32 {
		return netip.Addr{}, false
	}
	var text strings.Builder
	for i := 31; i >= 0; i-- {
		text.WriteString(part[i])
		if i%4 == 0 && i != 0 {
			text.WriteByte(':')
		}
	}
	a, err := netip.ParseAddr(text.String())
	return a, err == nil && text.Len() == 39
}
