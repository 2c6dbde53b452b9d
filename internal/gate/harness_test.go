package gate

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/dial"
	"github.com/bailey-sandbox/bailey/policy"
)

// patience bounds every wait of these tests; none of them needs a tenth of it.
const patience = 30 * time.Second

// journal is an audit log in memory.
type journal struct {
	mu      sync.Mutex
	records []audit.Record
	broken  bool
	more    chan struct{} // closed and made anew with each record
}

func newJournal() *journal { return &journal{more: make(chan struct{})} }

func (j *journal) Append(r *audit.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken {
		return errors.New("no space left")
	}
	r.Seq = int64(len(j.records) + 1)
	j.records = append(j.records, *r)
	close(j.more)
	j.more = make(chan struct{})
	return nil
}

func (j *journal) Later(r *audit.Record) { j.Append(r) }

// acts gives the records of acts.
func (j *journal) acts() (list []audit.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.records {
		if r.Kind != audit.KindEnd && r.Kind != audit.KindApproval {
			list = append(list, r)
		}
	}
	return list
}

// approvals gives the records of questions.
func (j *journal) approvals() (list []audit.Record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.records {
		if r.Kind == audit.KindApproval {
			list = append(list, r)
		}
	}
	return list
}

// wait gives the first record that is wanted, as soon as it is there.
func (j *journal) wait(t *testing.T, wanted func(audit.Record) bool) audit.Record {
	t.Helper()
	late := time.After(patience)
	for {
		j.mu.Lock()
		for _, r := range j.records {
			if wanted(r) {
				j.mu.Unlock()
				return r
			}
		}
		more := j.more
		j.mu.Unlock()
		select {
		case <-more:
		case <-late:
			t.Fatalf("the record did not come; there are %+v", j.acts())
		}
	}
}

func endOf(seq int64) func(audit.Record) bool {
	return func(r audit.Record) bool { return r.Kind == audit.KindEnd && r.Of == seq }
}

// only gives the one act of the log, summed up.
func (j *journal) only(t *testing.T) string {
	t.Helper()
	list := j.acts()
	if len(list) != 1 {
		t.Errorf("there are %d records and not one: %+v", len(list), list)
		return ""
	}
	r := list[0]
	return fmt.Sprintf("%s %s %s %s:%d", r.Kind, r.Decision, r.Reason, r.Egress.Host, r.Egress.Port)
}

// internet is a name server and what its names lead to, on loopback. All of
// 127.0.10.0/24 is public to the gate, as are the addresses in public.
type internet struct {
	dns     netip.AddrPort
	mu      sync.Mutex
	names   map[string][][]string // answers of the 1st, 2nd … query, the last repeated; addresses
	queries []string
	canary  strings.Builder // all that the servers of sink saw
	dials   atomic.Int64    // connections that the servers of sink saw
}

func newInternet(t testing.TB, names map[string][][]string) *internet {
	n := &internet{names: names}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.dns = u.LocalAddr().(*net.UDPAddr).AddrPort()
	s := &dns.Server{PacketConn: u, Handler: dns.HandlerFunc(n.answer)}
	done := make(chan error)
	go func() { done <- s.ActivateAndServe() }()
	t.Cleanup(func() { u.Close(); <-done })
	return n
}

func (n *internet) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	name := strings.ToLower(strings.TrimSuffix(q.Question[0].Name, "."))
	kind := q.Question[0].Qtype
	n.mu.Lock()
	n.queries = append(n.queries, name)
	list, known := n.names[name]
	if known && kind == dns.TypeA { // the resolver asks for both types; A counts
		if len(list) > 1 {
			n.names[name] = list[1:]
		}
		for _, a := range list[0] {
			if netip.MustParseAddr(a).Is4() {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: kind, Class: 1}, A: net.ParseIP(a)})
			}
		}
	}
	if known && kind == dns.TypeAAAA {
		for _, a := range list[0] {
			if netip.MustParseAddr(a).Is6() {
				m.Answer = append(m.Answer, &dns.AAAA{Hdr: dns.RR_Header{Name: q.Question[0].Name, Rrtype: kind, Class: 1}, AAAA: net.ParseIP(a)})
			}
		}
	}
	n.mu.Unlock()
	if !known {
		m.Rcode = dns.RcodeNameError
	}
	w.WriteMsg(m)
}

