package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// serve answers all names with what answers has, and counts queries.
func serve(t *testing.T, answers map[string][]string) (server netip.AddrPort, queries *atomic.Int64) {
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	queries = new(atomic.Int64)
	s := &dns.Server{PacketConn: u, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		queries.Add(1)
		m := new(dns.Msg).SetReply(q)
		name := strings.TrimSuffix(q.Question[0].Name, ".")
		list, known := answers[name]
		if !known {
			m.Rcode = dns.RcodeNameError
		}
		for _, text := range list {
			if target, is := strings.CutPrefix(text, "CNAME "); is {
				m.Answer = append(m.Answer, &dns.CNAME{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: dns.TypeCNAME, Class: 1}, Target: target + "."})
				for _, a := range answers[target] {
					m.Answer = append(m.Answer, address(target+".", q.Question[0].Qtype, a)...)
				}
				continue
			}
			m.Answer = append(m.Answer, address(q.Question[0].Name, q.Question[0].Qtype, text)...)
		}
		w.WriteMsg(m)
	})}
	done := make(chan error)
	go func() { done <- s.ActivateAndServe() }()
	t.Cleanup(func() { u.Close(); <-done })
	return u.LocalAddr().(*net.UDPAddr).AddrPort(), queries
}

func address(name string, kind uint16, text string) []dns.RR {
	a := netip.MustParseAddr(text)
	h := dns.RR_Header{Name: name, Rrtype: kind, Class: 1}
	switch {
	case kind == dns.TypeA && a.Is4():
		return []dns.RR{&dns.A{Hdr: h, A: a.AsSlice()}}
	case kind == dns.TypeAAAA && a.Is6():
		return []dns.RR{&dns.AAAA{Hdr: h, AAAA: a.AsSlice()}}
	}
	return nil
}

// listen accepts connections and says hello.
func listen(t *testing.T, address string) uint16 {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(c, "hello")
			c.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

func to(t *testing.T, host string, port uint16) policy.Authority {
	h, err := policy.ParseHost(host)
	if err != nil {
		t.Fatal(err)
	}
	return policy.At(h, port)
}

// rule has internal ranges.
func rule(prefixes ...string) *policy.Rule {
	r := &policy.Rule{Action: policy.Allow}
	for _, p := range prefixes {
		r.Internal = append(r.Internal, netip.MustParsePrefix(p))
	}
	return r
}

// ten makes 127.0.10.0/24 public.
func ten(a netip.Addr) string {
	if netip.MustParsePrefix("127.0.10.0/24").Contains(a) {
		return Public
	}
	return Classify(a)
}

func none() ([]netip.Addr, error) { return nil, nil }

func TestDial(t *testing.T) {
	server, _ := serve(t, map[string][]string{
		"ok.test":     {"127.0.10.1"},
		"alias.test":  {"CNAME ok.test"},
		"trap.test":   {"CNAME inside.test"}, // D4, N13: an alias leads inside
		"inside.test": {"127.0.0.1"},
		"both.test":   {"127.0.0.1", "127.0.10.1", "::1"},
		"second.test": {"127.0.10.9", "127.0.10.1"}, // nobody listens at the first
		"empty.test":  {},
	})
	port := listen(t, "127.0.10.1:0")
	listen(t, fmt.Sprintf("127.0.0.1:%d", port))
	d := New(Options{Servers: []netip.AddrPort{server}, Classify: ten, Own: none})
	for _, c := range []struct {
		host string
		rule *policy.Rule
		addr string // dialled
		want string // or the code of the error
	}{
		{"ok.test", rule(), "127.0.10.1", ""},
		{"ok.test", nil, "127.0.10.1", ""},
		{"alias.test", rule(), "127.0.10.1", ""},
		{"trap.test", rule(), "", "address_internal"},
		{"inside.test", rule("127.0.0.1/32"), "127.0.0.1", ""},
		{"inside.test", rule("127.0.0.2/32"), "", "address_internal"},
		{"both.test", rule(), "127.0.10.1", ""},
		{"second.test", rule(), "127.0.10.1", ""},
		{"empty.test", rule(), "", "name_unresolved"},
		{"gone.test", rule(), "", "name_unresolved"},
		{"127.0.10.1", rule(), "127.0.10.1", ""},
		{"127.0.0.1", rule(), "", "address_internal"},
		{"127.0.10.2", rule(), "", "connect_refused"},
	} {
		conn, addr, err := d.Dial(t.Context(), to(t, c.host, port), c.rule)
		if c.want != "" {
			if code(err) != c.want || conn != nil {
				t.Errorf("%s: %v (%s), not %s", c.host, err, code(err), c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.host, err)
			continue
		}
		if text, err := io.ReadAll(conn); err != nil || string(text) != "hello" || addr.Addr().String() != c.addr || conn.RemoteAddr().String() != addr.String() {
			t.Errorf("%s: %q, %v from %s", c.host, text, err, addr)
		}
		conn.Close()
	}
}

// code gives a refusal's reason or a failure's code.
func code(err error) string {
	var refused *act.Refused
	var gone *act.Unreachable
	switch {
	case errors.As(err, &refused):
		return refused.Reason
	case errors.As(err, &gone):
		return gone.Code
	}
	return ""
}

// What the kernel is given is looked at again: the host may have taken an address
// between the check and the connection.
func TestFinalCheck(t *testing.T) {
	port := listen(t, "127.0.10.1:0")
	asked := 0
	d := New(Options{Classify: ten, Own: func() ([]netip.Addr, error) {
		if asked++; asked > 1 {
			return []netip.Addr{netip.MustParseAddr("127.0.10.1")}, nil
		}
		return nil, nil
	}})
	if _, _, err := d.Dial(t.Context(), to(t, "127.0.10.1", port), rule()); code(err) != "address_internal" || asked != 2 {
		t.Errorf("%v after %d looks", err, asked)
	}
}

// I3: this host's own addresses, public or not, are not reached.
func TestOwnAddresses(t *testing.T) {
	port := listen(t, "127.0.10.1:0")
	d := New(Options{Classify: ten, Own: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("127.0.10.1")}, nil }})
	if _, _, err := d.Dial(t.Context(), to(t, "127.0.10.1", port), rule()); code(err) != "address_internal" || !strings.Contains(err.Error(), "host") {
		t.Error(err)
	}
	if c, _, err := d.Dial(t.Context(), to(t, "127.0.10.1", port), rule("127.0.10.1/32")); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
	broken := New(Options{Classify: ten, Own: func() ([]netip.Addr, error) { return nil, errors.New("no") }})
	if _, _, err := broken.Dial(t.Context(), to(t, "127.0.10.1", port), rule()); code(err) != "unreachable" {
		t.Error(err)
	}
	list, err := hostAddresses()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list {
		if c := New(Options{}).class(a, list); c == Public {
			t.Errorf("%s of this host counts as public", a)
		}
	}
}

