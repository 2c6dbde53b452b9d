package gate

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// A14: one sandbox at its limit of streams waits; another does not.
func TestConnectionsOfOneSandbox(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	p := parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port))
	const limit = 8
	y := newYard(t, n, p, func(o *Options) { o.Connections = limit })
	var open []net.Conn
	for range limit {
		c := y.dialName(t, "db.test", port)
		fmt.Fprint(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	for range 50 { // more than may be served: they wait in the kernel
		fmt.Fprint(y.dialName(t, "db.test", port), "x")
	}
	if got := n.dials.Load(); got != limit {
		t.Errorf("%d streams are open", got)
	}
	y.box, y.listener = y.add(t, "other", p)
	c := y.dialName(t, "db.test", port)
	fmt.Fprint(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Errorf("another sandbox cannot get out: %v", err)
	}
	for _, c := range open {
		c.Close()
	}
	y.wait(t, endOf(1))
}

// T57: 2,000 rules at any ports.
func TestManyRules(t *testing.T) {
	var rules []string
	for i := range 2000 {
		rules = append(rules, fmt.Sprintf("hosts: [n%d.test], protocol: tcp, ports: ['22', '5432', '8443']", i))
	}
	y := newYard(t, newInternet(t, nil), parse(t, rules...))
	seen := map[string]bool{}
	for i := range 2000 {
		a, ok := y.lookup(t, fmt.Sprintf("n%d.test", i))
		if !ok || seen[a.String()] {
			t.Fatalf("n%d.test: %s, %v", i, a, ok)
		}
		seen[a.String()] = true
	}
	if len(y.acts()) != 0 {
		t.Errorf("%+v", y.acts())
	}
	isReset(t, y.dialName(t, "n1999.test", 443))
	if got := y.only(t); got != "stream deny port n1999.test:443" {
		t.Errorf("recorded %q", got)
	}
}

// What is told of denials is enough for a model that must not go around them (T55).
func TestDenialTeaches(t *testing.T) {
	y := newYard(t, newInternet(t, nil), parse(t, "hosts: [ok.test]", "name: no-ads, description: no advertising, action: deny, hosts: [ads.test]"))
	isReset(t, y.dialName(t, "ok.test", 22))
	y.lookup(t, "ads.test")
	y.lookup(t, "evil.test")
	y.server.Close()
	y.mu.Lock()
	defer y.mu.Unlock()
	if len(y.denials) != 3 {
		t.Fatalf("%+v", y.denials)
	}
	for i, want := range []act.Denial{
		{What: "connect to ok.test:22", Reason: "port"},
		{What: "look up ads.test", Rule: "no-ads", Reason: "rule"},
		{What: "look up evil.test", Reason: "no_rule"},
	} {
		d := y.denials[i]
		if d.Error != "denied" || d.Sandbox != "sandbox" || d.What != want.What || d.Rule != want.Rule || d.Reason != want.Reason || d.Why == "" || d.Seq != int64(i+1) ||
			!strings.Contains(d.Ask, "Ask whoever runs") || !strings.Contains(d.Hint, "Do not try another way") {
			t.Errorf("%+v", d)
		}
	}
	if want := "--allow ok.test:22"; !strings.Contains(y.denials[0].Ask, want) {
		t.Errorf("%q lacks %q", y.denials[0].Ask, want)
	}
}

// What would not help is not advised.
func TestHowToAskHelps(t *testing.T) {
	for reason, want := range map[string]string{
		policy.ReasonNoRule:   "bailey run --allow ok.test, or",
		policy.ReasonMethod:   `rules: - {"hosts":["ok.test:443"],"protocol":"https","methods":["PUT"],"paths":["/a/b"],"query":["q"]}`,
		policy.ReasonPath:     `"paths":["/a/b"]`,
		policy.ReasonQuery:    `"query":["q"]`,
		policy.ReasonRule:     `change rule "no-puts" in its policy`,
		"tls_failed":          "a rule with tls: splice",
		policy.ReasonSecret:   "bind a secret: bailey run --secret NAME@ok.test",
		"address_internal":    "under internal; a flag cannot",
		"foreign_credential":  "Send the placeholder",
		"secret_misdirected":  "bind the secret to this place",
		"request_malformed":   "no rule allows this one",
		"request_ambiguous":   "no rule allows this one",
		policy.ReasonMetadata: "Nothing allows this",
	} {
		a := &egress{kind: act.HTTP, decision: policy.Decision{Reason: reason, Rule: &policy.Rule{Name: "no-puts"}}}
		a.record = audit.Egress{Host: "ok.test", Port: 443, Scheme: "https", Method: "PUT", Path: "/a/b", Query: []string{"q"}}
		got := a.howToAsk()
		if !strings.Contains(got, want) || reason != policy.ReasonNoRule && strings.Contains(got, "--allow") {
			t.Errorf("%s: %q", reason, got)
		}
	}
}

// Whoever is told of denials may be slow: the gate does not wait, and counts.
func TestSlowListener(t *testing.T) {
	stuck := make(chan bool)
	y := newYard(t, newInternet(t, nil), parse(t), func(o *Options) { o.Denied = func(act.Denial) { <-stuck } })
	for i := range 100 {
		y.lookup(t, fmt.Sprintf("n%d.test", i))
	}
	if len(y.acts()) != 100 {
		t.Errorf("%d records", len(y.acts()))
	}
	if n := y.box.Dropped(); n < 100-64-1 || n > 100-64 {
		t.Errorf("%d were dropped", n)
	}
	close(stuck)
}

// Denials without end fill the log at a bounded rate.
func TestPace(t *testing.T) {
	var p pace
	now := time.Now()
	for i := range denialBurst {
		if d := p.wait(now); d > 0 {
			t.Fatalf("the %dth waits %s", i+1, d)
		}
	}
	if d := p.wait(now.Add(time.Second)); d > 0 {
		t.Errorf("after a second: %s", d)
	}
	for range denialRate * 2 {
		p.wait(now.Add(time.Second))
	}
	if d := p.wait(now.Add(time.Second)); d < time.Second || d > 2*time.Second {
		t.Errorf("two seconds' worth more waits %s", d)
	}
	if d := p.wait(now.Add(time.Hour)); d > 0 {
		t.Errorf("after an hour: %s", d)
	}
}

// Rules without limits have no count, others have the sum of all their acts.
func TestCounters(t *testing.T) {
	p := parse(t, "name: few, hosts: [ok.test], limits: {requests: '3'}", "name: many, hosts: [other.test]")
	y := newYard(t, newInternet(t, nil), p)
	h, err := policy.ParseHost("ok.test")
	if err != nil {
		t.Fatal(err)
	}
	to := policy.At(h, 443)
	r := policy.Request{Stage: policy.Head, To: to, Scheme: policy.HTTPS, Method: "GET", Path: "/", BodySize: -1}
	for i := range 5 {
		a := y.box.Begin(act.HTTP, act.Redirect, to)
		d := a.Judge(t.Context(), r)
		if want := i < 3; (d.Verdict == policy.Allow) != want {
			t.Errorf("%d: %+v", i, d)
		}
		if d.Verdict == policy.Allow && !a.Count(policy.Usage{Requests: 1}) {
			t.Errorf("%d does not count", i)
		}
	}
	// Two that were judged at the same time cannot both be the last.
	y.box.Update(p, nil)
	a := y.box.Begin(act.HTTP, act.Redirect, to)
	a.(*egress).decision.Rule = p.Rules()[0]
	if a.Count(policy.Usage{Requests: 1}) {
		t.Error("the fourth counts")
	}
}

// 200 sandboxes in one process: nothing of them is left behind, and they are
// small. Counted, not timed.
func TestManySandboxes(t *testing.T) {
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	var rules []string
	for i := range 100 {
		rules = append(rules, fmt.Sprintf("hosts: [n%d.test]", i))
	}
	p := parse(t, append(rules, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port))...)
	y := newYard(t, n, p)
	before, memory := settled(), heap()
	const sandboxes = 200
	var boxes []*Box
	var open []net.Conn
	for i := range sandboxes {
		b, listener := y.add(t, fmt.Sprintf("s%d", i), p)
		boxes = append(boxes, b)
		y.box, y.listener = b, listener
		for j := range 20 {
			y.lookup(t, fmt.Sprintf("n%d.test", j))
		}
		c := y.dialName(t, "db.test", port)
		fmt.Fprint(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	if used := heap() - memory; used > 100<<20 {
		t.Errorf("%d sandboxes with a stream each take %d MB", sandboxes, used>>20)
	} else {
		t.Logf("%d sandboxes with a stream each take %d KB of heap", sandboxes, used>>10)
	}
	for _, c := range open {
		c.Close()
	}
	for _, b := range boxes {
		b.Close()
	}
	// The servers of the test end their connections by themselves.
	late := time.Now().Add(patience)
	for settled() > before && time.Now().Before(late) {
		runtime.Gosched()
	}
	if after := settled(); after > before {
		all := make([]byte, 1<<20)
		t.Errorf("%d goroutines, before %d\n%s", after, before, all[:runtime.Stack(all, true)])
	}
}

// settled counts goroutines that are not about to end.
func settled() int {
	n := runtime.NumGoroutine()
	for range 100 {
		runtime.Gosched()
		n = min(n, runtime.NumGoroutine())
	}
	return n
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
