package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/server/standin"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

var owner = engine.Caller{Name: "uid:1", Admin: true}

// running is a server that runs.
type running struct {
	home      string
	engine    *standin.Engine
	addresses []string
	ended     chan error
	stop      context.CancelFunc
	http      *http.Client // of its socket
}

func run(t *testing.T, e *standin.Engine, change func(*server.Options)) *running {
	t.Helper()
	r := &running{home: t.TempDir(), engine: e, ended: make(chan error, 1)}
	db, err := state.Open(t.Context(), r.home)
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan []string, 1)
	opt := server.Options{Home: r.home, Engine: e, DB: db, Keys: access.NewKeys(db, access.KeyOptions{}), Version: "test", Ready: func(a ...string) { ready <- a }}
	if change != nil {
		change(&opt)
	}
	s, err := server.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		r.ended <- s.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() { r.stop(); <-done; db.Close() })
	select {
	case r.addresses = <-ready:
	case err := <-r.ended:
		t.Fatal(err)
	}
	r.http = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.addresses[0])
	}}}
	t.Cleanup(r.http.CloseIdleConnections)
	return r
}

func get(t *testing.T, c *http.Client, url string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestMetrics(t *testing.T) {
	e := standin.New()
	r := run(t, e, func(o *server.Options) { o.Config.Metrics = "127.0.0.1:0" })
	resp, err := r.http.Post("http://localhost/v1/sandboxes", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	get(t, r.http, "http://localhost/v1/sandboxes/s1")
	get(t, r.http, "http://localhost/v1/sandboxes/"+strings.Repeat("x", 100))
	get(t, r.http, "http://localhost/nobody/knows")
	_, text := get(t, r.http, "http://localhost/metrics")
	for _, line := range []string{
		`bailey_sandboxes{level="container",state="running"} 1`,
		`bailey_create_seconds_count{level="container",warm="hit"} 1`,
		`bailey_http_requests_total{operation="GET /v1/sandboxes/{id}",status="200"} 1`,
		`bailey_http_requests_total{operation="GET /v1/sandboxes/{id}",status="404"} 1`,
		`bailey_http_requests_total{operation="none",status="404"} 1`,
		`bailey_info{version="test"} 1`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}
	if strings.Contains(text, "xxxx") || strings.Contains(text, "nobody") {
		t.Error("a caller chooses labels")
	}
}

// TestGracefulEnd: what is under way is answered, the socket is gone at once.
func TestGracefulEnd(t *testing.T) {
	e := standin.New()
	r := run(t, e, nil)
	b, err := e.Create(t.Context(), owner, api.SandboxSpec{})
	if err != nil {
		t.Fatal(err)
	}
	slow, body := io.Pipe()
	answered := make(chan int, 1)
	go func() {
		req, err := http.NewRequest("PUT", "http://localhost/v1/sandboxes/"+b.ID+"/files?path=/x", slow)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		resp, err := r.http.Do(req)
		if err != nil {
			t.Error(err)
			answered <- 0
			return
		}
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	if _, err := body.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	under := func() bool {
		for _, c := range e.Calls() {
			if strings.HasPrefix(c, "WriteFile") {
				return true
			}
		}
		return false
	}
	for deadline := time.Now().Add(10 * time.Second); !under(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the upload does not begin")
		}
	}
	r.stop()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Lstat(r.addresses[0]); os.IsNotExist(err) {
			break
		} else if time.Now().After(deadline) {
			t.Fatal("the socket stays")
		}
	}
	if _, err := body.Write([]byte(" and half")); err != nil {
		t.Fatal(err)
	}
	body.Close()
	if status := <-answered; status != 200 {
		t.Errorf("the upload is answered with %d", status)
	}
	if err := <-r.ended; err != nil {
		t.Error(err)
	}
}

// TestLeavesWhenUnused: with Auto it ends by itself, and not before the last
// sandbox has gone.
func TestLeavesWhenUnused(t *testing.T) {
	e := standin.New()
	b, err := e.Create(t.Context(), owner, api.SandboxSpec{})
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, e, func(o *server.Options) { o.Auto, o.Linger = true, 20*time.Millisecond })
	get(t, r.http, "http://localhost/v1/sandboxes")
	looked := func() (n int) {
		for _, c := range e.Calls() {
			if c == "Sandboxes" {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(10 * time.Second); looked() < 2; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not look whether it is needed")
		}
	}
	select {
	case err := <-r.ended:
		t.Fatalf("it left a sandbox alone: %v", err)
	default:
	}
	r.http.CloseIdleConnections()
	if err := e.Delete(t.Context(), owner, b.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-r.ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it stays though nothing is left")
	}
	if names, _ := filepath.Glob(r.home + "/bailey.sock*"); len(names) > 0 {
		t.Errorf("it leaves %v", names)
	}
}

// TestOwnAuthority: a client that trusts ca.pem, and no other, is served.
func TestOwnAuthority(t *testing.T) {
	r := run(t, standin.New(), func(o *server.Options) {
		o.Config.Listen, o.Config.TLS.Own = "127.0.0.1:0", true
	})
	pem, err := os.ReadFile(filepath.Join(r.home, "tls", "ca.pem"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	if status, body := get(t, c, "https://"+r.addresses[1]+"/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("%d %q", status, body)
	}
	if status, body := get(t, c, "https://"+r.addresses[1]+"/v1/info"); status != 401 || !strings.Contains(body, "unauthorized") {
		t.Errorf("without a key: %d %s", status, body)
	}
	if _, err := http.Get("https://" + r.addresses[1] + "/healthz"); err == nil {
		t.Error("somebody who does not know the authority was served")
	}
	if fi, err := os.Stat(filepath.Join(r.home, "tls", "ca.key")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the authority's key: %v %v", fi.Mode(), err)
	}
}

func TestConfig(t *testing.T) {
	dir := t.TempDir()
	for text, want := range map[string]string{
		"":                                      "",
		"listen: 127.0.0.1:7777\n":              "",
		"lisen: 127.0.0.1:7777\n":               "lisen",
		"listen: 0.0.0.0:7777\n":                "listen",
		"listen: :7777\n":                       "listen",
		"listen: x\n":                           "listen",
		"metrics: 0.0.0.0:1\n":                  "metrics",
		"tls: {cert: /a}\n":                     "tls",
		"tls: {cert: /a, key: /b, own: true}\n": "tls",
		"log: {level: loud}\n":                  "log.level",
		"log: {format: xml}\n":                  "log.format",
		"max_upload: -1\n":                      "max_upload",
		"quota: {each: {disk: -1}}\n":           "quota",
		"webhooks: {allow: [a]}\n":              "webhooks.allow",
		"drain: 5\n":                            "cannot unmarshal",
		"listen: a\n---\nlisten: b\n":           "document",
		"listen: :7777\ntls: {own: true}\nquota: {each: {sandboxes: 3, max_timeout: 2h}}\n": "",
	} {
		name := filepath.Join(dir, "config.yaml")
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := server.ReadConfig(name, false)
		if err == nil {
			err = c.Check()
		}
		if want == "" && err != nil || want != "" && (bailey.CodeOf(err) != bailey.CodeUsage || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := server.ReadConfig(filepath.Join(dir, "none"), true); err != nil {
		t.Errorf("a file that may be missing: %v", err)
	}
	if _, err := server.ReadConfig(filepath.Join(dir, "none"), false); err == nil {
		t.Error("a file that was named is missing, and nothing is said")
	}
}

// TestConfigIsDocumented reads docs/operate.md's example: it has every field, and
// each with its default.
func TestConfigIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "<!-- config -->\n```text\n")
	example, _, ok := strings.Cut(example, "```")
	if !ok {
		t.Fatal("there is no example")
	}
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(example), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := server.ReadConfig(name, false)
	if err != nil {
		t.Fatal(err)
	}
	c.Hosts, c.Origins, c.Webhooks.Allow, c.Warm, c.E2B.Allow, c.E2B.Templates = nil, nil, nil, nil, nil, nil // empty lists
	if !reflect.DeepEqual(c, server.Config{}) {
		t.Errorf("the example is not the default: %+v", c)
	}
	var fields func(t reflect.Type) (names []string)
	fields = func(t reflect.Type) (names []string) {
		for i := range t.NumField() {
			f := t.Field(i)
			names = append(names, f.Tag.Get("yaml"))
			if f.Type.Kind() == reflect.Struct {
				names = append(names, fields(f.Type)...)
			}
		}
		return names
	}
	for _, f := range fields(reflect.TypeFor[server.Config]()) {
		if !strings.Contains(example, f+":") {
			t.Errorf("docs/operate.md does not have %s", f)
		}
	}
}
