package web_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSmuggling: a request whose end can be seen in two ways gets a 400, and
// what hides behind it never comes through.
func TestSmuggling(t *testing.T) {
	inner := "GET /smuggled HTTP/1.1\r\nHost: ok.test\r\n\r\n"
	for name, head := range map[string]string{
		"length and chunked":  "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":         "Content-Length: 0\r\nContent-Length: 44\r\n\r\n",
		"chunked, identity":   "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
		"space before colon":  "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
		"tab before chunked":  "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
		"folded":              "X: y\r\n Transfer-Encoding: chunked\r\n\r\n",
		"bare LF":             "X: y\nContent-Length: 44\r\n\r\n",
		"absolute elsewhere":  "",
		"length with a sign":  "Content-Length: +0\r\n\r\n",
		"two hosts":           "Host: other.test\r\n\r\n",
		"unknown expectation": "Expect: nothing\r\n\r\n",
	} {
		for _, port := range []string{":80", ":443"} {
			w := newWorld(t, allowOK)
			s := w.site("ok.test"+port, true, nil)
			text := "POST / HTTP/1.1\r\nHost: ok.test\r\n" + head + inner
			if head == "" {
				text = "GET http://other.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n"
			}
			c := w.connect("ok.test:80")
			if port == ":443" {
				c.Close()
				c = w.tls("ok.test:443")
			}
			r, _ := raw(t, c, text, 1)
			if r[0].StatusCode < 400 || r[0].StatusCode == 403 || s.seen() != 0 {
				t.Errorf("%s: %d, seen %d", name, r[0].StatusCode, s.seen())
			}
			if n := len(w.log.acts()); n != 1 {
				t.Errorf("%s: %d records", name, n)
			}
			if head == "" {
				continue // the connection can be used again
			}
			if rest, _ := io.ReadAll(c); len(rest) > 0 {
				t.Errorf("%s: more came: %q", name, rest)
			}
		}
	}
}

// TestPipelining: requests that come together are judged and recorded one by one.
func TestPipelining(t *testing.T) {
	w := newWorld(t, allowOK)
	s := w.site("paths.test:443", true, nil)
	one := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: paths.test\r\n\r\n" }
	r, _ := raw(t, w.tls("paths.test:443"), one("/public/1")+one("/private")+"\r\n"+one("/public/2"), 3)
	for i, want := range []int{200, 403, 200} {
		if r[i].StatusCode != want {
			t.Errorf("%d: %d", i, r[i].StatusCode)
		}
	}
	if acts := w.log.acts(); len(acts) != 3 || acts[1].Decision != "deny" || s.seen() != 2 {
		t.Errorf("%d records, seen %d", len(acts), s.seen())
	}
}

// TestBodyOfAnyMethod: a GET with a body is sent on with the body, counted; one
// that is refused leaves the connection usable.
func TestBodyOfAnyMethod(t *testing.T) {
	w := newWorld(t, allowOK)
	s := w.site("paths.test:443", true, nil)
	c := w.tls("paths.test:443")
	r, _ := raw(t, c, "GET /public/x HTTP/1.1\r\nHost: paths.test\r\nContent-Length: 3\r\n\r\nabc"+
		"DELETE /public/x HTTP/1.1\r\nHost: paths.test\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"+
		"GET /public/y HTTP/1.1\r\nHost: paths.test\r\n\r\n", 3)
	if r[0].StatusCode != 200 || r[1].StatusCode != 403 || r[2].StatusCode != 200 || s.seen() != 2 {
		t.Error(r[0].Status, r[1].Status, r[2].Status, s.seen())
	}
	if o := w.log.ended(t, w.log.acts()[0].Seq); o.Sent != 3 {
		t.Errorf("%d bytes were counted", o.Sent)
	}
}

// TestFieldsOnTheWay: what is for one connection, or claims to be somebody
// else, stays here; what the gate does not know passes.
func TestFieldsOnTheWay(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		s := w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("X-Answer", "yes")
			rw.Header().Set("Alt-Svc", `h3=":443"`)
			rw.Header().Set("Proxy-Authenticate", "Basic")
			io.WriteString(rw, "ok")
		})
		resp, _ := w.do(w.client(h2), "GET", "https://ok.test/", nil, "X-Kept", "1", "Authorization", "Bearer mine",
			"X-Http-Method-Override", "DELETE", "X-Method-Override", "DELETE", "X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "other.test",
			"Forwarded", "host=other.test", "Proxy-Authorization", "Basic eDp5", "X-Bailey-Reason", "x", "X-Original-Url", "/admin",
			"X_forwarded_for", "1.2.3.4", "X-Real-Ip", "1.2.3.4", "Via", "1.1 x")
		got := s.last()
		if got == nil {
			t.Fatal(resp.Status)
		}
		if got.Header.Get("X-Kept") != "1" || got.Header.Get("Authorization") != "Bearer mine" {
			t.Errorf("fields are missing: %v", got.Header)
		}
		for name := range got.Header {
			switch name {
			case "X-Kept", "Authorization", "User-Agent", "Accept-Encoding":
			default:
				t.Errorf("%s came through", name)
			}
		}
		if resp.Header.Get("X-Answer") != "yes" || resp.Header.Get("Alt-Svc") != "" || resp.Header.Get("Proxy-Authenticate") != "" {
			t.Errorf("answer: %v", resp.Header)
		}
	}
}

