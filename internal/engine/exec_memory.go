package engine

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/engine/execlog"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// holdExecs lets go of the commands of a generation whose memory is put on disk: they go
// on with it. What they have printed still comes through their pipes.
func (e *Engine) holdExecs(g *generation) (held []*execution) {
	for _, x := range e.openIn(g.box.id) {
		x.mu.Lock()
		proc := x.proc
		mine := x.doc.Run == g.n && x.doc.Exec.End == nil && proc != nil
		if mine {
			x.gen, x.proc, x.attached = nil, nil, make(chan struct{})
			x.unfollow()
		}
		x.mu.Unlock()
		if mine {
			proc.Close()
			held = append(held, x)
		}
	}
	return held
}

// drained waits until all that came before its sandbox ended is in the log, and lets go
// of the command's descriptors.
func (x *execution) drained(ctx context.Context) {
	if err := x.log.Reach(ctx, atItsEnd); err != nil {
		x.e.log.Error("a command's output is not complete", "sandbox", x.b.id, "exec", x.doc.Exec.ID, "error", err)
		return
	}
	x.mu.Lock()
	stdin := x.stdin
	x.stdin, x.shown = nil, false
	x.mu.Unlock()
	if stdin != nil {
		stdin.Close()
	}
}

// goOnExecs gives the commands of a generation that went on from memory new descriptors:
// the old ones ended with the process that had their other ends. Output goes on at the
// byte where it stopped.
func (e *Engine) goOnExecs(ctx context.Context, g *generation) error {
	client, err := g.speak(ctx)
	if err != nil {
		return err
	}
	for _, x := range e.openIn(g.box.id) {
		x.mu.Lock()
		pending := x.doc.Run == g.n && x.proc == nil && x.doc.Exec.End == nil
		x.mu.Unlock()
		if !pending {
			continue
		}
		e.execBegan(g.box, x.doc.Exec.ID)
		if err := x.goOn(ctx, g, client); err != nil {
			if ctx.Err() != nil {
				return err
			}
			e.log.Error("go on with a command", "sandbox", g.box.id, "exec", x.doc.Exec.ID, "error", err)
			x.over(bailey.End{Reason: bailey.EndHostLost, Detail: "it is not in the memory that its sandbox went on from"})
		}
	}
	return nil
}

func (x *execution) goOn(ctx context.Context, g *generation, client *guest.Client) error {
	theirs, err := x.openPipes(ctx, x.doc.Exec.Pty)
	defer func() { closeFiles(theirs[:]) }()
	if err != nil {
		return err
	}
	opt := guest.AttachOptions{}
	if !x.doc.Exec.Pty {
		opt.Plumb = &theirs
		opt.Offsets = [2]int64{x.log.Info(execlog.Stdout).To, x.log.Info(execlog.Stderr).To}
	}
	// An answer that does not come is no reason to wait for ever.
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	p, err := client.Attach(ctx, x.doc.Guest, opt)
	if err == nil {
		err = x.attach(g, p)
	}
	return err
}

// whenAttached gives the channel that is closed once somebody follows the command.
func (x *execution) whenAttached() chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.attached
}

// follow follows a command to its end, through every time that its sandbox's memory is
// put on disk. Of one that ends with its sandbox somebody else learns: see execsOver.
func (x *execution) follow(ctx context.Context) {
	for {
		attached := x.whenAttached()
		select {
		case <-attached:
		case <-x.ended:
			return
		case <-ctx.Done():
			return
		}
		x.mu.Lock()
		g, p, same := x.gen, x.proc, x.attached == attached
		waits, cancel := context.WithCancel(ctx)
		x.unfollow = cancel
		x.mu.Unlock()
		if !same {
			cancel()
			continue
		}
		end, err := p.Wait(waits)
		cancel()
		if err == nil {
			x.finish(ctx, x.endOf(ctx, g, end), "")
			return
		}
		if x.whenAttached() == attached {
			return
		}
	}
}
