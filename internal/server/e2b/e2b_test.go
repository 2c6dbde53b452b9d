package e2b

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/server/standin"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// front is one over the engine that starts nothing, and a key for it.
func front(t *testing.T, change func(*Options)) (s *Server, key api.Key) {
	t.Helper()
	db, err := state.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	keys := access.NewKeys(db, access.KeyOptions{})
	if key, err = keys.Create(t.Context(), api.KeySpec{Name: "k", Scopes: []string{"read", "exec", "write"}}); err != nil {
		t.Fatal(err)
	}
	opt := Options{Engine: standin.New(), Keys: keys, Secret: make([]byte, secretSize)}
	if change != nil {
		change(&opt)
	}
	s = New(opt)
	t.Cleanup(s.Close)
	return s, key
}

// ask sends a request and gives status and body.
func ask(s *Server, method, target, key, body string, headers ...string) (int, string) {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	r.Host = "127.0.0.1:1"
	if key != "" {
		r.Header.Set("X-API-KEY", key)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
			continue
		}
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// TestErrorsHaveTheirShape: whatever is refused has a body with the status as code.
func TestErrorsHaveTheirShape(t *testing.T) {
	s, key := front(t, nil)
	for _, c := range []struct {
		method, target, key, body string
		status                    int
		text                      string
	}{
		{"POST", "/sandboxes", "", "{}", 401, "no API key"},
		{"POST", "/sandboxes", "e2b_00", "{}", 401, "not known"},
		{"POST", "/v2/sandboxes", key.E2B, "{", 400, "not what it should be"},
		{"POST", "/v2/sandboxes", key.E2B, `{"timeout":0}`, 400, "out of range"},
		{"POST", "/v2/sandboxes", key.E2B, `{"metadata":{"e2b:x":"y"}}`, 400, "Bailey has for itself"},
		{"POST", "/v2/sandboxes", key.E2B, `{"network":{"allowOut":["example.com"]}}`, 403, "more than this daemon"},
		{"POST", "/v2/sandboxes", key.E2B, `{"network":{"rules":{"x":[]}}}`, 400, "does not support"},
		{"POST", "/v2/sandboxes", key.E2B, `{"mcp":{"x":{}}}`, 400, "does not support"},
		{"POST", "/v2/sandboxes", key.E2B, `{"volumeMounts":[{"name":"x"}]}`, 400, "does not support"},
		{"POST", "/v2/sandboxes", key.E2B, `{"autoPauseMemory":false}`, 400, "needs autoPause"},
		{"GET", "/sandboxes/nothere", key.Token, "", 404, "not found"},
		{"GET", "/sandboxes/..%2fx", key.Token, "", 404, "not found"},
		{"DELETE", "/sandboxes/nothere-client", key.E2B, "", 404, "not found"},
		{"GET", "/v2/sandboxes?limit=101", key.E2B, "", 400, "limit"},
		{"GET", "/v2/sandboxes?nextToken=x", key.E2B, "", 400, "nextToken"},
		{"GET", "/v2/sandboxes?state=lost", key.E2B, "", 400, "state"},
		{"POST", "/v3/templates", key.E2B, "{}", 400, "does not support"},
		{"GET", "/volumes", key.E2B, "", 400, "does not support"},
		{"GET", "/elsewhere", key.E2B, "", 404, "nothing at"},
		{"POST", "/process.Process/Start", "", "", 400, "missing header"},
		{"GET", "/files?path=/etc/passwd&signature=v1_x", "", "", 401, "unauthorized"},
	} {
		status, body := ask(s, c.method, c.target, c.key, c.body)
		var f failure
		if err := json.Unmarshal([]byte(body), &f); err != nil || status != c.status || f.Code != status || !strings.Contains(f.Message, c.text) {
			t.Errorf("%s %s: %d %s", c.method, c.target, status, body)
		}
	}
	if status, _ := ask(s, "GET", "/health", "", ""); status != 200 {
		t.Errorf("health: %d", status)
	}
}

// TestKeyForms: both writings of a key, in either header, are the same key.
func TestKeyForms(t *testing.T) {
	s, key := front(t, nil)
	for _, headers := range [][]string{{"X-API-KEY: " + key.E2B}, {"X-API-KEY: " + key.Token}, {"Authorization: Bearer " + key.E2B}} {
		if status, body := ask(s, "GET", "/v2/sandboxes", "", "", headers...); status != 200 || body != "[]" {
			t.Errorf("%q: %d %s", headers, status, body)
		}
	}
	if !strings.HasPrefix(key.E2B, "e2b_") || strings.Trim(key.E2B[4:], "0123456789abcdef") != "" {
		t.Errorf("older SDKs refuse %q", key.E2B)
	}
}

// TestReach: what a sandbox reaches is never more than what the configuration says.
func TestReach(t *testing.T) {
	no, yes := false, true
	s, _ := front(t, func(o *Options) { o.Allow = []string{"api.test", "*.wide.test"} })
	for _, c := range []struct {
		n    network
		want string // joined, or the error's status
	}{
		{network{}, "api.test *.wide.test"},
		{network{Internet: &yes}, "api.test *.wide.test"},
		{network{Internet: &no}, ""},
		{network{DenyOut: everything}, ""},
		{network{AllowOut: []string{"api.test"}, DenyOut: everything}, "api.test"},
		{network{AllowOut: []string{"A.wide.test"}}, "A.wide.test"},
		{network{AllowOut: []string{"*.a.wide.test"}}, "*.a.wide.test"},
		{network{AllowOut: []string{"wide.test"}}, "403"},
		{network{AllowOut: []string{"evilwide.test"}}, "403"},
		{network{AllowOut: []string{"0.0.0.0/0"}}, "403"},
		{network{AllowOut: []string{"10.0.0.1"}}, "403"},
		{network{AllowOut: []string{"*"}}, "403"},
		{network{DenyOut: []string{"10.0.0.0/8"}}, "400"},
		{network{PublicTraffic: &no}, "400"},
	} {
		allow, err := s.reach(c.n)
		got := strings.Join(allow, " ")
		if err != nil {
			got = strconv.Itoa(failed(err).Code)
		}
		if got != c.want {
			t.Errorf("%+v: %q in place of %q", c.n, got, c.want)
		}
	}
}

// TestMetadataFilter: keys and values are escaped once more than a query's are.
func TestMetadataFilter(t *testing.T) {
	q := url.Values{}
	inner := url.Values{}
	inner.Set(url.QueryEscape("a&b"), url.QueryEscape("c d=%e"))
	q.Set("metadata", inner.Encode())
	m, err := metadataFilter(q.Get("metadata"))
	if err != nil || len(m) != 1 || m["a&b"] != "c d=%e" {
		t.Errorf("%q %v", m, err)
	}
	if _, err := metadataFilter("e2b%3Atemplate=x"); err == nil {
		t.Error("the front's own labels can be asked for")
	}
}

func TestSignature(t *testing.T) {
	now := time.Unix(1000, 0)
	get := func(v url.Values) func(string) string { return v.Get }
	v := url.Values{"path": {"/a"}, "signature": {signature("token", "/a", "read", "", "")}}
	if !signedFor("token", "read", get(v), now) || signedFor("other", "read", get(v), now) || signedFor("token", "write", get(v), now) {
		t.Error("a signature is for a token and an act")
	}
	v = url.Values{"path": {"/a"}, "signature_expiration": {"999"}, "signature": {signature("token", "/a", "read", "", "999")}}
	if signedFor("token", "read", get(v), now) {
		t.Error("it has expired")
	}
	v.Set("signature_expiration", "1001")
	if signedFor("token", "read", get(v), now) {
		t.Error("its end is signed, too")
	}
}

func TestSecret(t *testing.T) {
	home := t.TempDir()
	a, err := Secret(home)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Secret(home); err != nil || !bytes.Equal(a, b) {
		t.Errorf("another key the second time: %v", err)
	}
}

func TestRoute(t *testing.T) {
	for _, c := range []struct {
		host, id, port string
		want           place
		status         int
	}{
		{"127.0.0.1:80", "", "", place{}, 0},
		{"api.boxes.test", "abc", "49983", place{}, 0},
		{"127.0.0.1:80", "abc", "49983", place{"abc", 49983}, 0},
		{"[::1]:80", "abc-client", "49983", place{"abc", 49983}, 0},
		{"sandbox.boxes.test", "abc", "3000", place{"abc", 3000}, 0},
		{"49983-abc.boxes.test:8443", "", "", place{"abc", 49983}, 0},
		{"3000-abc.boxes.test", "other", "49983", place{"abc", 3000}, 0}, // the host wins
		{"3000-abc.elsewhere.test", "other", "49983", place{}, 400},
		{"x.boxes.test", "", "", place{}, 400},
		{"0-abc.boxes.test", "", "", place{}, 400},
		{"127.0.0.1", "abc", "", place{}, 400},
		{"127.0.0.1", "", "1", place{}, 400},
		{"127.0.0.1", "../x", "1", place{}, 400},
		{"127.0.0.1", "abc", "65536", place{}, 400},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		for name, v := range map[string]string{sandboxHeader: c.id, portHeader: c.port} {
			if v != "" {
				r.Header.Set(name, v)
			}
		}
		got, f := route(r, "boxes.test")
		status := 0
		if f != nil {
			status = f.Code
		}
		if got != c.want || status != c.status {
			t.Errorf("%+v: %+v %d", c, got, status)
		}
	}
}

// FuzzRoute: what is made of hosts and headers is a whole id and a port, and a host of a
// port never gives way to headers.
func FuzzRoute(f *testing.F) {
	f.Add("49983-abc.boxes.test", "", "")
	f.Add("127.0.0.1:1", "abc-x", "3000")
	f.Add("[::1", "a", "+1")
	f.Fuzz(func(t *testing.T, host, id, port string) {
		r := &http.Request{Host: host, Header: http.Header{sandboxHeader: {id}, portHeader: {port}}}
		to, failure := route(r, "boxes.test")
		if failure != nil || to.sandbox == "" {
			return
		}
		if !isID(to.sandbox) || to.port < 1 || to.port > 65535 {
			t.Fatalf("%q %q %q: %+v", host, id, port, to)
		}
		if label, in := strings.CutSuffix(hostOf(host), ".boxes.test"); in && label != "sandbox" && label != strconv.Itoa(to.port)+"-"+to.sandbox {
			t.Fatalf("%q leads to %+v", host, to)
		}
	})
}

func envelope(flags byte, payload string) []byte {
	b := append([]byte{flags}, binary.BigEndian.AppendUint32(nil, uint32(len(payload)))...)
	return append(b, payload...)
}

// FuzzEnvelope: an envelope is read whole or refused, and nothing more is read than it has.
func FuzzEnvelope(f *testing.F) {
	f.Add(envelope(0, "{}"))
	f.Add(envelope(2, `{"error":{}}`))
	f.Add(envelope(1, "x"))
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		flags, payload, err := readEnvelope(r, 1<<10)
		var own *connectError
		switch {
		case err == nil:
			if rest := len(in) - r.Len(); rest != 5+len(payload) || flags&^flagEnd != 0 || !bytes.Equal(in[:rest], envelope(flags, string(payload))) {
				t.Fatalf("%x: %x %x", in, flags, payload)
			}
		case errors.Is(err, io.EOF):
			if len(in) > 0 {
				t.Fatalf("%x is no end", in)
			}
		case !errors.As(err, &own):
			t.Fatalf("%x: %v", in, err)
		}
	})
}

