package policy

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// mustParse reads a document whose rules are the lines given.
func mustParse(t testing.TB, rules ...string) *Policy {
	t.Helper()
	p, err := Parse([]byte(withRules(rules...)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func withRules(rules ...string) string {
	return "version: 1\negress:\n  rules:\n  - " + strings.Join(rules, "\n  - ") + "\n"
}

// verdict asks about a URL, as a client would.
func verdict(t testing.TB, p *Policy, method, url string) Decision {
	t.Helper()
	r, err := ParseTarget(url, method)
	if err != nil {
		t.Fatal(err)
	}
	return Final(Walk(p, r))
}

// TestEmptyAllowsNothing is A1: what is empty, missing or null is no rule that
// allows everything.
func TestEmptyAllowsNothing(t *testing.T) {
	for _, text := range []string{
		"version: 1", "version: 1\negress:", "version: 1\negress: {}", "version: 1\negress: {rules: []}", "version: 1\negress: {rules: null}",
		"version: 1\negress: {rules: [{}]}", `{"version": 1, "egress": {"rules": null}}`, `{"version": 1}`,
		"version: 1\negress: {rules: [{name: a}]}", "version: 1\negress: {rules: [{hosts: []}]}", "version: 1\negress: {rules: [{hosts: null}]}",
		"version: 1\negress: {rules: [{hosts: [a.test], methods: []}]}", "version: 1\negress: {rules: [{hosts: [a.test], methods: null}]}",
		"version: 1\negress: {rules: [{hosts: [a.test], paths: []}]}", "version: 1\negress: {rules: [{hosts: [a.test], ports: []}]}",
		"version: 1\negress: {rules: [{hosts: [a.test], ports: null}]}", "version: 1\negress: {rules: [{addresses: []}]}",
		"version: 1\negress: {rules: [{hosts: [], profile: registry-readonly}]}",
	} {
		p, err := Parse([]byte(text))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		for _, url := range []string{"https://a.test/", "http://a.test/", "tcp://a.test:22", "https://192.0.2.1/", "https://registry.npmjs.org/a"} {
			if d := verdict(t, p, "GET", url); d.Verdict != Deny {
				t.Errorf("%s: %s is %s by %v", text, url, d.Verdict, d.Rule)
			}
		}
		if d := p.Session().Paths.Decide("/home/u/f", Read); d.Verdict != Deny {
			t.Errorf("%s: a path is %s", text, d.Verdict)
		}
	}
	if d := Decide(nil, Request{Stage: Name, To: At(Host{name: "a.test"}, 0)}); d.Verdict != Deny || d.Reason != ReasonNoPolicy {
		t.Errorf("no policy: %+v", d)
	}
	// A query list that is empty lets no parameter pass.
	p := mustParse(t, "{hosts: [a.test], query: []}")
	if verdict(t, p, "GET", "https://a.test/").Verdict != Allow || verdict(t, p, "GET", "https://a.test/?x").Reason != ReasonQuery {
		t.Error("an empty query list")
	}
}

// TestParseRefuses has N3, A2 and A3, and all else that a document cannot mean.
// Each error names the line, where there is one to blame, and says what to do.
func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		// Not a document.
		"":                                     "empty",
		"[]":                                   "a list",
		"version: 2":                           "version: 1",
		"mode: enforce":                        "version",
		"version: 1\n---\nversion: 1":          "second document",
		"version: 1\n---\n[x":                  "second document",
		"{\"version\": 1} x":                   "follows",
		"{\"version\": 1":                      "JSON",
		"version: 1\nmode: *x":                 "",
		"version: &a 1":                        "anchors",
		"version: !!int 1":                     "tags",
		"version: '1'":                         "whole number",
		"version: 1\nversion: 1":               "line 2: version: it is there already, in line 1",
		`{"version": 1, "version": 1}`:         "already",
		"version: 1\nmode: permissive":         "enforce or audit",
		"version: 1\nmode:":                    "no value",
		"version: 1\negress: {default: allow}": "default: deny",
		// A3: fields that do not exist, at any depth, in any spelling.
		"version: 1\nEgress: {}":                                                 "line 2: there is no field \"Egress\"; write egress",
		"version: 1\negress:\n  Rules: []":                                       "line 3: egress: there is no field \"Rules\"; write rules",
		"version: 1\negress: {egress_ip: 1.2.3.4}":                               "egress.egress_ip: not available", // T59
		"version: 1\nallow: [a.test]":                                            "there is no field",
		"version: 1\negress: {rules: [{host: a.test}]}":                          "write hosts",
		"version: 1\negress: {rules: [{hosts: [a.test], Methods: []}]}":          "write methods",
		"version: 1\negress: {rules: [{hosts: [a.test], web_socket: true}]}":     "write websocket",
		"version: 1\negress: {rules: [{hosts: [a.test], limits: {uploads: 1}}]}": "write upload",
		"version: 1\nsecrets: {a: {hosts: [a.test], env: A, value: x}}":          "no field \"value\"",
		`{"version": 1, "egress": {"rules": [{"HOSTS": []}]}}`:                   "write hosts",
		// N3: too broad.
		withRules("{hosts: ['*']}"): "every host", withRules("{hosts: ['**']}"): "every host", withRules("{hosts: ['*.com']}"): "public suffix",
		withRules("{hosts: ['**.co.uk']}"): "public suffix", withRules("{hosts: ['*.github.io']}"): "public suffix", withRules("{hosts: ['**.s3.amazonaws.com']}"): "public suffix",
		withRules("{hosts: ['*.test']}"): "public suffix", withRules("{hosts: ['*.ck']}"): "public suffix", withRules("{hosts: ['*.kawasaki.jp']}"): "public suffix",
		withRules("{hosts: ['']}"): "empty", withRules("{hosts: ['a.*.com']}"): "wildcard", withRules("{hosts: ['*a.com']}"): "wildcard", withRules("{hosts: ['***.a.com']}"): "wildcard",
		withRules("{hosts: ['*.']}"): "empty", withRules("{hosts: ['https://a.test']}"): "", withRules("{hosts: ['a.test/x']}"): "", withRules("{hosts: ['a.test:0']}"): "port",
		withRules("{hosts: [127.0.0.1]}"): "under addresses", withRules("{hosts: ['::1']}"): "under addresses", withRules("{hosts: ['10.0.0.1:80']}"): "under addresses",
		withRules("{hosts: ['0x7f.1']}"): "number", withRules("{hosts: a.test}"): "must be a list", withRules("{hosts: [{a: b}]}"): "single value", withRules("{hosts: [true]}"): "quotes",
		withRules("{hosts: [a.test, null]}"): "empty", withRules("{hosts: [metadata.google.internal]}"): "never reachable", withRules("{addresses: [169.254.169.254]}"): "never reachable",
		// A2: ranges.
		withRules("{addresses: ['10.0.0.0/']}"): "no range", withRules("{addresses: ['10.0.0.0/33']}"): "no range", withRules("{addresses: ['10.0.0.1/8']}"): "write 10.0.0.0/8",
		withRules("{addresses: ['0/0']}"): "no range", withRules("{addresses: ['0.0.0.0/0']}"): "every address", withRules("{addresses: ['::/0']}"): "every address",
		withRules("{addresses: ['fe80::1%eth0/64']}"): "", withRules("{addresses: ['fe80::1%eth0']}"): "zone", withRules("{addresses: ['10.0.0.0/08']}"): "no range",
		withRules("{addresses: ['::ffff:10.0.0.0/104']}"): "IPv4", withRules("{addresses: [a.test]}"): "under hosts", withRules("{addresses: ['10.0.0']}"): "", withRules("{hosts: [a.test], internal: ['10.0.0.1/8']}"): "write 10.0.0.0/8",
		withRules("{addresses: ['2001:db8::1/32']}"): "write 2001:db8::/32",
		// Ports, methods, paths.
		withRules("{hosts: [a.test], ports: [0]}"): "65535", withRules("{hosts: [a.test], ports: [70000]}"): "65535", withRules("{hosts: [a.test], ports: ['9-8']}"): "ends before", withRules("{hosts: [a.test], ports: ['0443']}"): "65535",
		withRules("{hosts: [a.test], methods: [get]}"): "write GET", withRules("{hosts: [a.test], methods: ['GET /']}"): "no method", withRules("{hosts: [a.test], paths: [a]}"): "slash",
		withRules("{hosts: [a.test], paths: ['/a**']}"): "whole segment", withRules("{hosts: [a.test], action: permit}"): "allow, deny or ask", withRules("{hosts: [a.test], protocol: udp}"): "http, https or tcp",
		withRules("{hosts: [a.test], tls: off}"): "", withRules("{hosts: [a.test], tls: passthrough}"): "terminate or splice",
		// What a stage does not show.
		withRules("{hosts: [a.test], tls: splice, paths: [/a]}"): "not looked into", withRules("{hosts: [a.test], tls: splice, methods: [GET]}"): "not looked into",
		withRules("{hosts: [a.test], tls: splice, when: 'true'}"): "not looked into", withRules("{hosts: [a.test], tls: splice, websocket: true}"): "not looked into",
		withRules("{hosts: [a.test], tls: splice, limits: {leak: 1}}"): "not looked into", withRules("{hosts: [a.test], tls: splice, protocol: http}"): "plain HTTP",
		withRules("{hosts: [a.test], protocol: tcp, ports: [22], paths: [/a]}"): "not looked into", withRules("{hosts: [a.test], protocol: tcp}"): "name the ports",
		withRules("{hosts: [a.test], protocol: tcp, ports: [22], tls: terminate}"): "remove tls",
		// Rules that deny nothing, or deny with what only allows.
		withRules("{action: deny}"): "denies nothing", withRules("{action: deny, hosts: []}"): "denies nothing", withRules("{action: deny, hosts: [a.test], methods: []}"): "denies nothing",
		withRules("{action: deny, hosts: [a.test], tls: splice}"): "this rule denies", withRules("{action: deny, hosts: [a.test], query: [a]}"): "this rule denies",
		// Names.
		withRules("{name: a, hosts: [a.test]}", "{name: a, hosts: [b.test]}"):  "line 5: egress.rules[1].name: \"a\" is the name of egress.rules[0] already",
		withRules("{name: 'egress[1]', hosts: [a.test]}", "{hosts: [b.test]}"): "already",
		// Conditions.
		withRules("{hosts: [a.test], when: 'req.'}"): "no condition", withRules("{hosts: [a.test], when: 'req.path'}"): "true or false", withRules("{hosts: [a.test], when: 'req.user == \"a\"'}"): "no condition",
		withRules("{hosts: [a.test], when: '" + strings.Repeat("true || ", 600) + "true'}"): "longer",
		// Limits, times, levels.
		withRules("{hosts: [a.test], limits: {requests: 0}}"): "above 0", withRules("{hosts: [a.test], limits: {upload: -1}}"): "above 0", withRules("{hosts: [a.test], limits: {upload: 9999999T}}"): "above 0",
		withRules("{hosts: [a.test], limits: {requests: 1K}}"): "above 0", "version: 1\nask_timeout: 0s": "30s", "version: 1\nask_timeout: 30": "30s", "version: 1\nask_timeout: 48h": "up to",
		"version: 1\nmin_isolation: vm": "gvisor", "version: 1\nlimits: {cpus: many}": "1.5", "version: 1\nlimits: {memory: 1Q}": "512M", "version: 1\nlimits: {cpus: NaN}": "1.5", "version: 1\nlimits: {timeout: -1s}": "90s",
		"version: 1\nports: [0]": "65535",
		// Paths, mounts, environment.
		"version: 1\npaths: {allow_write: [/]}": "whole machine", "version: 1\npaths: {allow_read: [home]}": "absolute", "version: 1\npaths: {allow_read: [/home/../etc]}": "absolute", "version: 1\npaths: {deny_read: [~/x]}": "absolute",
		"version: 1\npaths: {deny_read: ['/home/*']}": "absolute", "version: 1\nmounts: [{source: ../x, target: /x}]": "plain path", "version: 1\nmounts: [{source: x}]": "target", "version: 1\nmounts: [{target: /x}]": "what is mounted",
		"version: 1\nmounts: [{source: /a, target: /x}, {source: /b, target: /x}]": "already", "version: 1\nenv: {pass: [A=b]}": "values go under set", "version: 1\nenv: {set: {A: x}, pass: [A]}": "set as well", "version: 1\nenv: {set: {1A: x}}": "name of a variable",
		// Profiles.
		withRules("{profile: '', hosts: [a.test]}"): "it is empty", withRules("{hosts: [a.test], when: ''}"): "it is empty",
		withRules("{profile: nothing}"): "there is no profile", withRules("{profile: ../rules}"): "there is no profile", withRules("{profile: registry-readonly/nothing}"): "there is no profile",
		withRules("{profile: git-read, methods: [PUT]}"): "the profile says that", withRules("{profile: git-read, action: deny}"): "the profile says that",
		// Secrets.
		withRules("{hosts: [a.test], secret: a}"):                                                               "binds no secret",
		withRules("{hosts: [a.test], secret: a, secrets: [a]}") + "secrets: {a: {env: A}}":                      "keep secrets",
		"version: 1\nsecrets: {a: {env: A}}":                                                                    "goes nowhere",
		"version: 1\nsecrets: {a: {hosts: [a.test]}}":                                                           "nothing uses it",
		"version: 1\nsecrets: {a: {hosts: [a.test], env: A, in: [cookie]}}":                                     "there are header",
		"version: 1\nsecrets: {a: {hosts: [a.test], env: 'A B'}}":                                               "variable",
		"version: 1\nsecrets: {a: {hosts: [a.test], header: Host}}":                                             "may hold a secret",
		"version: 1\nsecrets: {a: {hosts: [a.test], header: X, format: Bearer}}":                                "{value}",
		"version: 1\nsecrets: {a: {hosts: [a.test], header: X, format: \"{value}\\r\\nY: z\"}}":                 "{value}",
		"version: 1\nsecrets: {a: {hosts: [a.test], env: A, format: '{value}'}}":                                "name the header",
		"version: 1\nsecrets: {a: {hosts: ['*.com'], env: A}}":                                                  "public suffix",
		"version: 1\nsecrets: {a: {hosts: [a.test], env: A}, b: {hosts: [b.test], env: A}}":                     "variable of secrets.a",
		"version: 1\nsecrets: {'a b': {hosts: [a.test], env: A}}":                                               "secret's name",
		withRules("{hosts: [a.test], secret: a}") + "secrets: {a: {hosts: [b.test], env: A}}":                   "other hosts",
		withRules("{addresses: [192.0.2.1], secret: a}") + "secrets: {a: {env: A}}":                             "name hosts",
		withRules("{hosts: [a.test], tls: splice, secret: a}") + "secrets: {a: {env: A}}":                       "not looked into",
		withRules("{hosts: ['*.a.test'], tls: splice}") + "secrets: {a: {env: A, hosts: [b.a.test]}}":           "nobody looks into",
		withRules("{hosts: [a.test], protocol: tcp, ports: [443]}") + "secrets: {a: {env: A, hosts: [a.test]}}": "nobody looks into",
	} {
		p, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("taken:\n%s\n%s", text, p.Canonical())
			continue
		}
		var own *Error
		if !errors.As(err, &own) {
			t.Errorf("%s: %T is no *Error", text, err)
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  %v\n  does not say %q", text, err, want)
		}
	}
	long := append([]byte("version: 1\n#"), make([]byte, maxDocument)...)
	if _, err := Parse(long); err == nil {
		t.Error("a document of any length was taken")
	}
}

