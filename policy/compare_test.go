package policy

import (
	"fmt"
	"strings"
	"testing"
)

func TestDiff(t *testing.T) {
	a := "{name: a, hosts: [a.test], methods: [GET], paths: ['/x/**']}"
	for _, c := range []struct {
		before, after   []string
		wider, narrower string // a change of this kind, "" for none at all
	}{
		{[]string{a}, []string{a}, "", ""},
		{[]string{a}, []string{a, "{name: b, hosts: [b.test]}"}, "any request to https://b.test ", ""},
		{[]string{a, "{name: b, hosts: [b.test]}"}, []string{a}, "", "any request to https://b.test "},
		{[]string{a}, []string{strings.Replace(a, "GET", "GET, PATCH", 1)}, "PATCH https://a.test/x/any/any", ""},
		{[]string{a}, []string{strings.Replace(a, "/x/**", "/**", 1)}, "GET https://a.test/any", ""},
		{[]string{a}, []string{a, "{name: no, hosts: [a.test], paths: [/x/secret], action: deny}"}, "", "GET https://a.test/x/secret"},
		{[]string{a}, []string{strings.Replace(a, "name: a", "name: a, action: ask", 1)}, "", "GET https://a.test/x/any/any"},
		{[]string{a}, []string{strings.Replace(a, "name: a", "name: a, when: size(req.body) < 3", 1)}, "", "GET https://a.test/x/any/any"},
		{[]string{a}, []string{strings.Replace(a, "a.test", "'*.a.test', a.test", 1)}, "GET https://any.a.test/x/any/any", ""},
		{[]string{"{hosts: [a.test]}"}, []string{"{hosts: [a.test], tls: splice}"}, "tls", "any request to http://a.test "},
		{[]string{"{hosts: [a.test], limits: {requests: 5}}"}, []string{"{hosts: [a.test], limits: {requests: 6}}"}, "any request to https://a.test ", ""},
		{[]string{"{hosts: [a.test], limits: {requests: 5}}"}, []string{"{hosts: [a.test], limits: {requests: 5, leak: 100}}"}, "", "any request to https://a.test "},
		{[]string{"{hosts: [a.test], protocol: tcp, ports: [22]}"}, []string{"{hosts: [a.test], protocol: tcp, ports: [22, 23]}"}, "tcp a.test:23", ""},
		{[]string{"{addresses: [192.0.2.0/25]}"}, []string{"{addresses: [192.0.2.0/24]}"}, "any request to https://192.0.2.255 ", ""},
		{[]string{"{hosts: [a.test], query: []}"}, []string{"{hosts: [a.test], query: [q]}"}, "https://a.test/?q", ""},
	} {
		d := Diff(mustParse(t, c.before...), mustParse(t, c.after...))
		for _, x := range []struct {
			what string
			list []Change
			want string
		}{{"wider", d.Wider, c.wider}, {"narrower", d.Narrower, c.narrower}} {
			text := fmt.Sprint(x.list)
			if x.want == "tls" { // a spliced stream shows no requests: nothing is asked of them
				continue
			}
			if (x.want == "") != (len(x.list) == 0) || !strings.Contains(text, x.want) {
				t.Errorf("%v → %v: %s: %s, want %q", c.before, c.after, x.what, text, x.want)
			}
		}
	}
	wide := mustParse(t, "{hosts: [a.test]}")
	if d := Diff(nil, wide); len(d.Wider) == 0 || len(d.Narrower) > 0 {
		t.Errorf("%+v", d)
	}
	if d := Diff(wide, nil); len(d.Narrower) == 0 || len(d.Wider) > 0 {
		t.Errorf("%+v", d)
	}
	if d := Diff(nil, nil); len(d.Wider)+len(d.Narrower)+len(d.Other) > 0 {
		t.Errorf("%+v", d)
	}
}

func TestDiffOfSessions(t *testing.T) {
	for after, wider := range map[string]bool{
		"paths: {allow_write: [/w]}": true, "mounts: [{source: /x, target: /y}]": true, "env: {pass: [A]}": true, "ports: [3000]": true, "min_isolation: microvm": false, "sealed: true": false, "mode: audit": true,
		"limits: {memory: 1G}": false, "egress: {limits: {requests: 5}}": false,
	} {
		before, err := Parse([]byte("version: 1\n"))
		if err != nil {
			t.Fatal(err)
		}
		text := "version: 1\n" + after
		if strings.HasPrefix(after, "mode") {
			before = mustParse(t, "{name: a, hosts: [a.test], methods: []}")
			text += strings.TrimPrefix(withRules("{name: a, hosts: [a.test], methods: []}"), "version: 1")
		}
		p, err := Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if d := Diff(before, p); (len(d.Wider) > 0) != wider || (len(d.Narrower) > 0) == wider {
			t.Errorf("%s: %+v", after, d)
		}
		if d := Diff(p, before); (len(d.Wider) > 0) == wider || (len(d.Narrower) > 0) != wider {
			t.Errorf("back from %s: %+v", after, d)
		}
	}
}

