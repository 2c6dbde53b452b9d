package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

func init() {
	cases["H1"] = func(c *attempt) {
		for _, try := range []struct{ target, host string }{{plan.Evil, plan.OK}, {plan.Evil, plan.Evil}, {plan.OK, plan.Evil}} {
			text := func(scheme string) string {
				return "GET " + scheme + "://" + try.target + "/?c=" + c.Bad + " HTTP/1.1\r\nHost: " + try.host + "\r\nConnection: close\r\n\r\n"
			}
			c.act()
			a, err := c.viaProxy(text("http"))
			c.note("at the proxy, %v: %v %v", try, a.status, err)
			c.act()
			a, err = c.over(plan.OK, plan.OK, text("https"))
			c.note("inside TLS, %v: %v %v", try, a.status, err)
			c.act()
			a, err = c.plain(plan.OK, text("http"))
			c.note("on port 80, %v: %v %v", try, a.status, err)
		}
		a, err := c.viaProxy("GET http://" + plan.OK + "/?c=" + c.Good + " HTTP/1.1\r\nHost: " + plan.OK + "\r\nConnection: close\r\n\r\n")
		c.twin("absolute form", errors.Join(err, a.ok()))
	}
	cases["H2"] = func(c *attempt) {
		smuggled := "POST /private?c=" + c.Bad + " HTTP/1.1\r\nHost: " + plan.ReadOnly + "\r\n\r\n"
		start := "GET /pub/x HTTP/1.1\r\nHost: " + plan.ReadOnly + "\r\n"
		for _, text := range []string{
			start + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", len(smuggled)+5) + smuggled,
			start + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n", len(smuggled)) + smuggled + "\r\n0\r\n\r\n",
			start + fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n", len(smuggled)) + smuggled,
			start + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(smuggled)) + smuggled,
			start + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + smuggled,
			start + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + smuggled,
			start + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + smuggled,
			start + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + smuggled,
			start + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + smuggled,
			start + "X: 1\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled,
			start + "Transfer-Encoding: chunked\r\n\r\n0;\n" + smuggled + "\r\n\r\n",
			start + "Host: " + plan.Evil + "\r\n\r\n" + smuggled,
		} {
			c.Most += 2 // the request itself, or what was hidden in it, or both
			if !strings.Contains(text, "0;\n") {
				c.Least++ // the other is well-formed until its body has begun
			}
			a, err := c.over(plan.ReadOnly, plan.ReadOnly, text)
			c.note("%.60q: %v %v", text[len(start):], a.status, err)
		}
		a, err := c.strict(plan.OK, "POST /?c="+c.Good+" HTTP/1.1\r\nHost: "+plan.OK+"\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
		c.twin("a chunked body", errors.Join(err, a.ok()))
	}
	cases["H3"] = func(c *attempt) {
		conn, err := dial(plan.ReadOnly, 443)
		if err == nil {
			defer conn.Close()
			t, terr := secure(conn, plan.ReadOnly)
			if err = terr; err == nil {
				c.act()
				host := " HTTP/1.1\r\nHost: " + plan.ReadOnly + "\r\n\r\n"
				io.WriteString(t, "GET /pub/a?c="+c.Good+host+"GET /private?c="+c.Bad+host)
				r := bufio.NewReader(t)
				var a answer
				a, err = read(r, "GET")
				err = errors.Join(err, a.ok())
				a, after := read(r, "GET")
				c.note("the second: %v %v", a.status, after)
			}
		}
		c.twin("the first of two", err)
	}
	cases["H4"] = func(c *attempt) {
		for _, method := range []string{"GET", "HEAD"} {
			c.act()
			a, err := c.over(plan.Unbound, plan.Unbound, request(method, plan.Unbound, "/?c="+c.Bad, "key="+environ("PROVIDER_KEY")))
			c.note("%s with a placeholder in its body: %v %v", method, a.status, err)
		}
		a, err := c.strict(plan.OK, request("GET", plan.OK, "/?c="+c.Good, "a body"))
		c.twin("GET with a body", errors.Join(err, a.ok()))
	}
	cases["H5"] = func(c *attempt) {
		for _, method := range []string{"POST", "post", "get", "PROPFIND", "DELETE", "GET,POST"} {
			c.act()
			a, err := c.over(plan.ReadOnly, plan.ReadOnly, request(method, plan.ReadOnly, "/pub/x?c="+c.Bad, ""))
			c.note("%s: %v %v", method, a.status, err)
		}
		for _, header := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
			c.maybe()
			a, err := c.over(plan.ReadOnly, plan.ReadOnly, get(plan.ReadOnly, "/pub/x", header+": DELETE "+c.Bad))
			c.note("%s: %v %v", header, a.status, err)
		}
		a, err := c.strict(plan.ReadOnly, get(plan.ReadOnly, "/pub/x?c="+c.Good))
		c.twin("GET", errors.Join(err, a.ok()))
	}
	cases["H6"] = func(c *attempt) {
		for _, path := range []string{
			"/pub/%2e%2e/admin", "/pub/..%2fadmin", "/pub/..%5cadmin", "/pub/../admin", "/pub/./../admin", "/pub//../admin", "/pub/%2E./admin",
			"/pub/..;/admin", "/pub/\\../admin", "/pub/%00/../../admin", "/pub/%c0%ae%c0%ae/admin", "/pub%2f..%2fadmin", "/admin", "//pub/../admin", "/PUB/../admin", "/pub/%", "/pub/..\tadmin",
			"pub/x", "*", "/pub/a%0d%0aX: y", "/../../admin",
		} {
			c.act()
			a, err := c.over(plan.ReadOnly, plan.ReadOnly, get(plan.ReadOnly, path+"?c="+c.Bad))
			c.note("%q: %v %v", path, a.status, err)
		}
		a, err := c.strict(plan.ReadOnly, get(plan.ReadOnly, "/pub/a/./b?c="+c.Good))
		c.twin("a path with a harmless dot", errors.Join(err, a.ok()))
	}
	cases["H7"] = func(c *attempt) {
		// The placeholder is where only one of several readings of a query sees it.
		key := environ("PROVIDER_KEY")
		for _, query := range []string{"a=1&a=" + key, "a=1;b=" + key, "A=" + key, "a=x+" + key + "+y", key, "%61=" + percent(key), "a=" + key + "%"} {
			c.act()
			a, err := c.over(plan.Unbound, plan.Unbound, get(plan.Unbound, "/?c="+c.Bad+"&"+query))
			c.note("%q: %v %v", query, a.status, err)
		}
		a, err := c.strict(plan.Unbound, get(plan.Unbound, "/?a=1&a=2;b&c="+c.Good))
		c.twin("a query with a key twice", errors.Join(err, a.ok()))
	}
	cases["H8"] = func(c *attempt) {
		c.act()
		c.maybe() // what was said next may be read as a request
		a, err := c.upgrade(plan.OK, "/ws", "websocket", c.Bad)
		c.note("websocket without a rule for it: %v %v", a.status, err)
		for _, protocol := range []string{"foo", "h2c", "TLS/1.0", "connect-udp"} {
			c.Most += 2 // and what was said next
			a, err := c.upgrade(plan.Socket, "/upgrade", protocol, c.Bad)
			c.note("%s: %v %v", protocol, a.status, err)
		}
		c.twin("WebSocket", webSocket(plan.Socket, "/ws", c.Good, nil))
	}
	cases["H9"] = func(c *attempt) {
		to := "https://" + plan.Evil + "/?c=" + c.Bad
		a, err := c.strict(plan.OK, get(plan.OK, "/redirect?c="+c.Good+"&to="+percent(to)))
		if err == nil && (a.status != 302 || a.header.Get("Location") != to) {
			err = fmt.Errorf("status %d, Location %q", a.status, a.header.Get("Location"))
		}
		c.twin("the redirect itself", err)
		c.act()
		c.tunnel(plan.Evil+":443", plan.Evil)
	}
	cases["H10"] = func(c *attempt) {
		bearer := "Authorization: Bearer " + environ("ECHO_KEY")
		a, err := c.strict(plan.Echo, get(plan.Echo, "/echo?c="+c.Good, bearer, "TE: trailers"))
		c.received(a.body)
		c.twin("the credential arrives", errors.Join(err, a.ok()))
		c.maybe()
		a, err = c.over(plan.Echo, plan.Echo, get(plan.Echo, "/echo?hop="+c.ID, bearer, "Connection: Authorization, close"))
		c.note("Connection: authorization: %v %v", a.status, err)
		c.received(a.body)
		for _, name := range []string{"Authorization", "X-Api-Key"} {
			c.maybe()
			a, err = c.over(plan.Echo, plan.Echo, "POST /echo HTTP/1.1\r\nHost: "+plan.Echo+"\r\nTransfer-Encoding: chunked\r\nTrailer: "+name+"\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n"+name+": Bearer "+c.Bad+"\r\n\r\n")
			c.note("%s in the trailer: %v %v", name, a.status, err)
		}
	}
	cases["H11"] = func(c *attempt) {
		for _, header := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Forwarded", "Proxy-Authorization", "Proxy-Connection", "X-Forwarded-Proto"} {
			c.maybe()
			a, err := c.over(plan.OK, plan.OK, get(plan.OK, "/", header+": "+c.Bad))
			c.note("%s: %v %v", header, a.status, err)
		}
		a, err := c.viaProxy("GET http://" + plan.OK + "/?c=" + c.Good + " HTTP/1.1\r\nHost: " + plan.OK + "\r\nProxy-Authorization: Basic " + c.Bad + "\r\nConnection: close\r\n\r\n")
		c.twin("at the proxy, with credentials for it", errors.Join(err, a.ok()))
	}
	cases["H12"] = func(c *attempt) {
		c.maybe()
		a, err := c.over(plan.OK, plan.OK, get(plan.OK, "/?c="+c.Bad, "X-Big: "+strings.Repeat("a", 4<<20)))
		c.note("a header of 4 MiB: %v %v", a.status, err)
		c.maybe()
		a, err = c.over(plan.OK, plan.OK, get(plan.OK, "/"+strings.Repeat("a", 1<<20)+"?c="+c.Bad))
		c.note("a path of 1 MiB: %v %v", a.status, err)
		c.maybe()
		a, err = c.over(plan.Echo, plan.Echo, get(plan.Echo, "/bomb", "Authorization: Bearer "+environ("ECHO_KEY")))
		c.note("a bomb: %v %d bytes %v", a.status, len(a.body), err)
		c.allowed(plan.OK)
	}
	cases["H13"] = func(c *attempt) {
		c.act()
		h, err := openH2(plan.ReadOnly, plan.ReadOnly)
		if err == nil {
			a, err := h.do("POST", plan.ReadOnly, "/echo.Echo/Chat", []string{message(c.Bad)}, hpack.HeaderField{Name: "content-type", Value: "application/grpc"})
			c.note("%v %v", a.status, err)
			h.Close()
		}
		c.twin("a stream both ways", chat(plan.OK, c.Good))
	}
	cases["H14"] = func(c *attempt) {
		for _, text := range []string{"GET /?c=" + c.Bad + "\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + c.Bad, "GET /?c=" + c.Bad + " HTTP/9.9\r\nHost: " + plan.OK + "\r\n\r\n", "GET /?c=" + c.Bad + " http/1.1\r\nHost: " + plan.OK + "\r\n\r\n", "\x16\x03\x01" + c.Bad + "\r\n\r\n"} {
			c.act()
			a, err := c.over(plan.OK, plan.OK, text)
			c.note("%.20q: %v %v", text, a.status, err)
		}
		a, err := c.strict(plan.OK, "GET /?c="+c.Good+" HTTP/1.0\r\nHost: "+plan.OK+"\r\n\r\n")
		c.twin("HTTP/1.0", errors.Join(err, a.ok()))
	}
	cases["H15"] = func(c *attempt) {
		c.act()
		a, err := c.over(plan.ReadOnly, plan.ReadOnly, request("POST", plan.ReadOnly, "/private", c.Bad, "Expect: 100-continue"))
		c.note("%v %v", a.status, err)
		c.act()
		a, err = c.over(plan.Asks, plan.Asks, request("POST", plan.Asks, "/", c.Bad))
		c.note("a held request: %v %v", a.status, err)
		a, err = c.strict(plan.OK, request("POST", plan.OK, "/?c="+c.Good, "body", "Expect: 100-continue"))
		c.twin("Expect", errors.Join(err, a.ok()))
	}
}

