package policy

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMostSpecificPathWins has T39: what is allowed below what is denied is
// allowed, and the answer says which rule won.
func TestMostSpecificPathWins(t *testing.T) {
	p, err := Parse([]byte("version: 1\npaths:\n  deny_read: [/home, /both]\n  allow_write: [/home/u/p, /both, /w]\n  deny_write: [/home/u/p/.git, /w/x]\n  allow_read: [/usr, /w/x/y, /home/u/p/.git/hooks]\n"))
	if err != nil {
		t.Fatal(err)
	}
	rules := p.Session().Paths
	for _, c := range []struct {
		path        string
		read, write Verdict
		rule        string // that decides about reading
	}{
		{"/home/u/p/f", Allow, Allow, "allow_write /home/u/p"}, {"/home/u/p", Allow, Allow, "allow_write /home/u/p"}, {"/home/u/px", Deny, Deny, "deny_read /home"},
		{"/home/u", Deny, Deny, "deny_read /home"}, {"/home/u/p/../q", Deny, Deny, "deny_read /home"}, {"/homes", Deny, Deny, ""},
		{"/home/u/p/.git/config", Allow, Deny, "allow_write /home/u/p"}, {"/home/u/p/.git/hooks/x", Allow, Deny, "allow_read /home/u/p/.git/hooks"},
		{"/both/x", Deny, Deny, "deny_read /both"}, {"/usr/bin", Allow, Deny, "allow_read /usr"}, {"/w/x/y/z", Allow, Deny, "allow_read /w/x/y"}, {"relative", Deny, Deny, ""}, {"/etc", Deny, Deny, ""},
	} {
		read, write := rules.Decide(c.path, Read), rules.Decide(c.path, Write)
		if read.Verdict != c.read || write.Verdict != c.write || read.Rule != c.rule || read.Why == "" {
			t.Errorf("%s: %+v, %+v", c.path, read, write)
		}
	}
	d := rules.Decide("/home/u/p/f", Write)
	if !slices.Equal(d.Over, []string{"deny_read /home"}) || !strings.Contains(d.Why, "allow_write /home/u/p is the most specific rule, and wins over deny_read /home") {
		t.Errorf("%+v", d)
	}
}

func TestSession(t *testing.T) {
	p, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	s := p.Session()
	if s.AskTimeout != 30*time.Second || s.MinIsolation != "container" || len(s.Mounts) != 2 || s.Mounts[0] != (Mount{"data", "/data", true}) || s.Mounts[1] != (Mount{"/opt", "/opt", false}) {
		t.Errorf("%+v", s)
	}
	if s.Limits != (SandboxLimits{1.5, 4 << 30, 512, 8 << 30, 50 << 20, 64 << 20, 20 * time.Minute}) || !slices.Equal(s.Ports, []uint16{3000}) || s.Env.Set["A"] != "b" || !slices.Equal(s.Env.Pass, []string{"LANG"}) {
		t.Errorf("%+v", s)
	}
	if p.Limits() != (RuleLimits{5000, 50 << 20, 4 << 10}) {
		t.Errorf("%+v", p.Limits())
	}
	if p := mustParse(t, "{}"); p.Session().AskTimeout != 0 || p.Mode() != Enforce {
		t.Error("defaults: audit is never one")
	}
}

