package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

func init() {
	cases["P1"] = func(c *attempt) {
		for _, a := range []string{"8.8.8.8", plan.Address4(plan.Evil).String(), plan.Address4(plan.OK).String(), "2606:4700::1111"} {
			for _, host := range []string{plan.Evil, plan.OK} {
				c.act()
				c.note("HTTP to %s for %s: %v", a, host, second(raw(at(a, 80), get(host, "/?c="+c.Bad))))
				c.act()
				conn, err := to(at(a, 443))
				if err == nil {
					t, terr := secure(conn, host)
					if err = terr; err == nil {
						_, err = exchange(t, get(host, "/?c="+c.Bad))
					}
					conn.Close()
				}
				c.note("HTTPS to %s for %s: %v", a, host, err)
			}
		}
		c.allowed(plan.OK)
	}
	cases["P2"] = func(c *attempt) {
		for _, a := range []string{"8.8.8.8", plan.Address4(plan.OK).String(), "2606:4700::1111", plan.HostOwn4.String()} {
			c.datagram(a, 443, c.Bad)
			c.datagram(a, 123, c.Bad)
		}
		if a, err := resolve(plan.OK, dns.TypeA); err == nil {
			c.datagram(a.String(), 443, c.Bad)
		}
		for _, s := range []struct {
			name                string
			family, kind, proto int
		}{
			{"ping", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP}, {"ping of IPv6", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
			{"raw ICMP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP}, {"GRE", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_GRE},
			{"SCTP", unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_SCTP}, {"UDP-Lite", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
			{"any IP", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW}, {"DCCP", unix.AF_INET, unix.SOCK_DCCP, unix.IPPROTO_DCCP},
			{"packets", unix.AF_PACKET, unix.SOCK_RAW, 0x0300},
		} {
			c.note("%s: %v", s.name, c.socket(s.family, s.kind, s.proto))
		}
		c.allowed(plan.OK)
	}
	cases["P3"] = func(c *attempt) {
		for _, port := range []int{22, 25, 465, 5432, 6667, 8080, 8443, 9418} {
			c.act()
			conn, err := dial(plan.OK, port)
			if err == nil {
				fmt.Fprintf(conn, "%s\r\n\r\n", c.Bad)
				_, err = conn.Read(make([]byte, 16))
				conn.Close()
			}
			c.note("%d: %v", port, err)
		}
		conn, err := dial(plan.Ported, 8443)
		if err == nil {
			t, terr := secure(conn, plan.Ported)
			if err = terr; err == nil {
				var a answer
				a, err = exchange(t, get(plan.Ported+":8443", "/?c="+c.Good))
				err = errors.Join(err, a.ok())
			}
			conn.Close()
		}
		c.twin("port 8443 by a rule", err)
	}
	cases["P4"] = func(c *attempt) {
		for _, a := range []string{"8.8.8.8", plan.Address4(plan.Mail).String(), "198.18.200.200"} {
			c.act()
			c.note("%s: %v", a, second(raw(at(a, 25), "HELO "+c.Bad+"\r\n")))
		}
		c.act()
		c.note("by SOCKS: %v", second(c.socks("8.8.8.8", 25, c.Bad)))
		conn, err := dial(plan.Mail, 25)
		if err == nil {
			buf := make([]byte, 256)
			if _, err = conn.Read(buf); err == nil {
				fmt.Fprintf(conn, "HELO %s\r\n", c.Good)
				var n int
				if n, err = conn.Read(buf); !strings.Contains(string(buf[:n]), c.Good) {
					err = errors.Join(err, fmt.Errorf("%q came back", buf[:n]))
				}
			}
			conn.Close()
		}
		c.twin("SMTP by a tcp rule", err)
	}
	cases["P5"] = func(c *attempt) {
		c.act()
		c.note("%v", greeting(plan.OK, 22, "SSH"))
		c.act()
		c.tunnel(plan.OK+":22", plan.OK)
		c.act()
		c.tunnel(plan.Git+":22", plan.Git)
		c.twin("SSH by a tcp rule", greeting(plan.Shell, 22, "SSH"))
		c.allowed(plan.OK)
	}
	cases["P6"] = func(c *attempt) {
		c.act()
		c.note("FTP: %v", greeting(plan.OK, 21, "220"))
		c.datagram("8.8.8.8", 3478, "\x00\x01\x00\x00\x21\x12\xa4\x42"+c.Bad)
		c.act()
		c.note("a SOCKS server elsewhere: %v", second(raw(at("8.8.8.8", 1080), "\x05\x01\x00"+c.Bad)))
		c.act()
		c.note("a proxy elsewhere: %v", second(raw(at("8.8.8.8", 3128), "CONNECT "+c.Bad+" HTTP/1.1\r\n\r\n")))
		c.allowed(plan.OK)
	}
	cases["P7"] = func(c *attempt) {
		c.datagram("8.8.8.8", 4000, strings.Repeat(c.Bad, 500))
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			const recordRoute, room = 7, 11
			err = unix.SetsockoptString(fd, unix.IPPROTO_IP, unix.IP_OPTIONS, string([]byte{recordRoute, room, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0}))
			c.note("options: %v", errors.Join(err, unix.Sendto(fd, []byte(c.Bad), 0, &unix.SockaddrInet4{Port: 4000, Addr: [4]byte{8, 8, 8, 8}})))
			unix.Close(fd)
		}
		c.allowed(plan.OK)
	}
}

// datagram sends one to an address.
func (c *attempt) datagram(addr string, port int, text string) {
	conn, err := net.Dial("udp", netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port)).String())
	if err == nil {
		_, err = conn.Write([]byte(text))
		conn.Close()
	}
	c.note("a datagram to %s port %d: %v", addr, port, err)
}

// socket makes a socket of a kind and sends the bad canary by it to addresses of
// the fake internet.
func (c *attempt) socket(family, kind, proto int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, proto)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	echo := "\x08\x00\x00\x00\x00\x01\x00\x01" + c.Bad
	switch family {
	case unix.AF_INET:
		a := &unix.SockaddrInet4{Port: 443, Addr: [4]byte{8, 8, 8, 8}}
		if kind == unix.SOCK_STREAM || kind == unix.SOCK_DCCP {
			return unix.Connect(fd, a)
		}
		return unix.Sendto(fd, []byte(echo), 0, a)
	case unix.AF_INET6:
		return unix.Sendto(fd, []byte("\x80"+echo[1:]), 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr("2606:4700::1111").As16()})
	}
	links, _ := net.Interfaces()
	for _, l := range links {
		err = unix.Sendto(fd, []byte(c.Bad+c.Bad), 0, &unix.SockaddrLinklayer{Protocol: 0x0008, Ifindex: l.Index, Halen: 6})
	}
	return err
}
