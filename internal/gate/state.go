package gate

import (
	"maps"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey/policy"
)

// State is what a box knows of its past that the next one of the same sandbox
// must know too: limits do not begin anew, and a person is not asked again.
type State struct {
	// Policy is the digest of the version under which Granted are the rules that a
	// person has let pass for the session.
	Policy  string   `json:"policy,omitempty"`
	Granted []string `json:"granted,omitempty"`
	// Used is what went out by rules that have limits, All by all of them.
	Used map[string]policy.Usage `json:"used,omitempty"`
	All  policy.Usage            `json:"all,omitzero"`
	// Chosen are bytes of names chosen under wildcards, by rule.
	Chosen map[string]int64 `json:"chosen,omitempty"`
}

// State gives it.
func (b *Box) State() State {
	s := State{}
	b.chosen.mu.Lock()
	s.Chosen = maps.Clone(b.chosen.used)
	b.chosen.mu.Unlock()
	c := &b.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Used, s.All = maps.Clone(c.used), c.all
	if len(c.granted) > 0 {
		s.Policy, s.Granted = c.under, slices.Sorted(maps.Keys(c.granted))
	}
	return s
}

// restore takes on what an earlier box of the sandbox was.
func (b *Box) restore(s State) {
	c := &b.counters
	c.used, c.all = maps.Clone(s.Used), s.All
	b.chosen.used = maps.Clone(s.Chosen)
	if len(s.Granted) > 0 && s.Policy == b.version.Load().digest() {
		c.granted, c.under = map[string]bool{}, s.Policy
		for _, rule := range s.Granted {
			c.granted[rule] = true
		}
	}
}

// usageWithin is how long what was used of limits may be untold.
const usageWithin = time.Second

// changed tells of a State that is another.
func (b *Box) changed(atOnce bool) {
	tell := b.server.options.Changed
	switch {
	case tell == nil:
	case atOnce:
		tell(b.id)
	case b.telling.CompareAndSwap(false, true):
		time.AfterFunc(usageWithin, func() {
			b.telling.Store(false)
			if b.ctx.Err() == nil {
				tell(b.id)
			}
		})
	}
}
