package names

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// box is a sandbox whose policy is a real one, and which keeps what was refused.
type box struct {
	policy  *policy.Policy
	broken  bool // the audit log
	refused []string
}

func (b *box) Begin(_ act.Kind, via act.Via, to policy.Authority) act.Act {
	a := &lookup{box: b}
	a.record.Via, a.record.Host = string(via), to.Host().String()
	return a
}

func (*box) Dial(context.Context, act.Act, *policy.Rule) (net.Conn, error) {
	panic("a name was dialled")
}

func (*box) Hold(policy.Request, func(act.Denial)) func() { panic("a name was held") }

func (*box) Secrets() act.Secrets { return nil }

type lookup struct {
	box      *box
	record   audit.Egress
	decision policy.Decision
}

func (a *lookup) Judge(_ context.Context, r policy.Request) policy.Decision {
	a.decision = policy.Decide(a.box.policy, r)
	return a.decision
}

func (a *lookup) Refuse(reason, why string) policy.Decision {
	a.decision = policy.Decision{Reason: reason, Why: why}
	return a.decision
}

func (a *lookup) Record() *audit.Egress { return &a.record }

func (a *lookup) Commit() error {
	if a.box.broken {
		return io.ErrShortWrite
	}
	a.box.refused = append(a.box.refused, a.record.Host+" "+a.decision.Reason)
	return nil
}

func (*lookup) Count(policy.Usage) bool { return true }

func (*lookup) End(audit.Outcome) {}

func (a *lookup) Denial() act.Denial {
	return act.Denial{Reason: a.decision.Reason, Why: a.decision.Why, Ask: "Ask them", Hint: "Do not go around"}
}

func responder(t testing.TB) (*Responder, *box) {
	p, err := policy.Parse([]byte("version: 1\negress:\n  rules:\n" +
		"  - {hosts: [ok.test, other.test, '*.wild.test']}\n" +
		"  - {hosts: [db.test], protocol: tcp, ports: ['5432']}\n"))
	if err != nil {
		t.Fatal(err)
	}
	b := &box{policy: p}
	return &Responder{Box: b, Names: NewTable(), Search: []string{"corp.example"}}, b
}

func host(t testing.TB, s string) policy.Host {
	h, err := policy.ParseHost(s)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ask asks as a client with EDNS does.
func ask(t testing.TB, s *Responder, name string, kind uint16) *dns.Msg {
	q := new(dns.Msg)
	q.SetQuestion(name, kind)
	q.SetEdns0(1232, false)
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	answer := s.Answer(t.Context(), b, false)
	m := new(dns.Msg)
	if err := m.Unpack(answer); err != nil {
		t.Fatalf("%s: %v in %x", name, err, answer)
	}
	if m.Id != q.Id || !m.Response || len(m.Question) != 1 || m.Question[0] != q.Question[0] {
		t.Fatalf("the answer to another question: %v", m)
	}
	return m
}

func TestKnownNamesHaveAddresses(t *testing.T) {
	s, b := responder(t)
	four := ask(t, s, "ok.test.", dns.TypeA)
	six := ask(t, s, "ok.test.", dns.TypeAAAA)
	if len(four.Answer) != 1 || len(six.Answer) != 1 {
		t.Fatalf("%v\n%v", four, six)
	}
	a4, _ := netip.AddrFromSlice(four.Answer[0].(*dns.A).A)
	a6, _ := netip.AddrFromSlice(six.Answer[0].(*dns.AAAA).AAAA)
	for _, a := range []netip.Addr{a4, a6} {
		if h, ok := s.Names.Lookup(a); !ok || h.String() != "ok.test" || !Synthetic(a) || Gate(a) {
			t.Errorf("%s leads to %s", a, h)
		}
	}
	if ttl := four.Answer[0].Header().Ttl; ttl == 0 || ttl > 60 {
		t.Errorf("the answer may be kept for %d seconds", ttl)
	}
	other := ask(t, s, "other.test.", dns.TypeA)
	if other.Answer[0].(*dns.A).A.Equal(a4.AsSlice()) {
		t.Error("two names have one address")
	}
	if again := ask(t, s, "OK.tEsT.", dns.TypeA); !again.Answer[0].(*dns.A).A.Equal(a4.AsSlice()) || again.Answer[0].Header().Name != "OK.tEsT." {
		t.Errorf("asked in other letters, the answer is %v", again.Answer)
	}
	if tcp := ask(t, s, "db.test.", dns.TypeA); len(tcp.Answer) != 1 {
		t.Errorf("a name of a tcp rule has no address: %v", tcp)
	}
	// No hints, no keys for hidden hellos, no text (D6): a known name has addresses only.
	for _, kind := range []uint16{dns.TypeHTTPS, dns.TypeSVCB, dns.TypeTXT, dns.TypeMX, dns.TypeNS, dns.TypeSOA, dns.TypeCNAME, dns.TypeANY, dns.TypeNULL, dns.TypeSRV, 65280} {
		if m := ask(t, s, "ok.test.", kind); m.Rcode != dns.RcodeSuccess || len(m.Answer)+len(m.Ns) != 0 {
			t.Errorf("%s: %v", dns.TypeToString[kind], m)
		}
	}
	if m := ask(t, s, "_http._tcp.ok.test.", dns.TypeSRV); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
		t.Errorf("a service of a known name: %v", m)
	}
	if len(b.refused) != 0 {
		t.Errorf("refused %q", b.refused)
	}
}

