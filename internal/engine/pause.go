package engine

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/engine/life"
)

// usesWithin is how long a pause waits for those who use a sandbox at this moment.
// What is longer goes on when the sandbox does, or ends with its processes.
const usesWithin = 2 * time.Second

// Pause freezes a sandbox, or ends its processes and keeps its files. Of one that
// is paused that way already it gives the receipt of then.
func (e *Engine) Pause(ctx context.Context, who Caller, ref string, req api.PauseRequest) (api.Receipt, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Receipt{}, err
	}
	if err := b.begin(ctx); err != nil {
		return api.Receipt{}, err
	}
	defer b.done()
	how := pauseFrozen
	switch {
	case req.FilesOnly && !req.ToDisk:
		return api.Receipt{}, bailey.Errorf(bailey.CodeUsage, "pause the sandbox "+b.id, "add to_disk, or leave files_only out", "a frozen sandbox keeps its memory")
	case req.FilesOnly:
		how = pauseFiles
	case req.ToDisk:
		how = pauseToDisk
	}
	return e.pause(ctx, b, how)
}

// pauseHow says what a pause keeps, and where.
type pauseHow int

const (
	pauseFrozen pauseHow = iota // all of it, in memory
	pauseToDisk                 // files, and memory where the level can put it on disk
	pauseFiles                  // files
)

// Resume lets a paused or stopped sandbox go on; of one that runs it is the state.
// A lost one is started anew from its files.
func (e *Engine) Resume(ctx context.Context, who Caller, ref string) (api.Sandbox, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if err := b.begin(ctx); err != nil {
		return api.Sandbox{}, err
	}
	defer b.done()
	switch b.record().Sandbox.State {
	case api.StatePaused, api.StateStopped, api.StateLost:
		err = e.resume(ctx, b)
	default:
		err = e.wake(ctx, b)
	}
	return e.show(b), err
}

// pause freezes a sandbox, or puts it on disk. The caller holds op.
func (e *Engine) pause(ctx context.Context, b *box, how pauseHow) (api.Receipt, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := e.mend(ctx, b); err != nil {
		return api.Receipt{}, err
	}
	r := b.record()
	if g := b.generation(); g != nil && g.ctx.Err() != nil {
		if err := e.settle(ctx, b, g); err != nil {
			return api.Receipt{}, err
		}
		r = b.record()
	}
	switch {
	case r.Sandbox.State == api.StateStopped && how == pauseFiles && r.Memory != nil:
		return e.dropMemory(ctx, b)
	case how != pauseFrozen && (r.Sandbox.State == api.StateRunning || r.Sandbox.State == api.StatePaused):
		return e.stopBox(ctx, b, how == pauseToDisk)
	case r.Sandbox.State == api.StateRunning:
		return e.freeze(ctx, b)
	case r.Sandbox.State == api.StatePaused, r.Sandbox.State == api.StateStopped:
		if r.Sandbox.Receipt != nil {
			return *r.Sandbox.Receipt, nil
		}
		return api.Receipt{}, nil
	case r.Sandbox.State == api.StateDeleting, r.Sandbox.State == api.StateEnded:
		return api.Receipt{}, endedError("pause the sandbox ", r)
	case r.Sandbox.State == api.StateLost:
		return api.Receipt{}, bailey.Errorf(bailey.CodeSandboxLost, "pause the sandbox "+b.id, "its files are kept until it is deleted", "it was lost: %s", inFull(r.end()))
	}
	return api.Receipt{}, bailey.Errorf(bailey.CodeConflict, "pause the sandbox "+b.id, "wait until it runs", "it is %s", r.Sandbox.State)
}

// freeze stops every process and keeps memory.
func (e *Engine) freeze(ctx context.Context, b *box) (api.Receipt, error) {
	g := b.generation()
	if g == nil { // nobody has needed it since its files were rearranged
		if err := e.start(ctx, b, api.StateRunning); err != nil {
			return api.Receipt{}, err
		}
		g = b.generation()
	}
	began := e.clock.Now()
	reopen := b.quiet(ctx)
	defer reopen()
	if err := e.transition(ctx, b, api.StatePausing, func(r *record) { r.From = api.StateRunning }); err != nil {
		return api.Receipt{}, err
	}
	e.trace("freeze")
	if err := g.instance.Pause(ctx); err != nil {
		if merr := e.mend(ctx, b); merr != nil { // some may have stopped
			return api.Receipt{}, merr
		}
		return api.Receipt{}, bailey.Errorf(bailey.CodeNotAvailable, "freeze the sandbox "+b.id, "pause it to disk", "%w", err)
	}
	receipt := e.pauseReceipt()
	e.sign(&receipt, began)
	if err := e.transition(ctx, b, api.StatePaused, func(r *record) { r.From, r.Sandbox.Receipt = "", &receipt }); err != nil {
		return api.Receipt{}, errors.Join(err, e.mend(ctx, b))
	}
	return receipt, nil
}

// pauseMethod is how sandboxes are paused here, in words for a receipt; "" is not at
// all.
func (e *Engine) pauseMethod() string {
	switch e.linux.PauseMethod() {
	case driver.PauseFreezer:
		return "frozen"
	case driver.PauseSignals:
		return "stopped by signals"
	}
	return ""
}

// pauseReceipt is what is told of a pause that keeps memory.
func (e *Engine) pauseReceipt() api.Receipt {
	return api.Receipt{Act: "pause", Method: e.pauseMethod(), Kept: []string{"files", "memory", "processes", "connections inside"}}
}

// canPause refuses settings by which a sandbox would be paused by itself where that
// cannot be done.
func (e *Engine) canPause(s life.Settings) error {
	field := ""
	switch {
	case e.pauseMethod() != "":
		return nil
	case !s.Idle.Never && s.Idle.After > 0 && s.OnIdle == api.ActionPause:
		field = "on_idle"
	case !s.Timeout.Never && s.OnTimeout == api.ActionPause:
		field = "on_timeout"
	case s.Lease != nil && s.Lease.Action == api.ActionPause:
		field = "the lease's action"
	default:
		return nil
	}
	return bailey.Errorf(bailey.CodeNotAvailable, "pause sandboxes by themselves", "use stop for "+field, "this host can neither freeze nor stop their processes")
}

// sign completes a receipt.
func (e *Engine) sign(r *api.Receipt, began time.Time) {
	now := e.clock.Now()
	r.Time, r.Took = now.UTC(), api.Duration(now.Sub(began))
}

// quiet waits a moment for those who use the sandbox, and lets nobody begin until
// the function it gives is called.
func (b *box) quiet(ctx context.Context) (reopen func()) {
	ctx, cancel := context.WithTimeout(ctx, usesWithin)
	defer cancel()
	reopen, err := b.drain(ctx)
	if err != nil {
		b.mu.Lock()
		b.shut = true
		b.mu.Unlock()
		return func() {
			b.mu.Lock()
			b.shut = false
			b.mu.Unlock()
		}
	}
	return reopen
}

// syncFS puts all on disk that was written to the file system of dir.
func syncFS(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Syncfs(fd)
}
