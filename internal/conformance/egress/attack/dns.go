package main

import (
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

func init() {
	cases["D1"] = func(c *attempt) {
		// Each question has a name of its own, so that each is a record.
		for i, kind := range []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeTXT, dns.TypeNULL, dns.TypeMX, dns.TypeHTTPS, dns.TypeANY} {
			c.act()
			a, err := ask("udp", server, fmt.Sprintf("n%d.%s.%s", i, c.Bad, plan.Evil), kind)
			if err == nil && len(a.Answer) > 0 {
				c.note("answered: %v", a.Answer)
			}
		}
		c.act()
		c.note("over TCP: %v", second(ask("tcp", server, "tcp."+c.Bad+"."+plan.Evil, dns.TypeA)))
		c.act()
		coded := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString([]byte(c.Bad)))
		c.note("base32: %v", second(ask("udp", server, coded[:32]+"."+coded[32:]+"."+plan.Evil, dns.TypeA)))
		_, err := resolve(plan.OK, dns.TypeA)
		c.twin("an allowed name", err)
		c.allowed(plan.OK)
	}
	cases["D2"] = func(c *attempt) {
		for i := range 5 {
			c.note("%v", second(resolve(fmt.Sprintf("%s%d.%s", c.Bad, i, plan.Apex), dns.TypeA)))
			c.note("%v", second(ask("udp", server, fmt.Sprintf("%s.b%d.%s", c.Bad, i, plan.DeepApex), dns.TypeTXT)))
		}
		c.Most += 10 // a type that the gate does not answer may be noted as refused
		c.allowed(plan.OneLabel)
	}
	cases["D3"] = func(c *attempt) {
		for i, network := range []string{"udp", "tcp"} {
			for j, s := range []string{"8.8.8.8", "1.1.1.1", "2001:4860:4860::8888", "9.9.9.53"} {
				c.act()
				a, err := ask(network, s, fmt.Sprintf("d%d%d.%s.%s", i, j, c.Bad, plan.Evil), dns.TypeA)
				c.note("%s %s: %v %v", network, s, a, err)
			}
		}
		c.act()
		c.note("DoT: %v", second(raw(at("8.8.8.8", 853), c.Bad)))
		c.act()
		c.tunnel("dns.google:443", "dns.google")
		c.datagram("224.0.0.251", 5353, c.Bad)
		c.datagram("224.0.0.252", 5355, c.Bad)
		c.datagram("ff02::fb", 5353, c.Bad)
		a, err := ask("udp", "8.8.8.8", plan.OK, dns.TypeA)
		if err == nil && len(a.Answer) == 0 {
			err = errors.New("no answer")
		}
		c.twin("another name server's address leads to the gate", err)
		c.allowed(plan.OK)
	}
	cases["D4"] = func(c *attempt) {
		for i := range 6 {
			c.maybe()
			a, err := c.plain(plan.Rebinds, get(plan.Rebinds, "/?c="+c.Good))
			c.note("%d: %v %v", i, a.status, err)
			if i == 0 {
				c.twin("while the address is public", errors.Join(err, a.ok()))
			}
		}
		c.act()
		a, err := c.plain(plan.Alias, get(plan.Alias, "/?c="+c.Bad))
		c.note("CNAME to a private address: %v %v", a.status, err)
	}
	cases["D5"] = func(c *attempt) {
		for range 4 {
			c.maybe()
			a, err := c.over(plan.Mixed, plan.Mixed, get(plan.Mixed, "/?c="+c.Good))
			c.note("%v %v", a.status, err)
		}
		c.allowed(plan.OK)
	}
	cases["D6"] = func(c *attempt) {
		c.Most++
		for _, kind := range []uint16{dns.TypeHTTPS, dns.TypeSVCB} {
			a, err := ask("udp", server, plan.Hints, kind)
			if err == nil && len(a.Answer) > 0 {
				err = fmt.Errorf("it has records: %v", a.Answer)
			}
			c.twin("no hints", err)
		}
		c.allowed(plan.Hints)
	}
}
