package web_test

import (
	"strings"
	"testing"
)

func TestAllowedAndDenied(t *testing.T) {
	for _, p := range []struct {
		url, authority string
		h2             bool
	}{{"http://ok.test/a?b=c", "ok.test:80", false}, {"https://ok.test/a?b=c", "ok.test:443", false}, {"https://ok.test/a?b=c", "ok.test:443", true}} {
		w := newWorld(t, allowOK)
		s := w.site(p.authority, !p.h2, nil)
		c := w.client(p.h2)
		resp, body := w.do(c, "GET", p.url, nil)
		if resp.StatusCode != 200 || body != "hello GET /a?b=c" || s.seen() != 1 {
			t.Errorf("%s: %d %q, seen %d", p.url, resp.StatusCode, body, s.seen())
		}
		resp, body = w.do(c, "POST", p.url, strings.NewReader("text"))
		if resp.StatusCode != 200 || body != "hello POST /a?b=c" {
			t.Errorf("%s: %d %q", p.url, resp.StatusCode, body)
		}
	}
	w := newWorld(t, allowOK)
	s := w.site("paths.test:443", true, nil)
	for _, h2 := range []bool{false, true} {
		c := w.client(h2)
		resp, body := w.do(c, "GET", "https://paths.test/private", nil)
		d := denial(t, body)
		if resp.StatusCode != 403 || d.Reason == "" || resp.Header.Get("X-Bailey-Reason") != d.Reason {
			t.Errorf("%d %q", resp.StatusCode, body)
		}
		if resp, _ := w.do(c, "GET", "https://paths.test/public/x", nil); resp.StatusCode != 200 {
			t.Errorf("the connection cannot be used any more: %d", resp.StatusCode)
		}
	}
	if s.seen() != 2 {
		t.Errorf("%d requests came through", s.seen())
	}
	for _, rec := range w.log.acts() {
		if rec.Decision == "allow" {
			if o := w.log.ended(t, rec.Seq); o.Status != 200 || o.Received == 0 || o.Error != "" {
				t.Errorf("%+v: %+v", rec.Egress, o)
			}
		}
	}
}
