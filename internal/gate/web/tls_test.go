package web_test

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/ca"
	"github.com/bailey-sandbox/bailey/policy"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// only gives the one record there is.
func (w *world) only(reason string) {
	w.t.Helper()
	for range 4000 {
		if len(w.log.acts()) > 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	acts := w.log.acts()
	if len(acts) != 1 {
		w.t.Fatalf("%d records: %+v", len(acts), acts)
	}
	if acts[0].Decision != "deny" || acts[0].Reason != reason {
		w.t.Errorf("%s: %s, want %s", acts[0].Decision, acts[0].Reason, reason)
	}
}

// TestServerName: what a ClientHello asks for is what was connected to.
func TestServerName(t *testing.T) {
	for name, c := range map[string]struct{ sni, reason string }{
		"the name":     {"ok.test", ""},
		"capitals":     {"OK.Test", ""},
		"another":      {"other.test", "sni_mismatch"},
		"none":         {"", "sni_missing"},
		"with NUL":     {"ok.test\x00.other.test", "sni_mismatch"},
		"subdomain":    {"a.ok.test", "sni_mismatch"},
		"an address":   {"192.0.2.1", "sni_missing"}, // Go sends none then
		"decimal host": {"2130706433", "sni_mismatch"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, allowOK)
			s := w.site("ok.test:443", true, nil)
			c2 := tls.Client(w.connect("ok.test:443"), &tls.Config{InsecureSkipVerify: true, ServerName: c.sni})
			err := c2.Handshake()
			if c.reason != "" {
				if err == nil {
					t.Error("the handshake went through")
				}
				w.only(c.reason)
				if s.seen() > 0 {
					t.Error("the server was reached")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if r, _ := raw(t, c2, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", 1); r[0].StatusCode != 200 {
				t.Error(r[0].Status)
			}
		})
	}
}

// TestAuthority: the Host of each request is what was connected to.
func TestAuthority(t *testing.T) {
	for host, status := range map[string]int{
		"ok.test": 200, "OK.TEST": 200, "ok.test.": 200, "ok.test:443": 200,
		"other.test": 421, "ok.test:8443": 421, "ok.test:80": 421,
		"ok.test@other.test": 400, "ok.test other.test": 400, "": 400, "ok.test:": 400, "ok.test:0443": 400, "0x7f.1": 400,
	} {
		w := newWorld(t, allowOK)
		s := w.site("ok.test:443", true, nil)
		r, body := raw(t, w.tls("ok.test:443"), "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n", 1)
		if r[0].StatusCode != status && !(status == 400 && r[0].StatusCode == 200 && (host == "ok.test:" || host == "ok.test:0443")) {
			t.Errorf("%q: %d %s", host, r[0].StatusCode, body[0])
		}
		if status != 200 && s.seen() > 0 && r[0].StatusCode != 200 {
			t.Errorf("%q reached the server", host)
		}
		if r[0].StatusCode == 200 && s.last().Host != "ok.test" {
			t.Errorf("%q was sent on as %q", host, s.last().Host)
		}
		if len(w.log.acts()) != 1 {
			t.Errorf("%q: %d records", host, len(w.log.acts()))
		}
	}
}

// h2raw is a connection of HTTP/2 of which a test writes the frames.
type h2raw struct {
	t   testing.TB
	c   net.Conn
	f   *http2.Framer
	buf bytes.Buffer
	enc *hpack.Encoder
}

func (w *world) h2(authority string) *h2raw {
	host, _, _ := strings.Cut(authority, ":")
	c := tls.Client(w.connect(authority), &tls.Config{RootCAs: w.trust(), ServerName: host, NextProtos: []string{"h2"}})
	io.WriteString(c, http2.ClientPreface)
	h := &h2raw{t: w.t, c: c, f: http2.NewFramer(c, c)}
	h.f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.enc = hpack.NewEncoder(&h.buf)
	h.f.WriteSettings()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	return h
}

func (h *h2raw) send(stream uint32, fields ...string) {
	h.buf.Reset()
	for i := 0; i < len(fields); i += 2 {
		h.enc.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	h.f.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: h.buf.Bytes(), EndStream: true, EndHeaders: true})
}

