package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/engine/execlog"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// drainWithin is how long the end of a command waits for what it has printed to be
// on disk, which is slow only when that is full.
const drainWithin = 10 * time.Second

// attach takes over the following of a command that runs.
func (x *execution) attach(g *generation, p *guest.Process) error {
	x.mu.Lock()
	if x.proc != nil {
		x.mu.Unlock()
		return nil
	}
	x.gen, x.proc = g, p
	pipe := x.pipe
	x.pipe = [2]*os.File{}
	x.doc.Exec.Pid = p.Pid()
	if x.doc.Exec.State == api.ExecStarting {
		x.doc.Exec.State = api.ExecRunning
	}
	attached, shown := x.attached, x.shown
	x.shown = true
	x.mu.Unlock()
	var err error
	if x.doc.Exec.Pty && !shown {
		err = x.showTerminal(p, pipe)
	}
	close(attached)
	closeOnce(x.ready)
	return err
}

// showTerminal begins to take what a terminal shows.
func (x *execution) showTerminal(p *guest.Process, pipe [2]*os.File) (err error) {
	if pipe[0] == nil || pipe[1] == nil { // they were not kept, and neither was anything in them
		closeFiles(pipe[:])
		if pipe[0], pipe[1], err = newPipe(); err != nil {
			return err
		}
	}
	o := p.Stdout()
	if o == nil || o.File() == nil {
		closeFiles(pipe[:])
		return errors.New("the sandbox gave no terminal")
	}
	master, err := duplicate(o.File())
	if err != nil {
		closeFiles(pipe[:])
		return err
	}
	return x.log.PumpTerminal(master, pipe[0], pipe[1], nil)
}

// duplicate gives another descriptor of the same file.
func duplicate(f *os.File) (*os.File, error) {
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	nfd := -1
	if e := rc.Control(func(fd uintptr) { nfd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) }); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(nfd), f.Name()), nil
}

// attend follows a command to its end, and its output to its own.
func (x *execution) attend(ctx context.Context) {
	x.follow(ctx)
	select {
	case <-x.ended: // now, or with the sandbox: see execsOver
	case <-ctx.Done():
		x.letGoHere()
		return
	}
	for {
		changed := x.log.Changed()
		if x.closed() {
			x.settle(ctx)
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			x.letGoHere()
			return
		}
	}
}

// endOf gives a command's end in Bailey's words. What the memory limit has killed
// is told: the command itself, or something that it used.
func (x *execution) endOf(ctx context.Context, g *generation, e guest.ExecEnd) bailey.End {
	end := e.End()
	end.Usage = bailey.Usage{CPU: e.Usage.User + e.Usage.System, MemoryPeak: e.Usage.MaxRSS}
	if end.Reason == bailey.EndExit && end.ExitCode == 0 && x.b.record().Sandbox.Limits.Memory == 0 {
		return end
	}
	// A program may go on without what was killed, and end as if nothing were; and
	// what it leaves untold the next command would be blamed for.
	st, err := g.instance.Stats(ctx)
	if err != nil || !x.e.killed(x.b.id, st) {
		return end
	}
	if e.Signal == syscall.SIGKILL && end.Reason != bailey.EndTimeout {
		end.Reason, end.Limit, end.Peak, end.Victim = bailey.EndOOM, st.MemoryLimit, st.MemoryPeak, st.OOMVictim
	} else {
		end.LimitHits = append(end.LimitHits, "memory")
	}
	return end
}

// killed says whether the sandbox's memory limit has killed something that nobody
// was told of, who is now.
func (e *Engine) killed(sandbox string, st driver.Stats) bool {
	e.execs.mu.Lock()
	defer e.execs.mu.Unlock()
	if st.OOMKills <= e.execs.kills[sandbox] {
		return false
	}
	e.execs.kills[sandbox] = st.OOMKills
	return true
}

// finish records how it ended, once, and tells it. All that it printed is on disk
// by then. lost is why those who wait get an error, or "".
func (x *execution) finish(ctx context.Context, end bailey.End, lost bailey.Code) {
	within, cancel := context.WithTimeout(ctx, drainWithin)
	x.log.Reach(within, x.log.Mark()) // else what is missing comes later
	cancel()
	var denials []api.Denial
	if lost == "" && end.Reason != bailey.EndNotStarted {
		denials = x.e.denials(ctx, x.b)
	}
	x.mu.Lock()
	if x.doc.Exec.End != nil {
		x.mu.Unlock()
		return
	}
	x.doc.Exec.Denials = denials
	now := x.e.clock.Now().UTC()
	x.doc.Exec.State, x.doc.Exec.End, x.doc.Exec.ExitCode, x.doc.Exec.Ended, x.doc.Lost = api.ExecEnded, &end, &end.ExitCode, &now, lost
	proc, stdin := x.proc, x.stdin
	x.mu.Unlock()
	x.e.trace("exec ended")
	x.record(true)
	x.e.trace("exec recorded")
	x.idle()
	closeOnce(x.ended)
	closeOnce(x.ready)
	if proc != nil {
		proc.Close()
	}
	if stdin != nil {
		stdin.Close()
	}
}

// recordPause is how long is waited between tries to write a row.
const recordPause = 200 * time.Millisecond

// record writes the row, again and again until it is written or the engine closes:
// what was not written must not be told. With tell it is an event.
func (x *execution) record(tell bool) {
	open := !x.closed()
	doc := x.known()
	row, err := rowOfExec(doc, open)
	for err == nil {
		if err = x.e.putExec(row, doc, x.b, tell); err == nil {
			x.mu.Lock()
			x.whole = !open
			x.mu.Unlock()
			return
		}
		x.e.log.Error("record the end of a command", "sandbox", x.b.id, "exec", x.doc.Exec.ID, "error", err)
		select {
		case <-time.After(recordPause):
			err = nil
		case <-x.e.ctx.Done():
		}
	}
}

