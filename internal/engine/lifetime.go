package engine

import (
	"context"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/life"
	"github.com/bailey-sandbox/bailey/internal/engine/quota"
)

// alive is a sandbox's life as the engine has it in mind. What has to be remembered
// goes into the record with each row; what passes, such as which exec runs, does not.
type alive struct {
	mu   sync.Mutex
	life life.Record
	look look
	// lookDue is when it is to be looked at next, zero while it is not.
	lookDue time.Time
	waiting *quota.Request // in the queue, nil: it does not wait
	tries   int            // how often in a row what was due could not be done
}

// look is what was found when a sandbox was looked at last.
type look struct {
	at     time.Time // zero: never in this generation
	n      int64     // of the generation
	cpu    time.Duration
	bytes  int64
	asking bool
}

// actingAtOnce bounds how many sandboxes are paused and ended by themselves at the
// same time.
const actingAtOnce = 4

// retry is after how long it is tried again to do what was due; doubled each time, up
// to retryMost.
const (
	retry     = time.Second
	retryMost = time.Minute
)

func (e *Engine) openLife(context.Context) error {
	acting := make(chan struct{}, actingAtOnce)
	e.alarms.open(e.clock, func(id string) {
		e.dues.Add(1)
		e.spawn(func(ctx context.Context) {
			defer e.dues.Done()
			e.mu.Lock()
			b := e.boxes[id]
			e.mu.Unlock()
			if b != nil {
				e.due(ctx, b, acting)
			}
		})
	})
	e.hooks.changing = append(e.hooks.changing, e.liveOn)
	e.hooks.told = append(e.hooks.told, func(b *box, _, _ *record) {
		if b != nil {
			e.rearm(b)
		}
	})
	e.hooks.ended = append(e.hooks.ended, func(g *generation, _ bailey.End) {
		a := &g.box.alive
		a.mu.Lock()
		defer a.mu.Unlock()
		now := e.clock.Now()
		for _, id := range a.life.Clone().Execs {
			a.life.Done(id, now)
		}
		a.look = look{}
	})
	e.hooks.opened = append(e.hooks.opened, func(context.Context) error {
		for _, b := range e.list() {
			b.alive.mu.Lock()
			b.alive.life.Adopt(e.clock.Now())
			b.alive.mu.Unlock()
			e.rearm(b)
		}
		return nil
	})
	e.hooks.closing = append(e.hooks.closing, e.alarms.close)
	return nil
}

// lifeOf gives what a new sandbox's record says about its life.
func (e *Engine) lifeOf(owner string, spec api.SandboxSpec) (life.Record, error) {
	s, err := life.From(spec, e.quotaOf(owner).MaxTimeout)
	if err == nil {
		err = e.canPause(s)
	}
	return life.Record{Settings: s}, err
}

// liveOn brings a life on with its record: it is a hook that is called before each is
// written.
func (e *Engine) liveOn(b *box, before, after *record) (undo func()) {
	if b == nil {
		return func() {}
	}
	now := e.clock.Now().UTC()
	a := &b.alive
	a.mu.Lock()
	defer a.mu.Unlock()
	was := a.life.Clone()
	var from api.State
	if before != nil {
		from = before.Sandbox.State
	}
	switch to := after.Sandbox.State; {
	case from == to:
	case to == api.StateRunning && from != api.StatePausing && from != api.StateStopping: // else it was taken back
		a.life.Start(now)
	case to == api.StatePaused, to == api.StateStopped, to == api.StateLost, to == api.StateFailed, to == api.StateDeleting, to == api.StateEnded:
		a.life.Stop(now)
	}
	after.Life = a.life.Clone()
	a.show(&after.Sandbox, now)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		execs := a.life.Execs // begin and end without a row
		a.life = was
		a.life.Execs = execs
	}
}

// show fills in what is told about a sandbox's life. The caller holds a.mu.
func (a *alive) show(s *api.Sandbox, now time.Time) {
	s.Timeout, s.Idle = a.life.Timeout, a.life.Idle
	s.Expires, s.Lease = nil, nil
	if at, ok := a.life.Expires(s.State); ok {
		at = at.UTC()
		s.Expires = &at
	}
	if a.life.Lease != nil {
		s.Lease = &api.LeaseState{Lease: *a.life.Lease, Until: a.life.LeaseUntil.UTC()}
	}
	s.WhyAwake = a.life.Awake(s.State, now)
	s.IdleSince = a.life.IdleSince(s.State, now)
}

