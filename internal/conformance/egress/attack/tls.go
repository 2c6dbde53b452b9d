package main

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

func init() {
	cases["T1"] = func(c *attempt) {
		for _, host := range []string{plan.Evil, plan.Gist, plan.Other} {
			c.act()
			a, err := c.over(plan.OK, plan.OK, get(host, "/?c="+c.Bad))
			c.note("Host %s: %v %v", host, a.status, err)
		}
		c.act()
		a, err := c.plain(plan.OK, get(plan.Evil, "/?c="+c.Bad))
		c.note("over HTTP: %v %v", a.status, err)
		c.allowed(plan.OK)
	}
	cases["T2"] = func(c *attempt) {
		c.act()
		c.tunnel(plan.OK+":443", plan.Evil)
		conn, _, err := connect(plan.OK + ":443")
		if err == nil {
			var t *tls.Conn
			if t, err = secure(conn, plan.OK); err == nil {
				var a answer
				a, err = exchange(t, get(plan.OK, "/?c="+c.Good))
				err = errors.Join(err, a.ok())
			}
			conn.Close()
		}
		c.twin("CONNECT and SNI agree", err)
	}
	cases["T3"] = func(c *attempt) {
		c.act()
		c.note("no SNI: %v", second(c.over(plan.OK, "", get(plan.OK, "/?c="+c.Bad))))
		c.act()
		c.note("an address: %v", c.hello(plan.OK, &tls.Config{ServerName: "5.10.0.2", InsecureSkipVerify: true}, func(b []byte) []byte { return b }))
		c.act()
		c.note("no SNI, spliced: %v", second(c.over(plan.Spliced, "", get(plan.Spliced, "/?c="+c.Bad))))
		c.act()
		err := c.hello(plan.Spliced, &tls.Config{ServerName: plan.Evil, InsecureSkipVerify: true, MinVersion: tls.VersionTLS13, EncryptedClientHelloConfigList: echConfig(plan.Spliced)}, nil)
		c.note("ECH, spliced: %v", err)
		c.allowed(plan.Spliced)
	}
	cases["T4"] = func(c *attempt) {
		for _, way := range []struct {
			name string
			wrap func(net.Conn) net.Conn
		}{{"records of 20 bytes", func(n net.Conn) net.Conn { return &fragments{Conn: n, record: 20} }}, {"segments of 1 byte", func(n net.Conn) net.Conn { return &fragments{Conn: n, segment: 1} }}} {
			for _, host := range []string{plan.OK, plan.Spliced} {
				for _, sni := range []string{plan.Evil, host} {
					conn, err := dial(host, 443)
					if err != nil {
						c.note("%v", err)
						continue
					}
					if sni == plan.Evil {
						c.act()
					}
					t, err := secure(way.wrap(conn), sni)
					var a answer
					if err == nil {
						canary := c.Good
						if sni == plan.Evil {
							canary = c.Bad
						}
						a, err = exchange(t, get(sni, "/?c="+canary))
					}
					conn.Close()
					if sni == host {
						c.twin(way.name+" to "+host, errors.Join(err, a.ok()))
					}
				}
			}
		}
		// The name comes after the first kilobyte.
		for _, sni := range []string{plan.Evil, plan.OK} {
			if sni == plan.Evil {
				c.act()
			} else {
				c.maybe() // the handshake cannot be completed: the client's own view of its hello differs
			}
			err := c.hello(plan.OK, &tls.Config{ServerName: sni, InsecureSkipVerify: true}, func(b []byte) []byte { return pad(b, 3000) })
			c.note("padded hello for %s: %v", sni, err)
		}
	}
	cases["T5"] = func(c *attempt) {
		conn, err := dial(plan.OK, 443)
		if err != nil {
			c.note("%v", err)
			return
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute))
		c.maybe()
		closed := make(chan error, 1)
		go func() { _, err := conn.Read(make([]byte, 1)); closed <- err }()
		slow := captureHello(&tls.Config{ServerName: plan.Evil, InsecureSkipVerify: true})
		for i := 0; ; i++ {
			select {
			case err := <-closed:
				c.twin("a slow hello is ended", nil)
				c.note("after %d bytes: %v", i, err)
				c.allowed(plan.OK)
				return
			case <-time.After(500 * time.Millisecond):
				if i < len(slow)-1 {
					conn.Write(slow[i : i+1])
				}
				if i > 100 {
					c.twin("a slow hello is ended", errors.New("it is still open after 50 s"))
					return
				}
			}
		}
	}
	cases["T6"] = func(c *attempt) {
		conn, err := dial(plan.OK, 443)
		if err == nil {
			c.act()
			_, err = exchange(conn, get(plan.OK, "/?c="+c.Bad))
			conn.Close()
		}
		c.note("HTTP on 443: %v", err)
		if conn, err = dial(plan.OK, 80); err == nil {
			c.act()
			var t *tls.Conn
			if t, err = secure(conn, plan.OK); err == nil {
				_, err = exchange(t, get(plan.OK, "/?c="+c.Bad))
			}
			conn.Close()
		}
		c.note("TLS on 80: %v", err)
		if conn, err = dial(plan.OK, 443); err == nil {
			c.act()
			io.WriteString(conn, "SSH-2.0-x "+c.Bad+"\r\n")
			_, err = conn.Read(make([]byte, 10))
			conn.Close()
		}
		c.note("SSH on 443: %v", err)
		c.twin("SMTP by a tcp rule", greeting(plan.Mail, 25, "220"))
		c.allowed(plan.OK)
	}
	cases["T7"] = func(c *attempt) {
		for _, host := range []string{plan.Expired, plan.Misnamed, plan.Unsigned} {
			c.maybe()
			a, err := c.over(host, host, get(host, "/?c="+c.Bad))
			c.note("%s: %v %v", host, a.status, err)
			if err == nil && a.ok() == nil {
				c.twin(host+" is refused", fmt.Errorf("status %d", a.status))
			}
		}
		c.allowed(plan.OK)
	}
	cases["T8"] = func(c *attempt) {
		h, err := openH2(plan.OK, plan.OK)
		if err != nil {
			c.twin("HTTP/2", err)
			return
		}
		defer h.Close()
		a, err := h.do("GET", plan.OK, "/?c="+c.Good, nil)
		c.twin("the first stream", errors.Join(err, a.ok()))
		for _, host := range []string{plan.Other, plan.Evil} {
			c.act()
			a, err = h.do("GET", host, "/?c="+c.Bad, nil)
			c.note("stream for %s: %v %v", host, a.status, err)
		}
		a, err = h.do("GET", plan.OK, "/?c="+c.Good, nil)
		c.twin("a later stream", errors.Join(err, a.ok()))
	}
	cases["T9"] = func(c *attempt) {
		for _, alpn := range []string{"foo", "http/0.9", "h3"} {
			c.maybe()
			conn, err := dial(plan.OK, 443)
			if err != nil {
				continue
			}
			t, err := secure(conn, plan.OK, alpn)
			if err == nil {
				_, err = exchange(t, c.Bad+"\r\n\r\n")
			}
			conn.Close()
			c.note("%s: %v", alpn, err)
		}
		h, err := openH2(plan.OK, plan.OK)
		if err == nil {
			var a answer
			a, err = h.do("GET", plan.OK, "/?c="+c.Good, nil)
			err = errors.Join(err, a.ok())
			h.Close()
		}
		c.twin("h2 alone", err)
	}
	cases["T10"] = func(c *attempt) {
		c.act()
		c.Most += 2 // what comes behind may be read as requests
		a, err := c.over(plan.OK, plan.OK, "CONNECT "+plan.Evil+":443 HTTP/1.1\r\nHost: "+plan.Evil+":443\r\n\r\n"+c.Bad)
		c.note("%v %v", a.status, err)
		c.act()
		a, err = c.over(plan.OK, plan.OK, "CONNECT "+plan.OK+":443 HTTP/1.1\r\nHost: "+plan.OK+":443\r\n\r\n"+c.Bad)
		c.note("%v %v", a.status, err)
		c.allowed(plan.OK)
	}
	cases["T11"] = func(c *attempt) {
		cache := &anySession{}
		for _, sni := range []string{plan.OK, plan.Evil} {
			conn, err := dial(plan.OK, 443)
			if err != nil {
				c.twin("dial", err)
				return
			}
			t := tls.Client(conn, &tls.Config{ServerName: sni, InsecureSkipVerify: true, ClientSessionCache: cache})
			canary := c.Good
			if sni == plan.Evil {
				c.act()
				canary = c.Bad
			}
			a, err := exchange(t, get(plan.OK, "/?c="+canary))
			conn.Close()
			if sni == plan.OK {
				c.twin("the first session", errors.Join(err, a.ok()))
			} else {
				c.note("resumed %v: %v %v", t.ConnectionState().DidResume, a.status, err)
			}
		}
	}
}

