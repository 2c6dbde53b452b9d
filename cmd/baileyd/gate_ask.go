package main

import (
	"cmp"
	"context"
	"time"

	"github.com/bailey-sandbox/bailey/internal/gate"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/policy"
)

// denied passes a denial on.
func (g *gateway) denied(d act.Denial) {
	g.peer.Denied(control.Denial{Error: d.Error, Sandbox: d.Sandbox, What: d.What, Rule: d.Rule, Reason: d.Reason, Why: d.Why, Ask: d.Ask, Hint: d.Hint, Seq: d.Seq})
}

// atTerminal is how long a person in front of the terminal has to answer, where
// nothing else was said.
const atTerminal = 5 * time.Minute

// patience says how long questions wait for an answer, or that nobody is asked.
func patience(ask control.Ask, p *policy.Policy) (wait time.Duration, nobody bool) {
	wait = cmp.Or(ask.Timeout, p.Session().AskTimeout)
	if wait == 0 && ask.Attended {
		wait = atTerminal
	}
	return wait, !ask.Possible || wait == 0
}

// asker puts questions to whoever started the gate.
type asker struct{ peer *control.Peer }

func (a asker) Ask(ctx context.Context, q gate.Question) (gate.Answer, error) {
	until, _ := ctx.Deadline()
	got, err := a.peer.Ask(ctx, control.Question{ID: q.ID, Sandbox: q.Sandbox, What: q.What, Host: q.Host, Port: int(q.Port), Method: q.Method, Path: q.Path,
		Query: q.Query, Body: q.Body, Client: q.Client, Rule: q.Rule, Description: q.Description, Scope: q.Scope, Reason: q.Why, Secrets: q.Secrets,
		Digest: q.Digest, Until: until})
	if err != nil {
		select {
		case <-a.peer.Done():
			<-ctx.Done() // all streams are being ended: a denial would be one answer that nobody has given
		default:
		}
		return gate.Answer{}, err
	}
	switch {
	case got.Verdict == control.Once, got.Verdict == control.ForSession, got.Verdict == control.No:
		return gate.Answer{Allow: got.Verdict != control.No, Session: got.Verdict == control.ForSession, By: got.By, Via: got.Via}, nil
	case !until.IsZero() && !time.Now().Before(until):
		<-ctx.Done() // the other side's clock was the first to say that it is late
		return gate.Answer{}, ctx.Err()
	}
	return gate.Answer{}, gate.ErrNobody
}
