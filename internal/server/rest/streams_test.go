package rest_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
)

// sse reads server-sent events.
type sse struct {
	s *bufio.Scanner
}

// next gives the id and data of the next event; ok is false at the end.
func (e sse) next() (id, data string, ok bool) {
	for e.s.Scan() {
		switch line := e.s.Text(); {
		case strings.HasPrefix(line, "id: "):
			id = line[4:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		case line == "" && data != "":
			return id, data, true
		}
	}
	return "", "", false
}

func (s *server) events(path string, header ...string) (sse, func()) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", s.http.URL+path, nil)
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
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("%s: %s %s\n%s", path, resp.Status, resp.Header.Get("Content-Type"), b)
	}
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	return sse{sc}, func() { resp.Body.Close() }
}

// TestOutputGoesOnBehindAnEvent reads a few events, comes back with the last one's
// id, and has every byte once.
func TestOutputGoesOnBehindAnEvent(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	s.must("POST", "/v1/sandboxes/a/execs", `{"id":"x","args":["bytes","5500"]}`, nil)
	var got []byte
	last := ""
	read := func(n int) (end *api.Exec) {
		e, done := s.events("/v1/sandboxes/a/execs/x/output?follow=true", "Last-Event-ID", last)
		defer done()
		for range n {
			id, data, ok := e.next()
			if !ok {
				t.Fatal("the stream ended")
			}
			var ev api.OutputEvent
			if err := json.Unmarshal([]byte(data), &ev); err != nil {
				t.Fatal(err)
			}
			if ev.Exec != nil {
				return ev.Exec
			}
			if ev.Offset != int64(len(got)) {
				t.Fatalf("an event begins at %d, and %d bytes are known", ev.Offset, len(got))
			}
			got, last = append(got, ev.Data...), id
		}
		return nil
	}
	read(2)
	if last != "2000-0" {
		t.Errorf("the id behind two events is %q", last)
	}
	if end := read(10); end == nil || len(got) != 5500 || got[5499] != byte(5499%256) {
		t.Errorf("%d bytes, end %v", len(got), end)
	}
	for _, id := range []string{"x", "1", "1-", "-1-0", "1-1x", " 1-1"} {
		resp, b := s.ask("GET", "/v1/sandboxes/a/execs/x/output", nil, "Last-Event-ID", id)
		if id == " 1-1" { // a header's value is trimmed
			continue
		}
		if p := s.problem(resp, b); p.Code != bailey.CodeUsage {
			t.Errorf("the id %q is answered with %s", id, p.Code)
		}
	}
}

func TestRawOutput(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	s.must("POST", "/v1/sandboxes/a/execs", `{"id":"x","args":["bytes","5500"]}`, nil)
	resp, b := s.ask("GET", "/v1/sandboxes/a/execs/x/stdout?offset=500&follow=true", nil)
	h := sha256.Sum256(b)
	if len(b) != 5000 || b[0] != byte(500%256) || resp.Trailer.Get(api.HeaderSHA256) != hex.EncodeToString(h[:]) || resp.Header.Get(api.HeaderOffset) != "500" {
		t.Errorf("%d bytes from %s, hash %s", len(b), resp.Header.Get(api.HeaderOffset), resp.Trailer.Get(api.HeaderSHA256))
	}
	if resp, b = s.ask("GET", "/v1/sandboxes/a/execs/x/stderr", nil); len(b) != 0 || resp.Trailer.Get(api.HeaderSHA256) == "" {
		t.Errorf("stderr has %q", b)
	}
	if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Content-Disposition") != "attachment" {
		t.Error("a browser could take what a sandbox has written for a page of ours")
	}
}

