package engine

import (
	"context"
	"errors"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// resume lets a paused, stopped or lost sandbox run. After an error it is as it
// was, and can be resumed again. The caller holds op.
func (e *Engine) resume(ctx context.Context, b *box) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := e.mend(ctx, b); err != nil {
		return err
	}
	from := b.record().Sandbox.State
	began := e.clock.Now()
	if err := e.admit(ctx, b); err != nil {
		return err
	}
	err := e.transition(ctx, b, api.StateResuming, func(r *record) { r.From = from })
	if err != nil {
		return err
	}
	if from == api.StatePaused {
		if g := b.generation(); g != nil && g.ctx.Err() != nil {
			return e.settle(ctx, b, g)
		}
		return e.thaw(ctx, b)
	}
	receipt := api.Receipt{Act: "resume", Kept: []string{"files"}, Lost: []string{"memory", "processes"}}
	if b.record().Memory != nil {
		receipt.Kept, receipt.Lost = keptWithMemory, lostWithMemory
	}
	for _, check := range e.hooks.restarting {
		if err = check(ctx, b, &receipt); err != nil {
			break
		}
	}
	if err == nil {
		err = e.start(ctx, b, api.StateRunning)
	}
	if err != nil {
		return errors.Join(err, e.transition(ctx, b, from, func(r *record) { r.From = "" }))
	}
	e.sign(&receipt, began)
	return e.update(ctx, b, func(r *record) { r.Sandbox.Receipt = &receipt })
}

// thaw lets the processes of a frozen sandbox go on.
func (e *Engine) thaw(ctx context.Context, b *box) error {
	g := b.generation()
	began := e.clock.Now()
	err := error(nil)
	if g == nil {
		err = bailey.Errorf(bailey.CodeSandboxLost, "resume the sandbox "+b.id, "", "none of its processes is there")
	} else {
		e.trace("thaw")
		if err = g.instance.Resume(ctx); err == nil {
			_, err = g.speak(ctx)
		}
		for _, resumed := range e.hooks.resumed {
			if err == nil {
				err = resumed(ctx, g)
			}
		}
		if err != nil {
			g.instance.Pause(context.WithoutCancel(ctx))
		}
	}
	if err != nil {
		return errors.Join(err, e.transition(ctx, b, api.StatePaused, func(r *record) { r.From = "" }))
	}
	receipt := api.Receipt{Act: "resume", Kept: []string{"files", "memory", "processes", "connections inside"}}
	e.sign(&receipt, began)
	return e.transition(ctx, b, api.StateRunning, func(r *record) { r.From, r.Sandbox.Receipt = "", &receipt })
}