// TestConnectionField: Connection names fields of this connection only, and
// trailers carry nothing on.
func TestConnectionField(t *testing.T) {
	w := newWorld(t, allowOK)
	s := w.site("ok.test:443", true, nil)
	c := w.tls("ok.test:443")
	raw(t, c, "POST / HTTP/1.1\r\nHost: ok.test\r\nConnection: x-one, keep-alive\r\nX-One: 1\r\nX-Two: 2\r\nTrailer: Authorization\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"1\r\na\r\n0\r\nAuthorization: Bearer x\r\n\r\n", 1)
	got := s.last()
	if got.Header.Get("X-One") != "" || got.Header.Get("X-Two") != "2" || got.Header.Get("Connection") != "" || len(got.Trailer) > 0 || got.Header.Get("Authorization") != "" {
		t.Errorf("%v %v", got.Header, got.Trailer)
	}
	if b, _ := io.ReadAll(got.Body); string(b) != "a" {
		t.Errorf("%q", b)
	}
}

// TestPaths: the path that is judged is the one that is sent.
func TestPaths(t *testing.T) {
	for target, want := range map[string]string{ // "" is refused
		"/public/a":                  "/public/a",
		"/public/./a":                "/public/a",
		"/public//a":                 "/public/a",
		"/public/%61":                "/public/a",
		"/x/../public/a":             "/public/a",
		"/public/%e2%82%ac?a=b;c=d":  "/public/%E2%82%AC?a=b%3Bc=d",
		"/public/a?x=%2f&x=1":        "/public/a?x=%2f&x=1",
		"/public/..%2fprivate":       "",
		"/public/%2e%2e/private":     "",
		"/public/../../private":      "",
		"/public/%00":                "",
		"/public/%252e%252e/private": "",
		"/public/a%":                 "",
		"/public/a?x=%zz":            "",
		"/public/\\..\\private":      "",
		"//other.test/public/a":      "",
		"*":                          "",
		"public/a":                   "",
	} {
		w := newWorld(t, allowOK)
		s := w.site("paths.test:443", true, nil)
		r, body := raw(t, w.tls("paths.test:443"), "GET "+target+" HTTP/1.1\r\nHost: paths.test\r\n\r\n", 1)
		got := ""
		if q := s.last(); q != nil {
			got = q.RequestURI
		}
		if got != want || (want == "") == (r[0].StatusCode == 200) {
			t.Errorf("%s: %d, sent on as %q, want %q: %s", target, r[0].StatusCode, got, want, body[0])
		}
		if n := len(w.log.acts()); n != 1 {
			t.Errorf("%s: %d records", target, n)
		}
	}
}

// TestUpgrades: of other protocols only WebSocket, where a rule allows it.
func TestUpgrades(t *testing.T) {
	for name, c := range map[string]struct {
		fields string
		status int
	}{
		"h2c":              {"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", 501},
		"unknown":          {"Connection: upgrade\r\nUpgrade: foo/2\r\n", 501},
		"two":              {"Connection: upgrade\r\nUpgrade: websocket, foo\r\n", 501},
		"websocket":        {"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", 403},
		"websocket, short": {"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n", 400},
		"not asked for":    {"Upgrade: foo\r\n", 200}, // without Connection it is a field for nobody
	} {
		w := newWorld(t, allowOK)
		s := w.site("ok.test:443", true, nil)
		r, body := raw(t, w.tls("ok.test:443"), "GET / HTTP/1.1\r\nHost: ok.test\r\n"+c.fields+"\r\n", 1)
		if r[0].StatusCode != c.status || (s.seen() > 0) != (c.status == 200) {
			t.Errorf("%s: %d, seen %d: %s", name, r[0].StatusCode, s.seen(), body[0])
		}
	}
}

// TestRedirects are the sandbox's to follow.
func TestRedirects(t *testing.T) {
	w := newWorld(t, allowOK)
	w.site("ok.test:443", true, func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, "https://other.test/", http.StatusFound)
	})
	other := w.site("other.test:443", true, nil)
	resp, _ := w.do(w.client(false), "GET", "https://ok.test/", nil)
	if resp.StatusCode != 302 || resp.Header.Get("Location") != "https://other.test/" || other.seen() != 0 {
		t.Errorf("%d %v, seen %d", resp.StatusCode, resp.Header, other.seen())
	}
}

