package rest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
	"github.com/bailey-sandbox/bailey/internal/server/standin"
)

// owner may do everything.
var owner = access.Identity{Caller: engine.Caller{Name: "uid:1", Admin: true, Local: true}, Scopes: access.Scopes}

// let is a handler whose requests are all from one identity.
func let(h http.Handler, id access.Identity) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(access.With(r.Context(), id)))
	})
}

// server is the API over a stand-in engine.
type server struct {
	t      *testing.T
	engine *standin.Engine
	api    *rest.Server
	http   *httptest.Server
}

func serve(t *testing.T, opt rest.Options, id access.Identity) *server {
	t.Helper()
	s := &server{t: t, engine: standin.New()}
	opt.Engine = s.engine
	s.api = rest.New(opt)
	s.http = httptest.NewServer(let(s.api, id))
	t.Cleanup(func() { s.api.Close(); s.http.Close() })
	return s
}

// ask sends a request and gives the answer with its whole body.
func (s *server) ask(method, path string, body io.Reader, header ...string) (*http.Response, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.http.URL+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := s.http.Client().Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, b
}

// must is ask for an answer that is a success, read into out unless that is nil.
func (s *server) must(method, path, body string, out any) {
	s.t.Helper()
	resp, b := s.ask(method, path, strings.NewReader(body))
	if resp.StatusCode > 299 {
		s.t.Fatalf("%s %s: %s\n%s", method, path, resp.Status, b)
	}
	if out != nil {
		if err := json.Unmarshal(b, out); err != nil {
			s.t.Fatalf("%s %s: %v\n%s", method, path, err, b)
		}
	}
}

func (s *server) problem(resp *http.Response, body []byte) api.Problem {
	s.t.Helper()
	var p api.Problem
	if err := json.Unmarshal(body, &p); err != nil || resp.Header.Get("Content-Type") != "application/problem+json" || p.Status != resp.StatusCode || p.Code == "" || p.What == "" || p.Why == "" {
		s.t.Fatalf("%s is no problem: %v\n%s", resp.Status, err, body)
	}
	return p
}

func TestStrictInput(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	for _, c := range []struct{ name, method, path, body, place string }{
		{"a field that nobody knows", "POST", "/v1/sandboxes", `{"nmae":"a"}`, "body.nmae"},
		{"one inside", "POST", "/v1/sandboxes", `{"limits":{"memroy":1}}`, "body.limits.memroy"},
		{"a field in capitals", "POST", "/v1/sandboxes", `{"Name":"a"}`, "body.Name"},
		{"a field twice", "POST", "/v1/sandboxes", `{"name":"a","name":"b"}`, "body"},
		{"one inside twice", "POST", "/v1/sandboxes", `{"limits":{"cpus":1,"cpus":2}}`, "body"},
		{"something behind", "POST", "/v1/sandboxes", `{} {}`, "body"},
		{"no JSON", "POST", "/v1/sandboxes", `{`, "body"},
		{"a list", "POST", "/v1/sandboxes", `[]`, "body"},
		{"a number for a text", "POST", "/v1/sandboxes", `{"name":1}`, "body.name"},
		{"a timeout of 0", "POST", "/v1/sandboxes", `{"timeout":"0s"}`, "body"},
		{"a time below 0", "POST", "/v1/sandboxes", `{"idle":"-1s"}`, "body"},
		{"no duration", "POST", "/v1/sandboxes", `{"timeout":"soon"}`, "body"},
		{"no level", "POST", "/v1/sandboxes", `{"isolation":"strong"}`, "body"},
		{"no body", "POST", "/v1/sandboxes", "", ""},
		{"nothing required", "POST", "/v1/sandboxes/a/execs", `{}`, "body"},
		{"a parameter that nobody knows", "GET", "/v1/sandboxes?lmit=1", "", "query.lmit"},
		{"one of an operation without any", "GET", "/v1/info?verbose=1", "", "query.verbose"},
		{"a number out of range", "GET", "/v1/sandboxes?limit=1001", "", "query.limit"},
		{"no number", "GET", "/v1/sandboxes?limit=many", "", "query.limit"},
		{"no label", "GET", "/v1/sandboxes?label=x", "", ""},
		{"a label twice", "GET", "/v1/sandboxes?label=x=1&label=x=2", "", ""},
		{"no path", "GET", "/v1/sandboxes/a/files", "", "query.path"},
		{"an offset below 0", "GET", "/v1/sandboxes/a/files?path=/x&offset=-1", "", "query.offset"},
		{"no mode", "PUT", "/v1/sandboxes/a/files?path=/x&mode=rw", "", "query.mode"},
		{"no hash", "PUT", "/v1/sandboxes/a/files?path=/x&sha256=12", "", "query.sha256"},
		{"a port too high", "GET", "/v1/sandboxes/a/ports/65536/connect", "", "path.port"},
		{"a build without a spec", "POST", "/v1/templates?spec={}%20x", "", ""},
		{"a build's unknown field", "POST", `/v1/templates?spec=%7B%22nmae%22%3A%22a%22%7D`, "", ""},
		{"an event's id that is none", "GET", "/v1/events?seq=-2", "", "query.seq"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := *s
			s.t = t
			resp, b := s.ask(c.method, c.path, strings.NewReader(c.body))
			p := s.problem(resp, b)
			if p.Code != bailey.CodeUsage || p.Status != 400 {
				t.Fatalf("it is answered with %d %s: %s", p.Status, p.Code, p.Detail)
			}
			if c.place != "" && (len(p.Errors) == 0 || !strings.HasPrefix(p.Errors[0].Place, c.place)) {
				t.Errorf("the fault's place is %+v, not %s", p.Errors, c.place)
			}
		})
	}
	resp, b := s.ask("POST", "/v1/sandboxes", strings.NewReader("name=a"), "Content-Type", "application/x-www-form-urlencoded")
	if p := s.problem(resp, b); p.Status != 415 {
		t.Errorf("a form, which any web page can send, is answered with %d", p.Status)
	}
	resp, b = s.ask("PATCH", "/v1/sandboxes/a", nil)
	if p := s.problem(resp, b); p.Status != 405 {
		t.Errorf("another method is answered with %d", p.Status)
	}
	resp, b = s.ask("GET", "/v1/nothing", nil)
	if p := s.problem(resp, b); p.Status != 404 {
		t.Errorf("another path is answered with %d", p.Status)
	}
}