// execEndedData is what the event of a command's end tells.
type execEndedData struct {
	ID  string      `json:"id"`
	End *bailey.End `json:"end"`
}

// putExec writes a row, and with tell the event of its end.
func (e *Engine) putExec(row state.Exec, doc execDoc, b *box, tell bool) error {
	ctx := context.WithoutCancel(e.ctx)
	r := b.record()
	err := e.db.Update(ctx, func(tx *sql.Tx) error {
		if err := state.PutExec(ctx, tx, row); err != nil || !tell || r == nil {
			return err
		}
		data, err := json.Marshal(execEndedData{doc.Exec.ID, doc.Exec.End})
		if err != nil {
			return err
		}
		return e.emit(ctx, tx, api.Event{Kind: "exec.ended", Owner: r.Sandbox.Owner, Sandbox: b.id, Data: data})
	})
	if err == nil && tell {
		e.ring()
	}
	return err
}

// settle lets go of an execution that has ended and whose output is complete.
func (x *execution) settle(ctx context.Context) {
	x.letGo(ctx)
	x.mu.Lock()
	whole := x.whole
	x.mu.Unlock()
	if !whole {
		x.record(false)
	}
	x.e.keepOutput(ctx, x.b, x.known().Exec)
	x.remove()
}

// letGo lets go of its descriptors, here and at the keeper.
func (x *execution) letGo(ctx context.Context) {
	x.letGoHere()
	if x.e.keeper == nil {
		return
	}
	id := x.doc.Exec.ID
	if err := x.e.keeper.Drop(ctx, x.b.id, keptName(id, keptStdin), keptName(id, keptStdout), keptName(id, keptStderr), keptName(id, keptWrite)); err != nil {
		x.e.log.Error("let go of a command's output", "sandbox", x.b.id, "exec", id, "error", err)
	}
}

// letGoHere lets go of its descriptors. What is in its pipes stays there as long
// as the keeper holds them.
func (x *execution) letGoHere() {
	x.log.Close()
	x.mu.Lock()
	proc, stdin, pipe := x.proc, x.stdin, x.pipe
	x.pipe = [2]*os.File{}
	x.mu.Unlock()
	closeFiles(pipe[:])
	if proc != nil {
		proc.Close()
	}
	if stdin != nil {
		stdin.Close()
	}
}

// execsOver ends what ran in a generation that has ended. It is a hook: see
// hooks.ended.
func (e *Engine) execsOver(g *generation, end bailey.End) {
	if g.box.record().asleep(g.n) {
		return
	}
	for _, x := range e.openIn(g.box.id) {
		x.mu.Lock()
		if x.b != g.box { // of one that a dead daemon has left; others read it without the lock
			x.b = g.box
		}
		run := x.doc.Run
		x.mu.Unlock()
		if run == g.n {
			x.over(end)
		}
	}
}

// atItsEnd is where a log is at once all that can come has come, for Reach.
var atItsEnd = [2]int64{math.MaxInt64, math.MaxInt64}

// over ends an execution whose sandbox has ended.
func (x *execution) over(end bailey.End) {
	mine := bailey.End{Reason: end.Reason, ExitCode: 137, Detail: inFull(end)}
	lost := bailey.CodeSandboxEnded
	switch end.Reason {
	case bailey.EndHostLost, bailey.EndOOM, bailey.EndPids, bailey.EndDiskFull, bailey.EndSignal, bailey.EndExit, bailey.EndNotStarted:
		lost = bailey.CodeSandboxLost
	}
	// Nobody is left who could write, so that the pipes come to their ends by
	// themselves. That of a terminal that nobody has attached to is one more.
	x.mu.Lock()
	pipe := x.pipe
	x.pipe = [2]*os.File{}
	x.mu.Unlock()
	if pipe[0] != nil && pipe[1] != nil {
		pipe[1].Close()
		if err := x.log.Pump(execlog.Stdout, pipe[0], nil); err != nil {
			x.e.log.Error("take the rest of a command's output", "sandbox", x.b.id, "exec", x.doc.Exec.ID, "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(x.e.ctx), time.Second)
	defer cancel()
	x.log.Reach(ctx, atItsEnd) // else what is missing is lost
	x.log.Close()
	x.finish(ctx, mine, lost)
}

// keepOutput bounds what is kept of the output of a sandbox's commands that have
// ended: the oldest goes first. How they ended stays.
func (e *Engine) keepOutput(ctx context.Context, b *box, done api.Exec) {
	size := done.Stdout.To - done.Stdout.From + done.Stderr.To - done.Stderr.From
	if size == 0 {
		return
	}
	e.execs.mu.Lock()
	total, known := e.execs.kept[b.id]
	e.execs.mu.Unlock()
	if known {
		total += size
	} else if n, err := e.db.KeptOutput(ctx, b.id); err == nil {
		total = n
	}
	for total > maxKeptOutput {
		row, ok, err := e.db.OldestOutput(ctx, b.id)
		if err != nil || !ok || row.ID == done.ID {
			break
		}
		doc, err := readExec(row)
		if err != nil || execlog.Remove(e.logDir(b, row.ID)) != nil {
			break
		}
		doc.Exec.Stdout.From, doc.Exec.Stderr.From = doc.Exec.Stdout.To, doc.Exec.Stderr.To
		total -= row.Size
		if row, err = rowOfExec(doc, false); err != nil || e.putExec(row, doc, b, false) != nil {
			break
		}
	}
	e.execs.mu.Lock()
	e.execs.kept[b.id] = total
	e.execs.mu.Unlock()
}