// asked gives the names that the name server was asked for.
func (n *internet) asked() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.queries...)
}

func (n *internet) saw() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.canary.String()
}

// serve serves connections to an address until the test ends, and gives its port.
func (n *internet) serve(t testing.TB, address string, handle func(net.Conn)) uint16 {
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.dials.Add(1)
			all.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				handle(c)
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); all.Wait() })
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// echo sends back what comes, keeps it, and ends when it ends.
func (n *internet) echo(c net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		k, err := c.Read(buf)
		n.mu.Lock()
		n.canary.Write(buf[:k])
		n.mu.Unlock()
		if _, werr := c.Write(buf[:k]); err != nil || werr != nil {
			return
		}
	}
}

// secure serves TLS with a certificate for a name and sends back what comes.
func (n *internet) secure(name string) func(net.Conn) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	return func(c net.Conn) { n.echo(tls.Server(c, config)) }
}

// yard is a gate with one sandbox, and a client that stands for the sandbox.
type yard struct {
	*journal
	*internet
	server   *Server
	box      *Box
	web      *fakeWeb
	listener string

	mu      sync.Mutex
	going   map[netip.AddrPort]netip.AddrPort // by the client's end: where it wanted to go
	arrived *sync.Cond
	denials []act.Denial
}

// parse reads rules in flow style, one a line.
func parse(t testing.TB, rules ...string) *policy.Policy {
	t.Helper()
	text := "version: 1\n"
	if len(rules) > 0 && strings.HasPrefix(rules[0], "mode:") {
		text, rules = text+rules[0]+"\n", rules[1:]
	}
	if len(rules) > 0 {
		text += "egress:\n  rules:\n"
	}
	for _, r := range rules {
		text += "  - {" + r + "}\n"
	}
	p, err := policy.Parse([]byte(text))
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return p
}

// public is the classifier of these tests.
func public(a netip.Addr) string {
	if netip.MustParsePrefix("127.0.10.0/24").Contains(a.Unmap()) {
		return dial.Public
	}
	return dial.Classify(a)
}

