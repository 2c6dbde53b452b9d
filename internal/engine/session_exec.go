package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// Bounds of what a session executes.
const (
	maxStepName     = 256
	maxSessionInput = 8 << 20 // bytes
	// keptOutput is how much of the end of each stream is in a result.
	keptOutput = 1 << 20
)

// sessionRun is one Execute that goes on.
type sessionRun struct {
	done   chan struct{}
	result api.ExecResult
	err    error
}

// sessionRequest is what is written down before something is executed.
type sessionRequest struct {
	Request api.ExecuteRequest `json:"request"`
	Digest  string             `json:"digest"` // of what the caller sent
	Sandbox string             `json:"sandbox"`
}

// sessionResult is its outcome, as each repetition gives it.
type sessionResult struct {
	Result api.ExecResult `json:"result"`
	Error  *bailey.Error  `json:"error,omitempty"` // its sandbox died under it
}

// Execute runs a command in the session's sandbox, waits for its end and gives its
// outcome with at most the last MiB of each stream. It is logged before it begins and
// once it has ended, goes on when the caller leaves or the daemon dies, and is done
// once: the same exec id again gives the same outcome. With an id that is not said,
// each call is one of its own.
//
// A sandbox that has died is provisioned anew from the session's last checkpoint;
// from then on the error is sandbox_restarted, with the new generation in it, until
// the caller sends that. A command whose sandbox died under it has the outcome
// sandbox_lost.
func (e *Engine) Execute(ctx context.Context, who Caller, ref string, req api.ExecuteRequest) (api.ExecResult, error) {
	const what = "execute in a session"
	if len(req.Name) > maxStepName {
		return api.ExecResult{}, bailey.Errorf(bailey.CodeUsage, what, "", "the name has %d bytes, and may have %d", len(req.Name), maxStepName)
	}
	if len(req.Input) > maxSessionInput {
		return api.ExecResult{}, bailey.Errorf(bailey.CodeTooLarge, what, "write it to a file first", "the input has %d bytes, and may have %d", len(req.Input), maxSessionInput)
	}
	if req.Exec.Generation != 0 || req.Exec.Pty != nil || req.Exec.Stdin {
		return api.ExecResult{}, bailey.Errorf(bailey.CodeUsage, what, "use exec for those", "a step of a session has the session's generation, its input at once, and no terminal")
	}
	if req.Generation < 0 {
		return api.ExecResult{}, bailey.Errorf(bailey.CodeUsage, what, "", "a generation is no number less than 0")
	}
	digest, err := digestOfStep(req)
	if err != nil {
		return api.ExecResult{}, err
	}
	if req.Exec.ID == "" {
		req.Exec.ID = "step-" + newID()
	}
	if !idForm.MatchString(req.Exec.ID) {
		return api.ExecResult{}, bailey.Errorf(bailey.CodeUsage, what, "use 1 to 128 letters, digits, dots, dashes, underscores and colons", "%.40q cannot be an id", req.Exec.ID)
	}
	row, err := e.findSession(ctx, who, ref)
	if err != nil {
		return api.ExecResult{}, err
	}
	seat := e.seat(row.ID)
	run, err := e.beginRun(ctx, seat, req, digest)
	if err != nil {
		return api.ExecResult{}, err
	}
	select {
	case <-run.done:
		return run.result, run.err
	case <-ctx.Done():
		return api.ExecResult{}, bailey.Errorf(bailey.CodeBusy, what, "ask again with the exec id "+req.Exec.ID, "it goes on: %w", context.Cause(ctx))
	}
}

