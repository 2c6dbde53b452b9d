package inject

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/secrets"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// TestValuesReachTheirPlaces: each place of a binding gets the value, encoded
// as that place is, and the length is right (T63, T64).
func TestValuesReachTheirPlaces(t *testing.T) {
	k := newKit(t)
	const host = "https://api.everything.test"
	quotedValue, _ := json.Marshal(apiValue)
	cases := map[string]struct{ line, headers, body, want string }{
		"bearer":         {"GET " + host + "/x", "Authorization: Bearer {api}", "", "Authorization: Bearer " + apiValue + "\r\n"},
		"own header":     {"GET " + host + "/x", "X-Api-Key: {api}", "", "X-Api-Key: " + apiValue + "\r\n"},
		"basic password": {"GET " + host + "/x", "Authorization: Basic " + b64("user:"+k.ph["api"]), "", "Authorization: Basic " + b64("user:"+apiValue) + "\r\n"},
		"basic user":     {"GET " + host + "/x", "Authorization: basic " + b64(k.ph["api"]+":"), "", "Authorization: Basic " + b64(apiValue+":") + "\r\n"},
		"cookie":         {"GET " + host + "/x", "Cookie: s={api}", "", "Cookie: s=" + apiValue + "\r\n"},
		"query":          {"GET " + host + "/x?a=%7e&key={api}&b", "", "", "/x?a=%7e&key=" + url.QueryEscape(apiValue) + "&b HTTP"},
		"path":           {"GET " + host + "/a/{api}/b%2fc", "", "", "/a/" + url.PathEscape(apiValue) + "/b%2fc HTTP"},
		"json":           {"POST " + host + "/x", "Content-Type: application/json", `{ "client_secret": "{api}", "n":1.50 , "u":"\u00e9\/" }`, `{ "client_secret": ` + strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(string(quotedValue)) + `, "n":1.50 , "u":"\u00e9\/" }`},
		"json in text":   {"POST " + host + "/x", "Content-Type: application/vnd.api+json; charset=utf-8", `["say\t{api}."]`, `["say\t` + quoted(apiValue, false) + `."]`},
		"form":           {"POST " + host + "/token", "Content-Type: application/x-www-form-urlencoded", `grant_type=a%20b&client_secret={api}&x=y`, `grant_type=a%20b&client_secret=` + url.QueryEscape(apiValue) + `&x=y`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := &kit{t, k.p, k.held, k.issuer, k.Grants, k.ph}
			r := k.raw(c.line, c.headers, c.body)
			sent, used, err := k.send(r, "everything")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(sent, c.want) {
				t.Errorf("sent was\n%s\nand not\n%s", sent, c.want)
			}
			if strings.Contains(sent, k.ph["api"]) || len(used) != 1 || used[0] != "api" {
				t.Errorf("used %v; sent was %s", used, sent)
			}
			head, body, _ := strings.Cut(sent, "\r\n\r\n")
			if body != "" && !strings.Contains(head, "Content-Length: "+strconv.Itoa(len(body))+"\r\n") {
				t.Errorf("the length does not fit a body of %d: %s", len(body), head)
			}
		})
	}
}

// TestGitOverHTTPS: git sends the token by Basic authentication.
func TestGitOverHTTPS(t *testing.T) {
	k := newKit(t)
	sent, _, err := k.send(k.raw("GET https://git.github.test/o/r.git/info/refs?service=git-upload-pack", "Authorization: Basic "+b64("x-access-token:"+k.ph["github"]), ""), "bound")
	if err != nil || !strings.Contains(sent, "Basic "+b64("x-access-token:"+githubValue)) {
		t.Errorf("%v: %s", err, sent)
	}
}