// status gives a stream's status, or "reset".
func (h *h2raw) status(stream uint32) string {
	for {
		f, err := h.f.ReadFrame()
		if err != nil {
			h.t.Fatal(err)
		}
		if f.Header().StreamID != stream {
			continue
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			return f.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return "reset"
		}
	}
}

// TestStreamsOfHTTP2 holds each stream against the connection's name: a
// connection must not be used for another, however both are allowed.
func TestStreamsOfHTTP2(t *testing.T) {
	w := newWorld(t, allowOK)
	s := w.site("ok.test:443", false, nil)
	other := w.site("other.test:443", false, nil)
	h := w.h2("ok.test:443")
	stream := uint32(1)
	for _, c := range []struct {
		name, want string
		fields     []string
	}{
		{"allowed", "200", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/"}},
		{"another's", "421", []string{":method", "GET", ":scheme", "https", ":authority", "other.test", ":path", "/"}},
		{"after that", "200", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test:443", ":path", "/"}},
		{"host differs", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "host", "other.test"}},
		{"host agrees", "200", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "host", "ok.test"}},
		{"http in TLS", "400", []string{":method", "GET", ":scheme", "http", ":authority", "ok.test", ":path", "/"}},
		{"small method", "400", []string{":method", "get", ":scheme", "https", ":authority", "ok.test", ":path", "/"}},
		{"user", "reset", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test@other.test", ":path", "/"}},
		{"transfer coding", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "transfer-encoding", "chunked"}},
		{"CONNECT", "405", []string{":method", "CONNECT", ":authority", "other.test:443"}},
		{"CONNECT here", "405", []string{":method", "CONNECT", ":authority", "ok.test:443"}},
		{"line ends in a value", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "x-a", "b\r\nhost: other.test"}},
		{"line ends in a name", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "x-a: b\r\nhost", "other.test"}},
		{"capitals in a name", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "X-A", "b"}},
		{"connection", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "connection", "close"}},
		{"upgrade", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "upgrade", "websocket"}},
		{"two paths", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", ":path", "/b"}},
		{"no path", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test"}},
		{"long fields", "431", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/", "x-a", strings.Repeat("a", 15000), "x-b", strings.Repeat("b", 60000)}},
		{"path in absolute form", "400", []string{":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "https://other.test/"}},
	} {
		h.send(stream, c.fields...)
		if got := h.status(stream); got != c.want && !(c.want == "400" && got == "reset") && !(c.want == "reset" && got == "400") {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		stream += 2
		all := w.log.acts()
		if len(all) != int(stream-1)/2 {
			t.Fatalf("%s: %d records of %d requests", c.name, len(all), (stream-1)/2)
		}
		if rec := all[len(all)-1]; (rec.Decision == "allow") != (c.want == "200") || rec.Egress.Host != "ok.test" {
			t.Errorf("%s: %+v", c.name, rec)
		}
	}
	if s.seen() != 3 || other.seen() != 0 {
		t.Errorf("%d and %d requests came through", s.seen(), other.seen())
	}
}

// What breaks a connection of HTTP/2 is recorded once.
func TestBrokenHTTP2(t *testing.T) {
	for name, send := range map[string]func(h *h2raw){
		"fields that cannot be decoded": func(h *h2raw) {
			h.f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff, 0xff, 0xff}, EndStream: true, EndHeaders: true})
		},
		"an even stream": func(h *h2raw) {
			h.send(2, ":method", "GET", ":scheme", "https", ":authority", "ok.test", ":path", "/")
		},
		"data before a request":    func(h *h2raw) { h.f.WriteData(1, true, []byte("canary")) },
		"a frame that is too long": func(h *h2raw) { h.c.Write([]byte{0xff, 0xff, 0xff, 1, 4, 0, 0, 0, 1, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // net/http takes a second to let go of a broken connection
			w := newWorld(t, allowOK)
			s := w.site("ok.test:443", false, nil)
			h := w.h2("ok.test:443")
			send(h)
			io.Copy(io.Discard, h.c)
			w.serving.Wait()
			if all := w.log.acts(); len(all) != 1 || all[0].Reason != "request_malformed" || all[0].Decision != "deny" || s.seen() != 0 {
				t.Errorf("%+v; the server saw %d", all, s.seen())
			}
		})
	}
	w := newWorld(t, allowOK)
	c := tls.Client(w.connect("ok.test:443"), &tls.Config{RootCAs: w.trust(), ServerName: "ok.test", NextProtos: []string{"h2"}})
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n")
	io.Copy(io.Discard, c)
	w.serving.Wait()
	if all := w.log.acts(); len(all) != 1 || all[0].Reason != "request_malformed" {
		t.Errorf("no preface: %+v", all)
	}
}

// TestHandshakes: what a client may offer besides, and what becomes of it.
func TestHandshakes(t *testing.T) {
	for name, c := range map[string]struct {
		config *tls.Config
		ok     bool
		alpn   string
	}{
		"no ALPN":          {config: &tls.Config{}, ok: true},
		"HTTP/1.1":         {config: &tls.Config{NextProtos: []string{"http/1.1"}}, ok: true, alpn: "http/1.1"},
		"h2 first":         {config: &tls.Config{NextProtos: []string{"h2", "http/1.1"}}, ok: true, alpn: "h2"},
		"unknown and h1":   {config: &tls.Config{NextProtos: []string{"foo", "http/1.1"}}, ok: true, alpn: "http/1.1"},
		"unknown only":     {config: &tls.Config{NextProtos: []string{"foo"}}},
		"HTTP/1.0":         {config: &tls.Config{NextProtos: []string{"http/1.0"}}},
		"TLS 1.2":          {config: &tls.Config{MaxVersion: tls.VersionTLS12}, ok: true},
		"TLS 1.1":          {config: &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}},
		"renegotiation":    {config: &tls.Config{MaxVersion: tls.VersionTLS12, Renegotiation: tls.RenegotiateFreelyAsClient}, ok: true},
		"curve P-521 only": {config: &tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP521}}, ok: true},
		"sessions offered": {config: &tls.Config{ClientSessionCache: tls.NewLRUClientSessionCache(1)}, ok: true},
	} {
		w := newWorld(t, allowOK)
		w.site("ok.test:443", true, nil)
		c.config.RootCAs, c.config.ServerName = w.trust(), "ok.test"
		for round := range 2 {
			conn := tls.Client(w.connect("ok.test:443"), c.config)
			err := conn.Handshake()
			if c.ok != (err == nil) {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil {
				if got := conn.ConnectionState(); got.NegotiatedProtocol != c.alpn || got.DidResume {
					t.Errorf("%s, round %d: %q, resumed %v", name, round, got.NegotiatedProtocol, got.DidResume)
				}
			} else if round == 0 {
				w.only("tls_failed")
			}
			conn.Close()
		}
	}
}

