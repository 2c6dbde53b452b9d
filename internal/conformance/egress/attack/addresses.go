package main

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

func at(addr string, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port))
}

// spelt gives the name that has an address.
func spelt(addr string) string {
	a := netip.MustParseAddr(addr)
	if a.Is4() {
		return "v4-" + strings.ReplaceAll(addr, ".", "-") + "." + plan.Range
	}
	b := a.As16()
	return "v6-" + hex.EncodeToString(b[:]) + "." + plan.Range
}

// special has an address of each block of the IANA special-purpose registries
// that no gate may dial, and addresses that hold such an address.
var special = []string{
	"0.0.0.0", "0.1.2.3", "10.0.0.5", "10.255.255.255", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.200.0.1", "169.254.0.1", "172.16.0.1", "172.31.255.254",
	"192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.254", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.5", "::ffff:169.254.169.254", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "100::1", "2001::1", "2001:2::1", "2001:10::1",
	"2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::", "3fff::1", "5f00::1", "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1", "ff02::1", "::7f00:1", "::a00:5",
}

// metadata has the addresses of clouds' metadata services.
var metadata = []string{"169.254.169.254", "fd00:ec2::254", "100.100.100.200", "169.254.170.2"}

func init() {
	cases["I1"] = func(c *attempt) {
		for _, a := range metadata {
			c.act()
			c.note("%s: %v", a, second(raw(at(a, 80), get(a, "/latest/meta-data/?c="+c.Bad))))
			c.act()
			c.tunnel(netip.AddrPortFrom(netip.MustParseAddr(a), 80).String(), a)
			c.act()
			r, err := c.plain(spelt(a), get(spelt(a), "/?c="+c.Bad))
			c.note("by name: %v %v", r.status, err)
		}
		c.act()
		c.tunnel("metadata.google.internal:80", "metadata.google.internal")
		c.rangeTwin()
	}
	cases["I2"] = func(c *attempt) {
		for _, a := range special {
			c.act()
			r, err := c.plain(spelt(a), get(spelt(a), "/?c="+c.Bad))
			if err == nil && r.ok() == nil {
				c.note("%s: %v", a, r.status)
			}
		}
		c.rangeTwin()
	}
	cases["I3"] = func(c *attempt) {
		for _, a := range []string{plan.HostOwn4.String(), plan.HostOwn6.String(), "100.64.7.1", "fd64:7::1"} {
			c.act()
			c.note("%s: %v", a, second(raw(at(a, plan.HostService), c.Bad)))
			c.act()
			c.tunnel(netip.AddrPortFrom(netip.MustParseAddr(a), plan.HostService).String(), a)
			c.act()
			r, err := c.plain(spelt(a), get(spelt(a), "/?c="+c.Bad))
			c.note("by name: %v %v", r.status, err)
		}
		c.rangeTwin()
	}
	cases["I4"] = func(c *attempt) {
		for _, a := range []string{"198.18.0.1", "fdba:11e4::1"} {
			for _, port := range []uint16{3128, 53} {
				c.act()
				c.tunnel(netip.AddrPortFrom(netip.MustParseAddr(a), port).String(), plan.Evil)
			}
			c.act()
			r, err := c.viaProxy("GET http://" + netip.AddrPortFrom(netip.MustParseAddr(a), 3128).String() + "/?c=" + c.Bad + " HTTP/1.1\r\nHost: " + netip.AddrPortFrom(netip.MustParseAddr(a), 3128).String() + "\r\n\r\n")
			c.note("%s: %v %v", a, r.status, err)
			c.act()
			r, err = c.plain(spelt(a), get(spelt(a), "/?c="+c.Bad))
			c.note("by name: %v %v", r.status, err)
		}
		c.allowed(plan.OK)
	}
	cases["I5"] = func(c *attempt) {
		for _, a := range []string{"2606:4700::1111", "2a00:510::1", "fd66::1"} {
			c.act()
			c.note("%s: %v", a, second(raw(at(a, 80), get(plan.Evil, "/?c="+c.Bad))))
		}
		a, err := resolve(plan.OK, dns.TypeAAAA)
		if err == nil {
			var s string
			s, err = raw(netip.AddrPortFrom(a, 80), get(plan.OK, "/?c="+c.Good))
			if err == nil && !strings.HasPrefix(s, "HTTP/1.1 200") {
				err = errors.New(s)
			}
		}
		c.twin("by IPv6", err)
	}
}

// rangeTwin asks for a name that spells a public address.
func (c *attempt) rangeTwin() {
	name := spelt(plan.Address4(plan.Range).String())
	a, err := c.plain(name, get(name, "/?c="+c.Good))
	c.twin("a name with a public address", errors.Join(err, a.ok()))
}
