package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

func init() {
	// The suite ends the gate in the middle of this.
	cases["A7"] = func(c *attempt) {
		a, err := c.strict(plan.OK, get(plan.OK, "/?c="+c.Good))
		c.twin("before", errors.Join(err, a.ok()))
		held, err := dial(plan.OK, 80)
		if err != nil {
			c.twin("a connection that is held", err)
			return
		}
		defer held.Close()
		fmt.Fprintf(held, "GET /before HTTP/1.1\r\nHost: %s\r\n\r\n", plan.OK)
		for begin := time.Now(); time.Since(begin) < 20*time.Second; {
			if a, err := c.plain(plan.OK, get(plan.OK, "/alive")); err != nil || a.status != 200 {
				break
			}
		}
		for range 5 {
			fmt.Fprintf(held, "GET /?c=%s HTTP/1.1\r\nHost: %s\r\n\r\n", c.Bad, plan.OK)
			c.note("%v", second(c.plain(plan.OK, get(plan.OK, "/?c="+c.Bad))))
			c.note("%v", second(c.over(plan.OK, plan.OK, get(plan.OK, "/?c="+c.Bad))))
			c.tunnel(plan.OK+":443", plan.OK)
			c.note("%v", second(raw(at("8.8.8.8", 80), c.Bad)))
			c.datagram("8.8.8.8", 443, c.Bad)
		}
	}
	// The suite takes rules away while connections are open that they allowed.
	cases["A5"] = func(c *attempt) {
		var held []io.ReadWriteCloser
		hold := func(what string, conn io.ReadWriteCloser, first string, err error) {
			if err == nil {
				held = append(held, conn)
				if _, err = io.WriteString(conn, first); err == nil {
					_, err = conn.Read(make([]byte, 4096))
				}
			}
			c.twin(what, err)
		}
		first := func(host string) string { return "GET /?c=" + c.Good + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
		long := func(host string, port int) (net.Conn, error) {
			conn, err := dial(host, port)
			if err == nil {
				conn.SetDeadline(time.Now().Add(time.Minute))
			}
			return conn, err
		}
		conn, err := long(plan.OK, 80)
		hold("HTTP", conn, first(plan.OK), err)
		for _, host := range []string{plan.OK, plan.Spliced} {
			conn, err := long(host, 443)
			var t *tls.Conn
			if err == nil {
				t, err = secure(conn, host)
			}
			hold("TLS to "+host, t, first(host), err)
		}
		conn, err = long(plan.Mail, 25)
		hold("SMTP", conn, "HELO "+c.Good+"\r\n", err)
		stream, err := openH2(plan.OK, plan.OK)
		if err == nil {
			stream.SetDeadline(time.Now().Add(time.Minute))
			if err = stream.begin("POST", plan.OK, "/echo.Echo/Chat", false, field("content-type", "application/grpc")); err == nil {
				m := message(c.Good)
				if err = stream.framer.WriteData(stream.stream, false, []byte(m)); err == nil {
					err = stream.await(m)
				}
			}
		}
		c.twin("a stream of HTTP/2", err)
		c.plain(plan.Marker, get(plan.Marker, "/ready/"+c.ID))
		c.act()
		for begin := time.Now(); ; {
			a, err := c.plain(plan.OK, get(plan.OK, "/alive"))
			if err != nil || a.status != 200 {
				break
			}
			if time.Since(begin) > 30*time.Second {
				c.twin("the rules are taken away", errors.New("they still hold"))
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		// Within a second what is open ends, which the log has, too.
		time.Sleep(time.Second)
		c.Most += 20
		for _, conn := range held {
			_, err := io.WriteString(conn, "GET /?c="+c.Bad+" HTTP/1.1\r\nHost: "+plan.OK+"\r\n\r\n")
			c.note("%v", err)
			conn.Close()
		}
		if stream != nil {
			c.note("%v", stream.framer.WriteData(stream.stream, false, []byte(message(c.Bad))))
			a, err := stream.do("GET", plan.OK, "/?c="+c.Bad, nil)
			c.note("%v %v", a.status, err)
			stream.Close()
		}
		c.note("%v", second(c.over(plan.OK, plan.OK, get(plan.OK, "/?c="+c.Bad))))
		a, err := c.strict(plan.Unbound, get(plan.Unbound, "/?c="+c.Good))
		c.twin("what is still allowed", errors.Join(err, a.ok()))
	}
	// FOREIGN_KEY and FOREIGN_CA are another sandbox's.
	cases["A9"] = func(c *attempt) {
		c.act()
		c.send("another sandbox's placeholder", plan.Provider, request("POST", plan.Provider, "/v1/chat", "{}", "X-Canary: "+c.Bad, "Authorization: Bearer "+os.Getenv("FOREIGN_KEY")))
		c.act()
		a, err := c.viaProxy("GET http://" + plan.Evil + "/?c=" + c.Bad + " HTTP/1.1\r\nHost: " + plan.Evil + "\r\nProxy-Authorization: Bearer " + os.Getenv("FOREIGN_KEY") + "\r\nConnection: close\r\n\r\n")
		c.note("%v %v", a.status, err)
		c.twin("its own", c.send("its own", plan.Provider, request("POST", plan.Provider, "/v1/chat", "{}", "X-Canary: "+c.Good, "Authorization: Bearer "+environ("PROVIDER_KEY"))))
	}
	cases["K2"] = func(c *attempt) {
		text, err := os.ReadFile(os.Getenv("FOREIGN_CA"))
		if err != nil {
			c.twin("another sandbox's authority", err)
			return
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			c.twin("another sandbox's authority", errors.New("it holds no certificate"))
		}
		conn, err := dial(plan.OK, 443)
		if err == nil {
			c.maybe()
			if err = tls.Client(conn, &tls.Config{ServerName: plan.OK, RootCAs: pool}).Handshake(); err == nil {
				err = errors.New("another sandbox's authority has signed this sandbox's certificates")
			} else if strings.Contains(err.Error(), "unknown authority") {
				err = nil
			}
			conn.Close()
		}
		c.twin("the authorities differ", err)
		c.allowed(plan.OK)
	}
	// Nothing is allowed at all, or there is no gate.
	cases["T50"] = func(c *attempt) {
		for _, host := range []string{plan.OK, plan.Evil} {
			c.note("%v", second(c.plain(host, get(host, "/?c="+c.Bad))))
			c.note("%v", second(ask("tcp", "8.8.8.8", c.Bad+"."+host, 1)))
			c.tunnel(host+":443", host)
			c.note("%v", second(c.socks(host, 80, get(host, "/?c="+c.Bad))))
		}
		for _, a := range []string{"8.8.8.8", plan.Address4(plan.OK).String(), plan.HostOwn4.String(), "2606:4700::1111", plan.Address6(plan.OK).String()} {
			c.note("%v", second(raw(at(a, 80), c.Bad)))
			c.datagram(a, 443, c.Bad)
			c.datagram(a, 53, c.Bad)
		}
	}
}