// TestPlaceholdersElsewhereAreRefused: another host, another place, another
// sandbox, in each spelling (S1, S2, S11, S14).
func TestPlaceholdersElsewhereAreRefused(t *testing.T) {
	k := newKit(t)
	ph := k.ph["github"]
	jsonEscaped := `\u0067` + ph[1:]
	other, err := k.issuer.Grant(k.p.Secrets())
	if err != nil {
		t.Fatal(err)
	}
	zipped, err := encodeAll([]byte("x="+ph), []string{"gzip"})
	if err != nil {
		t.Fatal(err)
	}
	brotlied, err := encodeAll([]byte("x="+ph), []string{"br"})
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]struct{ line, headers, body string }{
		"header":          {"GET %s/", "X-Any: a{github}b", ""},
		"header, hex":     {"GET %s/", "X-Any: " + hex.EncodeToString([]byte(ph)), ""},
		"header, HEX":     {"GET %s/", "X-Any: " + strings.ToUpper(hex.EncodeToString([]byte(ph))), ""},
		"header, b64 0":   {"GET %s/", "X-Any: " + b64(ph), ""},
		"header, b64 1":   {"GET %s/", "X-Any: " + b64("u"+ph+"v"), ""},
		"header, b64 2":   {"GET %s/", "X-Any: " + b64("us"+ph), ""},
		"header, percent": {"GET %s/", "X-Any: " + spelt(ph, "%XX"), ""},
		"query":           {"GET %s/?q={github}", "", ""},
		"query name":      {"GET %s/?{github}=1", "", ""},
		"query, percent":  {"GET %s/?q=%%67" + ph[1:], "", ""},
		"query, twice":    {"GET %s/?q=%%2567" + ph[1:], "", ""},
		"query, b64":      {"GET %s/?q=" + url.QueryEscape(b64("a:"+ph)), "", ""},
		"path":            {"GET %s/a{github}/b", "", ""},
		"path, percent":   {"GET %s/%%67" + ph[1:], "", ""},
		"body":            {"POST %s/", "", "some {github} text"},
		"json":            {"POST %s/", "Content-Type: application/json", `{"a":"{github}"}`},
		"json key":        {"POST %s/", "Content-Type: application/json", `{"{github}":"a"}`},
		"json, escaped":   {"POST %s/", "Content-Type: application/json", `{"a":"` + jsonEscaped + `"}`},
		"no json":         {"POST %s/", "Content-Type: application/json", `{"a":"{github}"`},
		"form":            {"POST %s/", "Content-Type: application/x-www-form-urlencoded", "a=b&c={github}"},
		"form, percent":   {"POST %s/", "Content-Type: application/x-www-form-urlencoded", "a=b&c=%67" + ph[1:]},
		"form name":       {"POST %s/", "Content-Type: application/x-www-form-urlencoded", "{github}=b"},
		"multipart":       {"POST %s/", "Content-Type: multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=a\r\n\r\n{github}\r\n--x--\r\n"},
		"gzip":            {"POST %s/", "Content-Encoding: gzip", string(zipped)},
		"br":              {"POST %s/", "Content-Encoding: br", string(brotlied)},
		"base64 in body":  {"POST %s/", "", b64("user:" + ph)},
	}
	elsewhere := map[string]struct{ line, headers, body string }{ // where the binding would let it be
		"authorization": {"GET %s/", "Authorization: Bearer {github}", ""},
		"basic":         {"GET %s/", "Authorization: Basic " + b64("user:"+ph), ""},
		"proxy":         {"GET %s/", "Proxy-Authorization: Basic " + b64("user:"+ph), ""},
		"cookie":        {"GET %s/", "Cookie: c={github}", ""},
	}
	run := func(name, host, rule, reason string, c struct{ line, headers, body string }) {
		t.Run(name, func(t *testing.T) {
			k := &kit{t, k.p, k.held, k.issuer, k.Grants, k.ph}
			line := strings.ReplaceAll(strings.Replace(c.line, "%s", "https://"+host, 1), "%%", "%")
			r := k.raw(line, c.headers, c.body)
			sent, _, err := k.send(r, rule)
			k.refusedFor(err, reason)
			if sent != "" {
				t.Errorf("something was sent: %s", sent)
			}
		})
	}
	for name, c := range forms {
		run("unbound host/"+name, "free.test", "free", Misdirected, c)
		if name != "header" && !strings.HasPrefix(c.headers, "Content-Type: application/json") {
			run("other place/"+name, "api.github.test", "bound", Misdirected, c)
		}
		theirs := c
		theirs.headers = strings.ReplaceAll(theirs.headers, "{github}", other.Placeholders()["github"])
		theirs.body = strings.ReplaceAll(theirs.body, "{github}", other.Placeholders()["github"])
		theirs.line = strings.ReplaceAll(theirs.line, "{github}", other.Placeholders()["github"])
		if theirs != c {
			run("another sandbox's/"+name, "api.everything.test", "everything", ForeignSecret, theirs)
		}
	}
	for name, c := range elsewhere {
		run("unbound host/"+name, "free.test", "free", Misdirected, c)
		run("bound to another/"+name, "api.everything.test", "everything", Misdirected, c)
		run("other rule/"+name, "api.github.test", "free", Misdirected, c)
	}
}

