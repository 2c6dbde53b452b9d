package engine

import (
	"context"
	"encoding/json"
	"os"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/execlog"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// execs are the executions that have not ended or whose output may grow. What is
// known of the others is in the database and in their logs.
type execs struct {
	mu      sync.Mutex
	open    map[execKey]*execution
	running map[string]int                 // by sandbox
	kept    map[string]int64               // bytes of output of closed ones, by sandbox; see keepOutput
	kills   map[string]int64               // processes that a sandbox's memory limit has killed and that somebody was told of
	denied  map[string]map[denialKey]int64 // what was refused to a sandbox and told already
	forget  func() bool                    // stops the alarm of forgetExecs
}

type execKey struct{ sandbox, id string }

// execDoc is what is known of an execution: a row of the database, in JSON. The
// environment is not in it: it may hold what must not be kept.
type execDoc struct {
	Exec   api.Exec `json:"exec"`
	Digest string   `json:"digest"`          // of its spec
	Guest  string   `json:"guest"`           // its id inside, which is never used again
	Run    int64    `json:"run"`             // generation.n
	Limit  int64    `json:"limit,omitempty"` // of each stream's log
	Stdin  bool     `json:"stdin,omitempty"`
	// Lost is set when it ended with its sandbox: the code of the error that those
	// get who wait for it.
	Lost bailey.Code `json:"lost,omitempty"`
}

// execution is one that has not ended, or whose output may grow.
type execution struct {
	e   *Engine
	b   *box
	log *execlog.Log

	ready chan struct{} // closed once it runs, has ended, or was taken back
	ended chan struct{} // closed once its end is recorded

	mu    sync.Mutex
	doc   execDoc
	err   error // why it was taken back, once ready is closed
	whole bool  // its row says that it is closed
	gen   *generation
	proc  *guest.Process
	// attached is closed once proc is set. There is another one when the sandbox's memory
	// was put on disk: see holdExecs.
	attached chan struct{}
	unfollow context.CancelFunc // ends the waiting of follow, when attached is another one
	shown    bool               // what a terminal shows is taken
	stdin    *os.File           // of pipes
	pipe     [2]*os.File        // of a terminal that is not attached: both ends of its pipe

	input chan struct{} // has one element while somebody writes its input
}

func newExecution(e *Engine, b *box, doc execDoc, log *execlog.Log) *execution {
	return &execution{e: e, b: b, log: log, doc: doc, ready: make(chan struct{}), attached: make(chan struct{}), unfollow: func() {}, ended: make(chan struct{}), input: make(chan struct{}, 1)}
}

func (x *execution) key() execKey { return execKey{x.b.id, x.doc.Exec.ID} }

// known gives what is known, with where its output stands.
func (x *execution) known() execDoc {
	x.mu.Lock()
	doc := x.doc
	x.mu.Unlock()
	doc.Exec.Stdout, doc.Exec.Stderr = streamInfo(x.log.Info(execlog.Stdout)), streamInfo(x.log.Info(execlog.Stderr))
	return doc
}

func streamInfo(i execlog.Info) api.StreamInfo {
	return api.StreamInfo{From: i.From, To: i.To, Closed: i.Closed}
}

// closed says that nothing will write to its output any more.
func (x *execution) closed() bool {
	return x.log.Info(execlog.Stdout).Closed && x.log.Info(execlog.Stderr).Closed
}

// rowOfExec gives the row of an execution.
func rowOfExec(doc execDoc, open bool) (state.Exec, error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return state.Exec{}, bailey.Errorf(bailey.CodeInternal, "write the record of a command", "", "%w", err)
	}
	row := state.Exec{Sandbox: doc.Exec.Sandbox, ID: doc.Exec.ID, Open: open, Started: doc.Exec.Started, Ended: doc.Exec.Ended, Doc: text}
	if !open {
		row.Size = doc.Exec.Stdout.To - doc.Exec.Stdout.From + doc.Exec.Stderr.To - doc.Exec.Stderr.From
	}
	return row, nil
}

func readExec(row state.Exec) (doc execDoc, err error) {
	if err := json.Unmarshal(row.Doc, &doc); err != nil {
		return doc, bailey.Errorf(bailey.CodeStorage, "read the record of the command "+row.ID, "restore the state database from a backup", "%w", err)
	}
	return doc, nil
}

// openExec gives an execution that is open, or nil.
func (e *Engine) openExec(sandbox, id string) *execution {
	e.execs.mu.Lock()
	defer e.execs.mu.Unlock()
	return e.execs.open[execKey{sandbox, id}]
}

// openIn gives the executions of a sandbox that are open.
func (e *Engine) openIn(sandbox string) (list []*execution) {
	e.execs.mu.Lock()
	defer e.execs.mu.Unlock()
	for k, x := range e.execs.open {
		if k.sandbox == sandbox {
			list = append(list, x)
		}
	}
	return list
}

// findExec gives what is known about an exec, and the execution while it is open.
// The box is nil once the sandbox is gone.
func (e *Engine) findExec(ctx context.Context, who Caller, ref, id string) (*execution, execDoc, *box, error) {
	b, r, err := e.look(ctx, who, ref)
	if err != nil {
		return nil, execDoc{}, nil, err
	}
	x, doc, ok, err := e.knownExec(ctx, r.Sandbox.ID, id)
	if err == nil && !ok {
		err = bailey.Errorf(bailey.CodeNotFound, "find the command "+id, "what has ended is kept for at least 24 hours", "the sandbox %s knows none of this id", r.Sandbox.ID)
	}
	return x, doc, b, err
}

// knownExec is findExec by the sandbox's id.
func (e *Engine) knownExec(ctx context.Context, sandbox, id string) (*execution, execDoc, bool, error) {
	if x := e.openExec(sandbox, id); x != nil {
		select {
		case <-x.ready:
		case <-ctx.Done():
			return nil, execDoc{}, false, ctx.Err()
		}
		x.mu.Lock()
		err := x.err
		x.mu.Unlock()
		if err == nil {
			return x, x.known(), true, nil
		}
		return nil, execDoc{}, false, nil
	}
	row, ok, err := e.db.ExecOf(ctx, sandbox, id)
	if err != nil || !ok {
		return nil, execDoc{}, false, err
	}
	doc, err := readExec(row)
	return nil, doc, true, err
}

// lostError is what those get who wait for an exec that ended with its sandbox.
func lostError(doc execDoc) error {
	if doc.Lost == "" {
		return nil
	}
	fix := "its end and what it printed are kept"
	if doc.Lost == bailey.CodeSandboxEnded {
		fix = "its end is kept"
	}
	return bailey.Errorf(doc.Lost, "wait for the command "+doc.Exec.ID, fix, "its sandbox ended under it: %s", doc.Exec.End.Detail)
}
