package web_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
	"github.com/coder/websocket"
)

const denyAll = "version: 1\n"

// TestPolicyEndsOpenStreams: downloads, uploads, waiting requests and sockets
// that a new version forbids end, and nothing more comes through.
func TestPolicyEndsOpenStreams(t *testing.T) {
	doc := "version: 1\negress:\n  rules:\n    - {name: ok, hosts: [ok.test], websocket: true}\n"
	for name, c := range map[string]struct {
		h2   bool
		open func(w *world, c *http.Client) (ended func() error)
	}{
		"download h1": {false, download}, "download h2": {true, download},
		"upload h1": {false, upload}, "upload h2": {true, upload},
		"waiting h1": {false, waiting}, "waiting h2": {true, waiting},
		"socket": {false, socket},
	} {
		w := newWorld(t, doc)
		arrived := make(chan struct{}, 1)
		var after atomic.Int64
		var updated atomic.Bool
		w.site("ok.test:443", !c.h2, func(rw http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/download":
				rw.Write(make([]byte, 1<<16))
				rw.(http.Flusher).Flush()
			case "/upload":
				io.ReadFull(r.Body, make([]byte, 1))
				arrived <- struct{}{}
				b := make([]byte, 1024)
				for {
					n, err := r.Body.Read(b)
					if updated.Load() {
						after.Add(int64(bytes.Count(b[:n], []byte("canary"))))
					}
					if err != nil {
						return
					}
				}
			case "/socket":
				s, err := websocket.Accept(rw, r, nil)
				if err != nil {
					return
				}
				arrived <- struct{}{}
				s.Read(context.Background())
				return
			}
			arrived <- struct{}{}
			<-r.Context().Done()
		})
		ended := c.open(w, w.client(c.h2))
		<-arrived
		w.box.Update(parse(t, denyAll), nil)
		updated.Store(true)
		began := time.Now()
		if err := ended(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%s: it took %v", name, d)
		}
		if o := w.log.ended(t, w.log.acts()[0].Seq); o.Error == "" {
			t.Errorf("%s: %+v", name, o)
		}
		if after.Load() > 0 {
			t.Errorf("%s: the canary came through", name)
		}
	}
}

func stream(method, path string, body io.Reader) *http.Request {
	r, err := http.NewRequest(method, "https://ok.test"+path, body)
	if err != nil {
		panic(err)
	}
	r.Header.Set("X-Stream", "1")
	return r
}

type failed string

func (f failed) Error() string { return string(f) }

func download(w *world, c *http.Client) func() error {
	resp, err := c.Do(stream("GET", "/download", nil))
	if err != nil {
		w.t.Fatal(err)
	}
	return func() error {
		if _, err := io.Copy(io.Discard, resp.Body); err == nil {
			return failed("it ended as if it were whole")
		}
		return nil
	}
}

func upload(w *world, c *http.Client) func() error {
	pr, pw := io.Pipe()
	done := make(chan *http.Response, 1)
	go func() {
		resp, _ := c.Do(stream("POST", "/upload", pr))
		done <- resp
	}()
	io.WriteString(pw, "x")
	return func() error {
		go func() {
			time.Sleep(time.Second) // the bound within which streams end
			io.WriteString(pw, "canary")
			pw.Close()
		}()
		if resp := <-done; resp != nil && resp.StatusCode == 200 {
			return failed("it went through")
		}
		return nil
	}
}

func waiting(w *world, c *http.Client) func() error {
	done := make(chan *http.Response, 1)
	go func() {
		resp, _ := c.Do(stream("GET", "/wait", nil))
		done <- resp
	}()
	return func() error {
		resp := <-done
		if resp == nil || resp.StatusCode != 403 || resp.Header.Get("X-Bailey-Reason") == "" {
			return failed("no denial")
		}
		return nil
	}
}

func socket(w *world, c *http.Client) func() error {
	s, _, err := websocket.Dial(context.Background(), "wss://ok.test/socket", &websocket.DialOptions{HTTPClient: c, HTTPHeader: http.Header{"X-Stream": {"1"}}})
	if err != nil {
		w.t.Fatal(err)
	}
	return func() error {
		_, _, err := s.Read(context.Background())
		if websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			return err
		}
		return nil
	}
}

