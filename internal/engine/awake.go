package engine

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// use is a sandbox that is awake, and stays so until it is released: no act
// freezes or ends it meanwhile, but Delete and its own death, which end gen.ctx.
type use struct {
	box    *box
	gen    *generation
	client *guest.Client
}

// release gives the use back. It may be called once.
func (u *use) release() {
	b := u.box
	b.e.busyNow(b) // until now
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.uses--; b.uses == 0 && b.free != nil {
		close(b.free)
		b.free = nil
	}
}

// awake gives the sandbox that ref names, running: one that is paused or stopped
// is woken, one on its way is waited for. The errors have the codes not_found,
// sandbox_ended, sandbox_lost, and busy when ctx ended first. What the caller does
// with it should be short, and bound to gen.ctx as well: a pause waits for it.
func (e *Engine) awake(ctx context.Context, who Caller, ref string) (*use, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	return e.awaken(ctx, b)
}

// awaken is awake for a box.
func (e *Engine) awaken(ctx context.Context, b *box) (*use, error) {
	for {
		if u := b.take(); u != nil {
			client, err := u.gen.speak(ctx)
			if err != nil {
				u.release()
				return nil, err
			}
			u.client = client
			return u, nil
		}
		if err := b.begin(ctx); err != nil {
			return nil, err
		}
		err := e.wake(ctx, b)
		b.done()
		if err != nil {
			return nil, err
		}
	}
}

// take gives a use if the sandbox runs.
func (b *box) take() *use {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut || b.gen == nil || b.rec.Sandbox.State != api.StateRunning || b.gen.ctx.Err() != nil {
		return nil
	}
	b.uses++
	return &use{box: b, gen: b.gen}
}

// wake makes a sandbox run. The caller holds op.
func (e *Engine) wake(ctx context.Context, b *box) error {
	const what = "use the sandbox "
	if err := e.mend(ctx, b); err != nil {
		return err
	}
	r := b.record()
	switch r.Sandbox.State {
	case api.StateRunning:
		if g := b.generation(); g == nil {
			return e.start(ctx, b, api.StateRunning) // nobody had needed it since its files were rearranged
		} else if g.ctx.Err() != nil {
			return e.settle(ctx, b, g)
		}
		return nil
	case api.StatePaused, api.StateStopped:
		return e.resume(ctx, b)
	case api.StateLost:
		return bailey.Errorf(bailey.CodeSandboxLost, what+b.id, "delete it, or resume it to start it anew from its files", "it was lost: %s", inFull(r.end()))
	case api.StateQueued:
		return bailey.Errorf(bailey.CodeBusy, what+b.id, "wait until it runs", "it is in the queue")
	case api.StateDeleting, api.StateEnded:
		return endedError(what, r)
	case api.StateFailed:
		return bailey.Errorf(bailey.CodeSandboxEnded, what+b.id, "delete it", "it could not be made")
	}
	return bailey.Errorf(bailey.CodeInternal, what+b.id, "", "nobody attends to it, and it is %s", r.Sandbox.State)
}

// endedError says that a sandbox is gone, and how it ended.
func endedError(what string, r *record) error {
	return bailey.Errorf(bailey.CodeSandboxEnded, what+r.Sandbox.ID, "create another", "it has gone: %s", r.end())
}

// accept checks the generation that a caller has seen against the one that runs.
// 0 is not said. The error has code sandbox_restarted and names the new one.
func (e *Engine) accept(ctx context.Context, b *box, seen int64) error {
	r := b.record()
	if seen == r.Sandbox.Generation {
		if r.Unaccepted {
			return e.update(ctx, b, func(r *record) { r.Unaccepted = false })
		}
		return nil
	}
	if seen != 0 || r.Unaccepted {
		return restartedError(r)
	}
	return nil
}

func restartedError(r *record) error {
	return bailey.Errorf(bailey.CodeSandboxRestarted, "use the sandbox "+r.Sandbox.ID, "look at what is left and send the new generation",
		"it was started anew and is generation %d now", r.Sandbox.Generation)
}

// drain waits until nobody uses the sandbox, and keeps it so until the function it
// gives is called. The caller holds op. When ctx ends first the error has code busy.
func (b *box) drain(ctx context.Context) (reopen func(), err error) {
	b.mu.Lock()
	b.shut = true
	var free chan struct{}
	if b.uses > 0 {
		if b.free == nil {
			b.free = make(chan struct{})
		}
		free = b.free
	}
	b.mu.Unlock()
	reopen = func() {
		b.mu.Lock()
		b.shut = false
		b.mu.Unlock()
	}
	if free == nil {
		return reopen, nil
	}
	defer b.e.clock.AfterFunc(filesWithin, b.endFilings)()
	select {
	case <-free:
		return reopen, nil
	case <-ctx.Done():
		reopen()
		return nil, bailey.Errorf(bailey.CodeBusy, "have the sandbox "+b.id+" for itself", "try again", "it is being used: %w", context.Cause(ctx))
	}
}
