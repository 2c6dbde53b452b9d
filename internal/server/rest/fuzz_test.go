package rest_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
	"github.com/bailey-sandbox/bailey/internal/server/standin"
)

// FuzzRequest sends anything to every operation: there is no panic, and an answer
// that is no success is a problem with a known code.
func FuzzRequest(f *testing.F) {
	e := standin.New()
	server := rest.New(rest.Options{Engine: e, Upload: 1 << 16})
	handler := let(server, owner)
	routes := server.Routes()
	known := map[string]bool{}
	for i, r := range routes {
		f.Add(uint8(i), "a", "", "{}", "")
		known[r] = true
	}
	for _, s := range []struct{ id, query, body, last string }{
		{"a", "wait=true&tail=3", `{"args":["bytes","9"],"id":"x"}`, "1-1"},
		{"a/../b", "path=/x&offset=1&length=2", `{"args":[],"pty":{"rows":-1,"cols":70000}}`, "99999999999999999999"},
		{"\x00", "label=a=b&label=c", `{"timeout":"never","idle":"1h","policy":{"a":[1,{"b":null}]}}`, "-"},
		{strings.Repeat("x", 300), "follow=true&stdout=9223372036854775807", `{"kinds":["a.*"],"url":"http://127.0.0.1"}`, "0"},
		{"%2F", "spec={}&name=x&ref=y", "[[[[[[", "1"},
	} {
		for i := range routes {
			f.Add(uint8(i), s.id, s.query, s.body, s.last)
		}
	}
	all := codesOf(f)
	f.Fuzz(func(t *testing.T, route uint8, id, query, body, last string) {
		method, path, _ := strings.Cut(routes[int(route)%len(routes)], " ")
		if strings.HasSuffix(path, "/socket") || strings.HasSuffix(path, "/connect") {
			return // a recorder cannot change the protocol; package client's tests do
		}
		u := inBraces.ReplaceAllStringFunc(path, func(string) string { return url.PathEscape(id) })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond) // ends streams
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, method, u, strings.NewReader(body))
		if err != nil {
			return
		}
		r.URL.RawQuery = query
		r.Header.Set("Last-Event-ID", last)
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if v := recover(); v != nil && v != http.ErrAbortHandler {
					panic(v)
				}
			}()
			handler.ServeHTTP(w, r)
		}()
		if w.Code < 400 {
			return
		}
		var p api.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || !all[string(p.Code)] {
			t.Fatalf("%s %s?%s %q: %d %v\n%s", method, u, query, body, w.Code, err, w.Body)
		}
		if w.Code == 500 {
			t.Fatalf("%s %s?%s %q is a fault: %s", method, u, query, body, w.Body)
		}
	})
}

func codesOf(f *testing.F) map[string]bool {
	m := map[string]bool{}
	t := &testing.T{}
	for _, c := range codes(t) {
		m[string(c)] = true
	}
	return m
}
