package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// patience bounds every step; ATTACK_PATIENCE is another, as in 2s.
var patience = func() time.Duration {
	if d, err := time.ParseDuration(os.Getenv("ATTACK_PATIENCE")); err == nil {
		return d
	}
	return 8 * time.Second
}()

// server is the name server of resolv.conf.
var server = func() string {
	conf, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil || len(conf.Servers) == 0 {
		return "198.18.0.1"
	}
	return conf.Servers[0]
}()

// ask sends one question to a name server.
func ask(network, server, name string, kind uint16) (*dns.Msg, error) {
	m := new(dns.Msg)
	m.SetQuestion(dns.Fqdn(name), kind)
	client := &dns.Client{Net: network, Timeout: patience / 4}
	a, _, err := client.Exchange(m, net.JoinHostPort(server, "53"))
	return a, err
}

// resolve gives a name's address of one family.
func resolve(name string, kind uint16) (netip.Addr, error) {
	a, err := ask("udp", server, name, kind)
	if err != nil {
		return netip.Addr{}, err
	}
	for _, rr := range a.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			ip, _ := netip.AddrFromSlice(rr.A.To4())
			return ip, nil
		case *dns.AAAA:
			ip, _ := netip.AddrFromSlice(rr.AAAA)
			return ip, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s: %s", name, dns.RcodeToString[a.Rcode])
}

// to connects to an address.
func to(a netip.AddrPort) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", a.String(), patience)
	if err != nil {
		return nil, err
	}
	c.SetDeadline(time.Now().Add(patience))
	return c, nil
}

// dial connects to a name.
func dial(name string, port int) (net.Conn, error) {
	ip, err := resolve(name, dns.TypeA)
	if err != nil {
		return nil, err
	}
	return to(netip.AddrPortFrom(ip, uint16(port)))
}

// secure begins TLS and believes every certificate, as an attacker does.
func secure(c net.Conn, sni string, alpn ...string) (*tls.Conn, error) {
	t := tls.Client(c, &tls.Config{ServerName: sni, InsecureSkipVerify: true, NextProtos: alpn})
	if err := t.Handshake(); err != nil {
		c.Close()
		return nil, err
	}
	return t, nil
}

// answer is what came back for a request.
type answer struct {
	status int
	header http.Header
	body   string
}

func (a answer) ok() error {
	if a.status < 200 || a.status > 299 {
		return fmt.Errorf("status %d: %.200s", a.status, a.body)
	}
	return nil
}

// exchange sends text and reads an answer of HTTP/1.
func exchange(c net.Conn, text string) (a answer, err error) {
	if _, err := io.WriteString(c, text); err != nil {
		// What was answered before the connection broke counts.
		if a, rerr := read(bufio.NewReader(c), text); rerr == nil {
			return a, nil
		}
		return a, err
	}
	return read(bufio.NewReader(c), text)
}