// D1, T48, T49: nothing can leave by a name that policy does not know, since no
// name is sent anywhere. Each is explained and recorded.
func TestUnknownNamesAreRefused(t *testing.T) {
	s, b := responder(t)
	for _, kind := range []uint16{dns.TypeA, dns.TypeTXT, dns.TypeNULL, dns.TypeHTTPS, dns.TypePTR} {
		b.refused = nil
		m := ask(t, s, "mzxw6ytboi.evil.test.", kind)
		if m.Rcode != dns.RcodeNameError || len(m.Answer)+len(m.Ns) != 0 {
			t.Errorf("%v", m)
		}
		o := m.IsEdns0()
		if o == nil || len(o.Option) != 1 {
			t.Fatalf("no reason is given: %v", m)
		}
		e, ok := o.Option[0].(*dns.EDNS0_EDE)
		if !ok || e.InfoCode != dns.ExtendedErrorCodeBlocked || !strings.Contains(e.ExtraText, "no_rule") || !strings.Contains(e.ExtraText, "Ask them") || !strings.Contains(e.ExtraText, "Do not go around") {
			t.Errorf("the reason is %v", o.Option[0])
		}
		if want := []string{"mzxw6ytboi.evil.test no_rule"}; !slices.Equal(b.refused, want) {
			t.Errorf("refused %q, not %q", b.refused, want)
		}
	}
	if n := s.Names.Len(); n != 0 {
		t.Errorf("%d of them have addresses", n)
	}
}

func TestNamesThatAreNone(t *testing.T) {
	s, b := responder(t)
	for _, c := range []struct{ asked, record string }{
		{`evil\000.ok.test.`, `evil\000.ok.test bad_name`},
		{`a\.b.ok.test.`, `a\.b.ok.test bad_name`},
		{"127.0.0.1.", "127.0.0.1 bad_name"},
		{"_http._tcp.evil.test.", "_http._tcp.evil.test bad_name"},
		{`\208\176.test.`, `\208\176.test bad_name`},
		{".", " bad_name"},
	} {
		b.refused = nil
		if m := ask(t, s, c.asked, dns.TypeA); m.Rcode != dns.RcodeNameError || len(m.Answer) != 0 {
			t.Errorf("%s: %v", c.asked, m)
		}
		if len(b.refused) != 1 || b.refused[0] != c.record {
			t.Errorf("%s: refused %q, not %q", c.asked, b.refused, c.record)
		}
	}
}