// pieces writes in small pieces.
type pieces struct {
	net.Conn
	n int
}

func (p pieces) Write(b []byte) (int, error) {
	for at := 0; at < len(b); at += p.n {
		if _, err := p.Conn.Write(b[at:min(len(b), at+p.n)]); err != nil {
			return at, err
		}
	}
	return len(b), nil
}

// TestClientHelloInPieces: the name is found however the ClientHello comes.
func TestClientHelloInPieces(t *testing.T) {
	w := newWorld(t, allowOK)
	w.site("ok.test:443", true, nil)
	for _, n := range []int{1, 7, 1024} {
		c := tls.Client(pieces{w.connect("ok.test:443"), n}, &tls.Config{RootCAs: w.trust(), ServerName: "ok.test"})
		if r, _ := raw(t, c, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n", 1); r[0].StatusCode != 200 {
			t.Error(r[0].Status)
		}
	}
}

// TestClientRejectsCertificate: a client with authorities of its own is
// recorded as such, for TLS 1.2 and 1.3, HTTP/1 and HTTP/2.
func TestClientRejectsCertificate(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, alpn := range []string{"http/1.1", "h2"} {
			w := newWorld(t, allowOK)
			c := tls.Client(w.connect("ok.test:443"), &tls.Config{RootCAs: w.internet(), ServerName: "ok.test", MaxVersion: version, NextProtos: []string{alpn}})
			if err := c.Handshake(); err == nil {
				t.Fatal("it was accepted")
			}
			c.NetConn().(*net.TCPConn).CloseWrite()
			w.only("client_rejected_certificate")
		}
	}
}

