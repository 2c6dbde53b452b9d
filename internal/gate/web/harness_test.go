package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/ca"
	"github.com/bailey-sandbox/bailey/internal/gate/web"
	"github.com/bailey-sandbox/bailey/policy"
)

// records is an audit log in memory.
type records struct {
	mu   sync.Mutex
	all  []audit.Record
	fail error
	// quiet keeps nothing, for benchmarks.
	quiet bool
}

func (r *records) Later(rec *audit.Record) { r.Append(rec) }

func (r *records) Append(rec *audit.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	if r.quiet {
		rec.Seq = 1
		return nil
	}
	rec.Seq = int64(len(r.all) + 1)
	r.all = append(r.all, *rec)
	return nil
}

// acts gives the records that are no outcomes.
func (r *records) acts() (out []audit.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, rec := range r.all {
		if rec.Kind != audit.KindEnd {
			out = append(out, rec)
		}
	}
	return out
}

// ended waits for the outcome of a record.
func (r *records) ended(t testing.TB, seq int64) audit.Outcome {
	t.Helper()
	for range 2000 {
		r.mu.Lock()
		for _, rec := range r.all {
			if rec.Kind == audit.KindEnd && rec.Of == seq {
				r.mu.Unlock()
				return *rec.Outcome
			}
		}
		r.mu.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("record %d has no outcome", seq)
	return audit.Outcome{}
}

// site is one server of the internet.
type site struct {
	addr     string
	mu       sync.Mutex
	requests []*http.Request // with their bodies read
}

func (s *site) seen() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *site) last() *http.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.requests) == 0 {
		return nil
	}
	return s.requests[len(s.requests)-1]
}

// quiet drops what servers would log.
var quiet = log.New(io.Discard, "", 0)

// world is a sandbox's way out, with an internet on loopback.
type world struct {
	t       testing.TB
	web     *web.Web
	box     *gate.Box
	log     *records
	sandbox *ca.Authority // the sandbox's
	servers *ca.Authority // the internet's
	mu      sync.Mutex
	sites   map[string]string // host:port → address
	ctx     context.Context
	serving sync.WaitGroup
	secrets act.Secrets
	denials []act.Denial // that the box told of
	server  *gate.Server
}

// Dial implements act.Dialer.
func (w *world) Dial(ctx context.Context, to policy.Authority, rule *policy.Rule) (net.Conn, netip.AddrPort, error) {
	w.mu.Lock()
	addr := w.sites[to.String()]
	w.mu.Unlock()
	if addr == "" {
		return nil, netip.AddrPort{}, &act.Unreachable{Code: "name_unresolved", Why: "the name does not resolve"}
	}
	if addr == "private" {
		return nil, netip.AddrPort{}, &act.Refused{Reason: "address_private", Why: "the name leads to a private address"}
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, netip.AddrPort{}, &act.Unreachable{Code: "connect_refused", Why: "the connection was refused", Err: err}
	}
	return c, netip.MustParseAddrPort(c.RemoteAddr().String()), nil
}

