package web_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/inject"
	"github.com/bailey-sandbox/bailey/policy"
)

// stopped checks that an allowed act has one record and one end, which is a
// denial for a reason, and that the box told of it.
func (w *world) stopped(t *testing.T, name, reason string) {
	t.Helper()
	all := w.log.acts()
	if len(all) != 1 || all[0].Decision != "allow" {
		t.Errorf("%s: %+v", name, all)
		return
	}
	w.log.ended(t, all[0].Seq)
	w.server.Close()
	w.log.mu.Lock()
	var ends []audit.Record
	for _, rec := range w.log.all {
		if rec.Kind == audit.KindEnd {
			ends = append(ends, rec)
		}
	}
	w.log.mu.Unlock()
	if len(ends) != 1 || ends[0].Decision != "deny" || ends[0].Reason != reason || ends[0].Outcome.Error != reason || ends[0].Of != all[0].Seq {
		t.Errorf("%s: it ended with %+v", name, ends)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.denials) != 1 || w.denials[0].Reason != reason || w.denials[0].Why == "" || w.denials[0].Seq != all[0].Seq || w.denials[0].What == "" {
		t.Errorf("%s: told of %+v", name, w.denials)
	}
}

// What the gate stops after it was allowed is a denial all the same: in the end
// of its record, and for whoever is told of denials.
func TestStoppedOnTheWay(t *testing.T) {
	post := func(w *holder, c *http.Client, url string, body io.Reader) (*http.Response, string) {
		r, _ := http.NewRequest("POST", url, struct{ io.Reader }{body})
		r.Header.Set("X-Stream", "1")
		resp, err := c.Do(r)
		if err != nil {
			return nil, ""
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp, string(b)
	}
	for name, c := range map[string]struct {
		reason string
		serve  http.HandlerFunc
		run    func(w *holder, c *http.Client)
	}{
		"a placeholder in the middle of a body": {inject.Misdirected, func(rw http.ResponseWriter, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			if err == nil || bytes.Contains(b, []byte("QW7MARKX2Z")) {
				t.Errorf("the placeholder came through: %v", err)
			}
		}, func(w *holder, c *http.Client) {
			resp, b := post(w, c, "https://other.test/", io.MultiReader(strings.NewReader(strings.Repeat("x", 300<<10)), strings.NewReader(w.placeholder+" more")))
			if resp != nil && resp.StatusCode != 403 {
				t.Errorf("%d %s", resp.StatusCode, b)
			}
		}},
		"and after the answer has begun": {inject.Misdirected, func(rw http.ResponseWriter, r *http.Request) {
			http.NewResponseController(rw).EnableFullDuplex()
			io.WriteString(rw, "begun\n")
			rw.(http.Flusher).Flush()
			b, _ := io.ReadAll(r.Body)
			if bytes.Contains(b, []byte("QW7MARKX2Z")) {
				t.Error("the placeholder came through")
			}
			<-r.Context().Done()
		}, func(w *holder, c *http.Client) {
			pr, pw := io.Pipe()
			go io.WriteString(pw, "first ")
			r, _ := http.NewRequest("POST", "https://other.test/", pr)
			r.Header.Set("X-Stream", "1")
			resp, err := c.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			rd := bufio.NewReader(resp.Body)
			if line, err := rd.ReadString('\n'); line != "begun\n" {
				t.Errorf("%q, %v", line, err)
			}
			go func() {
				io.WriteString(pw, strings.Repeat("x", 100)+w.placeholder+strings.Repeat(" more", 100))
				pw.Close()
			}()
			if _, err := io.Copy(io.Discard, rd); err == nil {
				t.Error("the answer ended as if it were whole")
			}
		}},
		"an answer that cannot be searched": {inject.Unreadable, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Encoding", "x-own")
			io.WriteString(rw, "abc")
		}, func(w *holder, c *http.Client) {
			resp, b := w.do(c, "GET", "https://ok.test/", nil, "Authorization", "Bearer "+w.placeholder)
			if resp.StatusCode != 502 || denial(t, b).Reason != inject.Unreadable {
				t.Errorf("%d %s", resp.StatusCode, b)
			}
		}},
	} {
		for _, h2 := range []bool{false, true} {
			w := newHolder(t)
			for _, host := range []string{"ok.test:443", "other.test:443"} {
				w.site(host, !h2, func(rw http.ResponseWriter, r *http.Request) { c.serve(rw, r) })
			}
			c.run(w, w.client(h2))
			w.stopped(t, name, c.reason)
		}
	}
}