func TestNamesOfTheGateItself(t *testing.T) {
	s, b := responder(t)
	v4, v6, err := s.Names.Addresses(host(t, "ok.test"))
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []netip.Addr{v4, v6} {
		name, err := dns.ReverseAddr(a.String())
		if err != nil {
			t.Fatal(err)
		}
		if m := ask(t, s, name, dns.TypePTR); len(m.Answer) != 1 || m.Answer[0].(*dns.PTR).Ptr != "ok.test." {
			t.Errorf("%s: %v", name, m)
		}
	}
	if m := ask(t, s, "9.0.19.198.in-addr.arpa.", dns.TypePTR); m.Rcode != dns.RcodeNameError {
		t.Errorf("an address that nobody has: %v", m)
	}
	if m := ask(t, s, "localhost.", dns.TypeA); len(m.Answer) != 1 || m.Answer[0].(*dns.A).A.String() != "127.0.0.1" {
		t.Errorf("%v", m)
	}
	if m := ask(t, s, "x.LOCALHOST.", dns.TypeAAAA); len(m.Answer) != 1 || m.Answer[0].(*dns.AAAA).AAAA.String() != "::1" {
		t.Errorf("%v", m)
	}
	if m := ask(t, s, "_dns.resolver.arpa.", dns.TypeSVCB); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
		t.Errorf("%v", m)
	}
	// A resolver that appends its search list goes on to the name itself.
	if m := ask(t, s, "ok.test.corp.example.", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("%v", m)
	}
	if len(b.refused) != 0 {
		t.Errorf("refused %q", b.refused)
	}
	if ask(t, s, "evil.test.corp.example.", dns.TypeA); len(b.refused) != 1 {
		t.Errorf("refused %q", b.refused)
	}
}

func TestNothingPassesWithoutALog(t *testing.T) {
	s, b := responder(t)
	b.broken = true
	if m := ask(t, s, "evil.test.", dns.TypeA); m.Rcode != dns.RcodeServerFailure || len(m.Answer) != 0 {
		t.Errorf("%v", m)
	}
}

func TestHostileMessages(t *testing.T) {
	s, b := responder(t)
	good := new(dns.Msg)
	good.SetQuestion("ok.test.", dns.TypeA)
	packed, err := good.Pack()
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func([]byte) []byte) []byte { return f(slices.Clone(packed)) }
	for _, c := range []struct {
		name  string
		query []byte
		rcode int // -1: no answer
	}{
		{"empty", nil, -1},
		{"half a header", packed[:11], -1},
		{"an answer", change(func(b []byte) []byte { b[2] |= 0x80; return b }), -1},
		{"only a header", packed[:12], dns.RcodeFormatError},
		{"cut off", packed[:len(packed)-3], dns.RcodeFormatError},
		{"compression loop", change(func(b []byte) []byte { return append(b[:12], 0xc0, 12, 0, 1, 0, 1) }), dns.RcodeFormatError},
		{"pointer forward", change(func(b []byte) []byte { return append(b[:12], 0xc0, 200, 0, 1, 0, 1) }), dns.RcodeFormatError},
		{"no question", change(func(b []byte) []byte { b[5] = 0; return b[:12] }), dns.RcodeFormatError},
		{"many questions", change(func(b []byte) []byte {
			b[4], b[5] = 0xff, 0xff
			for len(b) < 3000 {
				b = append(b, packed[12:]...)
			}
			return b
		}), dns.RcodeFormatError},
		{"answers in a query", change(func(b []byte) []byte { b[7] = 1; return b }), dns.RcodeFormatError},
		{"truncated query", change(func(b []byte) []byte { b[2] |= 0x02; return b }), dns.RcodeFormatError},
		{"giant", append(slices.Clone(packed), make([]byte, 60000)...), dns.RcodeFormatError},
		{"long label", change(func(b []byte) []byte { b[12] = 64; return b }), dns.RcodeFormatError},
		{"update", change(func(b []byte) []byte { b[2] = 5 << 3; return b }), dns.RcodeNotImplemented},
		{"chaos", change(func(b []byte) []byte { b[len(b)-1] = 3; return b }), dns.RcodeRefused},
	} {
		answer := s.Answer(t.Context(), c.query, false)
		if c.rcode == -1 {
			if answer != nil {
				t.Errorf("%s: answered with %x", c.name, answer)
			}
			continue
		}
		m := new(dns.Msg)
		if err := m.Unpack(answer); err != nil {
			t.Errorf("%s: %v in %x", c.name, err, answer)
			continue
		}
		if m.Rcode != c.rcode || len(m.Answer) != 0 || m.Id != good.Id {
			t.Errorf("%s: %v", c.name, m)
		}
		if len(answer) > len(c.query)+64 {
			t.Errorf("%s: %d bytes bring %d", c.name, len(c.query), len(answer))
		}
	}
	if len(b.refused) != 0 || s.Names.Len() != 0 {
		t.Errorf("refused %q, %d names", b.refused, s.Names.Len())
	}
	version := new(dns.Msg)
	version.SetQuestion("ok.test.", dns.TypeA)
	version.SetEdns0(1232, false)
	version.IsEdns0().SetVersion(1)
	packed, err = version.Pack()
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(s.Answer(t.Context(), packed, false)); err != nil || m.Rcode != dns.RcodeBadVers || len(m.Answer) != 0 {
		t.Errorf("EDNS version 1: %v, %v", m, err)
	}
}

