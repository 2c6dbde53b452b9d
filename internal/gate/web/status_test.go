package web_test

import (
	"io"
	"net/http"
	"testing"
)

// TestStatusOfServers: an answer with a number that is no status is none, over
// either version of HTTP, and the next request goes on.
func TestStatusOfServers(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for status, want := range map[string]int{"000": 502, "099": 502, "101": 502, "200": 200, "599": 599, "999": 999} {
			w := newWorld(t, allowOK)
			w.site("ok.test:443", true, func(rw http.ResponseWriter, r *http.Request) {
				c, _, err := rw.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				io.WriteString(c, "HTTP/1.1 "+status+" x\r\nContent-Length: 2\r\n\r\nok")
				c.Close()
			})
			c := w.client(h2)
			for range 2 {
				if resp, _ := w.do(c, "GET", "https://ok.test/", nil); resp.StatusCode != want {
					t.Errorf("h2 %v: %s became %d", h2, status, resp.StatusCode)
				}
			}
			for _, r := range w.log.acts() {
				if o := w.log.ended(t, r.Seq); want == 502 && o.Error != "upstream_protocol" {
					t.Errorf("h2 %v: %s ended as %q", h2, status, o.Error)
				}
			}
		}
	}
}