func read(r *bufio.Reader, text string) (a answer, err error) {
	method, _, _ := strings.Cut(text, " ")
	var resp *http.Response
	for resp == nil || resp.StatusCode == http.StatusContinue {
		if resp, err = http.ReadResponse(r, &http.Request{Method: method}); err != nil {
			return a, err
		}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	for name, v := range resp.Trailer {
		resp.Header["Trailer-"+name] = v
	}
	return answer{resp.StatusCode, resp.Header, string(body)}, err
}

// plain sends a request to port 80 of a host.
func (c *attempt) plain(host, text string) (answer, error) {
	conn, err := dial(host, 80)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	return exchange(conn, text)
}

// over sends a request to port 443 of a host, as TLS with an SNI.
func (c *attempt) over(host, sni, text string) (answer, error) {
	conn, err := dial(host, 443)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	t, err := secure(conn, sni)
	if err != nil {
		return answer{}, err
	}
	return exchange(t, text)
}

// get is a well-formed request for a path.
func get(host, path string, header ...string) string {
	return request("GET", host, path, "", header...)
}

func request(method, host, path, body string, header ...string) string {
	s := method + " " + path + " HTTP/1.1\r\nHost: " + host + "\r\n"
	for _, h := range header {
		s += h + "\r\n"
	}
	if body != "" {
		s += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return s + "Connection: close\r\n\r\n" + body
}

// strict sends a request over TLS with a certificate that must be right.
func (c *attempt) strict(host, text string) (answer, error) {
	conn, err := dial(host, 443)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	t := tls.Client(conn, &tls.Config{ServerName: host, RootCAs: roots()})
	if err := t.Handshake(); err != nil {
		return answer{}, err
	}
	return exchange(t, text)
}

// allowed is a twin: a request for a host that must be answered.
func (c *attempt) allowed(host string) {
	a, err := c.strict(host, get(host, "/twin?c="+c.Good))
	c.twin("GET https://"+host, errors.Join(err, a.ok()))
}

// connect asks the proxy for a tunnel and gives it, or its refusal's status.
func connect(target string) (net.Conn, int, error) {
	c, err := to(proxy)
	if err != nil {
		return nil, 0, err
	}
	if _, err := io.WriteString(c, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n"); err != nil {
		c.Close()
		return nil, 0, err
	}
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, &http.Request{Method: "CONNECT"})
	if err != nil || resp.StatusCode != http.StatusOK {
		c.Close()
		if err == nil {
			return nil, resp.StatusCode, errors.New(resp.Status)
		}
		return nil, 0, err
	}
	return &buffered{c, r}, resp.StatusCode, nil
}

type buffered struct {
	net.Conn
	r *bufio.Reader
}

func (b *buffered) Read(p []byte) (int, error) { return b.r.Read(p) }

// tunnel tries to send the bad canary to a target through the proxy, in all ways
// that the tunnel takes.
func (c *attempt) tunnel(target, sni string) {
	conn, status, err := connect(target)
	if err != nil {
		c.note("CONNECT %q: %d %v", target, status, err)
		return
	}
	defer conn.Close()
	if _, port, _ := net.SplitHostPort(target); port != "443" && port != "8443" {
		a, err := exchange(conn, get(sni, "/?c="+c.Bad))
		c.note("CONNECT %q, then HTTP: %v %v", target, a.status, err)
		return
	}
	t, err := secure(conn, sni)
	if err != nil {
		c.note("CONNECT %q, then TLS for %q: %v", target, sni, err)
		return
	}
	a, err := exchange(t, get(sni, "/?c="+c.Bad))
	c.note("CONNECT %q, then HTTPS for %q: %v %v", target, sni, a.status, err)
}

// socks asks the proxy by SOCKS5 (RFC 1928) for a name and tries to send the bad
// canary.
func (c *attempt) socks(name string, port int, text string) (answer, error) {
	conn, err := to(proxy)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	const version, none, connectCommand, domain = 5, 0, 1, 3
	conn.Write([]byte{version, 1, none})
	var choice [2]byte
	if _, err := io.ReadFull(conn, choice[:]); err != nil {
		return answer{}, err
	}
	conn.Write(append(append([]byte{version, connectCommand, 0, domain, byte(len(name))}, name...), byte(port>>8), byte(port)))
	var reply [4]byte
	if _, err := io.ReadFull(conn, reply[:]); err != nil {
		return answer{}, err
	}
	if reply[1] != 0 {
		return answer{}, fmt.Errorf("SOCKS reply %d", reply[1])
	}
	if _, err := io.CopyN(io.Discard, conn, map[byte]int64{1: 6, 4: 18}[reply[3]]); err != nil {
		return answer{}, err
	}
	if port == 443 {
		t, err := secure(conn, strings.TrimRight(name, "."))
		if err != nil {
			return answer{}, err
		}
		return exchange(t, text)
	}
	return exchange(conn, text)
}

// raw sends text to an address and gives what comes back first.
func raw(a netip.AddrPort, text string) (string, error) {
	conn, err := to(a)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, text); err != nil {
		return "", err
	}
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

// greeting reads the line that a server begins with.
func greeting(host string, port int, want string) error {
	conn, err := dial(host, port)
	if err != nil {
		return err
	}
	defer conn.Close()
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if !bytes.HasPrefix(buf[:n], []byte(want)) {
		return fmt.Errorf("%q: %w", buf[:n], err)
	}
	return nil
}

// environ gives a placeholder.
func environ(name string) string { return os.Getenv(name) }
