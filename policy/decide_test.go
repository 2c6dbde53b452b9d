package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// TestHosts has N1, N2 and N10: which names and ports a rule stands for.
func TestHosts(t *testing.T) {
	p := mustParse(t,
		"{hosts: [example.test]}", "{hosts: ['*.one.test']}", "{hosts: ['**.many.test']}", "{hosts: ['port.test:8443']}", "{hosts: [ranged.test], ports: [22, 8000-8010]}",
		"{hosts: [plain.test], protocol: http}", "{hosts: [tls.test], protocol: https}", "{hosts: [any.test], ports: [9000]}", "{hosts: ['\u00fcml.test']}")
	for url, want := range map[string]bool{
		"https://example.test": true, "http://example.test": true, "https://EXAMPLE.test./": true, "https://evil-example.test": false, "https://example.test.evil.test": false,
		"https://xexample.test": false, "https://www.example.test": false, "https://test": false, "https://example.test:8443": false, "https://example.test:80": false, "http://example.test:443": false,
		"https://a.one.test": true, "https://one.test": false, "https://a.b.one.test": false, "https://xone.test": false, "https://a.one.test:8443": false,
		"https://a.many.test": true, "https://a.b.many.test": true, "https://many.test": false, "https://amany.test": false,
		"https://port.test:8443": true, "http://port.test:8443": true, "https://port.test": false, "https://port.test:443": false,
		"https://ranged.test:8000": true, "https://ranged.test:8010": true, "https://ranged.test:8011": false, "https://ranged.test": false, "http://ranged.test:22": true,
		"http://plain.test": true, "https://plain.test": false, "http://plain.test:443": false, "https://tls.test": true, "http://tls.test": false, "https://tls.test:80": false,
		"http://any.test:9000": true, "https://any.test:9000": true, "tcp://any.test:9000": false, "tcp://example.test:443": false,
		"https://xn--ml-xka.test": false, "https://xn--ml-wka.test": true, "https://\u00dcML.test": true,
		"https://127.0.0.1": false, "https://[::1]": false,
	} {
		r, err := ParseTarget(url, "GET")
		if err != nil {
			if want {
				t.Errorf("%s: %v", url, err)
			}
			continue
		}
		if d := Final(Walk(p, r)); (d.Verdict == Allow) != want {
			t.Errorf("%s: %s, %s", url, d.Verdict, d.Why)
		}
	}
}

// TestAddresses: a literal address matches only rules that name addresses.
func TestAddresses(t *testing.T) {
	p := mustParse(t, "{name: name, hosts: [a.test, '**.b.test']}", "{name: one, addresses: [192.0.2.1]}", "{name: net, addresses: [198.51.100.0/24, '2001:db8::/32'], ports: [8080]}", "{action: deny, addresses: [198.51.100.7]}")
	for url, want := range map[string]Verdict{
		"https://192.0.2.1": Allow, "https://192.0.2.2": Deny, "https://[::ffff:192.0.2.1]": Allow, "http://198.51.100.1:8080": Allow, "http://198.51.100.1": Deny,
		"http://198.51.100.7:8080": Deny, "https://[2001:db8::5]:8080": Allow, "https://[2001:db9::5]:8080": Deny, "https://203.0.113.1": Deny,
	} {
		if d := verdict(t, p, "GET", url); d.Verdict != want {
			t.Errorf("%s: %s, %s", url, d.Verdict, d.Why)
		}
	}
}