func TestOneRange(t *testing.T) {
	for header, want := range map[string]struct {
		from, n  int64
		ok, none bool
	}{
		"bytes=0-3": {0, 4, true, false}, "bytes=8-": {8, 2, true, false}, "bytes=-3": {7, 3, true, false}, "bytes=-30": {0, 10, true, false},
		"bytes=5-100": {5, 5, true, false}, "bytes=10-": {0, 0, false, true}, "bytes=3-2": {}, "bytes=0-1,3-4": {}, "lines=1-2": {}, "bytes=-": {}, "bytes=x-": {}, "bytes=-0": {10, 0, false, true},
	} {
		from, n, ok, none := oneRange(header, 10)
		if from != want.from || n != want.n || ok != want.ok || none != want.none {
			t.Errorf("%s: %d %d %t %t", header, from, n, ok, none)
		}
	}
}

// made is a sandbox of the front's, and its token.
func made(t *testing.T, s *Server, key api.Key, headers ...string) (id, token string) {
	t.Helper()
	status, body := ask(s, "POST", "/v2/sandboxes", key.E2B, `{"metadata":{"a":"b"}}`, headers...)
	var h handle
	if err := json.Unmarshal([]byte(body), &h); err != nil || status != 201 || h.Sandbox == "" || h.Token == "" || h.Envd == "" {
		t.Fatalf("%d %s", status, body)
	}
	return h.Sandbox, h.Token
}