// A conversation that quotes its environment goes on: to the host that has the
// value anyway the placeholder goes as it stands, in JSON, small and streamed. The
// value does not get there, and another secret's placeholder does not go.
func TestQuotedPlaceholders(t *testing.T) {
	for name, pad := range map[string]int{"small": 0, "large": maxBody} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			body := `{"said":"` + strings.Repeat("x", pad) + ` GITHUB_TOKEN={github}"}`
			post := func(body string) (string, error) {
				r := k.raw("POST https://api.github.test/", "Content-Type: application/json\nAuthorization: Bearer {github}", body)
				sent, _, err := k.send(r, "bound")
				return sent, err
			}
			sent, err := post(body)
			if err != nil {
				t.Fatal(err)
			}
			head, tail, _ := strings.Cut(sent, "\r\n\r\n")
			if !strings.Contains(head, githubValue) || strings.Contains(tail, githubValue) || !strings.Contains(tail, "GITHUB_TOKEN="+k.ph["github"]) {
				t.Errorf("sent %.300s … %.80s", head, tail[max(0, len(tail)-80):])
			}
			if _, err := post(strings.Replace(body, "{github}", k.ph["api"], 1)); err == nil {
				t.Error("the placeholder of another secret went")
			}
		})
	}
}

// TestTextWithoutPlaceholdersPasses byte by byte: the twin of the test above.
func TestTextWithoutPlaceholdersPasses(t *testing.T) {
	k := newKit(t)
	for _, c := range []struct{ line, headers, body, rule string }{
		{"POST https://free.test/a%2Fb?x=%7e&&y=+z", "Authorization: Bearer own-credential-of-mine\nCookie: a=b\nX-Any: ghp_none", "ghp_nothing here", "free"},
		{"POST https://free.test/", "Content-Type: application/json", `{"a": "b\u0041" , "ghp_": [1e5]}`, "free"},
		{"POST https://api.everything.test/", "Content-Type: application/json", ` {"a": "b\u0041" , "c": [1e5, "\/"]} `, "everything"},
		{"POST https://api.everything.test/", "Content-Type: application/x-www-form-urlencoded", "a=%7e&&b=+c&d", "everything"},
		{"POST https://api.everything.test/", "Content-Type: application/json", `{"not": json`, "everything"},
		{"POST https://free.test/", "Content-Type: application/octet-stream", strings.Repeat("0123456789abcdef", 100_000), "free"},
	} {
		r := k.raw(c.line, c.headers, c.body)
		var want bytes.Buffer
		if err := k.raw(c.line, c.headers, c.body).Write(&want); err != nil {
			t.Fatal(err)
		}
		sent, used, err := k.send(r, c.rule)
		if err != nil || sent != want.String() || len(used) > 0 {
			t.Errorf("%s: %v, used %v, changed: %v", c.line, err, used, sent != want.String())
		}
	}
}

