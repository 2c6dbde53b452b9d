package gate

import (
	"fmt"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// wildcardBudget is how many bytes of names a sandbox may choose under a rule
// with wildcards that has no limit of its own for them.
const wildcardBudget = 4096

// maxChosen bounds the names that are remembered; behind it each dial counts.
const maxChosen = 1 << 16

// chosenNames are the names that a sandbox chose under wildcards. Whoever serves
// the domain sees them when the gate resolves them, so that each carries data
// out, once: later the host's resolver may have it.
type chosenNames struct {
	mu   sync.Mutex
	seen map[string]bool  // by rule and name
	used map[string]int64 // bytes, by rule
}

// resolves counts the name that an act goes to against what its rule lets a
// sandbox choose of names, before it is asked for anywhere.
func (b *Box) resolves(e *egress, rule *policy.Rule) *act.Refused {
	n := rule.Chosen(e.to.Host())
	e.mu.Lock()
	v := e.pin()
	e.mu.Unlock()
	if n == 0 || v.audits() {
		return nil
	}
	c := &b.chosen
	c.mu.Lock()
	defer c.mu.Unlock()
	key := rule.Name + " " + e.to.Host().String()
	if c.seen[key] {
		return nil
	}
	limit, used := rule.Limits.Leak, c.used[rule.Name]
	of, all := b.counters.leaked(rule.Name)
	if limit == 0 {
		limit = wildcardBudget
	} else {
		used = of
	}
	if used+n > limit {
		return &act.Refused{Reason: policy.ReasonLimitLeak, Why: fmt.Sprintf(
			"the name would pass the %d bytes that the sandbox may choose in names under the wildcards of rule %q", limit, rule.Name)}
	}
	if limit := v.policy.Limits().Leak; limit > 0 && all+n > limit {
		return &act.Refused{Reason: policy.ReasonLimitLeak, Why: fmt.Sprintf(
			"the name would pass the %d bytes that the sandbox may choose by all rules of the policy together", limit)}
	}
	b.counters.count(v, rule, policy.Usage{Leak: n})
	b.changed(false)
	if c.seen == nil {
		c.seen = map[string]bool{}
	}
	if c.used == nil {
		c.used = map[string]int64{}
	}
	c.used[rule.Name] += n
	if len(c.seen) < maxChosen {
		c.seen[key] = true
	}
	return nil
}
