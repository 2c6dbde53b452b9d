package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/execlog"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

const (
	// execKept is how long an exec is remembered after its end, also when its
	// sandbox is gone; its output as long as both it and the sandbox are there.
	execKept = 48 * time.Hour
	// maxKeptOutput bounds the output that is kept of a sandbox's commands that
	// have ended, in bytes.
	maxKeptOutput = 1 << 30

	forgetEach   = time.Hour
	forgetAtOnce = 1000
)

// openExecs finds the executions that an earlier daemon has left, and goes on with
// their output before anything else is known of their sandboxes: what is in the
// pipes that the keeper holds is not lost with a sandbox that has died meanwhile.
func (e *Engine) openExecs(ctx context.Context) error {
	e.execs.open, e.execs.running = map[execKey]*execution{}, map[string]int{}
	e.execs.kept, e.execs.kills = map[string]int64{}, map[string]int64{}
	e.execs.denied = map[string]map[denialKey]int64{}
	e.hooks.adopted = append(e.hooks.adopted, e.adoptExecs)
	e.hooks.resumed = append(e.hooks.resumed, e.resumeExecs)
	e.hooks.ended = append(e.hooks.ended, e.execsOver)
	e.hooks.gone = append(e.hooks.gone, e.execsGone)
	e.hooks.opened = append(e.hooks.opened, e.endLeftExecs)
	e.hooks.closing = append(e.hooks.closing, func() {
		e.execs.mu.Lock()
		defer e.execs.mu.Unlock()
		if e.execs.forget != nil {
			e.execs.forget()
		}
	})
	rows, err := e.db.OpenExecs(ctx)
	if err != nil {
		return err
	}
	wanted := map[string]map[string]bool{} // by sandbox, the names at the keeper
	for _, row := range rows {
		doc, err := readExec(row)
		if err != nil {
			e.log.Error("a command's record", "sandbox", row.Sandbox, "exec", row.ID, "error", err)
			continue
		}
		// Its box is found once that is there: this one has what the log needs.
		b := &box{e: e, id: row.Sandbox, dir: e.dirOf(row.Sandbox)}
		log, err := execlog.Open(e.logDir(b, row.ID), doc.Limit)
		if err != nil {
			e.log.Error("a command's output", "sandbox", row.Sandbox, "exec", row.ID, "error", err)
			continue
		}
		x := newExecution(e, b, doc, log)
		if doc.Exec.End != nil { // only its output goes on
			close(x.ended)
			close(x.ready)
		}
		e.execs.open[x.key()] = x
		e.execs.running[b.id]++
		if wanted[b.id] == nil {
			wanted[b.id] = map[string]bool{}
		}
		for _, which := range []string{keptStdin, keptStdout, keptStderr, keptWrite} {
			wanted[b.id][keptName(row.ID, which)] = true
		}
	}
	if e.keeper != nil {
		return e.takeKept(ctx, wanted)
	}
	return nil
}

// takeKept takes what the keeper holds of executions, and lets go of what belongs
// to none.
func (e *Engine) takeKept(ctx context.Context, wanted map[string]map[string]bool) error {
	list, err := e.keeper.List(ctx)
	if err != nil {
		return err
	}
	for _, k := range list {
		var get, drop []string
		for _, name := range k.Names {
			switch {
			case !strings.HasPrefix(name, execsKept):
			case wanted[k.ID][name]:
				get = append(get, name)
			default:
				drop = append(drop, name)
			}
		}
		if len(drop) > 0 {
			if err := e.keeper.Drop(ctx, k.ID, drop...); err != nil {
				return err
			}
		}
		if len(get) == 0 {
			continue
		}
		files, err := e.keeper.Get(ctx, k.ID, get...)
		if err != nil {
			return err
		}
		for _, x := range e.openIn(k.ID) {
			if err := x.take(files); err != nil {
				e.log.Error("go on with a command's output", "sandbox", k.ID, "exec", x.doc.Exec.ID, "error", err)
			}
		}
		for _, f := range files {
			f.Close()
		}
	}
	return nil
}