// What does not fit into a datagram is asked for again over TCP; a reason that
// does not fit is left out.
func TestLongAnswers(t *testing.T) {
	s, _ := responder(t)
	label := strings.Repeat("a", 61)
	name := label + "." + label + "." + label + ".evil.test."
	q := new(dns.Msg)
	q.SetQuestion(name, dns.TypeA)
	q.SetEdns0(512, false)
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, tcp := range []bool{false, true} {
		answer := s.Answer(t.Context(), b, tcp)
		m := new(dns.Msg)
		if err := m.Unpack(answer); err != nil {
			t.Fatal(err)
		}
		if m.Rcode != dns.RcodeNameError || m.IsEdns0() == nil || !tcp && len(answer) > 512 {
			t.Errorf("tcp %v: %d bytes, %v", tcp, len(answer), m)
		}
	}
	m := reply(q, dns.RcodeSuccess)
	for i := range 100 {
		m.Answer = append(m.Answer, &dns.A{Hdr: header(q.Question[0], dns.TypeA), A: net.IPv4(198, 18, 1, byte(i))})
	}
	plain := new(dns.Msg)
	plain.SetQuestion(name, dns.TypeA)
	short := new(dns.Msg)
	packed := pack(plain, nil, m, false)
	if err := short.Unpack(packed); err != nil || !short.Truncated || len(packed) > 512 {
		t.Errorf("%d bytes, truncated %v, %v", len(packed), short.Truncated, err)
	}
}

func TestServe(t *testing.T) {
	s, b := responder(t)
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		u, err := net.ListenPacket("udp", address)
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		go func() { done <- s.ServeUDP(t.Context(), u.(*net.UDPConn)) }()
		go func() {
			c, err := l.Accept()
			if err == nil {
				s.ServeTCP(t.Context(), c)
			}
			done <- err
		}()
		q := new(dns.Msg)
		q.SetQuestion("ok.test.", dns.TypeA)
		for network, to := range map[string]string{"udp": u.LocalAddr().String(), "tcp": l.Addr().String()} {
			c := &dns.Client{Net: network, Timeout: 20 * time.Second}
			m, _, err := c.Exchange(q, to)
			if err != nil || len(m.Answer) != 1 {
				t.Errorf("%s: %v, %v", network, m, err)
			}
		}
		u.Close()
		l.Close()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	if len(b.refused) != 0 {
		t.Errorf("refused %q", b.refused)
	}
}

// A TCP client gets an answer for each query in its order, however it cuts them,
// and an end for one that is too long.
func TestServeTCPPieces(t *testing.T) {
	s, _ := responder(t)
	client, server := net.Pipe()
	done := make(chan bool)
	go func() { s.ServeTCP(t.Context(), server); close(done) }()
	var stream []byte
	for i, name := range []string{"ok.test.", "evil.test.", "other.test."} {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeA)
		q.Id = uint16(i)
		b, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		stream = append(binary.BigEndian.AppendUint16(stream, uint16(len(b))), b...)
	}
	go func() {
		for _, b := range stream {
			client.Write([]byte{b})
		}
		client.Write([]byte{0xff, 0xff})
		client.Write(make([]byte, maxQuery+1))
	}()
	for i := range 4 {
		var size [2]byte
		if _, err := io.ReadFull(client, size[:]); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(client, b); err != nil {
			t.Fatal(err)
		}
		m := new(dns.Msg)
		if err := m.Unpack(b); err != nil || i < 3 && m.Id != uint16(i) || i == 3 && m.Rcode != dns.RcodeFormatError {
			t.Errorf("%d: %v, %v", i, m, err)
		}
	}
	<-done
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection lives on: %v", err)
	}
}

