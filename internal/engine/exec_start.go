package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/execlog"
	"github.com/bailey-sandbox/bailey/internal/engine/ledger"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

const (
	// maxRunning bounds the commands that run in a sandbox at once: each costs the
	// daemon descriptors.
	maxRunning = 1024
	// killWithin bounds the wait for the answer that what may have been started is
	// killed.
	killWithin = 5 * time.Second
)

// startWithin bounds the start of a command, whoever waits for it. Tests have less.
var startWithin = 30 * time.Second

// StartExec starts a command, or gives the one that has the same id. A sandbox
// that is paused or stopped is woken. The same id with another spec is an error
// with code conflict. A command that could not be executed has ended, for the reason
// not_started. When ctx ends first, the same id again tells what became of it.
func (e *Engine) StartExec(ctx context.Context, who Caller, ref string, spec api.ExecSpec) (api.Exec, error) {
	return e.startExecFrom(ctx, who, ref, spec, nil)
}

// startExecFrom is StartExec for a command whose input is the file stdin, unless it
// is nil. The file stays the caller's.
func (e *Engine) startExecFrom(ctx context.Context, who Caller, ref string, spec api.ExecSpec, stdin *os.File) (api.Exec, error) {
	if err := checkExec(spec); err != nil {
		return api.Exec{}, err
	}
	b, r, err := e.look(ctx, who, ref)
	if err != nil {
		return api.Exec{}, err
	}
	digest := digestOfExec(spec)
	if spec.ID == "" {
		spec.ID = newExecID()
	} else if x, ok, err := e.sameExec(ctx, r.Sandbox.ID, spec.ID, digest); ok || err != nil {
		return x, err
	}
	if b == nil {
		return api.Exec{}, endedError("run a command in the sandbox ", r)
	}
	checkpoint := ""
	if spec.Checkpoint || r.Spec.CheckpointEach && who != templateCaller {
		s, err := e.checkpointBefore(ctx, who, b.id, spec.ID)
		if err != nil {
			return api.Exec{}, err
		}
		checkpoint = s.ID
	}
	u, err := e.awaken(ctx, b)
	if err != nil {
		return api.Exec{}, err
	}
	x, gs, err := e.claimExec(ctx, u, spec, digest, checkpoint)
	if x == nil || err != nil {
		u.release()
		if err != nil {
			return api.Exec{}, err
		}
		same, _, err := e.sameExec(ctx, b.id, spec.ID, digest) // somebody else was faster
		return same, err
	}
	if stdin != nil {
		if stdin, err = duplicate(stdin); err != nil {
			u.release()
			x.takeBack(bailey.Errorf(bailey.CodeInternal, startCommand, "raise the limit on open files", "%w", err))
			return api.Exec{}, x.err
		}
	}
	// It is seen to its start, whoever waits: so the same id again finds it.
	e.spawn(func(ctx context.Context) {
		defer u.release()
		x.start(ctx, u, gs, stdin)
	})
	select {
	case <-x.ready:
	case <-ctx.Done():
		return api.Exec{}, ctx.Err()
	}
	x.mu.Lock()
	err = x.err
	x.mu.Unlock()
	if err != nil {
		return api.Exec{}, err
	}
	return x.known().Exec, nil
}

// sameExec gives the exec that has the id already.
func (e *Engine) sameExec(ctx context.Context, sandbox, id, digest string) (api.Exec, bool, error) {
	_, doc, ok, err := e.knownExec(ctx, sandbox, id)
	if err != nil || !ok {
		return api.Exec{}, false, err
	}
	if doc.Digest != digest {
		return api.Exec{}, true, bailey.Errorf(bailey.CodeConflict, startCommand, "choose another id", "the sandbox has another command of the id %s", id)
	}
	return doc.Exec, true, nil
}

// claimExec writes the row of a command that is to be started. nil without an
// error: somebody else has the id.
func (e *Engine) claimExec(ctx context.Context, u *use, spec api.ExecSpec, digest, checkpoint string) (*execution, guest.ExecSpec, error) {
	var gs guest.ExecSpec
	b := u.box
	if err := e.accept(ctx, b, spec.Generation); err != nil {
		return nil, gs, err
	}
	now := e.clock.Now().UTC()
	guestID := fmt.Sprintf("%s.%x", hashOfExec(spec.ID), now.UnixNano())
	gs, err := e.guestSpec(ctx, u, spec, guestID)
	if err != nil {
		return nil, gs, err
	}
	log, err := execlog.Open(e.logDir(b, spec.ID), spec.Output)
	if err != nil {
		return nil, gs, err
	}
	doc := execDoc{Digest: digest, Guest: guestID, Run: u.gen.n, Limit: spec.Output, Stdin: spec.Stdin && spec.Pty == nil,
		Exec: api.Exec{ID: spec.ID, Sandbox: b.id, Generation: b.record().Sandbox.Generation, Args: spec.Args, Pty: spec.Pty != nil,
			State: api.ExecStarting, Started: now, Checkpoint: checkpoint}}
	x := newExecution(e, b, doc, log)
	x.gen = u.gen
	e.execs.mu.Lock()
	taken, full := e.execs.open[x.key()] != nil, e.execs.running[b.id] >= maxRunning
	if !taken && !full {
		e.execs.open[x.key()] = x
		e.execs.running[b.id]++
	}
	e.execs.mu.Unlock()
	if full {
		return nil, gs, bailey.Errorf(bailey.CodeBusy, startCommand, "wait until one has ended", "%d commands run in the sandbox", maxRunning)
	}
	if taken {
		return nil, gs, nil
	}
	row, err := rowOfExec(doc, true)
	if err == nil {
		e.trace("exec row")
		err = e.addExec(row, doc, b, gs.Dir)
	}
	if err != nil {
		x.drop(err)
		if errors.Is(err, state.ErrExecID) {
			err = nil
		}
		return nil, gs, err
	}
	return x, gs, nil
}

