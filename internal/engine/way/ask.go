package way

import (
	"context"
	"errors"
	"sync"

	"github.com/bailey-sandbox/bailey/internal/approval"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// desk is where questions lie, from the first one on.
type desk struct {
	home string

	mu     sync.Mutex
	desk   *approval.Desk
	closed bool
}

func (d *desk) open() (*approval.Desk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errors.New("the daemon ends")
	}
	if d.desk == nil {
		made, err := approval.Open(d.home)
		if err != nil {
			return nil, err
		}
		d.desk = made
	}
	return d.desk, nil
}

func (d *desk) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	d.desk.Close()
	d.desk = nil
}

// ask puts a question to `bailey approvals` and waits for the answer. When the
// gate dies meanwhile, or the daemon, the question stays: the act that it is about
// has failed, and is asked about again when it is tried again.
func (w *Ways) ask(ctx context.Context, p *process, q control.Question) control.Answer {
	d, err := w.desk.open()
	if err != nil {
		return control.Answer{}
	}
	pid := 0
	if w.options.Pid != nil {
		pid = w.options.Pid(q.Sandbox)
	}
	pending, err := d.Put(approval.Question{
		ID: q.ID, Sandbox: q.Sandbox, What: q.What, Host: q.Host, Port: q.Port, Method: q.Method, Path: q.Path, Query: q.Query, Body: q.Body,
		Program: run.ProgramOf(pid, q.Client), Rule: q.Rule, Description: q.Description, Reason: q.Reason, Secrets: q.Secrets, Session: q.Scope,
		Digest: q.Digest, Until: q.Until, Durable: true,
	})
	if err != nil {
		return control.Answer{} // nobody could be asked: it is denied, and says so
	}
	select {
	case <-pending.Done(): // it had been asked before, and answered meanwhile
	default:
		if w.options.Asked != nil {
			w.options.Asked(q)
		}
	}
	waiting, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() {
		select {
		case <-p.Client.Done(): // not the act but the gate is gone
			pending.Leave()
		case <-w.life.Done():
			pending.Leave()
		default:
			stop()
		}
	})()
	a := pending.Wait(waiting)
	out := control.Answer{By: a.By, Via: a.Via}
	switch a.Verdict {
	case approval.Once:
		out.Verdict = control.Once
	case approval.Session:
		out.Verdict = control.ForSession
	case approval.No:
		out.Verdict = control.No
	}
	return out
}
