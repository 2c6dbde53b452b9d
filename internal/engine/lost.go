package engine

import (
	"context"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// watch waits for the end of a generation that nobody has ended, and records it.
func (e *Engine) watch(ctx context.Context, b *box, g *generation) {
	g.connect.Lock()
	client := g.client
	g.connect.Unlock()
	var silent <-chan struct{} // of a frozen one that was adopted nobody has spoken with
	if client != nil {
		silent = client.Done()
	}
	select {
	case <-g.over:
		return
	case <-ctx.Done():
		return
	case <-g.instance.Done():
	case <-silent:
	}
	if g.ending.Load() {
		return
	}
	g.cancel() // at once: whoever waits for an answer from inside learns of it
	if err := b.begin(ctx); err != nil {
		return
	}
	defer b.done()
	if b.generation() != g || g.ending.Load() {
		return
	}
	if err := e.settle(ctx, b, g); err != nil {
		e.log.Error("record the loss of a sandbox", "sandbox", b.id, "error", err)
		return
	}
	if b.record().Spec.Restart && b.record().Sandbox.State == api.StateLost {
		if err := e.resume(ctx, b); err != nil {
			e.log.Error("start a lost sandbox anew", "sandbox", b.id, "error", err)
		}
	}
}

// lostWithin is how long the end of a first process is waited for that does not
// answer any more.
const lostWithin = 500 * time.Millisecond

// settle records that a generation has ended by itself. The caller holds op.
func (e *Engine) settle(ctx context.Context, b *box, g *generation) error {
	ctx = context.WithoutCancel(ctx)
	end := bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "its first process does not answer"}
	late := time.NewTimer(lostWithin)
	defer late.Stop()
	select {
	case <-g.instance.Done():
		end = g.instance.End()
	case <-late.C:
	}
	if end.Reason == bailey.EndExit {
		end = bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "its first process has ended", Usage: end.Usage, LimitHits: end.LimitHits}
	}
	return e.lose(ctx, b, g, end)
}

// lose records that a generation is lost, with how it ended. The caller holds op.
func (e *Engine) lose(ctx context.Context, b *box, g *generation, end bailey.End) error {
	e.log.Warn("a sandbox is lost", "sandbox", b.id, "state", b.record().Sandbox.State, "end", end.String(), "detail", end.Detail)
	if err := e.end(ctx, b, g, end); err != nil {
		e.log.Error("clean up after a sandbox", "sandbox", b.id, "error", err) // gc has the rest
	}
	if err := e.closeWay(ctx, b); err != nil {
		e.log.Error("close a sandbox's way out", "sandbox", b.id, "error", err)
	}
	if b.record().Act != nil || b.record().Sandbox.State == api.StateDeleting {
		return nil // whoever has begun that goes on with it
	}
	return e.transition(ctx, b, api.StateLost, func(r *record) {
		r.Driver, r.From = nil, ""
		r.Sandbox.End = &end
	})
}