// execStartedData is what the event of a command's start tells.
type execStartedData struct {
	ID string `json:"id"`
}

// addExec writes the row of a new execution, and the event.
func (e *Engine) addExec(row state.Exec, doc execDoc, b *box, workdir string) error {
	ctx := context.WithoutCancel(e.ctx)
	r := b.record()
	err := e.db.Update(ctx, func(tx *sql.Tx) error {
		if err := state.AddExec(ctx, tx, row); err != nil {
			return err
		}
		if err := e.ledger.Started(ledger.Command{Sandbox: b.id, Session: r.Sandbox.Session, ID: row.ID, Args: doc.Exec.Args, Level: r.Sandbox.Isolation, Workdir: workdir}); err != nil {
			return err
		}
		data, err := json.Marshal(execStartedData{row.ID})
		if err != nil {
			return err
		}
		return e.emit(ctx, tx, api.Event{Kind: "exec.started", Owner: r.Sandbox.Owner, Sandbox: b.id, Data: data})
	})
	if err == nil {
		e.ring()
	}
	return err
}

// logDir is the folder of an exec's output.
func (e *Engine) logDir(b *box, id string) string { return filepath.Join(b.execDir(), hashOfExec(id)) }

// start starts the command, and tells so. It takes stdin over, the command's input
// unless it is nil.
func (x *execution) start(ctx context.Context, u *use, gs guest.ExecSpec, stdin *os.File) {
	e := x.e
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	defer context.AfterFunc(u.gen.ctx, cancel)()
	theirs, err := x.openPipes(ctx, gs.Terminal != nil)
	if stdin != nil {
		closeFiles(theirs[:1])
		theirs[0] = stdin
	}
	defer func() { closeFiles(theirs[:]) }()
	if err != nil {
		x.takeBack(err)
		return
	}
	if gs.Terminal == nil {
		gs.Files, gs.Stdin = &theirs, false
	}
	e.execBegan(x.b, x.doc.Exec.ID)
	e.spawn(x.attend)
	e.trace("exec start")
	p, err := u.client.Exec(ctx, gs)
	e.trace("exec started")
	var not *guest.NotStarted
	switch code := bailey.CodeOf(err); {
	case err == nil:
		if err := x.attach(u.gen, p); err != nil {
			e.log.Error("take the output of a command", "sandbox", x.b.id, "exec", x.doc.Exec.ID, "error", err)
		}
	case errors.As(err, &not):
		end := bailey.End{Reason: bailey.EndNotStarted, ExitCode: 126, Detail: err.Error()}
		if code == bailey.CodeCommandNotFound {
			end.ExitCode = 127
		}
		x.log.Close()
		x.finish(ctx, end, "")
		closeOnce(x.ready)
	case code == bailey.CodeUsage || code == bailey.CodeBusy || code == bailey.CodeConflict:
		x.takeBack(err)
	default:
		// The sandbox is dying, or does not answer: its end is the command's.
		for waits := true; waits; {
			select {
			case <-x.ended:
				waits = false
			case <-u.gen.over:
				waits = false
			case <-time.After(startWithin):
				if x.b.record().Sandbox.State == api.StateRunning { // one that is frozen answers when it goes on
					x.endUnseen(u, gs.ID)
					waits = false
				}
			case <-e.ctx.Done():
				x.tell(bailey.Errorf(bailey.CodeDaemonUnavailable, startCommand, "ask again with the same id", "the daemon is being stopped"))
				return
			}
		}
		x.finish(ctx, bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "the sandbox did not say whether it was started: " + err.Error()}, bailey.CodeSandboxLost)
		closeOnce(x.ready)
	}
}

// endUnseen kills what may have been started and nobody attends to: where the sandbox
// does not answer even now, all of it.
func (x *execution) endUnseen(u *use, id string) {
	ctx, cancel := context.WithTimeout(x.e.ctx, killWithin)
	defer cancel()
	err := u.client.Signal(ctx, id, unix.SIGKILL, guest.ScopeAll)
	if err == nil || errors.Is(err, unix.ESRCH) || bailey.CodeOf(err) == bailey.CodeNotFound || x.e.ctx.Err() != nil {
		return
	}
	x.e.log.Error("a sandbox does not answer and is ended", "sandbox", x.b.id, "exec", x.doc.Exec.ID, "error", err)
	u.gen.instance.Kill(bailey.EndHostLost)
}

