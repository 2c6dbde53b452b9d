package gate

import (
	"sync"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// holds are a box's open streams, with what they were allowed for.
type holds struct {
	mu   sync.Mutex
	open map[*hold]struct{}
}

type hold struct {
	request policy.Request
	asked   bool // a person was asked, under the policy at that time
	end     func(act.Denial)
}

// Hold implements act.Box. A stream that a version forbids which came into force
// since it was judged ends at once.
func (b *Box) Hold(to policy.Request, end func(act.Denial)) (done func()) {
	h := &hold{request: to, end: end}
	b.holds.mu.Lock()
	defer b.holds.mu.Unlock()
	v := b.version.Load()
	h.asked = v.holds(h.request, b).Verdict == policy.Ask
	if b.holds.open == nil {
		b.holds.open = map[*hold]struct{}{}
	}
	b.holds.open[h] = struct{}{}
	if d, forbidden := v.forbids(h, b); forbidden {
		b.finish(h, d)
	} else if b.ctx.Err() != nil {
		b.finish(h, policy.Decision{Reason: "closed", Why: "the sandbox has ended"})
	}
	return func() {
		b.holds.mu.Lock()
		defer b.holds.mu.Unlock()
		delete(b.holds.open, h)
	}
}

// holds decides an open stream anew. Limits do not count: it was counted when it
// began, and is counted while it runs.
func (v *version) holds(r policy.Request, b *Box) policy.Decision {
	r.State = policy.State{Granted: b.state(v).Granted}
	return policy.Decide(v.policy, r)
}

// forbids tells whether a version forbids an open stream: it denies it, or asks
// where nobody has been asked before.
func (v *version) forbids(h *hold, b *Box) (policy.Decision, bool) {
	if v.audits() {
		return policy.Decision{}, false
	}
	d := v.holds(h.request, b)
	return d, d.Verdict == policy.Deny || d.Verdict == policy.Ask && !h.asked
}

// enforce ends what a version forbids. The caller holds the lock.
func (s *holds) enforce(b *Box, v *version) {
	for h := range s.open {
		if d, forbidden := v.forbids(h, b); forbidden {
			b.finish(h, d)
		}
	}
}

// endAll ends everything, since the sandbox has ended.
func (s *holds) endAll(b *Box) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for h := range s.open {
		b.finish(h, policy.Decision{Reason: "closed", Why: "the sandbox has ended"})
	}
}

// finish ends one stream, without waiting for it.
func (b *Box) finish(h *hold, d policy.Decision) {
	delete(b.holds.open, h)
	a := b.begin(act.Stream, act.Redirect, h.request.To)
	a.record.Method, a.record.Path, a.record.Scheme = h.request.Method, h.request.Path, string(h.request.Scheme)
	a.decision = d
	denial := a.Denial()
	b.work.Go(func() {
		defer func() { act.Caught(recover()) }()
		h.end(denial)
	})
}