// TestSecretBesideSSH: a raw stream to another port of a secret's host is no
// way around it.
func TestSecretBesideSSH(t *testing.T) {
	if _, err := Parse([]byte(withRules("{hosts: [git.test], protocol: tcp, ports: [22]}", "{hosts: [git.test]}") + "secrets: {a: {env: A, hosts: [git.test]}}")); err != nil {
		t.Error(err)
	}
}

// full has every field of the form.
const full = `
version: 1
description: what the tests may do
mode: audit
ask_timeout: 30s
min_isolation: container
sealed: true
paths: {allow_read: [/usr], allow_write: [/home/u/p], deny_read: [/home], deny_write: [/home/u/p/.git]}
mounts:
  - {source: ./data, target: /data, write: true}
  - {source: /opt}
env: {set: {A: b}, pass: [LANG]}
limits: {cpus: 1.5, memory: 4G, pids: 512, disk: 8G, io: 50M, output: 64M, timeout: 20m}
ports: [3000]
egress:
  default: deny
  limits: {requests: 5000, upload: 50MB, leak: 4KiB}
  rules:
    - {profile: registry-readonly, limits: {leak: 8K}}
    - {name: mirror, profile: registry-readonly/npm, hosts: ["mirror.test:8443"], internal: [10.0.0.0/8]}
    - name: read
      description: read issues
      action: allow
      hosts: [API.Example.com, "*.many.example.com", "**.More.example.com:8443"]
      ports: [443, 8000-8010]
      protocol: https
      methods: [GET, HEAD]
      paths: [/repos/%61cme/**, "/x/{hex}"]
      query: [page, per_page=100]
      when: req.headers["accept"].exists(v, v.startsWith("application/json"))
      tls: terminate
      secret: gh
      websocket: true
      plain_secrets: false
      limits: {requests: 10, upload: 1K, leak: 1}
    - {name: old, hosts: [pinned.example], tls: splice}
    - {name: ssh, hosts: [git.example], protocol: tcp, ports: [22], action: ask}
    - {name: lan, addresses: [10.1.0.0/16, "192.0.2.1", "2001:DB8::1"], ports: [80], protocol: http}
    - {name: no, hosts: [bad.more.example.com], action: deny}
secrets:
  gh: {secret: GITHUB_TOKEN, env: GH_TOKEN, in: [header, query], header: Authorization, format: "Bearer {value}"}
  other: {hosts: ["**.more.example.com"], env: OTHER}
`