// tell ends the waiting for the start with an error. The row stays.
func (x *execution) tell(err error) {
	x.mu.Lock()
	x.err = err
	x.mu.Unlock()
	closeOnce(x.ready)
}

// takeBack undoes the start of a command that never ran.
func (x *execution) takeBack(err error) {
	ctx := context.WithoutCancel(x.e.ctx)
	x.letGo(ctx)
	if derr := x.e.db.DeleteExec(ctx, x.b.id, x.doc.Exec.ID); derr != nil {
		x.e.log.Error("take a command back", "sandbox", x.b.id, "exec", x.doc.Exec.ID, "error", derr)
	}
	x.drop(err)
	execlog.Remove(x.e.logDir(x.b, x.doc.Exec.ID))
}

// drop takes it from those that are open, with the error for whoever waits for its
// start.
func (x *execution) drop(err error) {
	x.mu.Lock()
	if x.err == nil {
		x.err = err
	}
	x.mu.Unlock()
	x.remove()
	closeOnce(x.ready)
	closeOnce(x.ended)
}

// remove takes it from those that are open.
func (x *execution) remove() {
	e := x.e
	e.execs.mu.Lock()
	if e.execs.open[x.key()] == x {
		delete(e.execs.open, x.key())
		if e.execs.running[x.b.id]--; e.execs.running[x.b.id] <= 0 {
			delete(e.execs.running, x.b.id)
		}
	}
	e.execs.mu.Unlock()
	x.idle()
}

// idle says that it does not keep its sandbox awake any more.
func (x *execution) idle() {
	if x.b.record() != nil { // else its sandbox is gone: see openExecs
		x.e.execEnded(x.b, x.doc.Exec.ID)
	}
}

// keptName is how the keeper knows a descriptor of an exec.
func keptName(id, which string) string { return execsKept + id + "/" + which }

const execsKept = "exec/"

// The names of an exec's descriptors. A terminal's output goes through a pipe of
// which both ends are kept.
const (
	keptStdin  = "stdin"
	keptStdout = "stdout"
	keptStderr = "stderr"
	keptWrite  = "terminal"
)

// openPipes makes the command's pipes, has the keeper hold this side of them, and
// begins to take what comes. It gives the command's side.
func (x *execution) openPipes(ctx context.Context, terminal bool) (theirs [3]*os.File, err error) {
	ours := map[string]*os.File{}
	id := x.doc.Exec.ID
	defer func() {
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
			x.log.Close()
			err = bailey.Errorf(bailey.CodeInternal, startCommand, "raise the limit on open files", "%w", err)
		}
	}()
	names := []string{keptStdout, keptStderr}
	if terminal {
		names = names[:1]
	}
	for i, name := range names {
		if ours[keptName(id, name)], theirs[i+1], err = newPipe(); err != nil {
			return theirs, err
		}
	}
	if terminal {
		ours[keptName(id, keptWrite)], theirs[1] = theirs[1], nil
	} else if x.doc.Stdin {
		var w *os.File
		if theirs[0], w, err = newPipe(); err != nil {
			return theirs, err
		}
		ours[keptName(id, keptStdin)] = w
	}
	if x.e.keeper != nil {
		if err = x.e.keeper.Put(ctx, x.b.id, 0, ours); err != nil {
			return theirs, err
		}
		x.e.trace("exec kept")
	}
	return theirs, x.take(ours)
}

// take takes this side of the command's pipes over and begins to move what comes.
func (x *execution) take(files map[string]*os.File) error {
	id := x.doc.Exec.ID
	get := func(which string) *os.File {
		f := files[keptName(id, which)]
		delete(files, keptName(id, which))
		return f
	}
	if x.doc.Exec.Pty {
		x.pipe = [2]*os.File{get(keptStdout), get(keptWrite)}
		return nil
	}
	var err error
	if f := get(keptStdin); f != nil {
		x.stdin, err = pollable(f)
	}
	for i, which := range []string{keptStdout, keptStderr} {
		if f := get(which); f != nil {
			err = errors.Join(err, x.log.Pump(execlog.Stream(i), f, nil))
		}
	}
	return err
}

// newPipe makes a pipe whose ends block, as commands expect it.
func newPipe() (r, w *os.File, err error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, os.NewSyscallError("pipe2", err)
	}
	return os.NewFile(uintptr(p[0]), "pipe"), os.NewFile(uintptr(p[1]), "pipe"), nil
}

// pollable makes a file of the same pipe that the runtime's poller waits for.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	rc, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	nfd := -1
	if e := rc.Control(func(fd uintptr) {
		if err = unix.SetNonblock(int(fd), true); err == nil {
			nfd, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3)
		}
	}); e != nil {
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(nfd), f.Name()), nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// closing is held by closeOnce.
var closing sync.Mutex

// closeOnce closes a channel that may be closed already.
func closeOnce(ch chan struct{}) {
	closing.Lock()
	defer closing.Unlock()
	select {
	case <-ch:
	default:
		close(ch)
	}
}