// The same of limits and of messages.
func TestStoppedSockets(t *testing.T) {
	for reason, message := range map[string]string{policy.ReasonLimitUpload: strings.Repeat("x", 2000), "foreign_credential": "FOREIGN"} {
		w := newWorldWith(t, "version: 1\negress:\n  rules:\n    - {name: ws, hosts: [ws.test], websocket: true, limits: {upload: 1KB}}\n", &fakeSecrets{})
		w.site("ws.test:443", true, func(rw http.ResponseWriter, r *http.Request) {
			if c, err := websocket.Accept(rw, r, nil); err == nil {
				c.Read(r.Context())
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c, _, err := websocket.Dial(ctx, "wss://ws.test/", &websocket.DialOptions{HTTPClient: w.client(false)})
		if err != nil {
			t.Fatal(err)
		}
		c.Write(ctx, websocket.MessageText, []byte(message))
		if _, _, err = c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("%v", err)
		}
		w.stopped(t, reason, reason)
	}
}

// faulty secrets panic where a text says so.
type faulty struct{ fakeSecrets }

func (f *faulty) Request(_ context.Context, r *http.Request, _ policy.Request, _ *policy.Rule) ([]string, error) {
	if r.Header.Get("X-Fault") == "request" {
		panic("canary")
	}
	if r.Body != nil {
		r.Body = faultyBody{r.Body}
	}
	return nil, nil
}

func (f *faulty) Response(resp *http.Response, _ func(int)) error {
	if resp.Header.Get("X-Fault") == "answer" {
		panic("canary")
	}
	if resp.StatusCode != 101 {
		resp.Body = faultyBody{resp.Body}
	}
	return nil
}

func (f *faulty) Outgoing(text []byte, _ policy.Request, _ *policy.Rule) ([]byte, error) {
	if string(text) == "FAULT" {
		panic("canary")
	}
	return text, nil
}

func (f *faulty) Incoming(text []byte, _ func(int)) []byte {
	if string(text) == "fault" {
		panic("canary")
	}
	return text
}

type faultyBody struct{ io.ReadCloser }

func (b faultyBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if bytes.Contains(p[:n], []byte("FAULT")) {
		panic("canary")
	}
	return n, err
}

// A fault of the gate's ends the stream that brought it out, is in the log, and
// ends nothing else: not the gate, not other sandboxes.
func TestFaultsEndOneStream(t *testing.T) {
	doc := "version: 1\negress:\n  rules:\n    - {name: ok, hosts: [ok.test], websocket: true}\n"
	for _, h2 := range []bool{false, true} {
		for _, c := range []struct {
			name, method, path, body, fault string
			committed                       bool
		}{
			{"request", "GET", "/", "", "request", false},
			{"request's body", "POST", "/", "a FAULT", "", true},
			{"answer", "GET", "/fault", "", "", true},
			{"answer's body", "GET", "/FAULT", "", "", true},
		} {
			w := newWorldWith(t, doc, &faulty{})
			w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/fault" {
					rw.Header().Set("X-Fault", "answer")
				}
				io.WriteString(rw, "hello "+r.URL.Path)
			})
			client := w.client(h2)
			r, _ := http.NewRequest(c.method, "https://ok.test"+c.path, strings.NewReader(c.body))
			r.Header.Set("X-Fault", c.fault)
			if resp, err := client.Do(r); err == nil {
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && resp.StatusCode < 400 || bytes.Contains(b, []byte("canary")) {
					t.Errorf("h2 %v, %s: %d %s", h2, c.name, resp.StatusCode, b)
				}
			}
			all := w.log.acts()
			if len(all) != 1 || (all[0].Decision == "allow") != c.committed {
				t.Errorf("h2 %v, %s: %+v", h2, c.name, all)
			} else if c.committed {
				if o := w.log.ended(t, all[0].Seq); o.Error != act.Fault.Reason {
					t.Errorf("h2 %v, %s: %+v", h2, c.name, o)
				}
			} else if all[0].Reason != act.Fault.Reason {
				t.Errorf("h2 %v, %s: %+v", h2, c.name, all[0])
			}
			// The sandbox goes on.
			if resp, b := w.do(client, "GET", "https://ok.test/after", nil); resp.StatusCode != 200 || b != "hello /after" {
				t.Errorf("h2 %v, %s: after it: %d %s", h2, c.name, resp.StatusCode, b)
			}
		}
	}
	for _, message := range []string{"FAULT", "answer"} {
		w := newWorldWith(t, doc, &faulty{})
		w.site("ok.test:443", true, func(rw http.ResponseWriter, r *http.Request) {
			if c, err := websocket.Accept(rw, r, nil); err == nil {
				c.Read(r.Context())
				c.Write(r.Context(), websocket.MessageText, []byte("fault"))
				c.Read(r.Context())
			}
		})
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		c, _, err := websocket.Dial(ctx, "wss://ok.test/", &websocket.DialOptions{HTTPClient: w.client(false)})
		if err != nil {
			t.Fatal(err)
		}
		c.Write(ctx, websocket.MessageText, []byte(message))
		if _, b, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusInternalError {
			t.Errorf("%s: %q, %v", message, b, err)
		}
		w.stopped(t, message, act.Fault.Reason)
	}
}

