package gatebench

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
	"github.com/bailey-sandbox/bailey/policy"
)

// goalDecide is microseconds.
const goalDecide = 20.0

// decision is one question to a policy, which it has to answer so.
type decision struct {
	name    string
	policy  *policy.Policy
	request policy.Request
	want    policy.Verdict
}

// decisions are the cheapest and the most expensive questions to policies of n
// rules that are all alike.
func decisions(n int) ([]decision, error) {
	write := func(rule string) (*policy.Policy, error) {
		var t strings.Builder
		t.WriteString("version: 1\negress:\n  rules:\n")
		for i := range n {
			fmt.Fprintf(&t, "    - {"+rule+"}\n", i)
		}
		return policy.Parse([]byte(t.String()))
	}
	hosts, err := write("hosts: [host%d.test], methods: [GET]")
	if err != nil {
		return nil, err
	}
	wild, err := write("hosts: ['**.zone%d.test'], paths: [/v1/**]")
	if err != nil {
		return nil, err
	}
	paths, err := write("hosts: [a.test], methods: [GET], paths: ['/repos/team%d/*/x']")
	if err != nil {
		return nil, err
	}
	ask := func(host, path string) policy.Request {
		h, herr := policy.ParseHost(host)
		if err == nil {
			err = herr
		}
		return policy.Request{Stage: policy.Head, To: policy.At(h, 443), Scheme: policy.HTTPS, Method: "GET", Path: path, BodySize: -1}
	}
	last := n - 1
	list := []decision{
		{"each rule has its own host, the last one allows", hosts, ask(fmt.Sprintf("host%d.test", last), "/"), policy.Allow},
		{"each rule has its own host, none has this one", hosts, ask("a.b.unknown.test", "/"), policy.Deny},
		{"each rule has its own wildcard, the last one allows", wild, ask(fmt.Sprintf("a.b.zone%d.test", last), "/v1/x"), policy.Allow},
		{"all rules have one host and paths of it, the last one allows", paths, ask("a.test", fmt.Sprintf("/repos/team%d/y/x", last)), policy.Allow},
		{"all rules have one host and paths of it, none this one", paths, ask("a.test", "/repos/nobody/y/x"), policy.Deny},
	}
	return list, err
}

// rules measures how long a policy of many rules takes to decide.
func (b *bench) rules(ctx context.Context) (m Measure, err error) {
	m = Measure{What: fmt.Sprintf("one decision by a policy of %d rules", b.opt.Rules)}
	list, err := decisions(b.opt.Rules)
	if err != nil {
		return m, err
	}
	const batch = 100
	worst := 0.0
	for _, d := range list {
		var took []time.Duration
		for round := -1; round < 10*b.opt.Rounds; round++ {
			begin := time.Now()
			for range batch {
				if got := policy.Decide(d.policy, d.request); got.Verdict != d.want {
					return m, fmt.Errorf("%s: it decides %v", d.name, got.Verdict)
				}
			}
			if round >= 0 {
				took = append(took, time.Since(begin)/batch)
			}
			if ctx.Err() != nil {
				return m, context.Cause(ctx)
			}
		}
		l := latencies(took)
		worst = max(worst, float64(l.Median)/1e3)
		m.Subjects = append(m.Subjects, Subject{Name: d.name, Latency: l})
	}
	m.Targets = []result.Target{result.AtMost("median of the most expensive, µs", worst, goalDecide)}
	return m, nil
}
