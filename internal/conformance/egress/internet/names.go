//go:build linux

package internet

import (
	"encoding/hex"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// names serves DNS on a socket; every question is recorded.
func (w *World) names(c *net.UDPConn) {
	s := &dns.Server{PacketConn: c, Handler: dns.HandlerFunc(w.answer)}
	w.closers = append(w.closers, func() { s.Shutdown() })
	w.tasks.Go(func() { s.ActivateAndServe() })
}

// nameStream serves DNS over TCP.
func (w *World) nameStream(c *recorded) {
	defer c.Close()
	conn := &dns.Conn{Conn: c}
	for {
		m, err := conn.ReadMsg()
		if err != nil {
			return
		}
		if conn.WriteMsg(w.reply(m, c.e.From)) != nil {
			return
		}
	}
}

// Rewind lets scripted answers begin again.
func (w *World) Rewind() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.asked)
}

func (w *World) answer(rw dns.ResponseWriter, m *dns.Msg) {
	from, _ := netip.ParseAddrPort(rw.RemoteAddr().String())
	rw.WriteMsg(w.reply(m, from))
}

func (w *World) reply(m *dns.Msg, from netip.AddrPort) *dns.Msg {
	a := new(dns.Msg)
	a.SetReply(m)
	a.RecursionAvailable = true
	for _, q := range m.Question {
		name := strings.ToLower(strings.TrimSuffix(q.Name, "."))
		w.Record.add(Event{Kind: "dns", Host: name, From: from, Method: dns.TypeToString[q.Qtype], Text: q.Name})
		w.mu.Lock()
		key := name + " " + dns.TypeToString[q.Qtype]
		w.asked[key]++
		n := w.asked[key]
		w.mu.Unlock()
		records, known := zone(name, q.Name, q.Qtype, n)
		if !known {
			a.Rcode = dns.RcodeNameError
		}
		a.Answer = append(a.Answer, records...)
	}
	return a
}

// The private addresses that scripted names lead to. Something answers there,
// as everywhere.
var (
	private4 = netip.MustParseAddr("10.66.0.1")
	metadata = netip.MustParseAddr("169.254.169.254")
)

// zone gives the records of a name, for the nth question.
func zone(name, asked string, kind uint16, n int) (list []dns.RR, known bool) {
	header := func(owner string, t uint16, ttl uint32) dns.RR_Header {
		return dns.RR_Header{Name: owner, Rrtype: t, Class: dns.ClassINET, Ttl: ttl}
	}
	add := func(owner string, ttl uint32, addrs ...netip.Addr) {
		for _, a := range addrs {
			if a.Is4() && kind == dns.TypeA {
				list = append(list, &dns.A{Hdr: header(owner, dns.TypeA, ttl), A: a.AsSlice()})
			}
			if !a.Is4() && kind == dns.TypeAAAA {
				list = append(list, &dns.AAAA{Hdr: header(owner, dns.TypeAAAA, ttl), AAAA: a.AsSlice()})
			}
		}
	}
	const usual = 60
	switch {
	case name == plan.Rebinds:
		// The first look is at a public address, the others at what is wanted.
		if n == 1 {
			add(asked, 0, plan.Address4(name), plan.Address6(name))
		} else {
			add(asked, 0, []netip.Addr{metadata, private4, netip.MustParseAddr("127.0.0.1")}[n%3], netip.MustParseAddr("::1"))
		}
	case name == plan.Mixed:
		add(asked, 0, private4, plan.Address4(name), netip.MustParseAddr("fd66::1"), plan.Address6(name))
	case name == plan.Alias:
		list = append(list, &dns.CNAME{Hdr: header(asked, dns.TypeCNAME, 0), Target: "inside.corp.test."})
		add("inside.corp.test.", 0, private4, netip.MustParseAddr("fd66::1"))
	case name == plan.Moves:
		// Two addresses, which also belong to another host, take turns.
		add(asked, 0, []netip.Addr{plan.Address4(plan.Moves), plan.Address4("evil-moves.test")}[n%2])
	case name == plan.Hints && kind == dns.TypeHTTPS:
		list = append(list, &dns.HTTPS{SVCB: dns.SVCB{Hdr: header(asked, dns.TypeHTTPS, usual), Priority: 1, Target: ".", Value: []dns.SVCBKeyValue{
			&dns.SVCBAlpn{Alpn: []string{"h2", "h3"}},
			&dns.SVCBIPv4Hint{Hint: []net.IP{private4.AsSlice()}},
			&dns.SVCBECHConfig{ECH: []byte{0, 4, 0xfe, 0x0d, 0, 0}},
		}}})
	case strings.HasSuffix(name, "."+plan.Range):
		a, ok := spelt(strings.TrimSuffix(name, "."+plan.Range))
		if !ok {
			return nil, false
		}
		add(asked, 0, a)
	case slices.Contains(plan.Hosts(), name):
		add(asked, usual, plan.Address4(name), plan.Address6(name))
	case under(name, plan.Apex) || under(name, plan.DeepApex):
		add(asked, usual, plan.Address4(plan.OneLabel), plan.Address6(plan.OneLabel))
	default:
		return nil, false
	}
	return list, true
}

func under(name, apex string) bool { return strings.HasSuffix(name, "."+apex) }

// spelt reads v4-10-0-0-1 and v6-20010db8000000000000000000000001.
func spelt(label string) (netip.Addr, bool) {
	if s, ok := strings.CutPrefix(label, "v4-"); ok {
		a, err := netip.ParseAddr(strings.ReplaceAll(s, "-", "."))
		return a, err == nil
	}
	if s, ok := strings.CutPrefix(label, "v6-"); ok {
		b, err := hex.DecodeString(s)
		if err != nil || len(b) != 16 {
			return netip.Addr{}, false
		}
		return netip.AddrFrom16([16]byte(b)), true
	}
	return netip.Addr{}, false
}
