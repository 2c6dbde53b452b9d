package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/policy"
)

// TestPolicyLearn: a run's acts become the least policy, and what the policy does
// not allow is said.
func TestPolicyLearn(t *testing.T) {
	home := t.TempDir()
	log, err := audit.Open(filepath.Join(home, "audit"), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	act := func(kind, decision, reason string, e audit.Egress) {
		t.Helper()
		if err := log.Append(&audit.Record{Kind: kind, Sandbox: "mine", Decision: decision, Reason: reason, Egress: &e}); err != nil {
			t.Fatal(err)
		}
	}
	act("http", "allow", "audit_mode", audit.Egress{Scheme: "https", Host: "api.example.com", Port: 443, Method: "GET", Path: "/v1/x", Query: []string{"page"}})
	act("http", "allow", "rule", audit.Egress{Scheme: "https", Host: "api.example.com", Port: 443, Method: "POST", Path: "/v1/y", Secrets: []string{"TOKEN"}})
	act("websocket", "allow", "audit_mode", audit.Egress{Scheme: "https", Host: "ws.example.com", Port: 443, Method: "GET", Path: "/s"})
	act("stream", "allow", "audit_mode", audit.Egress{Host: "db.example.com", Port: 5432})
	act("http", "deny", "address_internal", audit.Egress{Scheme: "http", Host: "intern.example.com", Port: 80, Method: "GET", Path: "/"})
	act("stream", "deny", "metadata", audit.Egress{Host: "169.254.169.254", Port: 80})
	act("name", "allow", "audit_mode", audit.Egress{Host: "looked-up.example.com"})
	if err := log.Append(&audit.Record{Kind: "http", Sandbox: "other", Decision: "allow", Egress: &audit.Egress{Scheme: "http", Host: "other.example.com", Port: 80, Method: "GET", Path: "/"}}); err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	learn := func(args ...string) (string, string, int) {
		cmd := baileyd(append([]string{"policy", "learn"}, args...)...)
		cmd.Env = append(cmd.Env, "BAILEY_HOME="+home)
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		_ = cmd.Run()
		return out.String(), errs.String(), cmd.ProcessState.ExitCode()
	}
	out, _, status := learn("--json", "--from-audit", "mine")
	var p proposal
	if err := json.Unmarshal([]byte(out), &p); err != nil || status != 0 || p.Acts != 4 {
		t.Fatalf("%d, %v: %s", status, err, out)
	}
	made, err := policy.Parse([]byte(p.Document))
	if err != nil {
		t.Fatalf("%v:\n%s", err, p.Document)
	}
	for target, want := range map[string]policy.Verdict{
		"https://api.example.com/v1/x?page=2": policy.Allow, "https://api.example.com/v1/x?other=2": policy.Deny, "https://api.example.com/v1/y": policy.Deny,
		"wss://ws.example.com/s": policy.Allow, "tcp://db.example.com:5432": policy.Allow, "tcp://db.example.com:5433": policy.Deny,
		"http://intern.example.com/": policy.Deny, "https://looked-up.example.com/": policy.Deny, "http://other.example.com/": policy.Deny,
	} {
		r, err := policy.ParseTarget(target, "")
		if err != nil {
			t.Fatal(err)
		}
		if d := policy.Final(policy.Walk(made, r)); d.Verdict != want {
			t.Errorf("%s: %+v", target, d)
		}
	}
	notes := strings.Join(p.Notes, "\n")
	for _, want := range []string{"--secret TOKEN@api.example.com", "intern.example.com:80 leads to an address that is not public", "169.254.169.254:80 is a metadata service"} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q is not in %s", want, notes)
		}
	}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if out, errs, status := learn("-o", file, "--from-audit", "mine"); status != 0 || out != "" || !strings.Contains(errs, "TOKEN") {
		t.Errorf("%d %q %q", status, out, errs)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != p.Document {
		t.Errorf("%v: %s", err, text)
	}
	for _, args := range [][]string{{"--from-audit", "nobody"}, {}, {"--from-audit", "mine", "x"}} {
		if _, errs, status := learn(args...); status != 125 || errs == "" {
			t.Errorf("%q: %d %q", args, status, errs)
		}
	}
}