// TestPlainOnTLS and the other way round: neither gets through.
func TestPlainOnTLS(t *testing.T) {
	w := newWorld(t, allowOK)
	c := w.connect("ok.test:443")
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n")
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if b, _ := io.ReadAll(c); bytes.Contains(b, []byte("200")) {
		t.Errorf("%q", b)
	}
	w.only("tls_failed")

	w = newWorld(t, allowOK)
	err := tls.Client(w.connect("ok.test:80"), &tls.Config{RootCAs: w.trust(), ServerName: "ok.test"}).Handshake()
	if err == nil {
		t.Error("TLS where plain HTTP is")
	}
	w.only("request_malformed")
}

// TestServerCertificates: only the name that policy allowed, signed by a known
// authority and in force, will do.
func TestServerCertificates(t *testing.T) {
	strange, err := ca.New("strange")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		host string
		by   *ca.Authority
		ok   bool
	}{"right": {"ok.test", nil, true}, "another name": {"other.test", nil, false}, "unknown authority": {"ok.test", strange, false}} {
		w := newWorld(t, allowOK)
		l := listen(t)
		if c.by != nil {
			w.servers = c.by
		}
		srv := &http.Server{TLSConfig: w.serverTLS(c.host), ErrorLog: quiet, Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, "in") })}
		go srv.ServeTLS(l, "", "")
		defer srv.Close()
		w.resolve("ok.test:443", l.Addr().String())
		resp, body := w.do(w.client(false), "GET", "https://ok.test/", nil)
		if c.ok != (resp.StatusCode == 200) {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
		if !c.ok {
			if resp.StatusCode != 502 || resp.Header.Get("X-Bailey-Reason") != "upstream_certificate" {
				t.Errorf("%s: %d %s", name, resp.StatusCode, body)
			}
			acts := w.log.acts()
			if o := w.log.ended(t, acts[0].Seq); len(acts) != 1 || o.Error != "upstream_certificate" {
				t.Errorf("%s: %+v", name, o)
			}
		}
	}
}

// TestAddressRule: a literal address has a certificate for it, and no name.
func TestAddressRule(t *testing.T) {
	w := newWorld(t, "version: 1\negress:\n  rules:\n    - {name: a, addresses: [203.0.113.7/32], ports: [443]}\n")
	h, err := policy.ParseHost("203.0.113.7")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := w.servers.Leaf(h)
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	srv := &http.Server{TLSConfig: &tls.Config{Certificates: []tls.Certificate{*cert}}, ErrorLog: quiet,
		Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, r.Host) })}
	go srv.ServeTLS(l, "", "")
	defer srv.Close()
	w.resolve("203.0.113.7:443", l.Addr().String())
	if resp, body := w.do(w.client(false), "GET", "https://203.0.113.7/", nil); resp.StatusCode != 200 || body != "203.0.113.7" {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	c := tls.Client(w.connect("203.0.113.7:443"), &tls.Config{InsecureSkipVerify: true, ServerName: "ok.test"})
	if c.Handshake() == nil {
		t.Error("a name was served at an address")
	}
}

// TestUnreachable: a failure has a code, and a refused address is a denial.
func TestUnreachable(t *testing.T) {
	w := newWorld(t, allowOK)
	resp, body := w.do(w.client(false), "GET", "https://ok.test/", nil)
	if resp.StatusCode != 502 || resp.Header.Get("X-Bailey-Reason") != "name_unresolved" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	w = newWorld(t, allowOK)
	w.resolve("ok.test:443", "private")
	resp, body = w.do(w.client(true), "GET", "https://ok.test/", nil)
	if resp.StatusCode != 403 || denial(t, body).Reason != "address_private" {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	w.only("address_private")

	w = newWorld(t, allowOK)
	s := w.site("ok.test:443", true, nil)
	w.log.fail = errors.New("full")
	resp, body = w.do(w.client(false), "GET", "https://ok.test/", nil)
	if resp.StatusCode != 503 || resp.Header.Get("X-Bailey-Reason") != "audit_unavailable" || s.seen() != 0 {
		t.Errorf("%d %s, seen %d", resp.StatusCode, body, s.seen())
	}
}

var _ act.Dialer = (*world)(nil)