// TestLearn: what was observed is allowed by what is proposed, its neighbours
// are not, and where it is wider that is said.
func TestLearn(t *testing.T) {
	seen := []Observation{
		{Host: "A.test", Port: 443, Scheme: HTTPS, Method: "GET", Path: "/x/y", Query: []string{"b", "a"}}, {Host: "a.test", Port: 443, Scheme: HTTPS, Method: "POST", Path: "/x/y", Query: []string{"a", "b"}},
		{Host: "a.test", Port: 443, Scheme: HTTPS, Method: "GET", Path: "/"}, {Host: "ws.test", Port: 80, Scheme: HTTP, Method: "GET", Path: "/chat", WebSocket: true},
		{Host: "git.test", Port: 22, Scheme: TCP}, {Host: "pinned.test", Port: 443, Scheme: TLS}, {Host: "10.0.0.1", Port: 8080, Scheme: HTTP, Method: "GET", Path: "/"}, {Host: "a.test", Port: 443, Scheme: HTTPS, Method: "GET", Path: "/@s%2fn"},
	}
	l, err := Learn(seen)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Notes) > 0 {
		t.Errorf("nothing had to be widened: %v", l.Notes)
	}
	p, err := Parse(l.Document)
	if err != nil {
		t.Fatal(err)
	}
	expectAll(t, p, string(l.Document), []string{"GET https://a.test/x/y?a=1&b=2", "POST https://a.test/x/y?a=1&b=2", "GET https://a.test/", "GET ws://ws.test/chat", " tcp://git.test:22", "GET http://10.0.0.1:8080/", "GET https://a.test/@s%2Fn"},
		[]string{"GET https://a.test/x/z", "GET https://a.test/x/y?c", "DELETE https://a.test/", "GET https://a.test:8443/", "GET wss://a.test/", "GET http://ws.test/", " tcp://git.test:23", "GET http://10.0.0.2:8080/", "GET https://git.test/"})

	seen = nil
	for i := range 30 {
		seen = append(seen, Observation{Host: "a.test", Port: 443, Scheme: HTTPS, Method: "GET", Path: fmt.Sprintf("/repos/r%d/issues", i)},
			Observation{Host: "registry.npmjs.org", Port: 443, Scheme: HTTPS, Method: "GET", Path: fmt.Sprintf("/package-%d", i)})
	}
	l, err = Learn(seen)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Notes) != 2 || !strings.Contains(l.Notes[0], "30 paths became 1: /repos/*/issues") || !strings.Contains(l.Notes[1], "registry-readonly/npm") {
		t.Errorf("%q\n%s", l.Notes, l.Document)
	}
	for _, bad := range []Observation{
		{Host: "a_b", Port: 443, Scheme: HTTPS, Method: "GET", Path: "/"}, {Host: "a.test", Scheme: TCP}, {Host: "a.test", Port: 1, Scheme: "udp"}, {Host: "169.254.169.254", Port: 80, Scheme: HTTP, Method: "GET", Path: "/"},
		{Host: "a.test", Port: 443, Scheme: HTTPS, Method: "get", Path: "/"}, {Host: "a.test", Port: 443, Scheme: HTTPS, Method: "GET", Path: "/../x"},
	} {
		if l, err := Learn([]Observation{bad}); err == nil {
			t.Errorf("%+v was allowed: %s", bad, l.Document)
		}
	}
	if l, err := Learn(nil); err != nil || strings.Contains(string(l.Document), "rules") {
		t.Errorf("%v\n%s", err, l.Document)
	}
}

func TestWouldAllow(t *testing.T) {
	p := mustParse(t, "{name: a, hosts: [a.test], methods: [GET]}", "{name: no, hosts: [b.test], action: deny}", "{name: few, hosts: [c.test], limits: {upload: 1}}")
	for url, want := range map[string]string{
		"https://a.test/": "", "https://d.test/x": "--allow d.test", "tcp://d.test:443": "--allow tcp://d.test:443", "wss://d.test:8443": "--allow wss://d.test:8443", "https://b.test/": `rule "no" changed`, "http://169.254.169.254": "",
	} {
		r, err := ParseTarget(url, "GET")
		if err != nil {
			t.Fatal(err)
		}
		if got := WouldAllow(p, r); !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q", url, got)
		}
	}
	r, err := ParseTarget("https://c.test/", "POST")
	if err != nil {
		t.Fatal(err)
	}
	r.Body, r.BodySize = []byte("ab"), 2
	if got := WouldAllow(p, r); !strings.Contains(got, `greater upload under limits, of rule "few"`) {
		t.Errorf("%q", got)
	}
}