func TestCanonicalRoundTrip(t *testing.T) {
	p, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	text := p.Canonical()
	again, err := Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if again.Digest() != p.Digest() || string(again.Canonical()) != string(text) {
		t.Errorf("another form:\n%s\n%s", text, again.Canonical())
	}
	if len(again.Rules()) != len(p.Rules()) || again.Mode() != Audit || !again.sealed {
		t.Error("something was lost")
	}
	for i, r := range p.Rules() {
		if a := again.Rules()[i]; a.Name != r.Name || a.describe() != r.describe() {
			t.Errorf("%s\n%s", r.describe(), a.describe())
		}
	}
	if d := Diff(p, again); len(d.Wider)+len(d.Narrower)+len(d.Other) > 0 {
		t.Errorf("%+v", d)
	}
	// Spelling does not matter, meaning does.
	a := mustParse(t, "{name: x, hosts: [A.test.], action: allow, tls: terminate, paths: [/%61]}")
	b := mustParse(t, "{name: x, hosts: [a.test], paths: [/a]}")
	c := mustParse(t, "{name: x, hosts: [a.test], paths: [/b]}")
	if a.Digest() != b.Digest() || b.Digest() == c.Digest() || !strings.HasPrefix(a.Digest(), "sha256:") {
		t.Errorf("%s %s %s", a.Digest(), b.Digest(), c.Digest())
	}
	// A list that is empty stays one.
	e := mustParse(t, "{name: x, hosts: [a.test], methods: []}")
	again, err = Parse(e.Canonical())
	if err != nil || again.Digest() != e.Digest() || verdict(t, again, "GET", "https://a.test/").Verdict != Deny {
		t.Errorf("%v\n%s", err, e.Canonical())
	}
}