// adoptExecs goes on with the commands of a generation that another daemon has
// started. Of a frozen one nobody answers: that is done when it is resumed.
func (e *Engine) adoptExecs(ctx context.Context, g *generation) error {
	if st, err := g.instance.Stats(ctx); err == nil {
		e.execs.mu.Lock()
		e.execs.kills[g.box.id] = max(st.OOMKills, 0) // who was told of them is not known
		e.execs.mu.Unlock()
	}
	e.denials(ctx, g.box) // likewise
	for _, x := range e.openIn(g.box.id) {
		x.mu.Lock()
		x.b = g.box
		run, ended := x.doc.Run == g.n, x.doc.Exec.End != nil
		x.mu.Unlock()
		if run && !ended {
			e.execBegan(g.box, x.doc.Exec.ID)
		}
	}
	switch g.box.record().Sandbox.State {
	case api.StateRunning:
		return e.resumeExecs(ctx, g)
	}
	return nil
}

// resumeExecs attaches to the commands of a generation that nobody follows yet.
func (e *Engine) resumeExecs(ctx context.Context, g *generation) error {
	for _, x := range e.openIn(g.box.id) {
		x.mu.Lock()
		pending := x.doc.Run == g.n && x.proc == nil && x.doc.Exec.End == nil && x.gen == nil
		x.mu.Unlock()
		if !pending {
			continue
		}
		client, err := g.speak(ctx)
		if err != nil {
			return err
		}
		p, err := client.Attach(ctx, x.doc.Guest, guest.AttachOptions{})
		switch {
		case err == nil:
			if err := x.attach(g, p); err != nil {
				e.log.Error("go on with a command's output", "sandbox", g.box.id, "exec", x.doc.Exec.ID, "error", err)
			}
		case bailey.CodeOf(err) == bailey.CodeNotFound:
			// Its row was written and it was never started: nobody has an answer.
			x.takeBack(bailey.Errorf(bailey.CodeNotFound, "find the command "+x.doc.Exec.ID, "start it", "the daemon was stopped before it could be started"))
		default:
			return err
		}
	}
	return nil
}

// endLeftExecs ends what runs in no generation any more, and begins to attend to
// the rest.
func (e *Engine) endLeftExecs(ctx context.Context) error {
	e.execs.mu.Lock()
	var list []*execution
	for _, x := range e.execs.open {
		list = append(list, x)
	}
	e.execs.mu.Unlock()
	for _, x := range list {
		e.mu.Lock()
		b := e.boxes[x.b.id]
		e.mu.Unlock()
		if b != nil {
			x.mu.Lock()
			x.b = b
			x.mu.Unlock()
		}
		e.spawn(x.attend)
		if b != nil {
			if g := b.generation(); g != nil && g.n == x.doc.Run || b.record().asleep(x.doc.Run) {
				continue
			}
		}
		end := bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "its sandbox was not there any more"}
		if b != nil && b.record().Sandbox.End != nil {
			end = *b.record().Sandbox.End
		}
		x.over(end)
	}
	e.forgetExecs()
	return nil
}

// execsGone lets go of what belongs to a sandbox that is deleted.
func (e *Engine) execsGone(_ context.Context, b *box) error {
	for _, x := range e.openIn(b.id) { // of a generation that was no more
		x.over(b.record().end())
	}
	e.execs.mu.Lock()
	delete(e.execs.kept, b.id)
	delete(e.execs.kills, b.id)
	delete(e.execs.denied, b.id)
	e.execs.mu.Unlock()
	return nil
}

// forgetExecs forgets commands, sandboxes and sessions that have ended long ago, now and from
// time to time.
func (e *Engine) forgetExecs() {
	if e.ctx.Err() != nil {
		return
	}
	e.spawn(func(ctx context.Context) {
		if err := e.db.ForgetSandboxes(ctx, e.clock.Now().Add(-keepEnded)); err != nil && ctx.Err() == nil {
			e.log.Error("forget sandboxes that have ended", "error", err)
		}
		e.forgetSessions(ctx)
		for ctx.Err() == nil {
			list, err := e.db.ForgetExecs(ctx, e.clock.Now().Add(-execKept), forgetAtOnce)
			if err != nil {
				e.log.Error("forget commands", "error", err)
				return
			}
			for _, row := range list {
				if row.Size > 0 {
					e.execs.mu.Lock()
					delete(e.execs.kept, row.Sandbox) // counted anew
					e.execs.mu.Unlock()
				}
				os.RemoveAll(filepath.Join(e.dirOf(row.Sandbox), execsDir, hashOfExec(row.ID)))
			}
			if len(list) < forgetAtOnce {
				return
			}
		}
	})
	e.execs.mu.Lock()
	e.execs.forget = e.clock.AfterFunc(forgetEach, e.forgetExecs)
	e.execs.mu.Unlock()
}
