//go:build linux

package stay

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// TestIdlePageAnswers is T13: a sandbox that has been paused because nothing happened
// answers the next request to its page, and the visitor sees nothing of it.
func TestIdlePageAnswers(t *testing.T) {
	testneeds.Tool(t, "python3")
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			address := l.Addr().String()
			l.Close()
			y.Serve("--ports-listen", address, "--ports-domain", "localhost")
			y.Must("create", "--name", "box", "--idle", "1s")
			y.Must("exec", "box", "--", "sh", "-c", `mkdir -p /tmp/www && cd /tmp/www && echo the page > index.html
				python3 -m http.server 8000 --bind 127.0.0.1 >log 2>&1 & until grep -qi :1F40 /proc/net/tcp; do sleep 0.01; done`)
			var p api.Port
			if out := y.Must("port", "--expose", "--public", "--json", "box", "8000"); json.Unmarshal([]byte(out), &p) != nil || p.URL == "" {
				t.Fatalf("exposed: %s", out)
			}
			u, err := url.Parse(p.URL)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				waitUntil(t, "it is paused", func() bool { return strings.Contains(y.Must("show", "--json", "box"), `"state": "paused"`) })
				req, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+address+"/", nil)
				req.Host = u.Host
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || string(body) != "the page\n" {
					t.Errorf("%s: %q, %v", resp.Status, body, err)
				}
			}
		})
	}
}