// TestExpect: 100 Continue comes when the body is wanted, not before.
func TestExpect(t *testing.T) {
	w := newWorld(t, allowOK)
	s := w.site("paths.test:443", true, nil)
	c := w.tls("paths.test:443")
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, "GET /public/a HTTP/1.1\r\nHost: paths.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
	r := bufio.NewReader(c)
	if line, _ := r.ReadString('\n'); line != "HTTP/1.1 100 Continue\r\n" {
		t.Fatalf("%q", line)
	}
	r.ReadString('\n')
	io.WriteString(c, "abc")
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != 200 || s.seen() != 1 || s.last().Header.Get("Expect") != "" {
		t.Fatal(resp, err, s.seen())
	}
	c = w.tls("paths.test:443")
	if r, _ := raw(t, c, "POST /private HTTP/1.1\r\nHost: paths.test\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n", 1); r[0].StatusCode != 403 {
		t.Error(r[0].Status)
	}
	if rest, _ := io.ReadAll(c); len(rest) > 0 {
		t.Errorf("%q", rest)
	}
}

// TestOldVersions: HTTP/1.0 gets one answer, HTTP/0.9 and what is none a 400.
func TestOldVersions(t *testing.T) {
	for text, want := range map[string]int{
		"GET / HTTP/1.0\r\nHost: ok.test\r\nConnection: keep-alive\r\n\r\n": 200,
		"GET / HTTP/1.0\r\n\r\n":                                200,
		"GET /\r\n":                                             400,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                      400,
		"SSH-2.0-OpenSSH_9.2\r\n":                               400,
		"\x16\x03\x01\x02\x00\x01\x00":                          400,
		"GET / HTTP/3.0\r\nHost: ok.test\r\n\r\n":               400,
		"GET / HTTP/1.1\r\n\r\n":                                400,
		"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n": 405,
	} {
		w := newWorld(t, allowOK)
		s := w.site("ok.test:80", true, nil)
		c := w.connect("ok.test:80")
		r, _ := raw(t, c, text, 1)
		if r[0].StatusCode != want || want != 200 && s.seen() > 0 {
			t.Errorf("%q: %d", text, r[0].StatusCode)
		}
		if want != 405 {
			if rest, err := io.ReadAll(c); len(rest) > 0 || err != nil {
				t.Errorf("%q: it goes on: %q %v", text, rest, err)
			}
		}
		if n := len(w.log.acts()); n != 1 {
			t.Errorf("%q: %d records", text, n)
		}
	}
}

// TestSizes: a head has a limit; many small ones on a connection have none.
func TestSizes(t *testing.T) {
	w := newWorld(t, allowOK)
	s := w.site("ok.test:443", true, nil)
	head := func(n int) string {
		return "GET / HTTP/1.1\r\nHost: ok.test\r\nX: " + strings.Repeat("a", n) + "\r\n\r\n"
	}
	c := w.tls("ok.test:443")
	r, _ := raw(t, c, head(7<<10)+head(20<<10)+head(60<<10)+head(10), 4)
	for i := range r {
		if r[i].StatusCode != 200 {
			t.Errorf("%d: %s", i, r[i].Status)
		}
	}
	if s.last().Header.Get("X") != "aaaaaaaaaa" || s.seen() != 4 {
		t.Errorf("%d came through", s.seen())
	}
	if r, _ := raw(t, w.tls("ok.test:443"), head(70<<10), 1); r[0].StatusCode != 431 {
		t.Error(r[0].Status)
	}
}

// TestEncodedAnswer passes as it is where nothing is looked for in it.
func TestEncodedAnswer(t *testing.T) {
	w := newWorld(t, allowOK)
	w.site("ok.test:443", true, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(rw)
		io.WriteString(z, "squeezed")
		z.Close()
	})
	resp, body := w.do(w.client(false), "GET", "https://ok.test/", nil, "Accept-Encoding", "gzip, zstd")
	z, err := gzip.NewReader(strings.NewReader(body))
	if err != nil {
		t.Fatal(resp.Header, err)
	}
	if b, _ := io.ReadAll(z); !bytes.Equal(b, []byte("squeezed")) {
		t.Errorf("%q", b)
	}
}

// TestHead and answers without a body.
func TestAnswersWithoutBody(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/204":
				rw.WriteHeader(204)
			case "/304":
				rw.Header().Set("Etag", `"a"`)
				rw.WriteHeader(304)
			case "/empty":
			default:
				rw.Header().Set("Content-Length", "1234")
			}
		})
		c := w.client(h2)
		for path, want := range map[string]int{"/204": 204, "/304": 304, "/empty": 200} {
			if resp, body := w.do(c, "GET", "https://ok.test"+path, nil); resp.StatusCode != want || body != "" {
				t.Errorf("%s: %d %q", path, resp.StatusCode, body)
			}
		}
		if resp, _ := w.do(c, "HEAD", "https://ok.test/", nil); resp.ContentLength != 1234 {
			t.Errorf("h2 %v: %d", h2, resp.ContentLength)
		}
	}
}

// TestDenialOfLargeBody: the denial arrives though the body was not read.
func TestDenialOfLargeBody(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		s := w.site("paths.test:443", !h2, nil)
		for _, size := range []int{1000, 1 << 20} {
			resp, body := w.do(w.client(h2), "POST", "https://paths.test/x", bytes.NewReader(make([]byte, size)))
			if resp.StatusCode != 403 || denial(t, body).Reason == "" || s.seen() > 0 {
				t.Errorf("%d bytes: %d %q", size, resp.StatusCode, body)
			}
		}
	}
}