func TestJSONIsReadAsYAMLIs(t *testing.T) {
	p := mustParse(t, `{name: x, hosts: [a.test], ports: [443, "8000-8001"], websocket: true}`)
	j, err := Parse([]byte("{\"version\": 1,\n \"egress\": {\"rules\": [{\"name\": \"x\", \"hosts\": [\"a.test\"], \"ports\": [443, \"8000-8001\"], \"websocket\": true}]}}"))
	if err != nil || j.Digest() != p.Digest() {
		t.Errorf("%v", err)
	}
	_, err = Parse([]byte("{\n\"version\": 1,\n\"egress\": {\n\"rules\": [\n{\"hosts\": [\"*\"]}]}}"))
	if err == nil || !strings.HasPrefix(err.Error(), "line 5: ") {
		t.Errorf("the line of an error in JSON: %v", err)
	}
	if _, err := Parse([]byte(strings.Repeat("{\"egress\":", 5000))); err == nil {
		t.Error("values may be nested without bound")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte(`{"version": 1, "egress": {"rules": [{"hosts": ["a.test"]}]}}`))
	f.Add([]byte("version: 1\nx: &a [*a]"))
	f.Add([]byte(withRules("{hosts: [a.test], when: 'size(req.body) < 3'}")))
	for _, name := range []string{"git-read", "model-provider"} {
		b, err := os.ReadFile("profiles/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(p.Canonical())
		if err != nil || again.Digest() != p.Digest() {
			t.Fatalf("%v\n%s", err, p.Canonical())
		}
	})
}

func FuzzCIDR(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "10.0.0.1/8", "0/0", "::/0", "fe80::%a/64", "1.2.3.4", "::ffff:1.2.3.4/96"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePrefix(s)
		if err != nil {
			return
		}
		if p.Bits() == 0 || p.Masked() != p || p.Addr().Zone() != "" || p.Addr().Is4In6() {
			t.Fatalf("%q was taken as %s", s, p)
		}
	})
}