// TestOrder is A4: every pair of actions in either order. Deny beats what
// allows; of what does not deny, the first that matches decides.
func TestOrder(t *testing.T) {
	for _, first := range []string{"allow", "deny", "ask"} {
		for _, second := range []string{"allow", "deny", "ask"} {
			p := mustParse(t, "{name: one, hosts: [a.test], action: "+first+"}", "{name: two, hosts: ['**.test.a', a.test], action: "+second+"}")
			want, rule := first, "one"
			if second == "deny" && first != "deny" {
				want, rule = second, "two"
			}
			d := verdict(t, p, "GET", "https://a.test/")
			if d.Verdict.String() != want || d.Rule == nil || d.Rule.Name != rule {
				t.Errorf("%s, then %s: %s by %v", first, second, d.Verdict, d.Rule)
			}
		}
	}
	// A rule that does not match leaves it to the next.
	p := mustParse(t, "{name: get, hosts: [a.test], methods: [GET]}", "{name: ask, hosts: [a.test], methods: [POST], action: ask}", "{name: rest, hosts: [a.test]}", "{name: no, hosts: [a.test], paths: [/admin/**], action: deny}")
	for _, c := range []struct {
		method, url, rule string
		want              Verdict
	}{
		{"GET", "https://a.test/x", "get", Allow}, {"POST", "https://a.test/x", "ask", Ask}, {"PUT", "https://a.test/x", "rest", Allow},
		{"GET", "https://a.test/admin/x", "no", Deny}, {"PUT", "https://a.test/x/../admin/", "no", Deny},
	} {
		if d := verdict(t, p, c.method, c.url); d.Verdict != c.want || d.Rule.Name != c.rule {
			t.Errorf("%s %s: %s by %s", c.method, c.url, d.Verdict, d.Rule.Name)
		}
	}
}

// TestMethods is H5: methods are matched exactly.
func TestMethods(t *testing.T) {
	p := mustParse(t, "{hosts: [a.test], methods: [GET, HEAD]}")
	for method, want := range map[string]Verdict{"GET": Allow, "HEAD": Allow, "get": Deny, "Get": Deny, "POST": Deny, "OPTIONS": Deny, "PROPFIND": Deny, "GETX": Deny} {
		if d := verdict(t, p, method, "https://a.test/"); d.Verdict != want || want == Deny && d.Reason != ReasonMethod {
			t.Errorf("%s: %s, %s", method, d.Verdict, d.Reason)
		}
	}
}

// TestPathTricks is H6: what is allowed for one path does not let another
// reading of it pass, and what is denied is denied in every reading.
func TestPathTricks(t *testing.T) {
	p := mustParse(t, "{name: v1, hosts: [a.test], paths: [/v1/**]}", "{name: all, hosts: [b.test]}", "{action: deny, hosts: [b.test], paths: [/admin/**, /secret]}",
		"{name: when, hosts: [c.test]}", "{action: deny, hosts: [c.test], when: \"req.path.startsWith('/admin/')\"}")
	for _, trick := range []string{"/v1/../admin/x", "/v1/%2e%2e/admin/x", "/v1/.%2e/admin/x", "//admin/x", "/./admin/x", "/admin/x", "/v1//../admin/x", "/%61dmin/x", "/admin%2fx", "/admin;a=b/x", "/admin;a/x;b", "/v1/..%2fadmin/x",
		"/v1/%2e%2e%2fadmin/x", "/v1/..;/admin/x", "/v1\\..\\admin/x", "/v1/%252e%252e/admin/x", "/v1/%c0%ae%c0%ae/admin/x", "/v1/%00/../../admin/x", "/v1/..%5cadmin/x"} {
		for _, host := range []string{"a.test", "b.test", "c.test"} {
			r, err := ParseTarget("https://"+host+trick, "GET")
			if err != nil {
				continue // refused before any rule is asked
			}
			if d := Final(Walk(p, r)); d.Verdict != Deny {
				t.Errorf("%s%s is %s by %s, as %s", host, trick, d.Verdict, d.Rule.Name, r.Path)
			}
		}
	}
	for _, url := range []string{"https://a.test/v1/x", "https://a.test/v1/x/../y", "https://a.test/v2/../v1/x", "https://b.test/administrator", "https://b.test/a%2fb", "https://c.test/a%2fb", "https://b.test/secrets"} {
		if d := verdict(t, p, "GET", url); d.Verdict != Allow {
			t.Errorf("%s: %s", url, d.Why)
		}
	}
	if d := verdict(t, p, "GET", "https://a.test/v1/a%2fb"); d.Verdict != Deny || d.Reason != ReasonPath {
		t.Errorf("a wildcard stood for an encoded slash: %+v", d)
	}
	if d := verdict(t, p, "GET", "https://b.test/secret;x"); d.Verdict != Deny {
		t.Errorf("parameters of a segment led around a denial: %+v", d)
	}
}

