package stream

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/policy"
)

// script is a client that sends some bytes and then ends.
type script struct {
	net.Conn
	in  *bytes.Reader
	out bytes.Buffer
}

func newScript(b []byte) *script { return &script{in: bytes.NewReader(b)} }

func (s *script) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error) { return s.out.Write(b) }
func (*script) SetDeadline(time.Time) error   { return nil }
func (*script) Close() error                  { return nil }

// FuzzSOCKS: whatever a client sends, a destination is one by the grammar of
// hosts, and what is shown of one that is none has no byte that acts.
func FuzzSOCKS(f *testing.F) {
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x07ok.test\x01\xbb"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x11evil.test\x00.ok.test\x01\xbb"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x03\x0aok.test\r\nA\x01\xbb"))
	f.Add([]byte("\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50"))
	f.Add([]byte("\x05\x02\x02\x00\x05\x03\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\x7f\x00\x00\x01\x00\x50"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newScript(b)
		to, err := socksRequest(c)
		if bad, ok := err.(*socksError); ok {
			for _, r := range []byte(bad.host) {
				if r < ' ' || r > '~' {
					t.Fatalf("%q would be shown", bad.host)
				}
			}
		}
		if err != nil {
			return
		}
		h, err := policy.ParseHost(to.Host().String())
		if err != nil || h != to.Host() || to.Port() == 0 {
			t.Fatalf("%q leads to %s", b, to)
		}
		if c.out.String() != "\x05\x00" {
			t.Fatalf("answered %x", c.out.Bytes())
		}
	})
}

// helloOf gives the bytes of a ClientHello that crypto/tls sends.
func helloOf(c *tls.Config) []byte {
	s := newScript(nil)
	tls.Client(s, c).HandshakeContext(context.Background())
	return s.out.Bytes()
}

// FuzzClientHello: reading one takes nothing away, and finds what crypto/tls
// finds.
func FuzzClientHello(f *testing.F) {
	for _, c := range []*tls.Config{
		{ServerName: "ok.test"}, {InsecureSkipVerify: true}, {ServerName: "ok.test", NextProtos: []string{"h2", "http/1.1"}},
		{ServerName: "ok.test", MaxVersion: tls.VersionTLS12},
	} {
		f.Add(helloOf(c))
	}
	f.Add([]byte("\x16\x03\x01\x00\x04\x01\x00\x00\x00"))
	f.Add([]byte("\x16\x03\x01\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		p := newPeeked(newScript(b))
		p.peek(1)
		h, err := readHello(context.Background(), p)
		if (h == nil) == (err == nil) {
			t.Fatalf("%v and %v", h, err)
		}
		if back, err := io.ReadAll(p); err != nil || !bytes.Equal(back, b) {
			t.Fatalf("%d bytes of %d are left: %v", len(back), len(b), err)
		}
		if h == nil {
			return
		}
		h.agrees(policy.Authority{})
		for _, s := range printable(h.alpn) {
			if len(s) > 32 {
				t.Fatalf("%q would be shown", s)
			}
		}
	})
}

func TestBegins(t *testing.T) {
	for _, c := range []struct {
		sent string
		want spoken
		done bool
	}{
		{"GET / HTTP/1.1\r\n", plain, true},
		{"GET ", plain, true},
		{"GET", unknown, false},
		{"x-custom ", plain, true},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", plain, true},
		{" GET", unknown, true},
		{"SSH-2.0-OpenSSH", unknown, false},
		{"SSH-2.0-OpenSSH_9\r\n", unknown, true},
		{"\x00\x00\x00\x08\x04\xd2\x16\x2f", unknown, true}, // a Postgres client asks for TLS
		{"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", unknown, true},
		{"\x16", unknown, false},
		{"\x16\x03", unknown, false},
		{"\x16\x03\x01", tlsRecord, true},
		{"\x16\x02", unknown, true},
		{"\x15\x03\x01", unknown, true},
		{"\x80\x2e\x01\x03\x01", unknown, true}, // a hello of SSL 2
		{"GET\x00 /", unknown, true},
	} {
		if got, done := begins([]byte(c.sent)); got != c.want || done != c.done {
			t.Errorf("%q is %d, %v; not %d, %v", c.sent, got, done, c.want, c.done)
		}
	}
}

// What was looked at is read again, in whatever pieces.
func TestPeeked(t *testing.T) {
	p := newPeeked(newScript([]byte("0123456789")))
	if b, err := p.peek(3); err != nil || !bytes.HasPrefix(b, []byte("012")) {
		t.Fatalf("%q, %v", b, err)
	}
	if _, err := p.peek(11); err != io.EOF {
		t.Errorf("eleven of ten bytes: %v", err)
	}
	one := make([]byte, 1)
	if n, err := p.Read(one); n != 1 || err != nil || one[0] != '0' {
		t.Errorf("%q, %v", one, err)
	}
	if rest, err := io.ReadAll(p); err != nil || string(rest) != "123456789" {
		t.Errorf("%q, %v", rest, err)
	}
	if !isTimeout(os.ErrDeadlineExceeded) || isTimeout(io.EOF) {
		t.Error("a time that is up is not told from an end")
	}
}

// A hello that never ends is given up.
func TestEndlessHello(t *testing.T) {
	record := append([]byte{0x16, 3, 1, 0x40, 0}, make([]byte, 0x4000)...)
	record[5], record[6], record[7], record[8] = 1, 0, 0xff, 0xff
	p := newPeeked(newScript(bytes.Repeat(record, 100)))
	if h, err := readHello(t.Context(), p); h != nil || err == nil {
		t.Errorf("%v, %v", h, err)
	}
	if len(p.buf) > maxHello {
		t.Errorf("%d bytes were read", len(p.buf))
	}
}
