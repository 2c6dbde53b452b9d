package policy

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
)

// The generator makes small documents out of few words, so that rules meet.
var (
	genHosts   = []string{"a.test", "b.test", "x.a.test", "*.a.test", "**.a.test", "*.b.test", "a.test:8443", "y.x.a.test"}
	genAddrs   = []string{"192.0.2.1", "192.0.2.0/24", "10.0.0.0/8"}
	genPorts   = []string{"80", "443", "22", "8000-9000"}
	genMethods = []string{"GET", "POST", "DELETE"}
	genPaths   = []string{"/", "/a", "/a/*", "/a/**", "/**", "/{name}/b", "/a/b/c"}
	genWhen    = []string{"req.method == 'GET'", "req.path.startsWith('/a')", "size(req.body) > 2", "req.query['q'][0] == 'x'"}
)

func pick[T any](r *rand.Rand, list []T, most int) []T {
	var out []T
	for range r.IntN(most + 1) {
		out = append(out, list[r.IntN(len(list))])
	}
	return out
}

func genRule(r *rand.Rand) ruleDoc {
	d := ruleDoc{Action: []string{"allow", "allow", "ask", "deny"}[r.IntN(4)], Hosts: append(pick(r, genHosts, 2), genHosts[r.IntN(len(genHosts))])}
	if r.IntN(4) == 0 {
		d.Addresses = pick(r, genAddrs, 2)
	}
	if r.IntN(3) == 0 {
		d.Ports = append(pick(r, genPorts, 1), genPorts[r.IntN(len(genPorts))])
	}
	d.Protocol = []string{"", "", "http", "https", "tcp"}[r.IntN(5)]
	if d.Protocol == "tcp" {
		d.Ports = []string{genPorts[r.IntN(len(genPorts))]}
		return d
	}
	if r.IntN(5) == 0 && d.Protocol != "http" && d.Action != "deny" {
		d.TLS = "splice"
		return d
	}
	if r.IntN(2) == 0 {
		d.Methods = append(pick(r, genMethods, 1), genMethods[r.IntN(len(genMethods))])
	}
	if r.IntN(2) == 0 {
		d.Paths = append(pick(r, genPaths, 1), genPaths[r.IntN(len(genPaths))])
	}
	if r.IntN(10) == 0 {
		d.When = genWhen[r.IntN(len(genWhen))]
	}
	if d.Action != "deny" && r.IntN(4) == 0 {
		d.WebSocket = true
	}
	if d.Action != "deny" && r.IntN(4) == 0 {
		d.Query = pick(r, []string{"q", "q=x"}, 2)
		if d.Query == nil {
			d.Query = []string{}
		}
	}
	return d
}

func genRules(r *rand.Rand) []ruleDoc {
	out := make([]ruleDoc, r.IntN(7))
	for i := range out {
		out[i] = genRule(r)
		out[i].Name = string(rune('a' + i))
	}
	return out
}

