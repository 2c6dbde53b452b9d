package gate

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/policy"
)

// pieces writes in pieces of some bytes.
type pieces struct {
	net.Conn
	size int
}

func (p pieces) Write(b []byte) (int, error) {
	for i := 0; i < len(b); i += p.size {
		if _, err := p.Conn.Write(b[i:min(i+p.size, len(b))]); err != nil {
			return i, err
		}
	}
	return len(b), nil
}

// records cuts the first TLS record it sends into many.
type records struct {
	net.Conn
	done bool
}

func (r *records) Write(b []byte) (int, error) {
	if r.done {
		return r.Conn.Write(b)
	}
	r.done = true
	var cut []byte
	for body := b[5:]; len(body) > 0; {
		n := min(20, len(body))
		cut = append(append(cut, b[0], b[1], b[2], 0, byte(n)), body[:n]...)
		body = body[n:]
	}
	_, err := r.Conn.Write(cut)
	return len(b), err
}

// hello gives the bytes of a ClientHello.
func hello(t testing.TB, c *tls.Config) []byte {
	client, server := net.Pipe()
	go tls.Client(client, c).Handshake()
	var all []byte
	buf := make([]byte, 64<<10)
	for {
		server.SetReadDeadline(time.Now().Add(patience))
		n, err := server.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, buf[:n]...)
		if len(all) >= 5 && len(all) >= 5+int(all[3])<<8+int(all[4]) {
			client.Close()
			server.Close()
			return all
		}
	}
}

// T3, T4: the name in a ClientHello decides, however the hello comes.
func TestSplice(t *testing.T) {
	n := newInternet(t, map[string][][]string{"ok.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.secure("ok.test"))
	y := newYard(t, n, parse(t, fmt.Sprintf("name: pinned, hosts: ['ok.test:%d'], tls: splice", port)))
	long := make([]string, 2000) // a ClientHello of some 30 KB, over two records
	for i := range long {
		long[i] = fmt.Sprintf("protocol-%04d", i)
	}
	for _, c := range []struct {
		name   string
		wrap   func(net.Conn) net.Conn
		config *tls.Config
	}{
		{"plain", func(c net.Conn) net.Conn { return c }, &tls.Config{ServerName: "ok.test"}},
		{"other letters", func(c net.Conn) net.Conn { return c }, &tls.Config{ServerName: "OK.Test"}},
		{"a byte at a time", func(c net.Conn) net.Conn { return pieces{c, 1} }, &tls.Config{ServerName: "ok.test"}},
		{"many records", func(c net.Conn) net.Conn { return &records{Conn: c} }, &tls.Config{ServerName: "ok.test"}},
		{"a long one", func(c net.Conn) net.Conn { return c }, &tls.Config{ServerName: "ok.test", NextProtos: append([]string{"h2"}, long...)}},
		{"TLS 1.2", func(c net.Conn) net.Conn { return c }, &tls.Config{ServerName: "ok.test", MaxVersion: tls.VersionTLS12}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := len(y.acts())
			c.config.InsecureSkipVerify = true // the certificate is the server's own: it is not looked at here
			client := tls.Client(c.wrap(y.dialName(t, "ok.test", port)), c.config)
			fmt.Fprint(client, "hello")
			buf := make([]byte, 5)
			if _, err := io.ReadFull(client, buf); err != nil || string(buf) != "hello" {
				t.Fatalf("%q, %v", buf, err)
			}
			if name := client.ConnectionState().PeerCertificates[0].DNSNames[0]; name != "ok.test" {
				t.Errorf("the certificate is for %s", name)
			}
			client.Close()
			list := y.acts()[before:]
			if len(list) != 1 || list[0].Decision != "allow" || list[0].Rule != "pinned" || !list[0].Egress.Opaque || list[0].Egress.SNI != "ok.test" || list[0].Egress.Scheme != "tls" {
				t.Fatalf("%+v", list)
			}
			y.wait(t, endOf(list[0].Seq))
		})
	}
}

// T2, T3, T5, T6, N7: a stream that does not ask for the name behind its address
// in time, and openly, never gets to a server.
func TestSpliceRefused(t *testing.T) {
	n := newInternet(t, map[string][][]string{"ok.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	ok := hello(t, &tls.Config{ServerName: "ok.test", InsecureSkipVerify: true})
	swap := func(name string) []byte { // of the same length
		return bytes.Replace(ok, []byte("ok.test"), []byte(name), 1)
	}
	withECH := func() []byte { // an extension more, at the end
		outer := append([]byte{0, 0, 1, 0, 1, 5, 0, 32}, make([]byte, 32)...) // RFC 9849, section 5
		outer = append(append(outer, 0, 16), make([]byte, 16)...)
		extension := append([]byte{0xfe, 0x0d, 0, byte(len(outer))}, outer...)
		b := append(bytes.Clone(ok), extension...)
		add := func(i, n int) { v := int(b[i])<<8 + int(b[i+1]) + n; b[i], b[i+1] = byte(v>>8), byte(v) }
		add(3, len(extension))              // record
		add(7, len(extension))              // message
		i := 5 + 4 + 2 + 32                 // session id
		i += 1 + int(b[i])                  // cipher suites
		i += 2 + int(b[i])<<8 + int(b[i+1]) // compression
		i += 1 + int(b[i])                  // extensions
		add(i, len(extension))
		return b
	}()
	for _, c := range []struct {
		name   string
		bytes  []byte
		stay   bool // and say no more
		reason string
	}{
		{"another name", swap("no.test"), false, "sni_mismatch"},
		{"a name with NUL", swap("ok.te\x00t"), false, "sni_mismatch"},
		{"no name", hello(t, &tls.Config{InsecureSkipVerify: true}), false, "no_sni"},
		{"an encrypted hello", withECH, false, "ech"},
		{"SSH on a port for TLS", []byte("SSH-2.0-OpenSSH_9.6\r\n"), false, "protocol"},
		{"a TLS record that is no hello", []byte("\x16\x03\x01\x00\x04\x02\x00\x00\x00"), false, "bad_hello"},
		{"half a hello, then an end", ok[:100], false, "bad_hello"},
		{"half a hello, then nothing", ok[:100], true, "sniff_timeout"},
		{"two bytes", ok[:2], true, "sniff_timeout"},
		{"nothing", nil, true, "sniff_timeout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			y := newYard(t, n, parse(t, fmt.Sprintf("hosts: ['ok.test:%d'], tls: splice, protocol: https", port)), func(o *Options) {
				if c.stay {
					o.SniffTimeout = 50 * time.Millisecond
				}
			})
			client := y.dialName(t, "ok.test", port)
			client.Write(c.bytes)
			if !c.stay {
				client.CloseWrite()
			}
			isReset(t, client)
			if got, want := y.only(t), fmt.Sprintf("stream deny %s ok.test:%d", c.reason, port); got != want {
				t.Errorf("recorded %q, not %q", got, want)
			}
		})
	}
	if n.dials.Load() != 0 || n.saw() != "" {
		t.Errorf("%d connections, which saw %q", n.dials.Load(), n.saw())
	}
}