// anySession gives the last session for every name.
type anySession struct{ last *tls.ClientSessionState }

func (s *anySession) Get(string) (*tls.ClientSessionState, bool)  { return s.last, s.last != nil }
func (s *anySession) Put(_ string, state *tls.ClientSessionState) { s.last = state }

// hello begins TLS with a hello that change works on, and then sends the bad
// canary if it gets so far.
func (c *attempt) hello(host string, conf *tls.Config, change func([]byte) []byte) error {
	conn, err := dial(host, 443)
	if err != nil {
		return err
	}
	defer conn.Close()
	t := tls.Client(&changed{Conn: conn, change: change}, conf)
	if err := t.Handshake(); err != nil {
		return err
	}
	a, err := exchange(t, get(conf.ServerName, "/?c="+c.Bad))
	return errors.Join(err, a.ok())
}

// changed works on what is written first.
type changed struct {
	net.Conn
	change func([]byte) []byte
}

func (c *changed) Write(p []byte) (int, error) {
	if c.change == nil {
		return c.Conn.Write(p)
	}
	b := c.change(p)
	c.change = nil
	if _, err := c.Conn.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}

// fragments splits the first flight into small records or segments.
type fragments struct {
	net.Conn
	record, segment int
	done            bool
}

func (f *fragments) Write(p []byte) (int, error) {
	if f.done {
		return f.Conn.Write(p)
	}
	f.done = true
	b := p
	if f.record > 0 {
		const header = 5
		b = nil
		for body := p[header:]; len(body) > 0; {
			n := min(f.record, len(body))
			b = append(append(b, p[0], p[1], p[2], 0, byte(n)), body[:n]...)
			body = body[n:]
		}
	}
	size := len(b)
	if f.segment > 0 {
		f.Conn.(*net.TCPConn).SetNoDelay(true)
		size = f.segment
	}
	for len(b) > 0 {
		n := min(size, len(b))
		if _, err := f.Conn.Write(b[:n]); err != nil {
			return 0, err
		}
		b = b[n:]
	}
	return len(p), nil
}