// What RuleFor gives allows what was seen, and no more.
func TestRuleFor(t *testing.T) {
	for _, c := range []struct {
		o       Observation
		yes, no string
	}{
		{Observation{Host: "a.test", Port: 443, Scheme: HTTPS, Method: "GET", Path: "/a/{b}*%20<c>"}, "https://a.test/a/%7Bb%7D*%20%3Cc%3E", "https://a.test/a/b"},
		{Observation{Host: "a.test", Port: 8443, Scheme: HTTPS, Method: "GET", Path: "/x", Query: []string{"q"}}, "https://a.test:8443/x?q=1", "https://a.test:8443/x?r=1"},
		{Observation{Host: "a.test", Port: 443, Scheme: HTTPS, Method: "GET", Path: "/x", WebSocket: true}, "wss://a.test/x", "wss://a.test/y"},
		{Observation{Host: "2001:db8::1", Port: 80, Scheme: HTTP, Method: "GET", Path: "/"}, "http://[2001:db8::1]/", "http://[2001:db8::2]/"},
		{Observation{Host: "a.test", Port: 5432, Scheme: TCP}, "tcp://a.test:5432", "tcp://a.test:22"},
	} {
		line := RuleFor(c.o)
		p := mustParse(t, strings.TrimPrefix(line, "- "))
		for url, want := range map[string]Verdict{c.yes: Allow, c.no: Deny} {
			r, err := ParseTarget(url, c.o.Method)
			if err != nil {
				t.Fatal(err)
			}
			if got := Final(Walk(p, r)); got.Verdict != want || strings.Contains(line, "\n") {
				t.Errorf("%s by %s: %v, %s", url, line, got.Verdict, got.Why)
			}
		}
	}
	for _, o := range []Observation{{}, {Host: "a.test", Port: 443, Scheme: HTTPS, Method: "G T", Path: "/"}, {Host: "169.254.169.254", Port: 80, Scheme: HTTP, Method: "GET", Path: "/"}} {
		if line := RuleFor(o); line != "" {
			t.Errorf("%+v: %s", o, line)
		}
	}
}

func TestDescribeInternal(t *testing.T) {
	p := mustParse(t, "{name: a, hosts: [a.test], internal: [10.0.0.0/8, fd00::/8]}")
	if got := p.Describe()[0].Text; !strings.Contains(got, "internal, in 10.0.0.0/8, fd00::/8") {
		t.Errorf("%q", got)
	}
}

func TestSuite(t *testing.T) {
	p := mustParse(t, "{name: a, hosts: [a.test], methods: [GET]}", "{name: q, hosts: [q.test], action: ask}")
	s, err := ParseSuite([]byte(`
version: 1
expect:
  - {allow: https://a.test/, rule: a}
  - {deny: https://a.test/, method: POST, reason: method}
  - {ask: https://q.test/}
  - {deny: https://a.test/%2e%2e/x, reason: invalid}
  - {deny: /etc/passwd, access: write}
  - {deny: https://a.test/}
  - {allow: https://a.test/, rule: b}
  - {deny: https://x.test/, reason: path}
`))
	if err != nil {
		t.Fatal(err)
	}
	failures, err := s.Run(p)
	if err != nil || s.Len() != 8 || len(failures) != 3 || failures[0].Line != 9 || failures[0].Got != "allow" || failures[1].Got != "allow by a" || failures[2].Got != "deny, no_rule" {
		t.Errorf("%v, %+v", err, failures)
	}
	for _, bad := range []string{"", "version: 1", "version: 1\nexpect: []", "expect: [{allow: https://a.test}]", "version: 1\nexpect: [{allows: x}]"} {
		if _, err := ParseSuite([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	for _, bad := range []string{"{method: GET}", "{allow: https://a.test, deny: https://a.test}", "{allow: https://a.test, access: read}", "{deny: /x, access: run}"} {
		s, err := ParseSuite([]byte("version: 1\nexpect: [" + bad + "]"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Run(p); err == nil {
			t.Errorf("%s makes sense", bad)
		}
	}
}