func newYard(t testing.TB, n *internet, p *policy.Policy, change ...func(*Options)) *yard {
	y := &yard{journal: newJournal(), internet: n, web: &fakeWeb{}, going: map[netip.AddrPort]netip.AddrPort{}}
	y.arrived = sync.NewCond(&y.mu)
	o := Options{
		Audit:  y.journal,
		Dialer: dial.New(dial.Options{Servers: []netip.AddrPort{n.dns}, Classify: public, Own: func() ([]netip.Addr, error) { return nil, nil }}),
		Denied: func(d act.Denial) {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.denials = append(y.denials, d)
		},
		SniffTimeout: patience,
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if y.server, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(y.server.Close)
	y.box, y.listener = y.add(t, "sandbox", p)
	return y
}

// add makes a box with a listener on loopback, which takes every destination.
func (y *yard) add(t testing.TB, id string, p *policy.Policy) (*Box, string) {
	b, err := y.server.Add(Sandbox{ID: id, Policy: p, Web: y.web})
	if err != nil {
		t.Fatal(err)
	}
	b.streams.Original = y.original
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	file, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := b.Serve(file, nil); err != nil {
		t.Fatal(err)
	}
	return b, l.Addr().String()
}

// original stands for the kernel's memory of redirected connections.
func (y *yard) original(c *net.TCPConn) (netip.AddrPort, error) {
	from := c.RemoteAddr().(*net.TCPAddr).AddrPort()
	y.mu.Lock()
	defer y.mu.Unlock()
	for {
		if to, ok := y.going[from]; ok {
			return to, nil
		}
		y.arrived.Wait()
	}
}

// connect connects as a process inside that connects to an address.
func (y *yard) connect(t testing.TB, to netip.AddrPort) *net.TCPConn {
	return y.connectAt(t, y.listener, to)
}

func (y *yard) connectAt(t testing.TB, listener string, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", listener)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	y.mu.Lock()
	defer y.mu.Unlock()
	y.going[c.LocalAddr().(*net.TCPAddr).AddrPort()] = to
	y.arrived.Broadcast()
	return c.(*net.TCPConn)
}

// lookup asks the sandbox's name server for a name's address.
func (y *yard) lookup(t testing.TB, name string) (netip.Addr, bool) {
	t.Helper()
	q := new(dns.Msg)
	q.SetQuestion(name+".", dns.TypeA)
	b, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	m := new(dns.Msg)
	if err := m.Unpack(y.box.streams.DNS.Answer(t.Context(), b, false)); err != nil {
		t.Fatal(err)
	}
	if len(m.Answer) == 0 {
		return netip.Addr{}, false
	}
	a, _ := netip.AddrFromSlice(m.Answer[0].(*dns.A).A)
	return a, true
}

// dialName looks a name up and connects to it.
func (y *yard) dialName(t testing.TB, name string, port uint16) *net.TCPConn {
	t.Helper()
	a, ok := y.lookup(t, name)
	if !ok {
		t.Fatalf("%s has no address", name)
	}
	return y.connect(t, netip.AddrPortFrom(a, port))
}

// proxy connects to the gate's proxy.
func (y *yard) proxy(t testing.TB) *net.TCPConn {
	return y.connect(t, netip.AddrPortFrom(driver.GateAddr4, driver.GateProxyPort))
}

// isReset waits for the other end to reset the connection.
func isReset(t testing.TB, c net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection was not reset: %d bytes came, %v", n, err)
	}
}

// fakeWeb answers each request with 200 and what it is, or with 403.
type fakeWeb struct{ tls, plain atomic.Int64 }

func (w *fakeWeb) ServeTLS(_ context.Context, _ act.Box, c net.Conn, _ policy.Authority, _ act.Via) {
	w.tls.Add(1)
	c.Close()
}

func (w *fakeWeb) ServePlain(ctx context.Context, box act.Box, c net.Conn, to policy.Authority, via act.Via) {
	w.plain.Add(1)
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	in := bufio.NewReader(c)
	for {
		q, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		a := box.Begin(act.HTTP, via, to)
		a.Record().Method, a.Record().Path, a.Record().Scheme = q.Method, q.URL.Path, "http"
		d := a.Judge(ctx, policy.Request{Stage: policy.Head, To: to, Scheme: policy.HTTP, Method: q.Method, Path: q.URL.Path, BodySize: -1})
		if d.Verdict != policy.Deny && !a.Count(policy.Usage{Requests: 1}) {
			d = a.Refuse(policy.ReasonLimitRequests, "no more")
		}
		if a.Commit() != nil {
			return
		}
		status := 200
		if d.Verdict == policy.Deny {
			status = 403
		}
		fmt.Fprintf(c, "HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n", status)
		a.End(audit.Outcome{Status: status})
	}
}

func (w *fakeWeb) ServeProxy(ctx context.Context, box act.Box, c net.Conn, open act.Open) {
	defer c.Close()
	q, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	to, err := policy.ParseAuthority(q.Host, 80)
	if err != nil {
		fmt.Fprint(c, "HTTP/1.1 400 X\r\nContent-Length: 0\r\n\r\n")
		return
	}
	serve, refused, err := open(ctx, to)
	switch {
	case refused != nil:
		fmt.Fprintf(c, "HTTP/1.1 403 X\r\nX-Reason: %s\r\nContent-Length: 0\r\n\r\n", refused.Reason)
	case err != nil:
		fmt.Fprint(c, "HTTP/1.1 502 X\r\nContent-Length: 0\r\n\r\n")
	default:
		fmt.Fprint(c, "HTTP/1.1 200 X\r\n\r\n")
		serve(c)
	}
}