func TestTable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	table := keptTable(t, path)
	seen := map[netip.Addr]string{}
	for i := range 3000 {
		name := fmt.Sprintf("n%d.ok.test", i)
		v4, v6, err := table.Addresses(host(t, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []netip.Addr{v4, v6} {
			if old, twice := seen[a]; twice {
				t.Fatalf("%s is %s and %s", a, old, name)
			}
			seen[a] = name
		}
	}
	table.Close() // and the next gate
	copied := keptTable(t, path)
	for a, name := range seen {
		if h, ok := copied.Lookup(a); !ok || h.String() != name {
			t.Fatalf("%s was %s and is %s", a, name, h)
		}
	}
	// A name of the copy does not get an address that another one had.
	v4, _, err := copied.Addresses(host(t, "new.test"))
	if old, twice := seen[v4]; err != nil || twice {
		t.Errorf("%s was %q; %v", v4, old, err)
	}
	for _, a := range []string{"198.18.0.0", "198.18.0.1", "198.19.255.255", "198.20.0.0", "8.8.8.8", "fdba:11e4::1", "fdba:11e4:1::10", "fdba:11e4::ffff:ffff", "::ffff:198.18.0.1", "::1"} {
		if h, ok := copied.Lookup(netip.MustParseAddr(a)); ok {
			t.Errorf("%s is %s", a, h)
		}
	}
	if h, ok := copied.Lookup(netip.MustParseAddr("::ffff:198.18.0.16")); !ok || h.String() != "n0.ok.test" {
		t.Errorf("as an address of IPv6 it is %s", h)
	}
}

func keptTable(t testing.TB, path string) *Table {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	table, err := Load(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(table.Close)
	return table
}

// TestKeptTableIsWhole: what a killed gate had not written to the end is cut off,
// everything else that is not as it was written is an error and changes nothing.
func TestKeptTableIsWhole(t *testing.T) {
	good := keptLine(0, "a.test") + keptLine(1, "b.test")
	for _, c := range []struct {
		text string
		want int // names, -1 for an error
	}{
		{"", 0}, {good, 2}, {good + "2 c.te", 2}, {good + strings.TrimSuffix(keptLine(2, "c.test"), "\n"), 2}, {"0", 0},
		{good + "2 c.te\n", -1}, {keptLine(1, "b.test"), -1}, {good + keptLine(2, "a.test"), -1}, {keptLine(0, "A.test"), -1},
		{keptLine(0, "127.0.0.1"), -1}, {keptLine(0, "a b"), -1}, {strings.ToUpper(good), -1}, {"\n" + good, -1}, {strings.Replace(good, "a.", "x.", 1), -1},
		{strings.Repeat("x", maxKept+1), -1},
	} {
		path := filepath.Join(t.TempDir(), "names")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		table, err := Load(f)
		text, _ := os.ReadFile(path)
		if c.want < 0 {
			if bailey.CodeOf(err) != bailey.CodeStorage || string(text) != c.text {
				t.Errorf("%.60q: %v", c.text, err)
			}
			continue
		}
		if err != nil || table.Len() != c.want {
			t.Errorf("%.60q: %v", c.text, err)
			continue
		}
		if _, _, err := table.Addresses(host(t, "new.test")); err != nil {
			t.Error(err)
		}
		table.Close()
		if again := keptTable(t, path); again.Len() != c.want+1 {
			t.Errorf("%.60q: %d names behind it", c.text, again.Len())
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := Load(r); err == nil {
		t.Error("a pipe is a table")
	}
}

// TestKeptTableHasOneGate: as long as a gate lives that may still give addresses
// away, the next one waits.
func TestKeptTableHasOneGate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names")
	old := keptTable(t, path)
	loaded := make(chan *Table)
	go func() { loaded <- keptTable(t, path) }()
	if _, _, err := old.Addresses(host(t, "late.test")); err != nil {
		t.Fatal(err)
	}
	old.Close()
	if table := <-loaded; table.Len() != 1 {
		t.Error("it did not wait")
	}
	if _, _, err := old.Addresses(host(t, "later.test")); bailey.CodeOf(err) != bailey.CodeStorage {
		t.Errorf("behind its end: %v", err)
	}
}

// TestUnkeptNamesHaveNoAddress: a name that cannot be written down is not
// answered, and is once it can.
func TestUnkeptNamesHaveNoAddress(t *testing.T) {
	s, b := responder(t)
	s.Names.file, s.Names.broken = os.Stdin, os.ErrPermission
	if m := ask(t, s, "ok.test.", dns.TypeA); m.Rcode != dns.RcodeServerFailure || len(m.Answer) != 0 {
		t.Errorf("%v", m)
	}
	if want := []string{"ok.test storage"}; !slices.Equal(b.refused, want) {
		t.Errorf("refused %q", b.refused)
	}
	s.Names.file = nil
	if m := ask(t, s, "ok.test.", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("%v", m)
	}
}

// FuzzKeptTable: whatever is in the file, what is taken of it is what would have been written.
func FuzzKeptTable(f *testing.F) {
	f.Add([]byte(keptLine(0, "a.test") + keptLine(1, "b.test")))
	f.Add([]byte("0 a.test 00000000\n\n"))
	f.Add([]byte{0, '\n', ' ', ' ', '\n'})
	f.Fuzz(func(t *testing.T, text []byte) {
		names, index, err := parseKept(text)
		if err != nil {
			return
		}
		var again strings.Builder
		for i, h := range names {
			again.WriteString(keptLine(uint32(i), h.String()))
			if index[h.String()] != uint32(i) {
				t.Fatalf("%s is at %d and not %d", h, index[h.String()], i)
			}
		}
		if again.String() != string(text) {
			t.Fatalf("%q was read as %q", text, again.String())
		}
	})
}

func TestTableRefuses(t *testing.T) {
	if _, _, err := NewTable().Addresses(host(t, "10.0.0.1")); err == nil {
		t.Error("an address has an address")
	}
}

// D2: a pattern does not let a sandbox make names without end.
func TestNamesRunOut(t *testing.T) {
	s, b := responder(t)
	for i := range MaxNames {
		if _, _, err := s.Names.Addresses(host(t, fmt.Sprintf("n%d.wild.test", i))); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err := s.Names.Addresses(host(t, "ok.test"))
	if bailey.CodeOf(err) != "names_exhausted" {
		t.Fatal(err)
	}
	if m := ask(t, s, "canary.wild.test.", dns.TypeA); m.Rcode != dns.RcodeNameError {
		t.Errorf("%v", m)
	}
	if want := []string{"canary.wild.test names_exhausted"}; !slices.Equal(b.refused, want) {
		t.Errorf("refused %q", b.refused)
	}
	if m := ask(t, s, "n7.wild.test.", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("a name that was there has gone: %v", m)
	}
}

func FuzzDNS(f *testing.F) {
	for _, name := range []string{"ok.test.", "evil.test.", "localhost.", "16.0.18.198.in-addr.arpa.", "_a._b.ok.test.", `\000.test.`} {
		q := new(dns.Msg)
		q.SetQuestion(name, dns.TypeA)
		if len(name)%2 == 0 {
			q.SetEdns0(4096, true)
		}
		b, err := q.Pack()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\x00\x01\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\xc0\x0c\x00\x01\x00\x01"))
	s, b := responder(f)
	f.Fuzz(func(t *testing.T, query []byte) {
		b.refused = nil
		answer := s.Answer(t.Context(), query, false)
		if answer == nil {
			return
		}
		m := new(dns.Msg)
		if err := m.Unpack(answer); err != nil {
			t.Fatalf("%v in %x", err, answer)
		}
		if !m.Response || len(answer) > payload || m.Id != binary.BigEndian.Uint16(query) {
			t.Fatalf("%v", m)
		}
		for _, rr := range m.Answer {
			var a netip.Addr
			switch rr := rr.(type) {
			case *dns.A:
				a, _ = netip.AddrFromSlice(rr.A)
			case *dns.AAAA:
				a, _ = netip.AddrFromSlice(rr.AAAA)
			case *dns.PTR:
				continue
			default:
				t.Fatalf("%v", rr)
			}
			h, known := s.Names.Lookup(a)
			if !known && !a.Unmap().IsLoopback() {
				t.Fatalf("%v", rr)
			}
			if known && policy.Decide(b.policy, policy.Request{Stage: policy.Name, To: policy.At(h, 0)}).Verdict == policy.Deny {
				t.Fatalf("%s has an address", h)
			}
		}
		if m.Rcode == dns.RcodeNameError && len(b.refused) > 1 {
			t.Fatalf("recorded %q", b.refused)
		}
	})
}