// TestUploadLimit: a body that passes its rule's limit is ended.
func TestUploadLimit(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, "version: 1\negress:\n  rules:\n    - {name: ok, hosts: [ok.test], limits: {upload: 100KB}}\n")
		whole := make(chan bool, 1)
		w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
			_, err := io.Copy(io.Discard, r.Body)
			whole <- err == nil
		})
		resp, err := w.client(h2).Do(stream("POST", "/", io.LimitReader(endless{}, 1<<20)))
		if err == nil {
			b, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != 403 {
				t.Errorf("h2 %v: %d %s", h2, resp.StatusCode, b)
			}
		}
		if <-whole {
			t.Error("it came through whole")
		}
		if o := w.log.ended(t, w.log.acts()[0].Seq); o.Error != policy.ReasonLimitUpload {
			t.Errorf("%+v", o)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestStaleConnection: a server that closed an idle connection is asked anew,
// and no request is sent twice that could have been seen.
func TestStaleConnection(t *testing.T) {
	w := newWorld(t, allowOK)
	l := listen(t)
	var seen atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// One answer, and the connection ends without a word.
			go func() {
				defer c.Close()
				if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
					seen.Add(1)
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
				}
			}()
		}
	}()
	w.resolve("ok.test:80", l.Addr().String())
	c := w.client(false)
	for i := range 20 {
		if resp, body := w.do(c, "GET", "http://ok.test/", nil); resp.StatusCode != 200 {
			t.Fatalf("%d: %d %s", i, resp.StatusCode, body)
		}
	}
	if seen.Load() != 20 {
		t.Errorf("the server saw %d", seen.Load())
	}
}

// proxy connects to the gate as a proxy. CONNECT leads to an echo, but for
// denied.test and down.test.
func (w *world) proxy() net.Conn {
	return w.serve(func(c net.Conn) {
		w.web.ServeProxy(w.ctx, w.box, c, func(_ context.Context, to policy.Authority) (func(net.Conn), *act.Denial, error) {
			switch to.Host().String() {
			case "denied.test":
				return nil, &act.Denial{Error: "denied", What: "CONNECT " + to.String(), Reason: "no_rule", Why: "no rule"}, nil
			case "down.test":
				return nil, nil, failed("the server is down")
			}
			return func(c net.Conn) {
				if c == nil {
					return
				}
				defer c.Close()
				io.WriteString(c, "to "+to.String()+"\n")
				io.Copy(c, c)
			}, nil, nil
		})
	})
}

// TestProxy: the front for programs that use proxy variables.
func TestProxy(t *testing.T) {
	w := newWorld(t, allowOK)
	s := w.site("ok.test:80", true, nil)
	for text, want := range map[string]int{
		"GET http://ok.test/a HTTP/1.1\r\nHost: ok.test\r\nProxy-Authorization: Basic eDp5\r\n\r\n": 200,
		"GET HTTP://OK.test:80/a HTTP/1.1\r\nHost: ok.test:80\r\n\r\n":                              200,
		"GET http://ok.test HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                      200,
		"GET http://unknown.test/ HTTP/1.1\r\nHost: unknown.test\r\n\r\n":                           403,
		"GET http://other.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                  421,
		"GET http://ok.test@other.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n":                          400,
		"GET http://2130706433/ HTTP/1.1\r\nHost: 2130706433\r\n\r\n":                               400,
		"GET https://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                    400,
		"GET ftp://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                      400,
		"GET / HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                                   400,
		"CONNECT denied.test:443 HTTP/1.1\r\nHost: denied.test:443\r\n\r\n":                         403,
		"CONNECT down.test:443 HTTP/1.1\r\nHost: down.test\r\n\r\n":                                 502,
		"CONNECT ok.test HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                         400,
		"CONNECT ok.test:443 HTTP/1.1\r\nHost: other.test:443\r\n\r\n":                              421,
		"CONNECT ok.test\x00.x:443 HTTP/1.1\r\nHost: ok.test\r\n\r\n":                               400,
		"CONNECT http://ok.test/ HTTP/1.1\r\nHost: ok.test\r\n\r\n":                                 400,
		"CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\nContent-Length: 3\r\n\r\nabc":         400,
	} {
		before := s.seen()
		r, body := raw(t, w.proxy(), text, 1)
		if r[0].StatusCode != want || (s.seen() > before) != (want == 200) {
			t.Errorf("%q: %d, want %d: %s", text, r[0].StatusCode, want, body[0])
		}
		if want == 200 && s.last().Header.Get("Proxy-Authorization") != "" {
			t.Error("the proxy's credential came through")
		}
	}
	c := w.proxy()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	// What follows at once belongs to the tunnel.
	io.WriteString(c, "CONNECT ok.test:443 HTTP/1.1\r\nHost: ok.test:443\r\n\r\nearly")
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	if err != nil || string(b) != "HTTP/1.1 200 Connection established\r\n\r\nto ok.test:443\nearly" {
		t.Errorf("%q %v", b, err)
	}
}

// TestManyAtOnce: many requests on few connections, each with its own answer.
func TestManyAtOnce(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		w.site("ok.test:443", !h2, nil)
		c := w.client(h2)
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				path := "/" + strings.Repeat("x", i)
				req, _ := http.NewRequest("GET", "https://ok.test"+path, nil)
				resp, err := c.Do(req)
				if err != nil {
					t.Error(err)
					return
				}
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(b) != "hello GET "+path {
					t.Errorf("%q for %q", b, path)
				}
			})
		}
		wg.Wait()
		if n := len(w.log.acts()); n != 40 {
			t.Errorf("%d records", n)
		}
	}
}