func parse(t testing.TB, doc string) *policy.Policy {
	t.Helper()
	p, err := policy.Parse([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newWorld(t testing.TB, doc string) *world { return newWorldWith(t, doc, nil) }

func newWorldWith(t testing.TB, doc string, secrets act.Secrets) *world {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{t: t, log: &records{}, sites: map[string]string{}, ctx: ctx, secrets: secrets}
	w.sandbox, w.servers = authority(t), authority(t)
	roots := x509.NewCertPool()
	roots.AddCert(w.servers.X509())
	var err error
	if w.web, err = web.New(web.Options{Authority: w.sandbox, Roots: func() *x509.CertPool { return roots }}); err != nil {
		t.Fatal(err)
	}
	server, err := gate.New(gate.Options{Audit: w.log, Dialer: w, Denied: func(d act.Denial) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.denials = append(w.denials, d)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if w.box, err = server.Add(gate.Sandbox{ID: "s1", Policy: parse(t, doc), Web: w.web, Secrets: secrets}); err != nil {
		t.Fatal(err)
	}
	w.server = server
	t.Cleanup(func() {
		cancel()
		w.serving.Wait()
		server.Close()
		w.web.Close()
	})
	return w
}

func authority(t testing.TB) *ca.Authority {
	t.Helper()
	a, err := ca.New("test")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func to(t testing.TB, s string) policy.Authority {
	t.Helper()
	a, err := policy.ParseAuthority(s, 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// listen gives a listener on loopback that is closed with the test.
func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// serverTLS is what a server named host is configured with.
func (w *world) serverTLS(host string) *tls.Config {
	h, err := policy.ParseHost(host)
	if err != nil {
		w.t.Fatal(err)
	}
	cert, err := w.servers.Leaf(h)
	if err != nil {
		w.t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{*cert}, NextProtos: []string{"h2", "http/1.1"}}
}

// site starts a server for host:port; port 80 is plain. Without a handler it
// answers with what it got. h1 keeps it from HTTP/2.
func (w *world) site(authority string, h1 bool, handler http.HandlerFunc) *site {
	w.t.Helper()
	host, port, _ := strings.Cut(authority, ":")
	l := listen(w.t)
	s := &site{addr: l.Addr().String()}
	if handler == nil {
		handler = func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Proto", r.Proto)
			io.WriteString(rw, "hello "+r.Method+" "+r.RequestURI)
		}
	}
	srv := &http.Server{ErrorLog: quiet, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		kept := r.Clone(context.Background())
		if r.Header.Get("X-Stream") == "" {
			b, _ := io.ReadAll(r.Body)
			kept.Body = io.NopCloser(bytes.NewReader(b))
			r.Body = io.NopCloser(bytes.NewReader(b))
		}
		s.mu.Lock()
		if w.log.quiet {
			s.requests = s.requests[:0]
		}
		s.requests = append(s.requests, kept)
		s.mu.Unlock()
		handler(rw, r)
	})}
	if port == "80" {
		go srv.Serve(l)
	} else {
		srv.TLSConfig = w.serverTLS(host)
		if h1 {
			srv.TLSConfig.NextProtos = []string{"http/1.1"}
			srv.Protocols = new(http.Protocols)
			srv.Protocols.SetHTTP1(true)
		}
		go srv.ServeTLS(l, "", "")
	}
	w.t.Cleanup(func() { srv.Close() })
	w.resolve(authority, s.addr)
	return s
}

func (w *world) resolve(authority, addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sites[authority] = addr
}

// connect gives the sandbox's end of a connection that goes to an authority,
// over a real socket.
func (w *world) connect(authority string) net.Conn {
	w.t.Helper()
	return w.serve(func(c net.Conn) {
		a := to(w.t, authority)
		if a.Port() == 80 {
			w.web.ServePlain(w.ctx, w.box, c, a, act.Redirect)
		} else {
			w.web.ServeTLS(w.ctx, w.box, c, a, act.Redirect)
		}
	})
}

// internet is what a client of the internet's servers trusts.
func (w *world) internet() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(w.servers.X509())
	return pool
}

func (w *world) serve(serve func(net.Conn)) net.Conn {
	w.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.serving.Add(1)
	go func() {
		defer w.serving.Done()
		c, err := l.Accept()
		l.Close() // not before: what waits to be accepted would be reset
		if err == nil {
			serve(c)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		l.Close()
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// trust is what a client in the sandbox trusts.
func (w *world) trust() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(w.sandbox.X509())
	return pool
}

// tls connects and shakes hands for HTTP/1.
func (w *world) tls(authority string) *tls.Conn {
	w.t.Helper()
	host, _, _ := strings.Cut(authority, ":")
	c := tls.Client(w.connect(authority), &tls.Config{RootCAs: w.trust(), ServerName: host})
	if err := c.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// client is a program of the sandbox: what it dials ends at the gate.
func (w *world) client(h2 bool) *http.Client {
	tr := &http.Transport{
		ForceAttemptHTTP2: h2, DisableCompression: true,
		DialContext:     func(_ context.Context, _, addr string) (net.Conn, error) { return w.connect(addr), nil },
		TLSClientConfig: &tls.Config{RootCAs: w.trust()},
	}
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// get makes a request and gives status and body.
func (w *world) do(c *http.Client, method, url string, body io.Reader, header ...string) (*http.Response, string) {
	w.t.Helper()
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		w.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(b)
}

// raw writes text and reads answers until the connection ends or n have come.
func raw(t testing.TB, c net.Conn, text string, n int, methods ...string) (answers []*http.Response, bodies []string) {
	t.Helper()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	go io.WriteString(c, text)
	r := bufio.NewReader(c)
	for i := 0; i < n; i++ {
		method := http.MethodGet
		if i < len(methods) {
			method = methods[i]
		}
		resp, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			t.Fatalf("answer %d: %v", i+1, err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("answer %d: %v", i+1, err)
		}
		answers, bodies = append(answers, resp), append(bodies, string(b))
	}
	return answers, bodies
}

// denial reads a denial's body.
func denial(t testing.TB, body string) act.Denial {
	t.Helper()
	var d act.Denial
	if err := json.Unmarshal([]byte(body), &d); err != nil {
		t.Fatalf("no denial: %v in %q", err, body)
	}
	return d
}

const allowOK = `
version: 1
egress:
  rules:
    - {name: ok, hosts: [ok.test], ports: [80, 443]}
    - {name: other, hosts: [other.test]}
    - {name: paths, hosts: [paths.test], paths: [/public/**], methods: [GET, HEAD]}
`
