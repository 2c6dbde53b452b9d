package engine

import (
	"context"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/life"
)

// due is called when a sandbox's alarm has rung.
func (e *Engine) due(ctx context.Context, b *box, acting chan struct{}) {
	state := b.record().Sandbox.State
	now := e.clock.Now()
	b.alive.mu.Lock()
	looking := b.alive.life.Look(state, now) > 0
	b.alive.mu.Unlock()
	if looking {
		e.lookAt(ctx, b, trafficAge)
	}
	b.alive.mu.Lock()
	next := b.alive.life.Next(state)
	b.alive.mu.Unlock()
	if next.Why == bailey.EndIdle && next.Due(now) {
		e.lookAt(ctx, b, lastAge) // once more, as it is now
		b.alive.mu.Lock()
		next = b.alive.life.Next(state)
		b.alive.mu.Unlock()
	}
	if !next.Due(now) {
		e.rearm(b)
		return
	}
	select {
	case acting <- struct{}{}:
		defer func() { <-acting }()
	case <-ctx.Done():
		return
	}
	if err := e.act(ctx, b); err != nil && ctx.Err() == nil {
		b.alive.mu.Lock()
		b.alive.tries++
		b.alive.mu.Unlock()
		e.log.Warn("what was due to a sandbox failed, and is tried again", "sandbox", b.id, "why", next.Why, "act", next.Do, "err", err)
		e.rearm(b)
		return
	}
	b.alive.mu.Lock()
	b.alive.tries = 0
	b.alive.mu.Unlock()
	e.rearm(b)
}

// act does what is due to a sandbox, if it still is: it may have been extended,
// resumed or put to use since the alarm rang.
func (e *Engine) act(ctx context.Context, b *box) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer b.done()
	b.alive.mu.Lock()
	next := b.alive.life.Next(b.record().Sandbox.State)
	b.alive.mu.Unlock()
	if !next.Due(e.clock.Now()) {
		return nil
	}
	if next.Why == bailey.EndIdle {
		// Idleness interrupts nobody: who uses it now, or has since, goes on.
		reopen, free := b.closeIfFree()
		if !free {
			e.busyNow(b)
			return nil
		}
		defer reopen()
		b.alive.mu.Lock()
		next = b.alive.life.Next(b.record().Sandbox.State)
		b.alive.mu.Unlock()
		if !next.Due(e.clock.Now()) {
			return nil
		}
	}
	end := b.alive.end(next)
	e.trace("due " + string(next.Why))
	ctx = withEnd(ctx, end)
	switch next.Do {
	case api.ActionPause:
		_, err := e.pause(ctx, b, pauseFrozen)
		return err
	case api.ActionStop:
		_, err := e.pause(ctx, b, pauseFiles)
		return err
	default:
		return e.delete(ctx, b, end)
	}
}

// end is how what is due ends a sandbox, or the processes in it.
func (a *alive) end(n life.Next) bailey.End {
	a.mu.Lock()
	defer a.mu.Unlock()
	end := bailey.End{Reason: n.Why}
	switch n.Why {
	case bailey.EndTimeout:
		end.Detail = "its timeout of " + time.Duration(a.life.Timeout.After).String() + " was over"
	case bailey.EndIdle:
		end.Detail = "nothing had happened in it for " + time.Duration(a.life.Idle.After).String()
	case bailey.EndLease:
		end.Detail = "its lease of " + time.Duration(a.life.Lease.TTL).String() + " was not renewed"
	}
	return end
}

// closeIfFree keeps the sandbox from being used until reopen is called, if nobody
// uses it.
func (b *box) closeIfFree() (reopen func(), free bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uses > 0 {
		return nil, false
	}
	b.shut = true
	return func() {
		b.mu.Lock()
		b.shut = false
		b.mu.Unlock()
	}, true
}

// lookAt finds out whether a sandbox has used processor time or its way out since it
// was looked at last; what is said of its way out may be so old. What cannot be found out counts as busy: idleness must never
// end work.
func (e *Engine) lookAt(ctx context.Context, b *box, age time.Duration) {
	b.alive.mu.Lock()
	b.alive.lookDue = time.Time{}
	b.alive.mu.Unlock()
	g := b.generation()
	if g == nil {
		return // nothing runs, so that nothing can be busy
	}
	now := e.clock.Now()
	found := look{at: now, n: g.n}
	stats, err := g.instance.Stats(ctx)
	if err == nil {
		found.cpu = stats.CPU
		var m moved
		m, err = e.traffic.of(ctx, e, b.id, age)
		found.bytes, found.asking = m.activity, m.asking
	}
	if err != nil && ctx.Err() == nil {
		e.log.Warn("what a sandbox uses cannot be found out: it counts as busy", "sandbox", b.id, "err", err)
	}
	b.alive.mu.Lock()
	defer b.alive.mu.Unlock()
	if b.alive.life.Look(b.record().Sandbox.State, now) == 0 {
		return // an exec has begun meanwhile
	}
	last := b.alive.look
	b.alive.look = found
	b.alive.life.Asking = found.asking
	switch {
	case err != nil:
		b.alive.life.Looked(true, false, now, now)
	case found.asking: // whether something else goes on as well does not matter
		b.alive.life.Looked(false, false, now, now)
	case last.n == g.n && !last.at.IsZero():
		cpu := life.Work(found.cpu-last.cpu, now.Sub(last.at))
		b.alive.life.Looked(cpu, found.bytes != last.bytes, last.at, now)
	}
}

// trafficAge is how old what is known about ways out may be when sandboxes are looked
// at in turn: it is asked for all of them at once.
const (
	trafficAge = 500 * time.Millisecond
	lastAge    = 20 * time.Millisecond // before something is done about it
)

// traffic is what has gone through the ways out of all sandboxes, as it was last asked
// for.
type traffic struct {
	mu   sync.Mutex
	at   time.Time
	used map[string]moved
}

// moved is what goes on in one sandbox's way out.
type moved struct {
	activity int64 // differs from what it was when something moved
	asking   bool  // a question waits for a person
}

// of is what has gone through one sandbox's way out, and was so at most age ago.
func (t *traffic) of(ctx context.Context, e *Engine, id string, age time.Duration) (moved, error) {
	if e.hooks.used == nil {
		return moved{}, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := e.clock.Now()
	if t.used == nil || now.Sub(t.at) > age {
		used, err := e.hooks.used(ctx)
		if err != nil {
			return moved{}, err
		}
		t.used, t.at = used, now
	}
	return t.used[id], nil
}

// actingKey is where a context carries for what end something is done by itself.
type actingKey struct{}

func withEnd(ctx context.Context, end bailey.End) context.Context {
	return context.WithValue(ctx, actingKey{}, end)
}

// actingFor says that something is done by itself, and what it ends with.
func actingFor(ctx context.Context) (bailey.End, bool) {
	end, ok := ctx.Value(actingKey{}).(bailey.End)
	return end, ok
}

// endFor is the end of processes that an act ends: what is due, or their owner's will.
func endFor(ctx context.Context) bailey.End {
	if end, ok := actingFor(ctx); ok {
		return end
	}
	return bailey.End{Reason: bailey.EndUser}
}
