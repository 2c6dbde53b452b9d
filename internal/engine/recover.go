package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/keeper"
)

// recoverAtOnce is how many sandboxes are looked at at the same time.
const recoverAtOnce = 8

// recover takes over what an earlier engine has left: it adopts every sandbox that
// lives, and goes on with or takes back each act that was begun.
func (e *Engine) recover(ctx context.Context) error {
	rows, err := e.db.Sandboxes(ctx)
	if err != nil {
		return err
	}
	kept := map[string]keeper.Kept{}
	if e.keeper != nil {
		list, err := e.keeper.List(ctx)
		if err != nil {
			return err
		}
		for _, k := range list {
			kept[k.ID] = k
		}
	}
	known := map[string]bool{}
	var boxes []*box
	for _, row := range rows {
		known[row.ID] = true
		r, err := readRecord(row)
		if err != nil {
			e.log.Error("a sandbox's record", "sandbox", row.ID, "error", err) // it is in nobody's way
			continue
		}
		b := newBox(e, row.ID, r)
		<-b.op
		e.boxes[row.ID] = b
		boxes = append(boxes, b)
	}
	var tasks sync.WaitGroup
	slots := make(chan struct{}, recoverAtOnce)
	for _, b := range boxes {
		slots <- struct{}{}
		tasks.Go(func() {
			defer func() { <-slots }()
			k, ok := kept[b.id]
			if err := e.recoverBox(ctx, b, ok && !k.Ended); err != nil {
				e.log.Error("take a sandbox over", "sandbox", b.id, "state", b.record().Sandbox.State, "error", err)
			}
		})
	}
	tasks.Wait()
	for id := range kept {
		if !known[id] {
			if err := e.keeper.Drop(ctx, id); err != nil { // its row was never written, or it has ended
				e.log.Error("let go of a sandbox", "sandbox", id, "error", err)
			}
		}
	}
	e.sweepGone(known)
	return e.db.ForgetSandboxes(ctx, e.clock.Now().Add(-keepEnded))
}

// recoverBox brings a sandbox to a state in which nothing is being done to it. It
// holds op and gives it back. lives says that the keeper has it.
func (e *Engine) recoverBox(ctx context.Context, b *box, lives bool) error {
	e.trace("recover " + string(b.record().Sandbox.State))
	r := b.record()
	switch r.Sandbox.State {
	case api.StateQueued, api.StateCreating:
		return errors.Join(e.drop(ctx, b), e.takeBack(ctx, b)) // whoever wanted it has no answer
	case api.StateDeleting:
		defer b.done()
		if lives && r.Driver != nil {
			if g, aerr := e.adopt(ctx, b); aerr == nil {
				b.gen = g
			}
		}
		return e.deleted(ctx, b)
	}
	defer b.done()
	g, err := e.takeOver(ctx, b)
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, e.notTaken(ctx, b, g, err))
	}
	return err
}

// notTaken records that a sandbox is lost which could not be taken over, so that
// whoever has it is told and no generation of it takes the place of another unseen.
// What was begun on its files waits for the next start: see launch. g is what was
// adopted of it, or nil.
func (e *Engine) notTaken(ctx context.Context, b *box, g *generation, cause error) error {
	switch b.record().Sandbox.State {
	case api.StateRunning, api.StatePausing, api.StatePaused, api.StateResuming, api.StateStopping:
	default:
		return nil
	}
	if now := b.generation(); now != nil && now.ctx.Err() == nil && b.record().Sandbox.State != api.StateStopping {
		return nil // it goes on, and is attended to
	}
	end := bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "it could not be taken over: " + cause.Error()}
	var err error
	if g != nil && !isOver(g) {
		err = e.end(ctx, b, g, end)
	} else {
		err = e.drop(ctx, b)
	}
	return errors.Join(err, e.recoverLost(ctx, b, end))
}

func isOver(g *generation) bool {
	select {
	case <-g.over:
		return true
	default:
		return false
	}
}