// A test's classifier opens neither metadata services nor the gate.
func TestClassifierIsNotTheLastWord(t *testing.T) {
	d := New(Options{Classify: func(netip.Addr) string { return Public }, Own: none})
	for host, want := range map[string]string{"169.254.169.254": "address_metadata", "198.18.0.1": "address_gate", "fdba:11e4::20": "address_gate"} {
		if _, _, err := d.Dial(t.Context(), to(t, host, 80), rule("169.254.0.0/16", "198.18.0.0/15", "fd00::/8")); code(err) != want {
			t.Errorf("%s: %v", host, err)
		}
	}
}

func TestDialEnds(t *testing.T) {
	server, queries := serve(t, map[string][]string{"ok.test": {"127.0.10.1"}})
	d := New(Options{Servers: []netip.AddrPort{server}, Classify: ten, Own: none})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	begin := time.Now()
	if _, _, err := d.Dial(ctx, to(t, "ok.test", 9), rule()); err == nil || time.Since(begin) > 10*time.Second {
		t.Errorf("%v after %s", err, time.Since(begin))
	}
	// A literal address is not looked up.
	before := queries.Load()
	d.Dial(t.Context(), to(t, "127.0.10.77", 9), rule())
	if queries.Load() != before {
		t.Error("an address was looked up")
	}
}

func TestAlternate(t *testing.T) {
	var list []netip.AddrPort
	for _, a := range []string{"1.1.1.1", "2.2.2.2", "2001:db8::1", "3.3.3.3"} {
		list = append(list, netip.AddrPortFrom(netip.MustParseAddr(a), 1))
	}
	if got := fmt.Sprint(alternate(list)); got != "[[2001:db8::1]:1 1.1.1.1:1 2.2.2.2:1 3.3.3.3:1]" {
		t.Error(got)
	}
}

// TestLocalhost: the names of this host are no name server's to answer, and are
// refused where no rule names loopback.
func TestLocalhost(t *testing.T) {
	server, queries := serve(t, map[string][]string{"localhost": {"203.0.113.1"}, "a.localhost": {"203.0.113.1"}})
	d := New(Options{Servers: []netip.AddrPort{server}, Own: none})
	port := listen(t, "127.0.0.1:0")
	for _, host := range []string{"localhost", "a.localhost"} {
		c, addr, err := d.Dial(t.Context(), to(t, host, port), rule("127.0.0.0/8", "::1/128"))
		if err != nil || addr.Addr().String() != "127.0.0.1" {
			t.Errorf("%s: %v, %v", host, addr, err)
		}
		if err == nil {
			c.Close()
		}
		var refused *act.Refused
		if _, _, err := d.Dial(t.Context(), to(t, host, port), rule()); !errors.As(err, &refused) {
			t.Errorf("%s without a rule for loopback: %v", host, err)
		}
	}
	if queries.Load() > 0 {
		t.Error("a name server was asked")
	}
}
