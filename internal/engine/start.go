package engine

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// endWithin bounds the end of a generation: the kernel takes its processes down.
const endWithin = 30 * time.Second

// start starts a generation over a sandbox's roots and records that it runs. The
// record says already that this is being done, in the state to be left. The caller
// holds op. When it fails nothing of the generation is left, and the record is the
// caller's to write.
func (e *Engine) start(ctx context.Context, b *box, _ api.State) (err error) {
	l, g, err := e.launch(ctx, b)
	if err != nil {
		return err
	}
	return e.enter(ctx, b, l, g)
}

// launch starts a generation's first process. When it fails nothing of it is left.
func (e *Engine) launch(ctx context.Context, b *box) (l layout, g *generation, err error) {
	if a := b.record().Act; a != nil { // roots and folders need not fit together
		return l, nil, unfinished("start the sandbox "+b.id, a)
	}
	if err := b.claim(); err != nil { // a daemon's start may have failed to
		return l, nil, err
	}
	l, err = e.layOut(ctx, b)
	if err != nil {
		return l, nil, err
	}
	e.trace("start")
	build := func() (driver.Instance, error) { return e.driver.Create(ctx, l.spec) }
	r := b.record()
	n := r.Starts + 1
	if m := r.Memory; m != nil {
		n = m.Run // it is the same one
		build = func() (driver.Instance, error) {
			return e.driver.Restore(ctx, l.spec, m.Memory, filepath.Join(b.dir, m.Dir))
		}
	}
	in, err := build()
	if bailey.CodeOf(err) == bailey.CodeBusy && e.sweepOf(ctx, b.id) {
		in, err = build()
	}
	if err != nil {
		return l, nil, err
	}
	g = &generation{box: b, n: n, instance: in, env: l.spec.Env, workdir: l.workdir, over: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(e.ctx)
	defer func() {
		if err != nil {
			g.cancel()
			err = errors.Join(err, e.dispose(context.WithoutCancel(ctx), b, g))
			close(g.over)
			g = nil
		}
	}()
	return l, g, e.keep(ctx, b, g)
}

// enter puts a generation in force whose first process runs. When it fails nothing of
// it is left.
func (e *Engine) enter(ctx context.Context, b *box, l layout, g *generation) (err error) {
	defer func() {
		if err != nil {
			g.cancel()
			err = errors.Join(err, e.dispose(context.WithoutCancel(ctx), b, g))
			close(g.over)
		}
	}()
	r, in := b.record(), g.instance
	if err := e.join(ctx, g); err != nil {
		return err
	}
	client, err := g.speak(ctx)
	if err == nil && r.Memory != nil {
		err = wakeMemory(ctx, client)
	}
	if err == nil {
		g.user, err = e.userOf(ctx, client, r)
	}
	if err != nil {
		return err
	}
	for _, started := range e.hooks.started {
		if err := started(ctx, g); err != nil {
			return err
		}
	}
	e.trace("started")
	now, from := e.clock.Now().UTC(), r.From
	err = e.transition(ctx, b, api.StateRunning, func(r *record) {
		r.Starts, r.Env, r.Workdir, r.Seeds, r.Roots = g.n, g.env, g.workdir, l.seeds, l.roots
		r.User, r.Account = g.user, l.spec.User
		r.Sandbox.Started, r.From, r.Sandbox.Workdir = &now, "", l.workdir
		r.MemoryIn = ""
		if r.Memory != nil {
			r.MemoryIn, r.Memory = r.Memory.Dir, nil
		} else if from == api.StateStopped || from == api.StateLost {
			r.Sandbox.Generation++
			r.Unaccepted = r.Unaccepted || from == api.StateLost
			r.Sandbox.End = nil
		}
		if s, ok := in.(driver.Staying); ok {
			rec := s.Record()
			r.Driver = &rec
		}
	})
	if err != nil {
		return err
	}
	e.attend(b, g)
	if r.Memory != nil {
		if err := e.goOnExecs(ctx, g); err != nil {
			e.log.Error("go on with a sandbox's commands", "sandbox", b.id, "error", err)
		}
	}
	if err := b.sweepMemory(); err != nil {
		e.log.Error("memory of a sandbox is left", "sandbox", b.id, "error", err)
	}
	return nil
}

// attend puts a generation in force and watches over it.
func (e *Engine) attend(b *box, g *generation) {
	b.mu.Lock()
	b.gen = g
	b.mu.Unlock()
	e.spawn(func(ctx context.Context) { e.watch(ctx, b, g) })
}

// keep gives the keeper what a generation lives by.
func (e *Engine) keep(ctx context.Context, b *box, g *generation) error {
	s, ok := g.instance.(driver.Staying)
	if e.keeper == nil || !ok {
		return nil
	}
	e.trace("keep")
	files := s.Held()
	if b.disk != nil {
		files = maps.Clone(files)
		files[heldDisk] = b.disk.File()
	}
	return e.keeper.Put(ctx, b.id, g.instance.Pid(), files)
}

// end ends a generation on purpose. The caller holds op and has written that it
// will be; what the record then says is the caller's too.
func (e *Engine) end(ctx context.Context, b *box, g *generation, end bailey.End) error {
	g.ending.Store(true)
	g.cancel()
	err := e.dispose(ctx, b, g)
	if real := g.instance.End(); real.Usage != (bailey.Usage{}) {
		end.Usage = real.Usage
	}
	e.over(b, g, end)
	return err
}

// over says that a generation is no more.
func (e *Engine) over(b *box, g *generation, end bailey.End) {
	for _, ended := range e.hooks.ended {
		ended(g, end)
	}
	b.mu.Lock()
	if b.gen == g {
		b.gen = nil
	}
	b.mu.Unlock()
	close(g.over)
}

// dispose ends a generation's processes and lets go of all that it lives by.
func (e *Engine) dispose(ctx context.Context, b *box, g *generation) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endWithin)
	defer cancel()
	e.trace("dispose")
	g.connect.Lock()
	if g.client != nil {
		g.client.Close()
	}
	g.connect.Unlock()
	err := errors.Join(e.part(ctx, g), g.instance.Destroy(ctx))
	return errors.Join(err, e.drop(ctx, b))
}