func TestQuery(t *testing.T) {
	p := mustParse(t, "{hosts: [a.test], query: [page, service=git-upload-pack]}")
	for query, want := range map[string]Verdict{
		"": Allow, "?page=3": Allow, "?page": Allow, "?service=git-upload-pack": Allow, "?service=git-receive-pack": Deny, "?service=git-upload-pack&service=git-receive-pack": Deny,
		"?service": Deny, "?Page=1": Deny, "?page=1&x=2": Deny, "?page=1&page=2": Allow, "?%70age=1": Allow,
	} {
		if d := verdict(t, p, "GET", "https://a.test/"+query); d.Verdict != want {
			t.Errorf("%q: %s, %s", query, d.Verdict, d.Why)
		}
	}
}

// TestStages: what each stage says of each kind of rule.
func TestStages(t *testing.T) {
	p := mustParse(t,
		"{name: http, hosts: [http.test], methods: [GET]}", "{name: splice, hosts: [splice.test], tls: splice}", "{name: tcp, hosts: [tcp.test], protocol: tcp, ports: [22]}",
		"{name: body, hosts: [body.test], when: size(req.body) < 3}",
		"{name: denied, hosts: [denied.test], action: deny}", "{name: denied-port, hosts: [http.test], ports: [80], action: deny}", "{hosts: [denied.test]}",
		"{name: mixed-tcp, hosts: [mixed.test], protocol: tcp, ports: [443]}", "{name: mixed-deny, hosts: [mixed.test], paths: [/x], action: deny}",
		"{name: noport, hosts: [noport.test], ports: []}")
	for _, c := range []struct {
		host   string
		port   uint16
		stage  Stage
		scheme Scheme
		want   Verdict
		rule   string
		need   Stage
	}{
		{"http.test", 0, Name, "", Continue, "http", Connect}, {"http.test", 443, Connect, "", Continue, "http", Head}, {"http.test", 443, Connect, TLS, Continue, "http", Head},
		{"http.test", 443, Connect, HTTP, Deny, "", 0}, {"http.test", 443, Connect, TCP, Deny, "", 0}, {"http.test", 443, Head, HTTPS, Allow, "http", 0}, {"http.test", 80, Connect, "", Deny, "denied-port", 0},
		{"http.test", 22, Connect, "", Deny, "", 0},
		{"splice.test", 0, Name, "", Continue, "splice", Connect}, {"splice.test", 443, Connect, "", Continue, "splice", Head}, {"splice.test", 443, Connect, TLS, Allow, "splice", 0},
		{"splice.test", 443, Connect, TCP, Deny, "", 0}, {"splice.test", 443, Head, HTTPS, Deny, "", 0}, {"splice.test", 80, Connect, "", Deny, "", 0},
		{"tcp.test", 0, Name, "", Continue, "tcp", Connect}, {"tcp.test", 22, Connect, "", Allow, "tcp", 0}, {"tcp.test", 22, Connect, TLS, Allow, "tcp", 0}, {"tcp.test", 23, Connect, "", Deny, "", 0},
		{"body.test", 443, Head, HTTPS, Continue, "body", Body}, {"body.test", 443, Body, HTTPS, Allow, "body", 0},
		{"denied.test", 0, Name, "", Deny, "denied", 0}, {"denied.test", 9, Connect, "", Deny, "denied", 0}, {"denied.test", 443, Head, HTTPS, Deny, "denied", 0}, {"unknown.test", 0, Name, "", Deny, "", 0},
		// A denial that looks at paths keeps streams closed in which they cannot be seen.
		{"mixed.test", 443, Connect, "", Continue, "mixed-tcp", Head}, {"mixed.test", 443, Connect, TLS, Deny, "mixed-deny", 0}, {"mixed.test", 443, Connect, TCP, Allow, "mixed-tcp", 0}, {"mixed.test", 443, Head, HTTP, Allow, "mixed-tcp", 0},
		{"noport.test", 0, Name, "", Deny, "", 0},
	} {
		d := Decide(p, Request{Stage: c.stage, To: At(Host{name: c.host}, c.port), Scheme: c.scheme, Method: "GET", Path: "/"})
		rule := ""
		if d.Rule != nil {
			rule = d.Rule.Name
		}
		if d.Verdict != c.want || rule != c.rule || d.Need != c.need || d.Reason == "" || d.Why == "" {
			t.Errorf("%s:%d, %s, %q: %s by %q, needs %s: %s %s", c.host, c.port, c.stage, c.scheme, d.Verdict, rule, d.Need, d.Reason, d.Why)
		}
	}
}

