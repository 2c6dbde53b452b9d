package engine

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Delete ends a sandbox and removes its files. It works from every state, any
// number of times; what else goes on with the sandbox is given up.
func (e *Engine) Delete(ctx context.Context, who Caller, ref string) error {
	b, _, err := e.look(ctx, who, ref)
	if err != nil || b == nil {
		return err // not found, or deleted before
	}
	b.doom.Do(func() { close(b.doomed) })
	if g := b.generation(); g != nil {
		g.cancel()
	}
	if err := b.begin(ctx); err != nil {
		// What it was doing has been given up already, and nobody could use it: it is
		// seen to its end, whoever waits.
		e.spawn(func(ctx context.Context) {
			if b.begin(ctx) != nil {
				return
			}
			defer b.done()
			if err := e.delete(ctx, b, bailey.End{Reason: bailey.EndUser}); err != nil {
				e.log.Error("delete a sandbox", "sandbox", b.id, "error", err)
			}
		})
		return err
	}
	defer b.done()
	return e.delete(ctx, b, bailey.End{Reason: bailey.EndUser})
}

// delete ends a sandbox with this end, and removes its files. One that was lost
// keeps the end it had. The caller holds op, and may use the box afterwards for its
// record only.
func (e *Engine) delete(ctx context.Context, b *box, end bailey.End) error {
	r := b.record()
	if r.Sandbox.State == api.StateEnded {
		return nil
	}
	// From the row on it is seen to its end, whoever waits.
	ctx = context.WithoutCancel(ctx)
	if r.Sandbox.End != nil {
		end = *r.Sandbox.End
	}
	if r.Sandbox.State != api.StateDeleting {
		err := e.transition(ctx, b, api.StateDeleting, func(r *record) { r.From, r.Act, r.Sandbox.End = r.Sandbox.State, nil, &end })
		if err != nil {
			return err
		}
	}
	return e.deleted(ctx, b)
}

// deleted brings a sandbox that is being deleted to its end. What of it cannot be
// removed now is not in the way: gc finds it.
func (e *Engine) deleted(ctx context.Context, b *box) error {
	if g := b.generation(); g != nil {
		end := b.record().end()
		if err := e.end(ctx, b, g, end); err != nil {
			e.log.Error("end a sandbox", "sandbox", b.id, "error", err)
		}
		end.Usage = g.instance.End().Usage
		if err := e.update(ctx, b, func(r *record) { r.Sandbox.End = &end }); err != nil {
			return err
		}
	} else if err := e.drop(ctx, b); err != nil {
		e.log.Error("let go of a sandbox", "sandbox", b.id, "error", err)
	}
	for _, gone := range e.hooks.gone {
		if err := gone(ctx, b); err != nil {
			e.log.Error("remove what belongs to a sandbox", "sandbox", b.id, "error", err)
		}
	}
	if err := e.closeWay(ctx, b); err != nil {
		e.log.Error("close a sandbox's way out", "sandbox", b.id, "error", err)
	}
	e.trace("remove")
	if err := b.close(); err != nil {
		e.log.Error("close a sandbox's folder", "sandbox", b.id, "error", err)
	}
	if err := e.removeFolder(b.dir); err != nil {
		return err
	}
	now := e.clock.Now().UTC()
	err := e.transition(ctx, b, api.StateEnded, func(r *record) {
		r.Driver, r.From, r.Sandbox.Ended = nil, "", &now
		// What a sandbox was is kept; what it was made of is not.
		r.Roots, r.Rootfs, r.Plan, r.Seeds, r.Env, r.Digest, r.Way = nil, nil, nil, nil, nil, "", nil
	})
	if err == nil {
		e.forget(b)
	}
	return err
}