// takeOver is recoverBox for a sandbox that is to stay. g is what was adopted of it,
// also after an error.
func (e *Engine) takeOver(ctx context.Context, b *box) (g *generation, err error) {
	r := b.record()
	if err := b.claim(); err != nil {
		return nil, err
	}
	if r.Driver != nil && (r.Sandbox.State != api.StateResuming || r.From == api.StatePaused) {
		if g, err = e.adopt(ctx, b); err != nil {
			e.log.Error("adopt a sandbox", "sandbox", b.id, "error", err)
			g, err = nil, e.drop(ctx, b)
		}
	} else {
		err = e.drop(ctx, b)
	}
	if err != nil {
		return g, err
	}
	if r.Act != nil && g != nil && r.Sandbox.State == api.StateStopping {
		if ran, err := e.recoverSuspending(ctx, b, g, *r.Act); ran {
			return g, err
		}
	}
	if r.Act != nil {
		if err := e.goOn(ctx, b, g, *r.Act); err != nil || r.Sandbox.State != api.StateStopping {
			return g, err
		}
		g = nil
	}
	if r.Sandbox.State == api.StateStopping {
		// Its processes were to end: whether they had already does not matter.
		if g == nil {
			e.over(b, e.noGeneration(b), bailey.End{Reason: bailey.EndUser})
		} else {
			b.mu.Lock()
			b.gen = g
			b.mu.Unlock()
		}
		return g, e.finishStop(ctx, b)
	}
	switch r.Sandbox.State {
	case api.StateRunning, api.StatePausing, api.StatePaused:
		if g == nil && !(r.Driver == nil && r.Sandbox.State == api.StateRunning) {
			return g, e.recoverLost(ctx, b, e.hostLost(ctx, b))
		}
	case api.StateResuming:
		if r.From == api.StatePaused && g == nil {
			return g, e.recoverLost(ctx, b, e.hostLost(ctx, b))
		}
	}
	if g != nil {
		if done, end := ended(g); done {
			return g, e.recoverEnded(ctx, b, g, end)
		}
	}
	switch r.Sandbox.State {
	case api.StateRunning:
		if g != nil {
			return g, e.recoverRunning(ctx, b, g)
		}
		return g, nil // it is started when it is used
	case api.StatePausing:
		// The row came first: whether it was frozen already does not matter.
		if err := g.instance.Pause(ctx); err != nil {
			return g, errors.Join(err, e.transition(ctx, b, api.StateRunning, nil), e.recoverRunning(ctx, b, g))
		}
		if err := e.recoverFrozen(ctx, b, g); err != nil {
			return g, err
		}
		receipt := e.pauseReceipt()
		receipt.Notes = []string{"a restart of the daemon came in between"}
		e.sign(&receipt, e.clock.Now())
		return g, e.transition(ctx, b, api.StatePaused, func(r *record) { r.From, r.Sandbox.Receipt = "", &receipt })
	case api.StatePaused:
		return g, e.recoverFrozen(ctx, b, g)
	case api.StateResuming:
		if r.From == api.StatePaused {
			if err := g.instance.Pause(ctx); err != nil {
				return g, err
			}
			err = e.recoverFrozen(ctx, b, g)
		}
		return g, errors.Join(err, e.transition(ctx, b, r.From, func(r *record) { r.From = "" }))
	}
	return g, nil
}

// recoverRunning goes on with a generation that runs.
func (e *Engine) recoverRunning(ctx context.Context, b *box, g *generation) error {
	// A death may have come while it was frozen for a moment, to copy its files.
	if err := g.instance.Resume(ctx); err != nil {
		return err
	}
	if _, err := g.speak(ctx); err != nil {
		return e.recoverEnded(ctx, b, g, bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "its first process does not answer"})
	}
	return e.recoverFrozen(ctx, b, g)
}

// recoverFrozen tells of an adopted generation, of which nothing is expected.
func (e *Engine) recoverFrozen(ctx context.Context, b *box, g *generation) error {
	for _, adopted := range e.hooks.adopted {
		if err := adopted(ctx, g); err != nil {
			return errors.Join(err, e.recoverEnded(ctx, b, g, bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "it could not be adopted: " + err.Error()}))
		}
	}
	e.attend(b, g)
	return nil
}

// recoverEnded records the end of a generation that ended while nobody looked.
func (e *Engine) recoverEnded(ctx context.Context, b *box, g *generation, end bailey.End) error {
	b.mu.Lock()
	b.gen = g
	b.mu.Unlock()
	if end.Reason == bailey.EndExit {
		end = bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "its first process has ended", Usage: end.Usage, LimitHits: end.LimitHits}
	}
	if err := e.lose(ctx, b, g, end); err != nil {
		return err
	}
	return e.again(ctx, b)
}

// recoverLost records that a sandbox is not there any more.
func (e *Engine) recoverLost(ctx context.Context, b *box, end bailey.End) error {
	e.over(b, e.noGeneration(b), end)
	err := e.transition(ctx, b, api.StateLost, func(r *record) {
		r.Driver, r.From, r.Sandbox.End = nil, "", &end
	})
	if err != nil {
		return err
	}
	return e.again(ctx, b)
}