// TestTokens: one sandbox's token opens no other, nor does a key.
func TestTokens(t *testing.T) {
	s, key := front(t, nil)
	a, token := made(t, s, key)
	b, _ := made(t, s, key)
	for _, c := range []struct {
		id, token string
		status    int
	}{{a, token, 200}, {b, token, 401}, {a, "", 401}, {a, key.E2B, 401}, {a, key.Token, 401}, {"nothere", token, 502}} {
		status, body := ask(s, "GET", "/envs", "", "", sandboxHeader+": "+c.id, portHeader+": 49983", "X-Access-Token: "+c.token)
		if status != c.status {
			t.Errorf("%+v: %d %s", c, status, body)
		}
	}
}

// TestUploadCap: what is too large is refused with the number and what to do (T37).
func TestUploadCap(t *testing.T) {
	s, key := front(t, func(o *Options) { o.Upload = 100 })
	id, token := made(t, s, key)
	s.people.boxes = map[string]*crowd{}
	for n, want := range map[int]int{100: 200, 101: 413} {
		box, err := s.engine.Sandbox(t.Context(), nobody, id)
		if err != nil {
			t.Fatal(err)
		}
		s.people.boxes[id+"."+strconv.FormatInt(box.Generation, 10)] = &crowd{read: time.Now(), users: []account{{name: "root", home: "/root", own: true}}}
		status, body := ask(s, "POST", "/files?path=/x", "", strings.Repeat("x", n), sandboxHeader+": "+id, portHeader+": 49983", "X-Access-Token: "+token, "Content-Type: application/octet-stream")
		var f failure
		json.Unmarshal([]byte(body), &f)
		if status != want || want == 413 && (f.Limit != 100 || f.How == "") {
			t.Errorf("%d bytes: %d %s", n, status, body)
		}
	}
}

// TestPorts: a server is reached at the port's own name, and nothing by headers.
func TestPorts(t *testing.T) {
	reached := ""
	s, key := front(t, func(o *Options) {
		o.Domain = "boxes.test"
		o.Ports = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reached = r.Host })
	})
	id, _ := made(t, s, key)
	if status, body := ask(s, "GET", "/", "", "", "Host: 3000-"+id+".boxes.test"); status != 200 || reached != "3000-"+id+".boxes.test" {
		t.Errorf("%d %s %q", status, body, reached)
	}
	reached = ""
	if status, body := ask(s, "GET", "/", "", "", sandboxHeader+": "+id, portHeader+": 3000"); status != 502 || reached != "" || !strings.Contains(body, "PORT-ID.DOMAIN") {
		t.Errorf("by headers: %d %s %q", status, body, reached)
	}
}