// A body that a rule looks into is judged whole, and is sent as it came; one
// that is too long for that is refused.
func TestRuleLooksIntoBody(t *testing.T) {
	doc := "version: 1\negress:\n  rules:\n    - {name: ok, hosts: [ok.test], when: '!string(req.body).contains(\"DROP\")'}\n"
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, doc)
		s := w.site("ok.test:443", !h2, nil)
		c := w.client(h2)
		for _, c2 := range []struct {
			body   io.Reader
			status int
			reason string
		}{
			{strings.NewReader("SELECT"), 200, ""},
			{struct{ io.Reader }{strings.NewReader("SELECT")}, 200, ""},
			{strings.NewReader("x; DROP TABLE"), 403, policy.ReasonCondition},
			{struct{ io.Reader }{strings.NewReader("x; DROP TABLE")}, 403, policy.ReasonCondition},
			{strings.NewReader(strings.Repeat("x", 1<<20+1)), 403, "body_too_large"},
			{struct{ io.Reader }{strings.NewReader(strings.Repeat("x", 1<<20) + "DROP")}, 403, "body_too_large"},
		} {
			before := s.seen()
			r, _ := http.NewRequest("POST", "https://ok.test/", c2.body)
			resp, err := c.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			b, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != c2.status || c2.reason != "" && denial(t, string(b)).Reason != c2.reason || s.seen()-before != map[int]int{200: 1, 403: 0}[c2.status] {
				t.Errorf("h2 %v: %d %s; the server saw %d", h2, resp.StatusCode, b, s.seen()-before)
			}
			if c2.status == 200 {
				if got, _ := io.ReadAll(s.last().Body); string(got) != "SELECT" {
					t.Errorf("h2 %v: sent %q", h2, got)
				}
			}
		}
	}
}

// Fields behind a request's body are dropped: nobody has judged them.
func TestRequestTrailers(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		s := w.site("ok.test:443", !h2, nil)
		r, _ := http.NewRequest("POST", "https://ok.test/", struct{ io.Reader }{strings.NewReader("body")})
		r.Trailer = http.Header{"X-Canary": {"canary"}}
		if !h2 { // net/http resets a stream of HTTP/2 for it
			r.Trailer["Authorization"] = []string{"Bearer canary"}
		}
		resp, err := w.client(h2).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		b, _ := io.ReadAll(s.last().Body)
		if resp.StatusCode != 200 || string(b) != "body" || len(s.last().Trailer) != 0 || s.last().Header.Get("Trailer") != "" || slices.Contains(s.last().Header["Authorization"], "Bearer canary") {
			t.Errorf("h2 %v: %d, the server saw %v %v", h2, resp.StatusCode, s.last().Header, s.last().Trailer)
		}
	}
}

// H15: what a client sent ahead of a refusal is nobody's next request, and
// nothing of the body reaches a server.
func TestBodyAheadOfRefusal(t *testing.T) {
	w := newWorld(t, allowOK)
	s := w.site("paths.test:443", true, nil)
	for _, text := range []string{
		"POST /secret HTTP/1.1\r\nHost: paths.test\r\nContent-Length: 49\r\nRange: bytes=0-1\r\n\r\nGET /public/canary HTTP/1.1\r\nHost: paths.test\r\n\r\n",
		"POST /secret HTTP/1.1\r\nHost: paths.test\r\nConnection: close\r\nContent-Length: 49\r\n\r\nGET /public/canary HTTP/1.1\r\nHost: paths.test\r\n\r\n",
		"POST /secret HTTP/1.1\r\nHost: paths.test\r\nExpect: 100-continue\r\nContent-Length: 49\r\n\r\nGET /public/canary HTTP/1.1\r\nHost: paths.test\r\n\r\n",
		"POST /secret HTTP/1.1\r\nHost: paths.test\r\nTransfer-Encoding: chunked\r\n\r\n31\r\nGET /public/canary HTTP/1.1\r\nHost: paths.test\r\n\r\n\r\n0\r\n\r\n",
	} {
		before := len(w.log.acts())
		r, body := raw(t, w.tls("paths.test:443"), text, 1)
		if r[0].StatusCode != 403 || denial(t, body[0]).Reason != policy.ReasonMethod {
			t.Errorf("%q: %d %s", text, r[0].StatusCode, body[0])
		}
		if s.seen() != 0 || len(w.log.acts()) != before+1 {
			t.Errorf("%q: the server saw %d, %d records", text, s.seen(), len(w.log.acts())-before)
		}
	}
}
