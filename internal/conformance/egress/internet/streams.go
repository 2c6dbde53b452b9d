//go:build linux

package internet

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// speak is what a port does with a connection.
func (w *World) speak(c *recorded, port int) {
	w.mu.Lock()
	f := w.streams[fmt.Sprintf("%s:%d", c.e.Host, port)]
	w.mu.Unlock()
	if f != nil {
		defer c.Close()
		f(c)
		return
	}
	switch port {
	case 443, 8443, 853, 465, 993:
		w.speakTLS(c, c)
	case 80, 8000, 8080:
		hand(w.h1, c)
	case 3128:
		w.openProxy(c)
	case 53:
		w.nameStream(c)
	case 25:
		banner(c, "220 mail.test ESMTP\r\n")
	case 21:
		banner(c, "220 ftp ready\r\n")
	case 22:
		banner(c, "SSH-2.0-Fake\r\n")
	case 5432:
		defer c.Close()
		postgres(c)
	default:
		banner(c, "")
	}
}

// hand gives a connection to a server of HTTP.
func hand(to chan<- net.Conn, c net.Conn) {
	select {
	case to <- c:
	case <-time.After(10 * time.Second):
		c.Close()
	}
}

// openProxy lets everybody reach everything by CONNECT and SOCKS5, which without a
// gate an attack would be glad of; what comes then is answered here.
func (w *World) openProxy(c *recorded) {
	b := &ahead{recorded: *c, r: bufio.NewReader(c)}
	first, err := b.r.Peek(1)
	if err != nil {
		c.Close()
		return
	}
	switch first[0] {
	case 'C':
		for line := ""; line != "\r\n"; {
			if line, err = b.r.ReadString('\n'); err != nil {
				c.Close()
				return
			}
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	case 5:
		const most = 262
		request := make([]byte, 5, most)
		io.CopyN(io.Discard, b.r, 3)
		c.Write([]byte{5, 0})
		if _, err := io.ReadFull(b.r, request); err != nil {
			c.Close()
			return
		}
		io.CopyN(io.Discard, b.r, int64(request[4])+2)
		c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	default:
		hand(w.h1, b)
		return
	}
	if first, err = b.r.Peek(1); err == nil && first[0] == 0x16 {
		w.speakTLS(c, b)
		return
	}
	hand(w.h1, b)
}

// ahead is a connection of which something was read already.
type ahead struct {
	recorded
	r *bufio.Reader
}

func (a *ahead) Read(p []byte) (int, error) { return a.r.Read(p) }

// speakTLS is HTTP over TLS: with the certificate of the host whose address it
// is, and at an address of no host with the one that the client would like.
func (w *World) speakTLS(c *recorded, from net.Conn) {
	conf := &tls.Config{NextProtos: []string{"h2", "http/1.1"}, GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		w.Record.update(c.e, func(e *Event) { e.SNI = h.ServerName })
		switch c.e.Host {
		case "":
			if h.ServerName == "" {
				return w.CA.leaf(plan.Evil, sound)
			}
			return w.CA.leaf(h.ServerName, sound)
		case plan.Expired:
			return w.CA.leaf(c.e.Host, expired)
		case plan.Unsigned:
			return w.CA.leaf(c.e.Host, unsigned)
		case plan.Misnamed:
			return w.CA.leaf(plan.Other, sound)
		case plan.Range:
			return w.CA.leaf(h.ServerName, sound)
		}
		return w.CA.leaf(c.e.Host, sound)
	}}
	t := tls.Server(from, conf)
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if err := t.Handshake(); err != nil {
		c.Close()
		return
	}
	c.SetDeadline(time.Time{})
	inner := w.Record.add(Event{Kind: "tls", Host: c.e.Host, To: c.e.To, From: c.e.From, SNI: t.ConnectionState().ServerName, Proto: t.ConnectionState().NegotiatedProtocol})
	plain := &opened{recorded{t, w, inner}, c}
	if t.ConnectionState().NegotiatedProtocol == "h2" {
		hand(w.h2, plain)
		return
	}
	hand(w.h1, plain)
}

// opened is what is inside a TLS connection.
type opened struct {
	recorded
	outer *recorded
}

func (c *opened) Close() error {
	c.recorded.Conn.Close()
	return c.outer.Close()
}

// banner greets and then says every line back.
func banner(c net.Conn, greeting string) {
	defer c.Close()
	io.WriteString(c, greeting)
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		if _, err := fmt.Fprintf(c, "250 %s\r\n", lines.Text()); err != nil {
			return
		}
	}
}

func (w *World) datagrams(c *net.UDPConn, port int) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := c.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		w.Record.add(Event{Kind: "udp", To: netip.AddrPortFrom(netip.Addr{}, uint16(port)), From: from, Text: string(buf[:n])})
	}
}