// captureHello gives the bytes of a ClientHello.
func captureHello(conf *tls.Config) []byte {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go tls.Client(a, conf).Handshake()
	buf := make([]byte, 16<<10)
	n, _ := b.Read(buf)
	return buf[:n]
}

// pad puts a padding extension (RFC 7685) before all others of a ClientHello in
// one record.
func pad(record []byte, n int) []byte {
	const recordHeader, messageHeader, versionRandom = 5, 4, 34
	b := record[recordHeader:]
	at := messageHeader + versionRandom
	at += 1 + int(b[at])                           // session
	at += 2 + int(binary.BigEndian.Uint16(b[at:])) // cipher suites
	at += 1 + int(b[at])                           // compression
	extensions := int(binary.BigEndian.Uint16(b[at:]))
	var out bytes.Buffer
	out.Write(b[:at])
	binary.Write(&out, binary.BigEndian, uint16(extensions+n+4))
	binary.Write(&out, binary.BigEndian, []uint16{21, uint16(n)})
	out.Write(make([]byte, n))
	out.Write(b[at+2:])
	m := out.Bytes()
	size := len(m) - messageHeader
	m[1], m[2], m[3] = byte(size>>16), byte(size>>8), byte(size)
	return append([]byte{record[0], record[1], record[2], byte(len(m) >> 8), byte(len(m))}, m...)
}

// echConfig makes a list of one ECH configuration (RFC 9849, section 4) whose
// outer name is public.
func echConfig(public string) []byte {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	const x25519, sha256, aes128 = 0x20, 1, 1
	var contents bytes.Buffer
	contents.Write([]byte{7, 0, x25519, 0, 32})
	contents.Write(key.PublicKey().Bytes())
	contents.Write([]byte{0, 4, 0, sha256, 0, aes128, 32, byte(len(public))})
	contents.WriteString(public)
	contents.Write([]byte{0, 0})
	body := contents.Bytes()
	config := append([]byte{0xfe, 0x0d, byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{byte(len(config) >> 8), byte(len(config))}, config...)
}