// percent encodes every byte.
func percent(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}
	return b.String()
}

// upgrade asks for another protocol and, if it is granted, speaks.
func (c *attempt) upgrade(host, path, protocol, text string) (answer, error) {
	conn, err := dial(host, 443)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	t, err := secure(conn, host)
	if err != nil {
		return answer{}, err
	}
	io.WriteString(t, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: "+protocol+"\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	t.SetDeadline(time.Now().Add(patience / 4))
	r := bufio.NewReader(t)
	line, err := r.ReadString('\n')
	var a answer
	fmt.Sscanf(line, "HTTP/1.1 %d", &a.status)
	// Whatever was answered: what comes now is no request.
	io.WriteString(t, text+"\r\n\r\n")
	io.Copy(io.Discard, r)
	return a, err
}

func message(text string) string {
	return string([]byte{0, 0, 0, byte(len(text) >> 8), byte(len(text))}) + text
}

// chat sends gRPC messages one after the other, each after the answer to the one
// before, and wants the status at the end.
func chat(host, text string) error {
	h, err := openH2(host, host)
	if err != nil {
		return err
	}
	defer h.Close()
	if err := h.begin("POST", host, "/echo.Echo/Chat", false, hpack.HeaderField{Name: "content-type", Value: "application/grpc"}, hpack.HeaderField{Name: "te", Value: "trailers"}); err != nil {
		return err
	}
	for i, end := range []string{"", "s", "sk", "sk-"} { // as placeholders and values begin
		m := message(fmt.Sprintf("%d %s %s", i, text, end))
		if err := h.framer.WriteData(h.stream, false, []byte(m)); err != nil {
			return err
		}
		if err := h.await(m); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
	}
	if err := h.framer.WriteData(h.stream, true, nil); err != nil {
		return err
	}
	a, err := h.finish()
	if err == nil && a.header.Get("Grpc-Status") != "0" {
		err = fmt.Errorf("no grpc-status: %v", a.header)
	}
	return err
}