func TestConditions(t *testing.T) {
	p := mustParse(t, "{name: a, hosts: [a.test], when: \"req.path.startsWith('/repos/acme/') && size(req.body) < 4\"}",
		"{name: b, hosts: [b.test], when: \"req.headers['x-a'][0] == 'y'\"}", "{name: c, hosts: [c.test]}", "{name: no, action: deny, hosts: [c.test], when: \"req.headers['x-a'][0] == 'y'\"}",
		"{name: d, hosts: [d.test], when: \"req.query.all(k, req.query[k].all(v, req.query.all(k2, req.query[k2].all(v2, v.matches('^(a|aa)+$') || true))))\"}")
	if p.rules[0].when.stage != Body || p.rules[1].when.stage != Head {
		t.Error("the stage of a condition is that of what it looks at")
	}
	head := func(host, path string) Request {
		return Request{Stage: Head, To: At(Host{name: host}, 443), Scheme: HTTPS, Method: "GET", Path: path, BodySize: -1}
	}
	body := head("a.test", "/repos/acme/x")
	if d := Decide(p, body); d.Verdict != Continue || d.Need != Body {
		t.Errorf("%+v", d)
	}
	body.Stage = Body
	for text, want := range map[string]Verdict{"abc": Allow, "abcd": Deny} {
		body.Body = []byte(text)
		if d := Decide(p, body); d.Verdict != want {
			t.Errorf("%q: %+v", text, d)
		}
	}
	// What cannot be evaluated allows nothing, and denies.
	if d := Decide(p, head("b.test", "/")); d.Verdict != Deny || d.Reason != ReasonCondition {
		t.Errorf("%+v", d)
	}
	if d := Decide(p, head("c.test", "/")); d.Verdict != Deny || d.Reason != ReasonRule {
		t.Errorf("%+v", d)
	}
	with := head("b.test", "/")
	with.Header = map[string][]string{"X-A": {"y"}}
	if d := Decide(p, with); d.Verdict != Allow {
		t.Errorf("%+v", d)
	}
	// A request cannot make a condition work for long: it fails instead.
	long := head("d.test", "/")
	long.Query = map[string][]string{"a": make([]string, 5000)}
	if d := Decide(p, long); d.Verdict != Deny || d.Reason != ReasonCondition {
		t.Errorf("%+v", d)
	}
}

// TestSecrets: which rules a secret goes with, and where it may go.
func TestSecrets(t *testing.T) {
	p, err := Parse([]byte(withRules("{name: read, hosts: [api.test], methods: [GET], secret: ro}", "{name: write, hosts: [api.test], methods: [POST], secrets: [rw]}",
		"{name: other, hosts: [b.test, '*.c.test']}", "{name: no, hosts: [b.test], paths: [/x], action: deny}", "{name: far, hosts: [d.test]}") +
		"secrets:\n  ro: {secret: GH_RO, env: GH}\n  rw: {header: Authorization, format: 'Bearer {value}'}\n  host: {env: H, hosts: ['x.c.test', 'b.test:8443']}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"ro"}, {"rw"}, {"host"}, nil, nil} {
		if got := p.Rules()[i].Secrets; !slices.Equal(got, want) {
			t.Errorf("%s has %v, want %v", p.Rules()[i].Name, got, want)
		}
	}
	ro, host := p.Secrets()["ro"], p.Secrets()["host"]
	if ro.Name != "GH_RO" || ro.Env != "GH" || !slices.Equal(ro.Hosts, []string{"api.test"}) || !slices.Equal(ro.In, []string{"header", "basic"}) || p.Secrets()["rw"].Name != "rw" {
		t.Errorf("%+v", ro)
	}
	for to, want := range map[string]bool{"x.c.test:443": true, "y.c.test:443": false, "b.test:443": false, "b.test:8443": true, "c.test:443": false, "x.c.test.evil.test:443": false} {
		a, err := ParseAuthority(to, 0)
		if err != nil {
			t.Fatal(err)
		}
		if host.Covers(Request{To: a}) != want {
			t.Errorf("%s: %v", to, !want)
		}
	}
}

func TestPinnedRulesNeedASecret(t *testing.T) {
	without := mustParse(t, "{hosts: [a.test], pinned: true}")
	if d := verdict(t, without, "GET", "https://a.test/"); d.Verdict != Deny || d.Reason != ReasonSecret {
		t.Errorf("%+v", d)
	}
	with, err := Parse([]byte(withRules("{hosts: [a.test], pinned: true}") + "secrets: {k: {env: K, hosts: [a.test]}}"))
	if err != nil || verdict(t, with, "GET", "https://a.test/").Verdict != Allow {
		t.Errorf("%v", err)
	}
}
