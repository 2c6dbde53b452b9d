package gate

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey/policy"
)

// counters are what went out by rules that have limits, by the policy as a
// whole, and what a person has granted.
type counters struct {
	mu      sync.Mutex
	used    map[string]policy.Usage
	all     policy.Usage
	granted map[string]bool
	under   string // the digest of the version that granted was granted under
}

// state gives what policy.Decide needs to know of before.
func (b *Box) state(v *version) policy.State {
	c := &b.counters
	c.mu.Lock()
	defer c.mu.Unlock()
	s := policy.State{}
	if c.under == v.digest() { // an update forgets a moment after its version is in force
		s.Granted = maps.Clone(c.granted)
	}
	if v.limited {
		s.Used, s.All = maps.Clone(c.used), c.all
	}
	return s
}

// count adds usage and tells which limit it passes, or "".
func (c *counters) count(v *version, rule *policy.Rule, u policy.Usage) (reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = plus(c.all, u)
	if v.policy != nil {
		reason, _ = v.policy.Limits().Passed(c.all)
	}
	if rule == nil || rule.Limits == (policy.RuleLimits{}) {
		return reason
	}
	if c.used == nil {
		c.used = map[string]policy.Usage{}
	}
	sum := plus(c.used[rule.Name], u)
	c.used[rule.Name] = sum
	if r, passed := rule.Limits.Passed(sum); passed {
		reason = r
	}
	return reason
}

// leaked gives the bytes that names, paths and queries have carried by a rule,
// and by all.
func (c *counters) leaked(rule string) (of, all int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used[rule].Leak, c.all.Leak
}

func plus(a, b policy.Usage) policy.Usage {
	return policy.Usage{Requests: a.Requests + b.Requests, Upload: a.Upload + b.Upload, Leak: a.Leak + b.Leak}
}

// grant lets a rule pass for the session, if the version it was asked under is
// still in force.
func (b *Box) grant(v *version, rule string) {
	if b.counters.grant(b, v, rule) {
		b.changed(true)
	}
}

func (c *counters) grant(b *Box, v *version, rule string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.version.Load().digest() != v.digest() {
		return false
	}
	if c.granted == nil || c.under != v.digest() {
		c.granted, c.under = map[string]bool{}, v.digest()
	}
	c.granted[rule] = true
	return true
}

// forget takes grants back.
func (c *counters) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.granted = nil
}

// Totals is what went through a box. Activity grows whenever something moves.
type Totals struct {
	Acts     int64 // that were allowed: requests, streams
	Denied   int64
	Sent     int64 // bytes, of acts that have ended
	Received int64 // bytes, of acts that have ended
	Activity int64 // in either direction, also of what has not ended; a number of nothing in particular
	Open     int   // streams
	Asking   int   // questions that are open
}

type totals struct{ begun, acts, denied, sent, received atomic.Int64 }

// Totals gives what has gone through the box.
func (b *Box) Totals() Totals {
	t := &b.totals
	activity, open := b.streams.Activity()
	b.asks.mu.Lock()
	asking := len(b.asks.open)
	b.asks.mu.Unlock()
	return Totals{Acts: t.acts.Load(), Denied: t.denied.Load(), Sent: t.sent.Load(), Received: t.received.Load(),
		Activity: activity + t.begun.Load(), Open: open, Asking: asking}
}

// pace bounds how fast one sandbox can fill the audit log with denials: each is
// recorded, and makes its maker wait once it had many.
type pace struct {
	mu   sync.Mutex
	next time.Time // when the next denial is due, running behind the clock by the burst
}

// A sandbox may have so many denials at once, and then so many a second.
const (
	denialBurst = 2000
	denialRate  = 500
)

// wait says how long the maker of a denial is to wait.
func (p *pace) wait(now time.Time) time.Duration {
	const each = time.Second / denialRate
	p.mu.Lock()
	defer p.mu.Unlock()
	if behind := now.Add(-denialBurst * each); p.next.Before(behind) {
		p.next = behind
	}
	p.next = p.next.Add(each)
	return p.next.Sub(now)
}