func TestFaultsDoNotRepeatSecrets(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	resp, b := s.ask("POST", "/v1/sandboxes", strings.NewReader(`{"env":{"TOKEN":"hunter2"},"name":1}`))
	s.problem(resp, b)
	if bytes.Contains(b, []byte("hunter2")) {
		t.Errorf("the answer has what was sent: %s", b)
	}
}

func TestIdempotencyKey(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	var ids [3]api.Sandbox
	for i, body := range []string{`{}`, `{"idempotency_key":"k"}`, `{}`} {
		resp, b := s.ask("POST", "/v1/sandboxes", strings.NewReader(body), "Idempotency-Key", "k")
		if err := json.Unmarshal(b, &ids[i]); err != nil || resp.StatusCode != 201 {
			t.Fatalf("%s: %s", resp.Status, b)
		}
	}
	if ids[0].ID != ids[1].ID || ids[1].ID != ids[2].ID {
		t.Errorf("one key made %s, %s and %s", ids[0].ID, ids[1].ID, ids[2].ID)
	}
	resp, b := s.ask("POST", "/v1/sandboxes", strings.NewReader(`{"idempotency_key":"other"}`), "Idempotency-Key", "k")
	if p := s.problem(resp, b); p.Code != bailey.CodeUsage {
		t.Errorf("two keys are answered with %s", p.Code)
	}
}