// showLife fills in what is true of a sandbox just now. Looking is no activity.
func (e *Engine) showLife(b *box, s *api.Sandbox) {
	b.alive.mu.Lock()
	b.alive.show(s, e.clock.Now())
	b.alive.mu.Unlock()
	e.showQueue(b, s)
}

// idleBilled is for how long a sandbox was kept running though idle.
func (e *Engine) idleBilled(b *box) api.Duration {
	b.alive.mu.Lock()
	defer b.alive.mu.Unlock()
	return b.alive.life.IdleBilled(e.clock.Now())
}

// execBegan says that an exec runs: until execEnded the sandbox is not idle. Whoever
// starts it holds a use, so that it cannot be paused in between.
func (e *Engine) execBegan(b *box, id string) {
	e.happened(b, func(l *life.Record, now time.Time) { l.Begin(id, now) })
}

// execEnded says that it runs no more. One that is not known is no harm.
func (e *Engine) execEnded(b *box, id string) {
	e.happened(b, func(l *life.Record, now time.Time) { l.Done(id, now) })
}

// busyNow says that something came in or went out at this moment.
func (e *Engine) busyNow(b *box) {
	e.happened(b, func(l *life.Record, now time.Time) { l.Busy(now) })
}

// happened changes what a life has in mind. Nothing is written.
func (e *Engine) happened(b *box, f func(l *life.Record, now time.Time)) {
	b.alive.mu.Lock()
	f(&b.alive.life, e.clock.Now())
	b.alive.mu.Unlock()
	e.rearm(b)
}

// ask changes what an owner has asked for, and writes it. f must not fail.
func (e *Engine) ask(ctx context.Context, b *box, f func(l *life.Record, now time.Time)) error {
	var was life.Record
	err := e.update(ctx, b, func(*record) {
		b.alive.mu.Lock()
		defer b.alive.mu.Unlock()
		was = b.alive.life.Clone()
		f(&b.alive.life, e.clock.Now().UTC())
	})
	if err != nil {
		b.alive.mu.Lock()
		b.alive.life.Asked(was)
		b.alive.mu.Unlock()
	}
	return err
}

// rearm sets a sandbox's alarm to when something is due, or it is to be looked at.
func (e *Engine) rearm(b *box) {
	state := b.record().Sandbox.State
	a := &b.alive
	a.mu.Lock()
	defer a.mu.Unlock()
	e.alarms.set(b.id, a.next(state, e.clock.Now()))
}

// next is when something is due or to be looked at; zero is never. The caller holds
// a.mu.
func (a *alive) next(s api.State, now time.Time) time.Time {
	var at time.Time
	if n := a.life.Next(s); n.Do != "" {
		at = n.At
		if a.tries > 0 { // what was due has failed
			if again := now.Add(min(retry<<min(a.tries-1, 10), retryMost)); again.After(at) {
				at = again
			}
		}
	}
	if d := a.life.Look(s, now); d > 0 {
		if a.lookDue.IsZero() {
			a.lookDue = now.Add(d)
		}
		if at.IsZero() || a.lookDue.Before(at) {
			at = a.lookDue
		}
	} else if a.look, a.lookDue = (look{}), (time.Time{}); s == api.StateRunning {
		// What an exec or whoever holds it has used until then is not looked at.
		for _, h := range a.life.Holds { // looks begin again then
			if h.Until.After(now) && (at.IsZero() || h.Until.Before(at)) {
				at = h.Until
			}
		}
	}
	return at
}

// Extend changes how long a sandbox lives; a timeout counts from now. It is what
// changes a timeout, and nothing else does. One over the owner's max_timeout is
// refused.
func (e *Engine) Extend(ctx context.Context, who Caller, ref string, req api.ExtendRequest) (api.Sandbox, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if req.Timeout.IsZero() && req.Idle.IsZero() {
		return api.Sandbox{}, bailey.Errorf(bailey.CodeUsage, "extend the sandbox "+b.id, "give a timeout, an idle time or both", "nothing is asked for")
	}
	max := e.quotaOf(b.record().Sandbox.Owner).MaxTimeout
	b.alive.mu.Lock()
	s, err := b.alive.life.Settings.Extend(req, max)
	b.alive.mu.Unlock()
	if err == nil {
		err = e.canPause(s)
	}
	if err != nil {
		return api.Sandbox{}, err
	}
	err = e.ask(ctx, b, func(l *life.Record, now time.Time) { l.Extend(req, max, now) })
	if err != nil {
		return api.Sandbox{}, err
	}
	return e.show(b), nil
}