// noGeneration stands for a generation of which nothing is left, so that those who
// care can be told that it has ended.
func (e *Engine) noGeneration(b *box) *generation {
	g := &generation{box: b, n: b.record().Starts, over: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(e.ctx)
	g.cancel()
	return g
}

// again starts a lost sandbox anew whose owner wants that, in the background: the
// others do not wait.
func (e *Engine) again(_ context.Context, b *box) error {
	if b.record().Spec.Restart {
		e.spawn(func(ctx context.Context) {
			if err := b.begin(ctx); err != nil {
				return
			}
			defer b.done()
			if b.record().Sandbox.State != api.StateLost {
				return
			}
			if err := e.resume(ctx, b); err != nil {
				e.log.Error("start a lost sandbox anew", "sandbox", b.id, "error", err)
			}
		})
	}
	return nil
}

// hostLost says how a sandbox ended of which nothing is left.
func (e *Engine) hostLost(ctx context.Context, b *box) bailey.End {
	end := bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "the daemon that held it has ended"}
	if e.keeper == nil {
		end.Detail += ", and there was no keeper"
	}
	return end
}

// goOn goes on with, or takes back, an act on a sandbox's roots.
func (e *Engine) goOn(ctx context.Context, b *box, g *generation, a act) error {
	if g != nil {
		end := bailey.End{Reason: bailey.EndUser, Detail: "its files were rearranged (" + a.Kind + ")"}
		if b.record().Sandbox.State == api.StateStopping {
			end.Detail = ""
		}
		if err := e.end(ctx, b, g, end); err != nil {
			return err
		}
	}
	handle := e.hooks.acts[a.Kind]
	if handle == nil {
		return bailey.Errorf(bailey.CodeInternal, "go on with "+a.Kind+" of the sandbox "+b.id, "", "nobody knows how")
	}
	if err := e.mountDisk(b); err != nil {
		return err
	}
	if err := handle(ctx, b, a); err != nil {
		return err
	}
	return e.update(ctx, b, func(r *record) {
		r.Act, r.Driver = nil, nil
		b.refresh(r)
	})
}

// drop lets the keeper let go of a sandbox.
func (e *Engine) drop(ctx context.Context, b *box) error {
	if !e.keeps() {
		return nil
	}
	return e.keeper.Drop(ctx, b.id)
}

// ended says whether a generation has ended already.
func ended(g *generation) (bool, bailey.End) {
	select {
	case <-g.instance.Done():
		return true, g.instance.End()
	default:
		return false, bailey.End{}
	}
}

// waitKeeper bounds the question how a first process ended.
const waitKeeper = 3 * time.Second

// adopt finds a generation again that another engine has started.
func (e *Engine) adopt(ctx context.Context, b *box) (*generation, error) {
	if e.keeper == nil {
		return nil, bailey.Errorf(bailey.CodeSandboxLost, "adopt the sandbox "+b.id, "", "nothing has kept it")
	}
	files, err := e.keeper.Get(ctx, b.id, driver.HeldAgent, driver.HeldPidfd, driver.HeldIDs, driver.HeldOutletTCP, driver.HeldOutletUDP, heldDisk)
	if err != nil {
		return nil, err
	}
	if f := files[heldDisk]; f != nil {
		delete(files, heldDisk)
		e.adoptDisk(b, f)
	}
	r := b.record()
	spec := driver.Spec{ID: b.id, Level: r.Sandbox.Isolation, User: r.Account, Own: b.driverDir()}
	for _, root := range r.Roots {
		spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.CoW, Target: root.Target, IsDir: true})
	}
	for _, m := range r.Sandbox.Mounts {
		if m, err := hostview.ParseMount(m, "/", "/"); err == nil {
			spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Bind, Target: m.Target, IsDir: true, ReadOnly: !m.Writable})
		}
	}
	in, err := e.driver.Adopt(ctx, spec, *r.Driver, driver.Kept{Files: files, Wait: func(ctx context.Context) (syscall.WaitStatus, error) {
		ctx, cancel := context.WithTimeout(ctx, waitKeeper)
		defer cancel()
		return e.keeper.Wait(ctx, b.id)
	}})
	if err != nil {
		return nil, err
	}
	g := &generation{box: b, n: r.Starts, instance: in, env: r.Env, workdir: r.Workdir, user: r.User, over: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(e.ctx)
	return g, nil
}

// sweepGone removes folders whose removal a death has interrupted, and those of
// sandboxes that were made ahead for nobody. known are in rows.
func (e *Engine) sweepGone(known map[string]bool) {
	dir := filepath.Join(e.home, sandboxesDir)
	list, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, f := range list {
		if strings.Contains(f.Name(), goneSuffix) {
			e.removeLater(filepath.Join(dir, f.Name()))
		} else if _, err := os.Lstat(filepath.Join(dir, f.Name(), warmMark)); err == nil && !known[f.Name()] {
			if err := e.removeFolder(filepath.Join(dir, f.Name())); err != nil {
				e.log.Error("remove a sandbox that was made ahead", "sandbox", f.Name(), "error", err)
			}
		}
	}
}