// digestOfStep is what two calls with the same exec id must have in common.
func digestOfStep(req api.ExecuteRequest) (string, error) {
	req.Generation = 0
	text, err := json.Marshal(req)
	if err != nil {
		return "", bailey.Errorf(bailey.CodeUsage, "read what is to be executed", "", "%w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// beginRun gives the run of a request: the one that goes on or is over under its id,
// or a new one, which has been written down.
func (e *Engine) beginRun(ctx context.Context, seat *seat, req api.ExecuteRequest, digest string) (*sessionRun, error) {
	if err := seat.begin(ctx); err != nil {
		return nil, err
	}
	defer seat.done()
	var known state.SessionExec
	var there bool
	err := e.db.Update(ctx, func(tx *sql.Tx) (err error) {
		known, there, err = state.GetSessionExec(ctx, tx, seat.id, req.Exec.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	if there {
		return e.knownRun(seat, known, digest)
	}
	s, err := e.session(ctx, seat.id)
	if err != nil {
		return nil, err
	}
	if s.Session.State != sessionOpen {
		return nil, closedError("execute in a session", seat.id)
	}
	if err := e.ensure(ctx, seat, s); err != nil {
		return nil, err
	}
	if err := e.acceptSession(ctx, seat, s, req.Generation); err != nil {
		return nil, err
	}
	// A sandbox of another than its first start has to be told that it is accepted.
	if s.Seen > 1 {
		req.Exec.Generation = s.Seen
	}
	stored := sessionRequest{Request: req, Digest: digest, Sandbox: s.Session.Sandbox}
	text, err := json.Marshal(stored)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeInternal, "write what is to be executed", "", "%w", err)
	}
	room := int64(len(text) + 4*rowBytes)
	for _, arg := range req.Exec.Args { // they are in the log, too
		room += int64(len(arg))
	}
	if err := e.sessionRoom(ctx, s.Session.Owner, room); err != nil {
		return nil, err
	}
	e.trace("session intent")
	err = e.writeSession(ctx, seat, s, "execute", stepData{Exec: req.Exec.ID, Name: req.Name, Args: req.Exec.Args, Sandbox: stored.Sandbox, Generation: s.Session.Generation, Input: len(req.Input), Digest: digest},
		func(tx *sql.Tx) error {
			return state.PutSessionExec(ctx, tx, state.SessionExec{Session: seat.id, Exec: req.Exec.ID, Created: e.clock.Now(), Request: text})
		})
	if err != nil {
		e.sessionGrew(s.Session.Owner, -room)
		return nil, err
	}
	return e.startRun(seat, s.owner(), stored), nil
}

// stepData is what the log tells of an execute.
type stepData struct {
	Exec       string   `json:"exec"`
	Name       string   `json:"name,omitempty"`
	Args       []string `json:"args"`
	Sandbox    string   `json:"sandbox"`
	Generation int64    `json:"generation"`
	Input      int      `json:"input,omitempty"` // bytes
	Digest     string   `json:"digest"`
}

// knownRun gives what was asked for before.
func (e *Engine) knownRun(seat *seat, known state.SessionExec, digest string) (*sessionRun, error) {
	var stored sessionRequest
	if err := json.Unmarshal(known.Request, &stored); err != nil {
		return nil, unreadable(seat.id, err)
	}
	if stored.Digest != digest {
		return nil, bailey.Errorf(bailey.CodeConflict, "execute in the session "+seat.id, "choose another exec id", "it has executed something else as %s", known.Exec)
	}
	if known.Result == nil {
		seat.mu.Lock()
		run := seat.running[known.Exec]
		seat.mu.Unlock()
		if run == nil { // its outcome could not be written
			owner, err := e.session(e.ctx, seat.id)
			if err != nil {
				return nil, err
			}
			run = e.startRun(seat, owner.owner(), stored)
		}
		return run, nil
	}
	var done sessionResult
	if err := json.Unmarshal(known.Result, &done); err != nil {
		return nil, unreadable(seat.id, err)
	}
	run := &sessionRun{done: make(chan struct{}), result: done.Result}
	if done.Error != nil {
		run.err = done.Error
	}
	close(run.done)
	return run, nil
}

func unreadable(id string, err error) error {
	return bailey.Errorf(bailey.CodeStorage, "read what the session "+id+" executed", "restore the state database from a backup", "%w", err)
}

// resumeRun goes on with what was written down before the daemon died.
func (e *Engine) resumeRun(x state.SessionExec) error {
	var stored sessionRequest
	if err := json.Unmarshal(x.Request, &stored); err != nil {
		return unreadable(x.Session, err)
	}
	s, err := e.session(e.ctx, x.Session)
	if err != nil {
		return err
	}
	e.startRun(e.seat(x.Session), s.owner(), stored)
	return nil
}

// startRun begins, or goes on with, what is written down.
func (e *Engine) startRun(seat *seat, owner Caller, stored sessionRequest) *sessionRun {
	run := &sessionRun{done: make(chan struct{})}
	id := stored.Request.Exec.ID
	seat.mu.Lock()
	seat.running[id] = run
	seat.mu.Unlock()
	e.spawn(func(ctx context.Context) {
		run.result, run.err = e.runStep(ctx, seat, owner, stored)
		seat.mu.Lock()
		delete(seat.running, id)
		seat.mu.Unlock()
		close(run.done)
		seat.bell.ring()
	})
	return run
}

// runStep executes what is written down and writes its outcome. It ends without one
// when the daemon goes down; the next goes on.
func (e *Engine) runStep(ctx context.Context, seat *seat, owner Caller, stored sessionRequest) (api.ExecResult, error) {
	spec := stored.Request.Exec
	_, err := e.execStep(ctx, owner, stored)
	if ctx.Err() != nil {
		return api.ExecResult{}, bailey.Errorf(bailey.CodeDaemonUnavailable, "execute in the session "+seat.id, "ask again with the exec id "+spec.ID, "the daemon is going down")
	}
	if err != nil {
		// It never began: the same id may be tried again.
		return api.ExecResult{}, errors.Join(err, e.dropStep(seat, spec.ID, err))
	}
	var done sessionResult
	x, err := e.WaitExec(ctx, owner, stored.Sandbox, spec.ID)
	if ctx.Err() != nil {
		return api.ExecResult{}, bailey.Errorf(bailey.CodeDaemonUnavailable, "execute in the session "+seat.id, "ask again with the exec id "+spec.ID, "the daemon is going down")
	}
	if err != nil {
		if !errors.As(err, &done.Error) {
			done.Error = bailey.Errorf(bailey.CodeInternal, "execute in the session "+seat.id, "", "%w", err)
		}
		if known, kerr := e.Exec(ctx, owner, stored.Sandbox, spec.ID); kerr == nil {
			x = known
		}
	}
	done.Result.Exec = x
	e.collect(ctx, owner, stored.Sandbox, spec.ID, &done.Result)
	if err := e.endStep(seat, owner.Name, spec.ID, done); err != nil {
		return done.Result, err
	}
	if done.Error != nil {
		return done.Result, done.Error
	}
	return done.Result, nil
}

// execStep starts the command, or finds the one that was started. Its input is a file
// of its own, so that no death of the daemon cuts or doubles it.
func (e *Engine) execStep(ctx context.Context, owner Caller, stored sessionRequest) (api.Exec, error) {
	spec := stored.Request.Exec
	if len(stored.Request.Input) == 0 {
		return e.StartExec(ctx, owner, stored.Sandbox, spec)
	}
	in, err := inputFile(stored.Request.Input)
	if err != nil {
		return api.Exec{}, bailey.Errorf(bailey.CodeInternal, "give a step its input", "", "%w", err)
	}
	defer in.Close()
	return e.startExecFrom(ctx, owner, stored.Sandbox, spec, in)
}

// inputFile gives a file in memory that has the input and never another: whoever has
// its descriptor can only read it.
func inputFile(p []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "input")
	if _, err = f.Write(p); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err == nil {
		_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// collect reads the end of what a command has written.
func (e *Engine) collect(ctx context.Context, owner Caller, sandbox, exec string, r *api.ExecResult) {
	from := map[api.Stream]int64{
		api.Stdout: max(r.Stdout.From, r.Stdout.To-keptOutput),
		api.Stderr: max(r.Stderr.From, r.Stderr.To-keptOutput),
	}
	r.Truncated = from[api.Stdout] > 0 || from[api.Stderr] > 0
	var out, errs bytes.Buffer
	err := e.Output(ctx, owner, sandbox, exec, from, false, func(ev api.OutputEvent) error {
		r.Truncated = r.Truncated || ev.Dropped > 0
		switch ev.Stream {
		case api.Stdout:
			out.Write(ev.Data)
		case api.Stderr:
			errs.Write(ev.Data)
		}
		return nil
	})
	r.Truncated = r.Truncated || err != nil
	r.Out, r.Err = tail(out.Bytes()), tail(errs.Bytes())
}

// tail is the end that is kept of p; what has been written since it was looked how
// much there is may have made it more.
func tail(p []byte) []byte { return p[max(0, len(p)-keptOutput):] }

// endStep writes an outcome down, with an event of the log.
func (e *Engine) endStep(seat *seat, owner, exec string, done sessionResult) error {
	text, err := json.Marshal(done)
	if err != nil {
		return bailey.Errorf(bailey.CodeInternal, "write the outcome of a step", "", "%w", err)
	}
	r := done.Result
	data := struct {
		Exec      string        `json:"exec"`
		Sandbox   string        `json:"sandbox"`
		ExitCode  *int          `json:"exit_code"`
		End       *bailey.End   `json:"end,omitempty"`
		Stdout    int64         `json:"stdout"` // bytes in all
		Stderr    int64         `json:"stderr"`
		Truncated bool          `json:"truncated,omitempty"`
		Error     *bailey.Error `json:"error,omitempty"`
	}{exec, r.Sandbox, r.ExitCode, r.End, r.Stdout.To, r.Stderr.To, r.Truncated, done.Error}
	e.sessionGrew(owner, int64(len(text)+4*rowBytes))
	e.trace("session result")
	return e.logStep(seat, "result", data, func(ctx context.Context, tx *sql.Tx) (bool, error) {
		return state.EndSessionExec(ctx, tx, seat.id, exec, text)
	})
}

// dropStep takes back what never began.
func (e *Engine) dropStep(seat *seat, exec string, why error) error {
	data := map[string]any{"exec": exec, "error": why.Error(), "code": bailey.CodeOf(why)}
	return e.logStep(seat, "failed", data, func(ctx context.Context, tx *sql.Tx) (bool, error) {
		return true, state.DropSessionExec(ctx, tx, seat.id, exec)
	})
}

// logStep writes what became of a step, and if f says that it is so an event of the
// log.
func (e *Engine) logStep(seat *seat, kind string, data any, f func(ctx context.Context, tx *sql.Tx) (bool, error)) error {
	ctx := context.WithoutCancel(e.ctx)
	return e.db.Update(ctx, func(tx *sql.Tx) error {
		is, err := f(ctx, tx)
		if err != nil || !is {
			return err
		}
		return e.note(ctx, tx, seat.id, kind, data)
	})
}
