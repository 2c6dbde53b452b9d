package ingress

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestAdmission: nobody gets into a private port who has nothing that is for this very
// port, and what lets in never arrives in the sandbox.
func TestAdmission(t *testing.T) {
	p := newPlace(t)
	a, b := p.sandbox(""), p.sandbox("")
	x, other := p.expose(a.ID, api.PortRequest{Port: 3000}), p.expose(b.ID, api.PortRequest{Port: 3000})
	also := p.expose(a.ID, api.PortRequest{Port: 3001})
	token := TokenHeader + ": " + x.Token
	host := strings.TrimPrefix(x.URL, "https://")
	link := func(port int, d time.Duration) string {
		l, err := p.e.PortLink(t.Context(), me, a.ID, port, d)
		if err != nil {
			t.Fatal(err)
		}
		return l.URL
	}
	good := link(3000, time.Hour)
	query := good[strings.Index(good, "?"):]
	in := p.ask("GET", x.URL+"/a%2Fb?x=1;2&&y"+strings.Replace(query, "?", "&", 1), nil)
	if in.StatusCode != http.StatusFound || in.Header.Get("Location") != "/a%2Fb?x=1;2&&y" || len(in.Cookies()) != 1 {
		t.Fatalf("a link: %d to %q, cookies %v: %s", in.StatusCode, in.Header.Get("Location"), in.Cookies(), in.text)
	}
	c := in.Cookies()[0]
	if c.Domain != "" || c.Path != "/" || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteLaxMode || c.Name != cookieName || c.MaxAge < 3500 || c.MaxAge > 3600 {
		t.Errorf("its cookie is %+v", c)
	}
	cookie := "Cookie: " + c.Name + "=" + c.Value
	_, otherPort, _ := strings.Cut(link(3001, time.Hour), "?")
	for _, e := range []struct {
		name, url string
		lines     []string
		status    int
	}{
		{"nothing", x.URL, nil, 401},
		{"a wrong token", x.URL, []string{TokenHeader + ": bailey_port_x"}, 401},
		{"another sandbox's token", x.URL, []string{TokenHeader + ": " + other.Token}, 401},
		{"another port's token", x.URL, []string{TokenHeader + ": " + also.Token}, 401},
		{"the token", x.URL, []string{token}, 200},
		{"as a bearer", x.URL, []string{"Authorization: Bearer " + x.Token}, 200},
		{"as a bearer beside other credentials", x.URL, []string{"Authorization: Bearer " + x.Token, "Authorization: Basic eDp5"}, 200},
		{"an API key as bearer", x.URL, []string{token, "Authorization: Bearer bailey_key"}, 200},
		{"the token in a query", x.URL + "/?bailey_token=" + x.Token, nil, 401},
		{"the cookie", x.URL, []string{cookie}, 200},
		{"the cookie among others", x.URL, []string{"Cookie: a=b; " + c.Name + "=" + c.Value + "; c=d"}, 200},
		{"the cookie, from a page of the same host", x.URL, []string{cookie, "Origin: " + x.URL, "Sec-Fetch-Site: same-origin"}, 200},
		{"the cookie, a person follows a link", x.URL, []string{cookie, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200},
		{"the cookie, in a frame of another page", x.URL, []string{cookie, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 401},
		{"the cookie, from another sandbox's page", x.URL, []string{cookie, "Origin: " + other.URL}, 401},
		{"the cookie, from another sandbox's page without Origin", x.URL, []string{cookie, "Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"}, 401},
		{"the cookie at another sandbox", other.URL, []string{cookie}, 401},
		{"the cookie as a link", x.URL + "/?bailey_token=" + c.Value, nil, 401},
		{"the link's value as a cookie", x.URL, []string{"Cookie: " + c.Name + "=" + strings.TrimPrefix(query, "?bailey_token=")}, 401},
		{"a link to another port", x.URL + "/?" + otherPort, nil, 401},
		{"a link whose end was changed", x.URL + "/?bailey_token=9" + strings.TrimPrefix(query, "?bailey_token="), nil, 401},
		{"a link, written otherwise", x.URL + "/?bailey%5ftoken=" + strings.TrimPrefix(query, "?bailey_token="), nil, 302},
		{"no port of this sandbox", strings.Replace(x.URL, "3000-", "3002-", 1), []string{token}, 404},
		{"the beginning of an id", strings.Replace(x.URL, a.ID, a.ID[:8], 1), []string{token}, 404},
		{"another domain", x.URL, []string{token, "Host: " + strings.Replace(host, domain, "else.test", 1)}, 421},
		{"below it", x.URL, []string{token, "Host: a." + host}, 404},
	} {
		got := p.ask("GET", e.url, nil, e.lines...)
		if got.StatusCode != e.status {
			t.Errorf("%s: %d, not %d: %s", e.name, got.StatusCode, e.status, got.text)
		}
		for _, secret := range []string{x.Token, c.Value, "bailey_"} {
			if got.StatusCode == 200 && strings.Contains(got.text, secret) {
				t.Errorf("%s: the sandbox sees %s in %s", e.name, secret, got.text)
			}
		}
	}
	if got := p.ask("POST", x.URL+"/?z=1&"+query[1:], strings.NewReader("x")); got.StatusCode != 200 || got.seen.URI != "/?z=1" || got.seen.Body != 1 {
		t.Errorf("a link with a body: %d %+v", got.StatusCode, got.seen)
	}
	got := p.ask("GET", x.URL, nil, token, "Cookie: a=b; "+c.Name+"=x; c=d", "Authorization: Basic eDp5")
	if h := got.seen.Header; h.Get("Cookie") != "a=b; c=d" || h.Get("Authorization") != "Basic eDp5" || len(h.Values(TokenHeader)) > 0 {
		t.Errorf("the sandbox sees %v", h)
	}
	p.clock.forward(time.Hour)
	if got := p.ask("GET", good, nil); got.StatusCode != 401 {
		t.Errorf("a link after its end: %d", got.StatusCode)
	}
	if got := p.ask("GET", x.URL, nil, cookie); got.StatusCode != 401 || got.code() != bailey.CodeUnauthorized {
		t.Errorf("a cookie after its end: %d %s", got.StatusCode, got.text)
	}
	again := p.expose(a.ID, api.PortRequest{Port: 3000})
	if got := p.ask("GET", x.URL, nil, token); got.StatusCode != 401 {
		t.Errorf("a token from before: %d", got.StatusCode)
	}
	if got := p.ask("GET", x.URL, nil, TokenHeader+": "+again.Token); got.StatusCode != 200 {
		t.Errorf("the new one: %d", got.StatusCode)
	}
	p.expose(a.ID, api.PortRequest{Port: 3000, Public: true})
	if got := p.ask("GET", x.URL, nil); got.StatusCode != 200 {
		t.Errorf("public: %d", got.StatusCode)
	}
	if err := p.e.Unexpose(t.Context(), me, a.ID, 3000); err != nil {
		t.Fatal(err)
	}
	if got := p.ask("GET", x.URL, nil); got.StatusCode != 404 {
		t.Errorf("no longer exposed: %d", got.StatusCode)
	}
	if err := p.e.Delete(t.Context(), me, b.ID); err != nil {
		t.Fatal(err)
	}
	if got := p.ask("GET", other.URL, nil); got.StatusCode != 410 || got.code() != bailey.CodeSandboxEnded {
		t.Errorf("a sandbox that has ended: %d %s", got.StatusCode, got.text)
	}
}

// TestThrough: what goes to the sandbox and back is what the client and the sandbox
// said, over HTTP/2, and is valid for one host alone.
func TestThrough(t *testing.T) {
	p := newPlace(t)
	a := p.sandbox("web")
	x := p.expose(a.ID, api.PortRequest{Port: 3000, Public: true})
	host := strings.TrimPrefix(x.URL, "https://")
	got := p.ask("PUT", x.URL+"/a%2fb?c=%zz;d", io.LimitReader(zeros{}, 8<<20), "X-Forwarded-For: 1.2.3.4", "X-Forwarded-Host: evil", "Forwarded: host=evil",
		"X-Forwarded_Host: evil", "X-Real-IP: 1.2.3.4", "X-Mine: yes", "Sec-Fetch-Site: cross-site")
	h := got.seen.Header
	if got.StatusCode != 200 || got.ProtoMajor != 2 || got.seen.Body != 8<<20 || got.seen.Host != host || got.seen.URI != "/a%2fb?c=%zz;d" {
		t.Errorf("%d over %s: %+v", got.StatusCode, got.Proto, got.seen)
	}
	if h.Get("X-Forwarded-Host") != host || h.Get("X-Forwarded-Proto") != "https" || h.Get("X-Forwarded-For") != "127.0.0.1" || h.Get("X-Mine") != "yes" ||
		h.Get("X-Real-Ip") != "" || h.Get("Forwarded") != "" || len(h["X-Forwarded_host"]) > 0 {
		t.Errorf("the sandbox sees %v", h)
	}
	if c := got.Header.Values("Set-Cookie"); !slices.Equal(c, []string{"app=1; Path=/"}) {
		t.Errorf("cookies come as %q", c)
	}

	// A name leads to the id, whose host nobody else will ever have.
	byName := strings.Replace(x.URL, a.ID, "web", 1)
	if got := p.ask("POST", byName+"/x?y", nil); got.StatusCode != 307 || got.Header.Get("Location") != "//"+host+"/x?y" {
		t.Errorf("by name: %d to %q", got.StatusCode, got.Header.Get("Location"))
	}

	p.h.fresh = 0
	nobody := p.expose(a.ID, api.PortRequest{Port: 4000, Public: true})
	if got := p.ask("GET", nobody.URL, nil); got.StatusCode != 502 || got.code() != bailey.CodePortClosed {
		t.Errorf("nobody listens: %d %s", got.StatusCode, got.text)
	}
	if got := p.ask("GET", nobody.URL, nil, "Accept: text/html"); !strings.Contains(got.text, "<h1>Bad Gateway</h1>") || !strings.Contains(got.text, "start a server in it that listens on port 4000") {
		t.Errorf("as a page: %s", got.text)
	}
	other := p.expose(a.ID, api.PortRequest{Port: 3001, Public: true})
	if got := p.ask("GET", other.URL, nil); got.StatusCode != 502 || got.code() != bailey.CodeProtocol {
		t.Errorf("no HTTP: %d %s", got.StatusCode, got.text)
	}

	// Events arrive one by one, and the daemon's end breaks the stream.
	req, err := http.NewRequestWithContext(t.Context(), "GET", x.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := bufio.NewReader(resp.Body)
	if line, err := r.ReadString('\n'); err != nil || line != "data: first\n" {
		t.Errorf("%q, %v", line, err)
	}
	p.h.Close()
	io.Copy(io.Discard, r) // ends
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestWakes is T13: a sandbox that is paused is woken by one request, and what comes
// in keeps it from being idle.
func TestWakes(t *testing.T) {
	p := newPlace(t)
	a := p.sandbox("")
	x := p.expose(a.ID, api.PortRequest{Port: 3000})
	if got := p.ask("GET", x.URL, nil, TokenHeader+": "+x.Token); got.StatusCode != 200 { // the server is up
		t.Fatal(got.text)
	}
	p.h.fresh = 0
	ws := p.dial(x)
	defer ws.CloseNow()
	pause := func() {
		t.Helper()
		if _, err := p.e.Pause(t.Context(), me, a.ID, api.PauseRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	pause()
	if got := p.ask("GET", x.URL, nil); got.StatusCode != 401 { // whoever may not come in wakes nobody
		t.Errorf("%d", got.StatusCode)
	}
	if s, err := p.e.Sandbox(t.Context(), me, a.ID); err != nil || s.State != api.StatePaused {
		t.Errorf("it is %s, %v", s.State, err)
	}
	if got := p.ask("GET", x.URL, nil, TokenHeader+": "+x.Token); got.StatusCode != 200 {
		t.Errorf("T13: %d %s", got.StatusCode, got.text)
	}
	pause()
	talk(t, ws, "again") // what comes over a connection that was open wakes it too
	// What runs inside goes on, and answers, a moment before that is written down.
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if s, err := p.e.Sandbox(t.Context(), me, a.ID); err != nil || s.State != api.StateResuming {
			break
		}
	}
	if s, err := p.e.Sandbox(t.Context(), me, a.ID); err != nil || s.State != api.StateRunning || len(s.Ports) != 1 || !s.Ports[0].Private || s.Ports[0].Token != "" {
		t.Errorf("it is %s with %+v, %v", s.State, s.Ports, err)
	}
}

// dial opens the WebSocket as a page at the port does.
func (p *place) dial(x api.Port) *websocket.Conn {
	p.t.Helper()
	ws, resp, err := websocket.Dial(p.t.Context(), x.URL+"/hmr", &websocket.DialOptions{HTTPClient: p.http1,
		HTTPHeader: http.Header{"Origin": {x.URL}, TokenHeader: {x.Token}}})
	if err != nil {
		p.t.Fatalf("%v: %+v", err, resp)
	}
	return ws
}

func talk(t *testing.T, ws *websocket.Conn, say string) {
	t.Helper()
	if err := ws.Write(t.Context(), websocket.MessageText, []byte(say)); err != nil {
		t.Fatal(err)
	}
	if _, b, err := ws.Read(t.Context()); err != nil || string(b) != "update "+say {
		t.Errorf("%q, %v", b, err)
	}
}

// TestSameHost is T58: a page's WebSocket comes with the same Host as the page.
func TestSameHost(t *testing.T) {
	p := newPlace(t)
	a := p.sandbox("")
	x := p.expose(a.ID, api.PortRequest{Port: 3000})
	if got := p.ask("GET", x.URL, nil, TokenHeader+": "+x.Token); got.StatusCode != 200 {
		t.Fatal(got.text)
	}
	ws := p.dial(x)
	defer ws.CloseNow()
	talk(t, ws, "one")
	talk(t, ws, "two")
	p.h.Close()
	if _, _, err := ws.Read(t.Context()); err == nil {
		t.Error("it outlives the daemon")
	}
}

// TestSmuggling: a request that hides in another one's body is a request of its own,
// and not let in.
func TestSmuggling(t *testing.T) {
	p := newPlace(t)
	a := p.sandbox("")
	x := p.expose(a.ID, api.PortRequest{Port: 3000})
	host := strings.TrimPrefix(x.URL, "https://")
	hidden := "GET /hidden HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	for name, e := range map[string]struct{ head, body string }{
		"length and chunks":    {fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", 5+len(hidden)), "0\r\n\r\n"},
		"two lengths":          {fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n", len(hidden)), ""},
		"an unknown coding":    {"Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"},
		"a space before it":    {"Transfer-Encoding : chunked\r\n", "0\r\n\r\n"},
		"a length with a sign": {fmt.Sprintf("Content-Length: +%d\r\n", len(hidden)), ""},
		"an upgrade":           {"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", ""},
		"a bare newline":       {"X: a\nTransfer-Encoding: chunked\r\nContent-Length: 0\r\n", ""},
	} {
		c, err := tls.Dial("tcp", p.server.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /open HTTP/1.1\r\nHost: %s\r\n%s: %s\r\n%s\r\n%s%s", host, TokenHeader, x.Token, e.head, e.body, hidden)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		r := bufio.NewReader(c)
		for i := range 3 {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				break
			}
			io.Copy(io.Discard, resp.Body)
			if resp.StatusCode == 200 && i > 0 {
				t.Errorf("%s: answer %d is %s", name, i, resp.Status)
			}
			if i > 0 || resp.StatusCode >= 400 {
				break
			}
		}
		c.Close()
	}
	got := p.ask("GET", x.URL+"/paths", nil, TokenHeader+": "+x.Token)
	var paths []string
	if err := json.Unmarshal([]byte(got.text), &paths); err != nil || len(paths) == 0 || slices.Contains(paths, "/hidden") {
		t.Errorf("the sandbox was asked for %v, %v", paths, err)
	}
}

// TestTCP: a port of the host leads into the sandbox, and its first connection wakes it.
func TestTCP(t *testing.T) {
	p := newPlace(t)
	a := p.sandbox("")
	if _, err := p.e.Expose(t.Context(), me, a.ID, api.PortRequest{Port: 3001, TCP: true}); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("private: %v", err)
	}
	// The server is there once HTTP is.
	web := p.expose(a.ID, api.PortRequest{Port: 3000, Public: true})
	p.ask("GET", web.URL, nil)
	x := p.expose(a.ID, api.PortRequest{Port: 3001, TCP: true, Public: true})
	address := strings.TrimPrefix(x.URL, "tcp://")
	if _, err := p.e.Expose(t.Context(), me, a.ID, api.PortRequest{Port: 3002, TCP: true, Public: true}); bailey.CodeOf(err) != bailey.CodeQuotaExceeded {
		t.Errorf("more than there are: %v", err)
	}
	echo := func() {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(20 * time.Second))
		fmt.Fprint(c, "hello")
		c.(*net.TCPConn).CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
			t.Errorf("%q, %v", b, err)
		}
	}
	echo()
	if _, err := p.e.Pause(t.Context(), me, a.ID, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	echo()
	if got := p.ask("GET", strings.Replace(web.URL, "3000-", "3001-", 1), nil); got.StatusCode != 404 {
		t.Errorf("by HTTP: %d", got.StatusCode)
	}
	if err := p.e.Unexpose(t.Context(), me, a.ID, 3001); err != nil {
		t.Fatal(err)
	}
	refused := func() {
		t.Helper()
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			t.Error("it is still reachable")
		}
	}
	refused()
	p.expose(a.ID, api.PortRequest{Port: 3001, TCP: true, Public: true})
	echo()
	if err := p.e.Delete(t.Context(), me, a.ID); err != nil {
		t.Fatal(err)
	}
	refused()
}
