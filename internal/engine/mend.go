package engine

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// mend brings a sandbox to a state in which nothing is being done to it, whose act
// could not be written down to its end: the disk was full, say. One of which that
// cannot be said is left as it is. The caller holds op.
func (e *Engine) mend(ctx context.Context, b *box) error {
	ctx = context.WithoutCancel(ctx)
	r, g := b.record(), b.generation()
	if g == nil && r.Act != nil {
		if err := e.goOn(ctx, b, nil, *r.Act); err != nil {
			return err
		}
		r = b.record()
	}
	frozen := r.Sandbox.State == api.StatePausing || r.Sandbox.State == api.StateResuming && r.From == api.StatePaused
	if frozen && g != nil && g.ctx.Err() != nil {
		return e.settle(ctx, b, g)
	}
	if frozen && g == nil {
		return e.transition(ctx, b, api.StateLost, func(r *record) {
			r.Driver, r.From, r.Sandbox.End = nil, "", &bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "none of its processes is there"}
		})
	}
	switch r.Sandbox.State {
	case api.StatePausing:
		if err := g.instance.Resume(ctx); err != nil {
			return err
		}
		return e.transition(ctx, b, api.StateRunning, func(r *record) { r.From = "" })
	case api.StateResuming:
		if frozen {
			if err := g.instance.Pause(ctx); err != nil {
				return err
			}
		}
		return e.transition(ctx, b, r.From, func(r *record) { r.From = "" })
	case api.StateStopping:
		return e.finishStop(ctx, b)
	}
	return nil
}

// finishStop brings a sandbox to its stop whose stop was begun, and whose act, if it
// had one, is over.
func (e *Engine) finishStop(ctx context.Context, b *box) error {
	seal, err := e.planStop(b, false)
	if err == nil {
		err = e.update(ctx, b, func(r *record) { r.Act = seal })
	}
	if err == nil {
		_, err = e.stopped(ctx, b, e.clock.Now())
	}
	return err
}