// T5: a client that sends a byte now and then has one time for all of them.
func TestSlowHello(t *testing.T) {
	n := newInternet(t, map[string][][]string{"ok.test": {{"127.0.10.1"}}})
	y := newYard(t, n, parse(t, "hosts: [ok.test], tls: splice, protocol: https"), func(o *Options) { o.SniffTimeout = 200 * time.Millisecond })
	ok := hello(t, &tls.Config{ServerName: "ok.test", InsecureSkipVerify: true})
	client := y.dialName(t, "ok.test", 443)
	begin := time.Now()
	for _, b := range ok {
		if _, err := client.Write([]byte{b}); err != nil {
			break
		}
		client.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := client.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if time.Since(begin) > patience {
			t.Fatal("it was never cut off")
		}
	}
	if got := y.only(t); got != "stream deny sniff_timeout ok.test:443" {
		t.Errorf("recorded %q", got)
	}
}

// T6: what a port is for holds without a word of the rule.
func TestPortsSpeakWhatTheyAreFor(t *testing.T) {
	n := newInternet(t, map[string][][]string{"ok.test": {{"127.0.10.1"}}})
	y := newYard(t, n, parse(t, "hosts: [ok.test]"))
	tlsHello := hello(t, &tls.Config{ServerName: "ok.test", InsecureSkipVerify: true})
	request := []byte("GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: close\r\n\r\n")
	for _, c := range []struct {
		port uint16
		sent []byte
	}{{443, request}, {80, tlsHello}, {443, []byte("SSH-2.0-x\r\n")}, {80, []byte("EHLO\r\n")}} {
		client := y.dialName(t, "ok.test", c.port)
		client.Write(c.sent)
		isReset(t, client)
	}
	for _, r := range y.acts() {
		if r.Decision != "deny" || r.Reason != policy.ReasonProtocol {
			t.Errorf("%+v", r)
		}
	}
	if len(y.acts()) != 4 || y.web.plain.Load()+y.web.tls.Load() != 0 {
		t.Errorf("%d records; web got %d and %d", len(y.acts()), y.web.plain.Load(), y.web.tls.Load())
	}
	// The allowed twins.
	client := y.dialName(t, "ok.test", 80)
	client.Write(request)
	client.CloseWrite()
	if answer, err := io.ReadAll(client); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") {
		t.Errorf("%q, %v", answer, err)
	}
	client = y.dialName(t, "ok.test", 443)
	client.Write(tlsHello)
	io.Copy(io.Discard, client)
	if y.web.plain.Load() != 1 || y.web.tls.Load() != 1 {
		t.Errorf("web got %d and %d", y.web.plain.Load(), y.web.tls.Load())
	}
}

// A stream that says nothing and leaves was no act.
func TestProbe(t *testing.T) {
	n := newInternet(t, nil)
	y := newYard(t, n, parse(t, "hosts: [ok.test]"))
	client := y.dialName(t, "ok.test", 443)
	client.CloseWrite()
	io.Copy(io.Discard, client)
	y.server.Close()
	if list := y.acts(); len(list) != 0 {
		t.Errorf("%+v", list)
	}
}

func TestSpliceEnd(t *testing.T) {
	n := newInternet(t, map[string][][]string{"ok.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", func(c net.Conn) { // takes the hello and resets
		c.Read(make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
	})
	y := newYard(t, n, parse(t, fmt.Sprintf("hosts: ['ok.test:%d'], tls: splice", port)))
	client := y.dialName(t, "ok.test", port)
	client.Write(hello(t, &tls.Config{ServerName: "ok.test", InsecureSkipVerify: true}))
	isReset(t, client)
	end := y.wait(t, func(r audit.Record) bool { return r.Kind == audit.KindEnd })
	if end.Outcome.Error != "reset_by_server" {
		t.Errorf("%+v", end.Outcome)
	}
}