func fromRules(t testing.TB, rules []ruleDoc) *Policy {
	t.Helper()
	text, err := json.Marshal(document{Version: 1, Egress: egressDoc{Rules: rules}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// genRequest makes one with everything known, as a client would.
func genRequest(r *rand.Rand) Request {
	hosts := []string{"a.test", "b.test", "x.a.test", "y.x.a.test", "z.b.test", "c.test", "192.0.2.1", "192.0.2.9", "10.1.1.1"}
	h, _ := ParseHost(hosts[r.IntN(len(hosts))]) // all of them are hosts
	q := Request{To: At(h, []uint16{80, 443, 22, 8443, 5432}[r.IntN(5)]), Stage: Body, Scheme: []Scheme{HTTP, HTTPS, TLS, TCP}[r.IntN(4)]}
	if q.Scheme == TLS || q.Scheme == TCP {
		q.Stage = Connect
		return q
	}
	q.Method, q.WebSocket = append(genMethods, "PUT")[r.IntN(4)], r.IntN(5) == 0
	q.Path = []string{"/", "/a", "/a/b", "/a/b/c", "/z/b", "/a%2Fb", "/a;x/b"}[r.IntN(7)]
	if r.IntN(3) == 0 {
		q.Query = map[string][]string{[]string{"q", "r"}[r.IntN(2)]: {[]string{"x", "y"}[r.IntN(2)]}}
	}
	q.Body = make([]byte, r.IntN(5))
	q.BodySize = int64(len(q.Body))
	return q
}

// rounds is how many policies each property is tried with.
const rounds = 120

// TestMonotone: to remove a rule that allows never allows more, and to add one
// that denies never does; nor does emptying one of its lists.
func TestMonotone(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	allowed := 0
	for round := range rounds {
		rules := genRules(r)
		p := fromRules(t, rules)
		var narrower []*Policy
		for i, d := range rules {
			if d.Action == "deny" {
				continue
			}
			narrower = append(narrower, fromRules(t, slices.Delete(slices.Clone(rules), i, i+1)))
			for _, empty := range []func(*ruleDoc){
				func(d *ruleDoc) { d.Hosts = []string{} }, func(d *ruleDoc) { d.Hosts = d.Hosts[1:] }, func(d *ruleDoc) { d.Ports = []string{} },
				func(d *ruleDoc) {
					if d.TLS == "" && d.Protocol != "tcp" {
						d.Methods, d.Paths = []string{}, []string{}
					}
				},
			} {
				changed := slices.Clone(rules)
				empty(&changed[i])
				narrower = append(narrower, fromRules(t, changed))
			}
		}
		deny := genRule(r)
		for deny.Action != "deny" {
			deny = genRule(r)
		}
		deny.Name = "added"
		narrower = append(narrower, fromRules(t, slices.Insert(slices.Clone(rules), r.IntN(len(rules)+1), deny)))
		for range 60 {
			q := genRequest(r)
			before := Final(Walk(p, q))
			if before.Verdict == Allow {
				allowed++
			}
			for i, n := range narrower {
				after := Final(Walk(n, q))
				// Where a rule goes, one behind it may decide instead, which asks or
				// does not: what was denied must stay denied.
				if before.Verdict == Deny && after.Verdict != Deny {
					t.Fatalf("round %d, %d: %s was denied (%s) and is now %s\n%s\n%s", round, i, describeRequest(q), before.Why, after.Verdict, p.Canonical(), n.Canonical())
				}
			}
		}
	}
	if allowed < rounds/2 {
		t.Errorf("only %d of the requests were allowed: the property was hardly tried", allowed)
	}
}

// TestStagesAgree: what an earlier stage denies, no later one allows; and where
// a later one allows, no earlier one had denied. It also holds the index and
// the quick tests against asking every rule in order.
func TestStagesAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	denied, allowed := 0, 0
	for round := range rounds * 3 {
		p := fromRules(t, genRules(r))
		for range 60 {
			full := genRequest(r)
			var earlier []Request
			name := Request{Stage: Name, To: At(full.To.Host(), 0), BodySize: -1}
			unknown := Request{Stage: Connect, To: full.To, BodySize: -1}
			earlier = append(earlier, name, unknown)
			known := unknown
			known.Scheme = full.Scheme
			if full.Scheme == HTTPS {
				known.Scheme = TLS
				earlier = append(earlier, known)
				known.Scheme = HTTPS
			}
			earlier = append(earlier, known)
			if full.Stage == Body {
				head := full
				head.Stage, head.Body = Head, nil
				earlier = append(earlier, head, full)
			}
			barred := ""
			for _, q := range earlier {
				d := Decide(p, q)
				if barred != "" && d.Verdict != Deny && !(q.Scheme == HTTPS && barred == ReasonUninspected) {
					t.Fatalf("round %d: %s at %s is %s, and was denied before (%s)\n%s", round, describeRequest(full), q.Stage, d.Verdict, barred, p.Canonical())
				}
				if d.Verdict == Deny {
					denied++
					barred = d.Reason
				} else if q.Stage == full.Stage {
					allowed++
				}
				if d.Verdict == Continue && (d.Need <= q.Stage || d.Rule == nil) {
					t.Fatalf("round %d: at %s it waits for %s\n%s", round, q.Stage, d.Need, p.Canonical())
				}
			}
			if want := plainDecide(p, full); want != Decide(p, full).Verdict && full.Scheme != TLS {
				t.Fatalf("round %d: %s is %s, and %s when every rule is asked\n%s", round, describeRequest(full), Decide(p, full).Verdict, want, p.Canonical())
			}
		}
	}
	if denied < rounds || allowed < rounds {
		t.Errorf("%d denied, %d allowed: the property was hardly tried", denied, allowed)
	}
}

// plainDecide is the semantics in its shortest form: a denial that matches,
// else the first that matches, else denied.
func plainDecide(p *Policy, q Request) Verdict {
	out := Deny
	for _, r := range p.rules {
		if !r.has(q.To.Host()) {
			continue
		}
		f, _, _ := r.match(&q)
		if f == yes && r.Action == Deny {
			return Deny
		}
		if f != no && out == Deny && r.Action != Deny {
			out = r.Action
			if f == maybe {
				out = Continue
			}
		}
	}
	return out
}

// TestMergeOnlyAdds: flags change nothing that the document decides.
func TestMergeOnlyAdds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range rounds {
		p := fromRules(t, genRules(r))
		merged, err := Merge(p, Flags{Allow: []string{"a.test", "**.b.test", "c.test:22", "192.0.2.1"}})
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			q := genRequest(r)
			before, after := Final(Walk(p, q)), Final(Walk(merged, q))
			byRule := before.Verdict == Deny && (before.Reason == ReasonRule || before.Reason == ReasonUninspected)
			if (byRule || before.Verdict != Deny) && (after.Verdict != before.Verdict || after.Rule.Name != before.Rule.Name) {
				t.Fatalf("%s: %s before and %s after\n%s", describeRequest(q), before.Verdict, after.Verdict, p.Canonical())
			}
		}
	}
}

// TestDecideDoesNotChange: the same question has the same answer, and a policy
// is not changed by being asked.
func TestDecideDoesNotChange(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	p := fromRules(t, genRules(r))
	digest := p.Digest()
	for range 200 {
		q := genRequest(r)
		if a, b := Decide(p, q), Decide(p, q); a != b {
			t.Fatalf("%+v, then %+v", a, b)
		}
	}
	if again, err := Parse(p.Canonical()); err != nil || again.Digest() != digest {
		t.Errorf("%v", err)
	}
}