// TestFirstRuleSetsTheTLSMode: of rules for the same host, the first that may
// allow says whether a stream is looked into.
func TestFirstRuleSetsTheTLSMode(t *testing.T) {
	for _, c := range []struct {
		rules []string
		want  Verdict
		mode  TLSMode
	}{
		{[]string{"{hosts: [a.test]}", "{hosts: [a.test], tls: splice}"}, Continue, Terminate},
		{[]string{"{hosts: [a.test], tls: splice}", "{hosts: [a.test]}"}, Allow, Splice},
	} {
		p := mustParse(t, c.rules...)
		d := Decide(p, Request{Stage: Connect, To: At(Host{name: "a.test"}, 443), Scheme: TLS})
		if d.Verdict != c.want || d.Rule.TLS != c.mode {
			t.Errorf("%v: %s, %v", c.rules, d.Verdict, d.Rule.TLS)
		}
	}
}

func TestWebSocket(t *testing.T) {
	p := mustParse(t, "{hosts: [a.test]}", "{hosts: [b.test], websocket: true}")
	if d := verdict(t, p, "GET", "wss://a.test/"); d.Verdict != Deny || d.Reason != ReasonWebSocket {
		t.Errorf("%+v", d)
	}
	for _, url := range []string{"wss://b.test/", "ws://b.test/", "https://b.test/"} {
		if d := verdict(t, p, "GET", url); d.Verdict != Allow {
			t.Errorf("%s: %+v", url, d)
		}
	}
}

func TestAskAndGrant(t *testing.T) {
	p := mustParse(t, "{name: a, hosts: [a.test], action: ask}", "{name: b, hosts: [b.test], action: ask}", "{name: ssh, hosts: [c.test], protocol: tcp, ports: [22], action: ask}", "{hosts: [c.test], paths: [/x], action: deny}")
	to := func(host string) Request {
		return Request{Stage: Head, To: At(Host{name: host}, 443), Scheme: HTTPS, Method: "GET", Path: "/", State: State{Granted: map[string]bool{"a": true}}}
	}
	if d := Decide(p, to("a.test")); d.Verdict != Allow || d.Reason != ReasonGranted {
		t.Errorf("%+v", d)
	}
	if d := Decide(p, to("b.test")); d.Verdict != Ask {
		t.Errorf("a grant of another rule counted: %+v", d)
	}
	if d := verdict(t, p, "", "tcp://c.test:22"); d.Verdict != Ask {
		t.Errorf("%+v", d)
	}
}