// TestBrokenDownload: what ends half-way must not look complete.
func TestBrokenDownload(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	s.must("PUT", "/v1/sandboxes/a/files?path=/breaks", strings.Repeat("x", 100), nil)
	resp, b := s.ask("GET", "/v1/sandboxes/a/files?path=/breaks", nil)
	var e bailey.Error
	if err := json.Unmarshal([]byte(resp.Trailer.Get(api.HeaderError)), &e); err != nil || e.Code != bailey.CodeSandboxLost || len(b) != 50 || resp.Trailer.Get(api.HeaderSHA256) != "" {
		t.Errorf("%d bytes, trailer %v", len(b), resp.Trailer)
	}
	_, b = s.ask("GET", "/v1/sandboxes/a/files/list?path=/", nil)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	var last api.Entry
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || len(lines) != 2 || last.Error == nil || last.Error.Code != bailey.CodeSandboxLost {
		t.Errorf("the list is %s", b)
	}
}

// TestFileNamesInHeaders: a header carries any name.
func TestFileNamesInHeaders(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	const name = "/ä\n😀\"\\"
	const escaped = "%2F%C3%A4%0A%F0%9F%98%80%22%5C"
	s.must("PUT", "/v1/sandboxes/a/files?path="+escaped, "x", nil)
	resp, _ := s.ask("GET", "/v1/sandboxes/a/files?path="+escaped, nil)
	var f api.FileInfo
	if err := json.Unmarshal([]byte(resp.Header.Get(api.HeaderFile)), &f); err != nil || f.Path != name {
		t.Errorf("the name is %q (%v)", f.Path, err)
	}
}

// TestClosingEndsStreams: who follows is sent away without an end, so that they
// come back to the next daemon.
func TestClosingEndsStreams(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	s.must("POST", "/v1/sandboxes", `{"name":"a"}`, nil)
	s.must("POST", "/v1/sandboxes/a/execs", `{"id":"x","args":["sleep"]}`, nil)
	e, done := s.events("/v1/events")
	defer done()
	if _, _, ok := e.next(); !ok {
		t.Fatal("there is no event")
	}
	waited := make(chan api.Problem)
	go func() {
		resp, b := s.ask("GET", "/v1/sandboxes/a/execs/x/wait", nil)
		waited <- s.problem(resp, b)
	}()
	for deadline := time.Now().Add(10 * time.Second); !s.engineSaw("Output a x 0 0"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nobody waits: %q", s.engine.Calls())
		}
	}
	s.api.Close()
	for {
		if _, _, ok := e.next(); !ok {
			break
		}
	}
	if e.s.Err() == nil {
		t.Error("the stream of events ended as if it were complete")
	}
	if p := <-waited; p.Code != bailey.CodeDaemonUnavailable {
		t.Errorf("who waited is told %s", p.Code)
	}
}

func (s *server) engineSaw(call string) bool {
	for _, c := range s.engine.Calls() {
		if c == call {
			return true
		}
	}
	return false
}

// TestAnswerWhileTheBodyComes: an answer that begins before the body has ended costs
// none of it.
func TestAnswerWhileTheBodyComes(t *testing.T) {
	s := serve(t, rest.Options{}, owner)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // what is thrown away is waited for
	defer cancel()
	r, w := io.Pipe()
	defer r.Close()
	req, err := http.NewRequestWithContext(ctx, "POST", s.http.URL+`/v1/templates?spec=%7B%22name%22%3A%22a%22%7D`, r)
	if err != nil {
		t.Fatal(err)
	}
	part := strings.Repeat("0123456789abcdef", 8<<10)
	go io.WriteString(w, part)
	resp, err := s.http.Client().Do(req) // returns with the first word
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	go func() {
		io.WriteString(w, part)
		w.Close()
	}()
	sc := bufio.NewScanner(resp.Body)
	sc.Buffer(nil, 1<<20)
	_, data, _ := sse{sc}.next()
	var p api.Progress
	if err := json.Unmarshal([]byte(data), &p); err != nil || p.Log != part+part {
		t.Errorf("%d of %d bytes arrived, %v", len(p.Log), 2*len(part), err)
	}
}
