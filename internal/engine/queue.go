package engine

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/quota"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// maxWaiting bounds how many sandboxes wait in the queue, of all owners.
const maxWaiting = 10_000

func (e *Engine) openQueue(context.Context) error {
	e.book = quota.NewBook(e.opt.Quota)
	e.hooks.told = append(e.hooks.told, func(b *box, _, after *record) {
		if b != nil {
			e.count(after)
		}
	})
	e.hooks.opened = append(e.hooks.opened, func(context.Context) error {
		for _, b := range e.list() {
			e.count(b.record())
		}
		return nil
	})
	return nil
}

// QuotasChanged is called when Options.Quota gives other answers than before: who
// has room now goes on at once.
func (e *Engine) QuotasChanged() { e.book.Recheck() }

// quotaOf is an owner's quota.
func (e *Engine) quotaOf(owner string) api.Quota {
	if e.opt.Quota == nil {
		return api.Quota{}
	}
	return e.opt.Quota(owner)
}

// count writes into the book what a sandbox has.
func (e *Engine) count(r *record) {
	var until time.Time
	if at, ok := r.Life.Expires(r.Sandbox.State); ok && r.Life.OnTimeout != api.ActionPause {
		until = at
	}
	e.book.Set(r.Sandbox.ID, r.Sandbox.Owner, claimOf(r, r.Sandbox.State), until, e.clock.Now())
}

// defaultLimits are asked for with each row, and the host does not grow.
var defaultLimits = sync.OnceValue(run.Defaults)

// claimOf is what a sandbox takes in a state, with the limits that are in force where
// nobody asked for any.
func claimOf(r *record, s api.State) quota.Claim {
	l, d := r.Spec.Limits, defaultLimits()
	if l.Memory == 0 {
		l.Memory = d.Memory
	}
	if l.Disk == 0 {
		l.Disk = d.Disk
	}
	return quota.Of(s, l, float64(runtime.NumCPU()))
}

// admit sets aside what a sandbox needs to run. When quotas are used up it waits in
// the queue for as long as the spec says, one that is being made in the state queued,
// or is the error quota_exceeded that names place and ETA. The caller holds op; done
// gives back what was set aside and is not used.
func (e *Engine) admit(ctx context.Context, b *box) error {
	r := b.record()
	what := "run the sandbox " + b.id
	b.admitted = true
	req, place, err := e.book.Ask(b.id, r.Sandbox.Owner, claimOf(r, api.StateRunning), e.clock.Now())
	if err != nil {
		return err
	}
	select {
	case <-req.Ready:
		return nil
	default:
	}
	defer e.book.Cancel(req)
	if r.Spec.Queue <= 0 {
		return bailey.Errorf(bailey.CodeQuotaExceeded, what, "delete or stop another, or wait in the queue (queue)", "%s; %s", place.Why, placeText(place))
	}
	if e.book.Waiting() > maxWaiting {
		return bailey.Errorf(bailey.CodeQuotaExceeded, what, "try again later", "%d sandboxes wait in the queue already", maxWaiting)
	}
	b.alive.setWaiting(req)
	defer b.alive.setWaiting(nil)
	queued := r.Sandbox.State == api.StateCreating
	if queued {
		if err := e.transition(ctx, b, api.StateQueued, nil); err != nil {
			return err
		}
	}
	late := make(chan struct{})
	stop := e.clock.AfterFunc(time.Duration(r.Spec.Queue), func() { close(late) })
	defer stop()
	select {
	case <-req.Ready:
	case <-late:
		place, waits := e.book.Place(req, e.clock.Now())
		if !waits {
			break // just in time
		}
		return bailey.Errorf(bailey.CodeQuotaExceeded, what, "wait for longer, or delete or stop another",
			"it has waited in the queue for %v; %s; %s", time.Duration(r.Spec.Queue), place.Why, placeText(place))
	case <-ctx.Done():
		return bailey.Errorf(bailey.CodeBusy, what, "", "it left the queue: %w", context.Cause(ctx))
	case <-e.ctx.Done():
		return bailey.Errorf(bailey.CodeDaemonUnavailable, what, "try again", "the daemon is going down")
	}
	if queued {
		return e.transition(ctx, b, api.StateCreating, nil)
	}
	return nil
}

// recount gives back what admit has set aside and was not used.
func (e *Engine) recount(b *box) {
	if b.admitted {
		b.admitted = false
		e.count(b.record())
	}
}

// setWaiting says that a sandbox waits in the queue.
func (a *alive) setWaiting(r *quota.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting = r
}

// showQueue fills in a sandbox's place in the queue.
func (e *Engine) showQueue(b *box, s *api.Sandbox) {
	b.alive.mu.Lock()
	r := b.alive.waiting
	b.alive.mu.Unlock()
	s.Queue = nil
	if r == nil {
		return
	}
	if p, ok := e.book.Place(r, e.clock.Now()); ok {
		s.Queue = &p
	}
}

func placeText(p api.QueuePlace) string {
	if p.ETA == nil {
		return fmt.Sprintf("it would be number %d in the queue, and nobody knows for how long", p.Place)
	}
	return fmt.Sprintf("it would be number %d in the queue, for about %v", p.Place, time.Duration(*p.ETA))
}