func TestLimits(t *testing.T) {
	p, err := Parse([]byte("version: 1\negress:\n  limits: {requests: 10, upload: 1000}\n  rules:\n  - {name: a, hosts: [a.test], paths: ['/p/*'], limits: {requests: 2, upload: 100, leak: 8}}\n  - {name: s, hosts: [s.test], tls: splice, limits: {requests: 1}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host, path string
		size       int64
		own, all   Usage
		reason     string
	}{
		{"a.test", "/p/a", 0, Usage{}, Usage{}, ReasonRule}, {"a.test", "/p/a", 0, Usage{Requests: 1}, Usage{}, ReasonRule}, {"a.test", "/p/a", 0, Usage{Requests: 2}, Usage{}, ReasonLimitRequests},
		{"a.test", "/p/a", 100, Usage{}, Usage{}, ReasonRule}, {"a.test", "/p/a", 101, Usage{}, Usage{}, ReasonLimitUpload}, {"a.test", "/p/a", -1, Usage{Upload: 101}, Usage{}, ReasonLimitUpload},
		{"a.test", "/p/12345678", 0, Usage{}, Usage{}, ReasonRule}, {"a.test", "/p/123456789", 0, Usage{}, Usage{}, ReasonLimitLeak}, {"a.test", "/p/1234", 0, Usage{Leak: 5}, Usage{}, ReasonLimitLeak},
		{"a.test", "/p/a", 0, Usage{}, Usage{Requests: 10}, ReasonLimitRequests}, {"a.test", "/p/a", 1, Usage{}, Usage{Upload: 1000}, ReasonLimitUpload},
	} {
		d := Decide(p, Request{Stage: Head, To: At(Host{name: c.host}, 443), Scheme: HTTPS, Method: "GET", Path: c.path, BodySize: c.size, State: State{Used: map[string]Usage{"a": c.own}, All: c.all}})
		if d.Reason != c.reason || (d.Verdict == Allow) != (c.reason == ReasonRule) {
			t.Errorf("%+v: %s, %s", c, d.Verdict, d.Why)
		}
	}
	spliced := Request{Stage: Connect, To: At(Host{name: "s.test"}, 443), Scheme: TLS, State: State{Used: map[string]Usage{"s": {Requests: 1}}}}
	if d := Decide(p, spliced); d.Verdict != Deny || d.Reason != ReasonLimitRequests {
		t.Errorf("%+v", d)
	}
	if _, passed := p.Rules()[0].Limits.Passed(Usage{Upload: 100}); passed {
		t.Error("a limit that is reached is not passed")
	}
	if reason, passed := p.Rules()[0].Limits.Passed(Usage{Upload: 101}); !passed || reason != ReasonLimitUpload {
		t.Error("a limit that is passed")
	}
}

func TestLeak(t *testing.T) {
	p := mustParse(t, "{hosts: [a.test], paths: ['/p/*/x', '/q/{name}', '/r/pre-*.tgz', '/s/**']}", "{hosts: [b.test]}")
	for path, want := range map[string]int64{"/p/abc/x": 3, "/q/abcd": 4, "/r/pre-ab.tgz": 2, "/s/a/b": 3} {
		if n := p.Rules()[0].Leak(Request{Path: path}); n != want {
			t.Errorf("%s: %d, want %d", path, n, want)
		}
	}
	if n := p.Rules()[1].Leak(Request{Path: "/abc", Query: map[string][]string{"ab": {"cde", "f"}}}); n != 4+2+4 {
		t.Errorf("%d", n)
	}
}

// TestBuiltin is I1 and D3: metadata services are never reachable, DNS
// resolvers only by a rule that names them exactly.
func TestBuiltin(t *testing.T) {
	p := mustParse(t, "{name: wide, hosts: ['**.google.internal', '*.goog.test', 'metadata.google.internal.test']}", "{name: all, addresses: ['128.0.0.0/1', '64.0.0.0/2', '32.0.0.0/3', '2000::/3', '64:ff9b::/96', 'fc00::/7']}",
		"{name: ask, hosts: ['**.quad9.net'], action: ask}", "{name: cf, hosts: ['*.cloudflare-dns.com', cloudflare-dns.com]}", "{name: one, addresses: [1.1.1.1]}")
	for url, want := range map[string]string{
		"http://metadata.google.internal": ReasonMetadata, "http://METADATA.google.internal./": ReasonMetadata, "http://169.254.169.254": ReasonMetadata, "http://[fd00:ec2::254]": ReasonMetadata,
		"http://100.100.100.200": ReasonMetadata, "http://169.254.170.2": ReasonMetadata, "http://[64:ff9b::a9fe:a9fe]": ReasonMetadata, "http://[2002:a9fe:a9fe::1]": ReasonMetadata, "http://[::ffff:169.254.169.254]": ReasonMetadata, "http://[64:ff9b:1::a9fe:a9fe]": ReasonMetadata,
		"https://dns.quad9.net": ReasonResolver, "https://mozilla.cloudflare-dns.com": ReasonResolver, "https://cloudflare-dns.com": ReasonRule, "https://9.9.9.9": ReasonAddress, "https://208.67.222.222": ReasonResolver, "https://1.1.1.1": ReasonRule,
		"https://www.quad9.net": ReasonRule,
	} {
		if d := verdict(t, p, "GET", url); d.Reason != want {
			t.Errorf("%s: %s, %s", url, d.Reason, d.Why)
		}
	}
	audit, err := Parse([]byte("version: 1\nmode: audit"))
	if err != nil || verdict(t, audit, "GET", "http://169.254.169.254/").Verdict != Deny {
		t.Errorf("%v", err)
	}
}

func TestAllowsAddress(t *testing.T) {
	p := mustParse(t, "{hosts: [a.test], internal: [10.0.0.0/8, 'fd00::/8', 169.254.0.0/16, '64:ff9b::/96']}", "{addresses: [10.1.2.3, 192.168.0.0/16, 128.0.0.0/1]}", "{hosts: [b.test]}")
	for i, cases := range []map[string]bool{
		{"10.1.2.3": true, "::ffff:10.1.2.3": true, "11.0.0.1": false, "192.168.0.1": false, "fd00::1": true, "fd00:ec2::254": false, "169.254.169.254": false, "169.254.1.1": true, "fe80::1%lo": false,
			"64:ff9b::10.0.0.1": true, "64:ff9b::192.168.0.1": false, "64:ff9b::169.254.169.254": false, "2002:a00:1::": false, "::": false, "0.0.0.0": false},
		{"10.1.2.3": true, "10.1.2.4": false, "192.168.3.4": true, "172.16.0.1": false, "203.0.113.1": false},
		{"10.1.2.3": false, "127.0.0.1": false},
	} {
		for a, want := range cases {
			if got := p.Rules()[i].AllowsAddress(netip.MustParseAddr(a)); got != want {
				t.Errorf("rule %d, %s: %v", i, a, got)
			}
		}
	}
	var none *Rule
	if none.AllowsAddress(netip.MustParseAddr("10.0.0.1")) || p.Rules()[0].AllowsAddress(netip.Addr{}) {
		t.Error("no rule, or no address")
	}
}

func TestInvalidRequests(t *testing.T) {
	p := mustParse(t, "{hosts: [a.test]}", "{hosts: [a.test], protocol: tcp, ports: [22]}")
	a := Host{name: "a.test"}
	for i, r := range []Request{
		{}, {Stage: Head}, {To: At(a, 443), Stage: Body + 1}, {To: At(a, 443)}, {Stage: Connect, To: At(a, 0)}, {Stage: Head, To: At(a, 443), Path: "/"}, {Stage: Head, To: At(a, 443), Scheme: TCP, Path: "/"},
		{Stage: Head, To: At(a, 443), Scheme: HTTPS}, {Stage: Head, To: At(a, 443), Scheme: HTTPS, Path: "x"},
	} {
		if d := Decide(p, r); d.Verdict != Deny || d.Reason != ReasonInvalid {
			t.Errorf("%d: %+v", i, d)
		}
	}
}

// TestManyRules is T57: thousands of rules for ports of many kinds are taken,
// and each of them holds.
func TestManyRules(t *testing.T) {
	p := manyRules(t, 2000)
	if len(p.Rules()) != 2000 {
		t.Fatalf("%d rules", len(p.Rules()))
	}
	for i := range 2000 {
		port := manyPorts[i%len(manyPorts)]
		d := Decide(p, Request{Stage: Connect, To: At(Host{name: fmt.Sprintf("host%d.test", i)}, port), Scheme: TCP})
		other := Decide(p, Request{Stage: Connect, To: At(Host{name: fmt.Sprintf("host%d.test", i)}, port+1), Scheme: TCP})
		if d.Verdict != Allow || d.Rule.Name != fmt.Sprintf("rule%d", i) || other.Verdict != Deny {
			t.Fatalf("rule %d: %+v, %+v", i, d, other)
		}
	}
}

var manyPorts = []uint16{22, 5432, 8443}

func manyRules(t testing.TB, n int) *Policy {
	var rules []string
	for i := range n {
		rules = append(rules, fmt.Sprintf("{name: rule%d, hosts: [host%d.test], protocol: tcp, ports: [%d]}", i, i, manyPorts[i%len(manyPorts)]))
	}
	return mustParse(t, rules...)
}

// BenchmarkDecide2000 decides by 2,000 rules: each for a host of its own, and
// all for paths of one host, which no index helps with.
func BenchmarkDecide2000(b *testing.B) {
	many := manyRules(b, 2000)
	var rules, wild []string
	for i := range 2000 {
		rules = append(rules, fmt.Sprintf("{hosts: [a.test], methods: [GET], paths: ['/repos/team%d/*/x']}", i))
		wild = append(wild, fmt.Sprintf("{hosts: ['**.zone%d.test'], paths: [/v1/**]}", i))
	}
	one, zones := mustParse(b, rules...), mustParse(b, wild...)
	for _, c := range []struct {
		name string
		p    *Policy
		r    Request
		want Verdict
	}{
		{"connect", many, Request{Stage: Connect, To: At(Host{name: "host1999.test"}, 5432)}, Allow},
		{"name", many, Request{Stage: Name, To: At(Host{name: "host1999.test"}, 0)}, Continue},
		{"unknown-name", many, Request{Stage: Name, To: At(Host{name: "a.b.c.d.unknown.test"}, 0)}, Deny},
		{"wildcards", zones, Request{Stage: Head, To: At(Host{name: "a.b.zone1999.test"}, 443), Scheme: HTTPS, Method: "GET", Path: "/v1/x"}, Allow},
		{"one-host-last", one, Request{Stage: Head, To: At(Host{name: "a.test"}, 443), Scheme: HTTPS, Method: "GET", Path: "/repos/team1999/y/x"}, Allow},
		{"one-host-none", one, Request{Stage: Head, To: At(Host{name: "a.test"}, 443), Scheme: HTTPS, Method: "GET", Path: "/repos/nobody/y/x"}, Deny},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if d := Decide(c.p, c.r); d.Verdict != c.want {
					b.Fatal(d)
				}
			}
		})
	}
}

// TestIndex holds the index against asking every rule.
func TestIndex(t *testing.T) {
	p, err := Parse([]byte(full))
	if err != nil {
		t.Fatal(err)
	}
	list, _ := samples(p)
	for _, r := range list {
		var want []int32
		for i, rule := range p.rules {
			if rule.has(r.To.Host()) {
				want = append(want, int32(i))
			}
		}
		var got []int32
		for _, e := range p.index.lookup(r.To.Host(), nil) {
			got = append(got, e.rule)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %v, want %v", r.To, got, want)
		}
	}
}
