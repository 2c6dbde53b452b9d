package web_test

import (
	"bufio"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/inject"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

const (
	firstValue  = "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"
	secondValue = "ghp_Z9y8X7w6V5u4T3s2R1q0P9o8N7m6L5k4J3i2"
)

const allowSecret = `
version: 1
secrets:
  token: {secret: TOKEN, env: TOKEN, hosts: [ok.test], in: [header, json, websocket]}
egress:
  rules:
    - {name: ok, hosts: [ok.test], secret: token, websocket: true}
    - {name: other, hosts: [other.test]}
`

// holder is a world whose sandbox has a real secret.
type holder struct {
	*world
	held        *secrets.Held
	grants      *inject.Grants
	placeholder string
}

func newHolder(t *testing.T) *holder {
	t.Helper()
	held := secrets.NewHeld()
	held.Put(&secrets.Current{Name: "TOKEN", Version: 1, Value: secrets.NewValue([]byte(firstValue))})
	g, err := inject.NewIssuer(held, "QW7MARKX2Z").Grant(parse(t, allowSecret).Secrets())
	if err != nil {
		t.Fatal(err)
	}
	return &holder{newWorldWith(t, allowSecret, g), held, g, g.Placeholders()["token"]}
}

// S12: a value that is replaced is the new one in the next request, and the old
// one still does not come back; a secret that is revoked ends what needs it.
func TestSecretsChangeWhileInUse(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newHolder(t)
		s := w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, r.Header.Get("Authorization")+" "+firstValue)
		})
		c := w.client(h2)
		ask := func() (*http.Response, string) {
			return w.do(c, "GET", "https://ok.test/", nil, "Authorization", "Bearer "+w.placeholder)
		}
		sent := func() string { return s.last().Header.Get("Authorization") }
		_, body := ask()
		if sent() != "Bearer "+firstValue || body != "Bearer "+w.placeholder+" "+w.placeholder {
			t.Fatalf("sent %q, got %q", sent(), body)
		}
		w.held.Put(&secrets.Current{Name: "TOKEN", Version: 2, Value: secrets.NewValue([]byte(secondValue))})
		_, body = ask()
		if sent() != "Bearer "+secondValue || body != "Bearer "+w.placeholder+" "+w.placeholder {
			t.Errorf("after the change: sent %q, got %q", sent(), body)
		}
		w.held.Put(&secrets.Current{Name: "TOKEN", Version: 3})
		resp, body := ask()
		if d := denial(t, body); resp.StatusCode != 403 || d.Reason != inject.Revoked || s.seen() != 2 || strings.Contains(body, firstValue) || strings.Contains(body, secondValue) {
			t.Errorf("after it was revoked: %d %s; the server saw %d", resp.StatusCode, body, s.seen())
		}
		w.held.Put(&secrets.Current{Name: "TOKEN", Version: 4, Value: secrets.NewValue([]byte(secondValue))})
		w.grants.Revoke("token") // from this sandbox alone
		if resp, body := ask(); resp.StatusCode != 403 || denial(t, body).Reason != inject.Revoked || s.seen() != 2 {
			t.Errorf("after it was taken away: %d %s", resp.StatusCode, body)
		}
		if all := w.log.acts(); len(all) != 4 || all[3].Decision != "deny" || all[1].Egress.Secrets[0] != "token" {
			t.Errorf("%+v", all)
		}
	}
}

// What a server says of a WebSocket before it is one has no value either: the
// fields of its yes, and the fields and the body of its no.
func TestWebSocketHandshakeIsScrubbed(t *testing.T) {
	for _, yes := range []bool{true, false} {
		w := newHolder(t)
		w.site("ok.test:443", true, func(rw http.ResponseWriter, r *http.Request) {
			got := r.Header.Get("Authorization")
			if got != "Bearer "+firstValue {
				t.Errorf("the server got %q", got)
			}
			if !yes {
				rw.Header().Set("X-Echo", got)
				rw.WriteHeader(401)
				io.WriteString(rw, "no: "+got)
				return
			}
			c, rd, err := rw.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"+
				"X-Echo: %s\r\nX-Encoded: %s\r\nSet-Cookie: session=%s\r\nTrailer: X-%s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]), got,
				base64.StdEncoding.EncodeToString([]byte(firstValue)), firstValue, firstValue)
			c.Write([]byte{0x88, 0})
			io.Copy(io.Discard, rd)
		})
		c := w.tls("ok.test:443")
		fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: ok.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
			"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nAuthorization: Bearer %s\r\n\r\n", w.placeholder)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := fmt.Sprint(resp.Status, resp.Header)
		if yes {
			if resp.StatusCode != 101 || len(resp.Header["Set-Cookie"]) > 0 {
				t.Errorf("%s", seen)
			}
			c.Close()
		} else {
			b, err := io.ReadAll(resp.Body)
			seen += string(b)
			if resp.StatusCode != 401 || err != nil || !strings.Contains(string(b), "no: Bearer "+w.placeholder) {
				t.Errorf("%s, %v", seen, err)
			}
		}
		if resp.Header.Get("X-Echo") != "Bearer "+w.placeholder || strings.Contains(seen, firstValue) || strings.Contains(seen, base64.StdEncoding.EncodeToString([]byte(firstValue))) {
			t.Errorf("the value came in: %s", seen)
		}
		if o := w.log.ended(t, w.log.acts()[0].Seq); o.Scrubbed == 0 {
			t.Errorf("%+v", o)
		}
	}
}