// TestForeignCredentialsAreRefused: on a pinned host nothing else says who asks (S8).
func TestForeignCredentialsAreRefused(t *testing.T) {
	k := newKit(t)
	const host = "https://api.everything.test/x"
	for _, c := range []struct{ line, headers, body string }{
		{"GET " + host, "Authorization: Bearer sk-ant-of-the-attacker", ""},
		{"GET " + host, "Authorization: Basic " + b64("user:password"), ""},
		{"GET " + host, "Authorization: Basic !!!", ""},
		{"GET " + host, "Authorization: Basic " + b64("sk_live_attackers:"+k.ph["api"]), ""},
		{"GET " + host, "Authorization: Basic " + b64(k.ph["api"]+":a-password-of-the-attackers-own"), ""},
		{"GET " + host, "Authorization: Bearer {api}, Bearer sk-attacker", ""},
		{"GET " + host, "Authorization: Bearer sk-attacker {api}", ""},
		{"GET " + host, "Authorization: Bearer {api}\nAuthorization: Bearer sk-attacker", ""},
		{"GET " + host, "Authorization: Bearer {api}\nX-Api-Key: sk-attacker", ""},
		{"GET " + host, "Api-Key: sk-attacker", ""},
		{"GET " + host, "Proxy-Authorization: Bearer sk-attacker", ""},
		{"GET " + host, "X-Goog-Api-Key: attacker", ""},
		{"GET " + host, "Private-Token: attacker", ""},
		{"GET " + host, "Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.sk-attacker", ""},
		{"GET " + host, "Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.YXR0YWNrZXI", ""},
		{"GET " + host, "Cookie: session=attacker", ""},
		{"GET " + host, "Cookie: a={api}; session=attacker", ""},
		{"GET " + host + "?key=attacker", "", ""},
		{"GET " + host + "?%6bey=attacker", "", ""},
		{"GET " + host + "?access_token=attacker", "X-Api-Key: {api}", ""},
		{"GET " + host + "?X-Amz-Signature=1&X-Amz-Credential=AKIA/x", "", ""},
		{"GET " + host + "?sig=abc&se=2030", "", ""},
		{"GET https://user:pass@api.everything.test/x", "", ""},
		{"GET " + host, "Authorization: AWS4-HMAC-SHA256 Credential=AKIAATTACKER/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=" + strings.Repeat("0", 64), ""},
		{"POST " + host, "Content-Type: application/x-www-form-urlencoded", "client_secret=attacker"},
		{"POST " + host, "Content-Type: application/x-www-form-urlencoded", "a=b&token=attacker-{api}"},
		{"POST " + host, "Content-Type: application/x-www-form-urlencoded;;=", "token=attacker"},
		{"POST " + host, "Content-Type: application/x-www-form-urlencoded, text/plain", "token=attacker"},
		{"POST " + host, "Content-Type: application/x-www-form-urlencoded", "a=b;to%6ben=attacker"},
		{"POST " + host, "Content-Type: application/x-www-form-urlencoded", "%20token[]=attacker"},
		{"GET " + host + "?api.key=attacker", "", ""},
		{"GET " + host, "Token: attacker", ""},
		{"GET " + host, "X-AccessToken: attacker", ""},
	} {
		r := k.raw(c.line, c.headers, c.body)
		if _, _, err := k.send(r, "everything"); !k.refusedFor(err, ForeignCredential) {
			t.Errorf("that was %+v", c)
		}
	}
	for _, c := range []struct{ line, headers, body string }{
		{"GET " + host, "Idempotency-Key: 12345", ""},
		{"GET " + host + "?page_token=abc&keyword=x", "X-Csrf-Token: a\nX-Request-Id: b\nSession_id: c", ""},
		{"GET " + host + "?key=", "", ""},
		{"GET " + host, "Sec-WebSocket-Protocol: graphql-transport-ws, v1.kernel.websocket.jupyter.org", ""},
		{"GET " + host, "Sec-WebSocket-Protocol: realtime, api-key.{api}", ""},
		{"PUT " + host, "X-Amz-Meta-Sort-Key: a", ""},
		{"POST " + host, "Content-Type: application/x-www-form-urlencoded", "text=a;b=c;token"},
	} {
		if _, _, err := k.send(k.raw(c.line, c.headers, c.body), "everything"); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestTheGateSetsAHeader whatever the sandbox sends.
func TestTheGateSetsAHeader(t *testing.T) {
	k := newKit(t)
	for _, headers := range []string{"", "Authorization: Bearer sk-attacker", "Authorization: Bearer {set}", "Authorization: a\nAuthorization: b"} {
		sent, used, err := k.send(k.raw("GET https://api.set.test/", headers, ""), "set")
		if err != nil || strings.Count(sent, "Authorization:") != 1 || !strings.Contains(sent, "Authorization: Bearer set-by-the-gate-0123456789\r\n") || len(used) != 1 {
			t.Errorf("with %q: %v: %s", headers, err, sent)
		}
	}
	_, _, err := k.send(k.raw("GET https://api.set.test/", "Authorization: Bearer {github}", ""), "set")
	k.refusedFor(err, Misdirected)
	_, _, err = k.send(k.raw("GET http://api.set.test/", "", ""), "set")
	k.refusedFor(err, PlainHTTP)
}

// TestPlainHTTPCarriesNoValue unless the rule says so (S18).
func TestPlainHTTPCarriesNoValue(t *testing.T) {
	k := newKit(t)
	_, _, err := k.send(k.raw("GET http://api.everything.test/x", "X-Api-Key: {api}", ""), "everything")
	k.refusedFor(err, PlainHTTP)
	sent, _, err := k.send(k.raw("GET http://api.everything.test/plain", "X-Api-Key: {api}", ""), "plain-post")
	if err != nil || !strings.Contains(sent, apiValue) {
		t.Errorf("where the rule allows it: %v: %s", err, sent)
	}
}

// TestRotationAndRevocation in the middle of a session (S12).
func TestRotationAndRevocation(t *testing.T) {
	k := newKit(t)
	ask := func(g *Grants) (string, error) {
		k := &kit{t, k.p, k.held, k.issuer, g, k.ph}
		sent, _, err := k.send(k.raw("GET https://api.github.test/", "Authorization: token {github}", ""), "bound")
		return sent, err
	}
	child := k.Fork()
	restored, err := k.issuer.Restore(k.Save(), k.p.Secrets())
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(k.Save(), []byte(githubValue)) {
		t.Error("what is saved holds a value")
	}
	const fresh = "ghp_rotatedrotatedrotatedrotatedrotated01"
	k.held.Put(&secrets.Current{Name: "GITHUB_TOKEN", Version: 2, Value: secrets.NewValue([]byte(fresh))})
	for _, g := range []*Grants{k.Grants, child, restored} {
		if sent, err := ask(g); err != nil || !strings.Contains(sent, "Authorization: token "+fresh) {
			t.Errorf("after a rotation: %v: %s", err, sent)
		}
	}
	for _, v := range []string{githubValue, fresh} {
		if got := string(k.Incoming([]byte("<"+v+">"), nil)); got != "<"+k.ph["github"]+">" && !strings.Contains(got, k.ph["github"]) {
			t.Errorf("the value is not taken out: %s", got)
		}
	}
	child.Revoke("github")
	_, err = ask(child)
	k.refusedFor(err, Revoked)
	if got := string(child.Incoming([]byte(fresh), nil)); got == fresh {
		t.Error("a revoked child is shown the value")
	}
	if _, err := ask(k.Grants); err != nil {
		t.Errorf("the parent after its child's revocation: %v", err)
	}
	k.held.Put(&secrets.Current{Name: "GITHUB_TOKEN", Version: 2, Old: []*secrets.Value{secrets.NewValue([]byte(fresh))}})
	for _, g := range []*Grants{k.Grants, restored} {
		_, err = ask(g)
		k.refusedFor(err, Revoked)
	}
	// It cannot be bound anew; what was bound stays, so that other changes of its
	// policy come into force.
	if _, err := k.issuer.Grant(k.p.Secrets()); bailey.CodeOf(err) != bailey.CodeSecretRevoked || !strings.Contains(err.Error(), "GITHUB_TOKEN") {
		t.Errorf("a new sandbox with a revoked secret: %v", err)
	}
	if _, err := k.issuer.Restore(k.Save(), k.p.Secrets()); err != nil {
		t.Errorf("one that comes back: %v", err)
	}
	if err := k.Bind(k.p.Secrets()); err != nil {
		t.Errorf("one that runs: %v", err)
	}
	if got := string(k.Incoming([]byte(fresh), nil)); got == fresh {
		t.Error("after a revocation the value is shown")
	}
	// A policy that binds it no more: the placeholder is known, and refused.
	if err := k.Bind(nil); err != nil {
		t.Fatal(err)
	}
	_, err = ask(k.Grants)
	k.refusedFor(err, Misdirected)
}

func TestPlaceholders(t *testing.T) {
	seen := map[string]bool{}
	for _, v := range []string{githubValue, "sk-ant-api03-" + strings.Repeat("x", 95), awsID, "abcdefghijkl", strings.Repeat("z", 64), "xoxb-1-2-abc", strings.Repeat("k", 5000), "github_pat_" + strings.Repeat("p", 82)} {
		c := &secrets.Current{Value: secrets.NewValue([]byte(v))}
		p := placeholder(c, mark)
		prefix := secrets.Prefix([]byte(v))
		if !strings.HasPrefix(p, prefix+mark) || seen[p] || strings.ContainsFunc(p[len(prefix):], func(r rune) bool { return !strings.ContainsRune(alphanumeric, r) }) {
			t.Errorf("for %.12s…: %s", v, p)
		}
		seen[p] = true
		bits := 5.95 * float64(len(p)-len(prefix)-len(mark))
		if prefix == "AKIA" {
			bits = 5 * float64(len(p)-len(prefix)-len(mark))
		}
		if bits < 128 {
			t.Errorf("%s has %.0f random bits", p, bits)
		}
		if n := len(v); n >= 44 && n <= 512 && len(p) != n {
			t.Errorf("for a value of %d bytes it has %d", n, len(p))
		}
		if len(v) > 20 && strings.Contains(p, v[len(prefix):min(len(v), len(prefix)+12)]) {
			t.Errorf("%s holds some of the value", p)
		}
	}
	if len(placeholder(&secrets.Current{Value: secrets.NewValue([]byte(githubValue))}, mark)) != 40 {
		t.Error("a GitHub token's placeholder has another length")
	}
}

// TestAnswersAreKeptSearchable: encodings that cannot be decoded, and parts of
// bodies, are not asked for.
func TestAnswersAreKeptSearchable(t *testing.T) {
	k := newKit(t)
	r := k.raw("GET https://api.everything.test/", "Accept-Encoding: lzma, gzip;q=0.5, *;q=0.1\nRange: bytes=5-\nIf-Range: x", "")
	if _, _, err := k.send(r, "everything"); err != nil {
		t.Fatal(err)
	}
	if r.Header.Get("Accept-Encoding") != "gzip;q=0.5" || r.Header.Get("Range") != "" || r.Header.Get("If-Range") != "" {
		t.Errorf("asked with %v", r.Header)
	}
	r = k.raw("GET https://free.test/", "Accept-Encoding: compress\nRange: bytes=5-", "")
	if _, _, err := k.send(r, "free"); err != nil {
		t.Fatal(err)
	}
	if r.Header.Get("Accept-Encoding") != "identity" || r.Header.Get("Range") == "" {
		t.Errorf("asked a free host with %v", r.Header)
	}
}

// TestEncodedBodiesAreFilled: decoded, filled and encoded again (S14).
func TestEncodedBodiesAreFilled(t *testing.T) {
	k := newKit(t)
	for _, coding := range []string{"gzip", "br", "zstd", "deflate"} {
		raw, err := encodeAll([]byte(`{"a":"`+k.ph["api"]+`"}`), []string{coding})
		if err != nil {
			t.Fatal(err)
		}
		r := k.raw("POST https://api.everything.test/", "Content-Type: application/json\nContent-Encoding: "+coding, string(raw))
		if _, err := k.Request(t.Context(), r, k.act(r), k.rule("everything")); err != nil {
			t.Fatal(coding, err)
		}
		sent, _ := io.ReadAll(r.Body)
		plain, err := decodeAll(t.Context(), sent, []string{coding})
		if err != nil || string(plain) != `{"a":"`+quoted(apiValue, false)+`"}` || r.ContentLength != int64(len(sent)) {
			t.Errorf("%s: %v: %s", coding, err, plain)
		}
	}
	bomb, err := encodeAll(make([]byte, maxBody+1), []string{"gzip"})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ coding, body string }{
		"unknown": {"lzma", "x"}, "not gzip": {"gzip", "plain text"}, "thrice": {"gzip, gzip, gzip", "x"}, "bomb": {"gzip", string(bomb)}, "cut": {"gzip", string(bomb[:len(bomb)/2])},
	} {
		_, _, err := k.send(k.raw("POST https://api.everything.test/", "Content-Encoding: "+c.coding, c.body), "everything")
		if !k.refusedFor(err, Unreadable) {
			t.Errorf("that was %s", name)
		}
	}
}

// TestBodiesTakeMemory: bodies that are read whole, or decoded, take of what the
// gate keeps for the sandbox, as much as has come of them, until their requests
// are over.
func TestBodiesTakeMemory(t *testing.T) {
	k := newKit(t)
	const all = 1<<20 - 1 // less than the step that does not fit, which waits for nobody then
	memory := act.NewMemory(all)
	free := func() bool { // whether all of it is there
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if memory.Take(ctx, all) != nil {
			return false
		}
		memory.Give(all)
		return true
	}
	post := func(ctx context.Context, headers, body string, length int64) error {
		r := k.raw("POST https://api.everything.test/", headers, body)
		r.ContentLength = length
		_, err := k.Request(ctx, r, k.act(r), k.rule("everything"))
		return err
	}
	text := func(n int) string { return `["` + strings.Repeat("x", n) + `"]` }
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(text(2 * all)))
	_ = z.Close()
	const json = "Content-Type: application/json"
	for name, c := range map[string]struct {
		headers, body string
		length        int64
		held, refused bool
	}{
		"small":               {json, text(1000), 1004, false, false},
		"announced, not sent": {json, text(1000), maxBody, false, false},
		"large":               {json, text(all / 4), -1, true, false},
		"too large":           {json, text(2 * all), -1, true, true},
		"too large, of known": {json, text(2 * all), 2*all + 4, true, true},
		"packed":              {json + "\nContent-Encoding: gzip", packed.String(), int64(packed.Len()), true, true},
	} {
		ctx, cancel := context.WithCancel(act.WithMemory(t.Context(), memory))
		err := post(ctx, c.headers, c.body, c.length)
		if c.refused {
			k.refusedFor(err, "gate_memory")
		} else if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if free() == c.held {
			t.Errorf("%s: is memory taken? not %v", name, c.held)
		}
		cancel()
		for range 5000 { // what runs after the end of a context does so in a goroutine
			if free() {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if !free() {
			t.Fatalf("%s: memory is still taken after the request", name)
		}
	}
}

// TestFormsThatAreNotSearched: where it is open what a body is, or a form is too
// long to be looked through, it does not go to a pinned host.
func TestFormsThatAreNotSearched(t *testing.T) {
	k := newKit(t)
	const form = "Content-Type: application/x-www-form-urlencoded"
	for name, c := range map[string]struct{ headers, body string }{
		"two types":  {"Content-Type: text/plain\n" + form, "token=attacker"},
		"a long one": {form, "a=" + strings.Repeat("x", maxBody) + "&token=attacker"},
	} {
		if _, _, err := k.send(k.raw("POST https://api.everything.test/", c.headers, c.body), "everything"); !k.refusedFor(err, Unreadable) {
			t.Errorf("that was %s", name)
		}
	}
}