// TestUploadLimit is T37: a body that is too large is told with the limit and what
// to do, and nothing is written.
func TestUploadLimit(t *testing.T) {
	s := serve(t, rest.Options{Upload: 1000}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	s.must("PUT", "/v1/sandboxes/a/files?path=/fits", strings.Repeat("x", 1000), nil)
	for name, body := range map[string]io.Reader{
		"announced": strings.NewReader(strings.Repeat("x", 1001)),
		"chunked":   io.MultiReader(strings.NewReader(strings.Repeat("x", 999)), strings.NewReader("xx")),
	} {
		resp, b := s.ask("PUT", "/v1/sandboxes/a/files?path=/"+name, body)
		if p := s.problem(resp, b); p.Status != 413 || p.Code != bailey.CodeTooLarge || p.Limit != 1000 || !strings.Contains(p.How, "max_upload") {
			t.Errorf("%s: %+v", name, p)
		}
		if resp, _ := s.ask("GET", "/v1/sandboxes/a/files/stat?path=/"+name, nil); resp.StatusCode != 404 {
			t.Errorf("%s was written", name)
		}
	}
	resp, b := s.ask("POST", "/v1/sandboxes", strings.NewReader(`{"name":"`+strings.Repeat("x", 4<<20)+`"}`))
	if p := s.problem(resp, b); p.Status != 413 || p.Limit != 4<<20 || p.How == "" {
		t.Errorf("large JSON: %+v", p)
	}
}

// TestRefusedWhileItIsSent: a client reads why its upload is refused, also one that
// was asked for it and is still sending.
func TestRefusedWhileItIsSent(t *testing.T) {
	s := serve(t, rest.Options{Upload: 1000}, owner)
	s.http.Client().Transport.(*http.Transport).ExpectContinueTimeout = 10 * time.Second
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	long := strings.Repeat("x", 8<<20)
	for range 50 {
		resp, b := s.ask("PUT", "/v1/sandboxes/a/files?path=/x", io.MultiReader(strings.NewReader(long)), "Expect", "100-continue")
		if p := s.problem(resp, b); p.Code != bailey.CodeTooLarge {
			t.Fatalf("%+v", p)
		}
		resp, b = s.ask("PUT", "/v1/sandboxes/a/files?path=/x", strings.NewReader(long), "Expect", "100-continue") // not even asked for
		if p := s.problem(resp, b); p.Code != bailey.CodeTooLarge {
			t.Fatalf("%+v", p)
		}
	}
}

func TestUploadWithAnotherHash(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	resp, b := s.ask("PUT", "/v1/sandboxes/a/files?path=/x&sha256="+strings.Repeat("0", 64), strings.NewReader("x"))
	if p := s.problem(resp, b); p.Code != bailey.CodeConflict {
		t.Errorf("it is answered with %s", p.Code)
	}
	if resp, _ := s.ask("GET", "/v1/sandboxes/a/files/stat?path=/x", nil); resp.StatusCode != 404 {
		t.Error("it was written")
	}
}

// TestWaitGivesEveryByte is T28: what a command prints arrives as it is.
func TestWaitGivesEveryByte(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	var r api.ExecResult
	s.must("POST", "/v1/sandboxes/a/execs?wait=true", `{"id":"w","args":["bytes","2500"]}`, &r)
	if len(r.Out) != 2500 || r.Out[0] != 0 || r.Out[2499] != byte(2499%256) || r.Truncated || r.ExitCode == nil || *r.ExitCode != 0 {
		t.Errorf("%d bytes, truncated %v, exit %v", len(r.Out), r.Truncated, r.ExitCode)
	}
	s.must("POST", "/v1/sandboxes/a/execs?wait=true&tail=700", `{"id":"w","args":["bytes","2500"]}`, &r)
	if len(r.Out) != 700 || r.Out[0] != byte(1800%256) || !r.Truncated {
		t.Errorf("of the tail %d bytes, truncated %v", len(r.Out), r.Truncated)
	}
	var e map[string]any
	s.must("POST", "/v1/sandboxes/a/execs", `{"args":["echo","hi"]}`, &e)
	if _, has := e["stdout_data"]; has {
		t.Error("without wait there is output")
	}
	resp, b := s.ask("POST", "/v1/sandboxes/a/execs?wait=true", strings.NewReader(`{"args":["cat"],"stdin":true}`))
	if p := s.problem(resp, b); p.Code != bailey.CodeUsage {
		t.Errorf("waiting for who waits for input: %s", p.Code)
	}
}

// TestResultsAreBounded: what answers hold of output in memory is bounded in sum, is
// given back once they are written, and is no more than the tail that was asked for.
func TestResultsAreBounded(t *testing.T) {
	s := serve(t, rest.Options{Results: 600_000}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	var r api.ExecResult
	for range 3 {
		s.must("POST", "/v1/sandboxes/a/execs?wait=true&tail=500000", `{"args":["bytes","1000000"]}`, &r)
		if len(r.Out) != 500_000 || r.Out[0] != byte(500_000%256) || r.Out[499_999] != byte(999_999%256) || !r.Truncated {
			t.Fatalf("%d bytes, truncated %v", len(r.Out), r.Truncated)
		}
	}
	r = api.ExecResult{}
	s.must("POST", "/v1/sandboxes/a/execs?wait=true", `{"args":["bytes","400000"]}`, &r)
	if len(r.Out) != 400_000 || r.Truncated {
		t.Errorf("%d bytes, truncated %v", len(r.Out), r.Truncated)
	}
	resp, b := s.ask("POST", "/v1/sandboxes/a/execs?wait=true", strings.NewReader(`{"id":"large","args":["bytes","700000"]}`))
	if p := s.problem(resp, b); p.Code != bailey.CodeBusy {
		t.Errorf("more than there is room for: %s", p.Code)
	}
	s.must("POST", "/v1/sandboxes/a/execs?wait=true&tail=10", `{"id":"large","args":["bytes","700000"]}`, &r)
	if len(r.Out) != 10 || r.Out[9] != byte(699_999%256) {
		t.Errorf("its tail has %d bytes", len(r.Out))
	}
}

func TestErrorsOfTheEngine(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	restarted := bailey.Errorf(bailey.CodeSandboxRestarted, "run it", "accept it", "it was lost")
	restarted.Generation = 7
	for _, c := range []struct {
		err    error
		status int
		retry  bool
	}{
		{restarted, 409, false},
		{bailey.Errorf(bailey.CodeQuotaExceeded, "create", "delete some", "there are 3 of 3"), 429, true},
		{bailey.Errorf(bailey.CodeDaemonUnavailable, "do it", "", "it leaves"), 503, true},
		{context.Canceled, 503, true},
		{io.ErrUnexpectedEOF, 500, false},
	} {
		s.engine.Fail("Sandbox", c.err)
		resp, b := s.ask("GET", "/v1/sandboxes/a", nil)
		p := s.problem(resp, b)
		if p.Status != c.status || (resp.Header.Get("Retry-After") != "") != c.retry || (p.RetryAfter > 0) != c.retry {
			t.Errorf("%v: %s, retry after %q", c.err, resp.Status, resp.Header.Get("Retry-After"))
		}
		if p.Code == bailey.CodeSandboxRestarted && (p.Generation != 7 || p.Err().Generation != 7) {
			t.Errorf("the generation is not told: %s", b)
		}
	}
}
