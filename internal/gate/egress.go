package gate

import (
	"context"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// egress is one outbound act.
type egress struct {
	box  *Box
	kind act.Kind
	to   policy.Authority

	mu        sync.Mutex
	version   *version // from the first Judge or Commit on
	record    audit.Egress
	decision  policy.Decision
	client    string // who asks, as act.Client says
	would     string // in audit mode: the reason for which it would have been denied
	committed bool
	allowed   bool  // by the record
	failed    error // of the one Commit
	seq       int64
	ended     bool
}

// Begin implements act.Box. An act that is never committed leaves nothing.
func (b *Box) Begin(kind act.Kind, via act.Via, to policy.Authority) act.Act {
	return b.begin(kind, via, to)
}

func (b *Box) begin(kind act.Kind, via act.Via, to policy.Authority) *egress {
	b.totals.begun.Add(1)
	a := &egress{box: b, kind: kind, to: to, decision: policy.Decision{Reason: "not_judged", Why: "nothing has been decided yet"}}
	a.record.Via = string(via)
	if !to.Host().IsZero() {
		a.record.Host, a.record.Port = to.Host().String(), to.Port()
	}
	return a
}

// pin fixes the version that decides. The caller holds the lock.
func (a *egress) pin() *version {
	if a.version == nil {
		a.version = a.box.version.Load()
	}
	return a.version
}

// Judge implements act.Act.
func (a *egress) Judge(ctx context.Context, r policy.Request) policy.Decision {
	a.mu.Lock()
	v := a.pin()
	a.mu.Unlock()
	r.State = a.box.state(v)
	d := policy.Decide(v.policy, r)
	if d.Verdict == policy.Ask {
		switch {
		case r.Stage == policy.Name: // the stream to the name is what is asked about
			d.Verdict, d.Need = policy.Continue, policy.Connect
		case needsBody(r) && a.box.asked():
			d.Verdict, d.Need = policy.Continue, policy.Body
		default:
			a.client = act.Client(ctx)
			d = a.ask(ctx, r, d)
		}
	}
	if a.box.ctx.Err() != nil {
		d = policy.Decision{Verdict: policy.Deny, Reason: "closed", Why: "the sandbox has ended"}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	step := stages[r.Stage] + "=" + d.Verdict.String() + ":" + d.Reason
	if d.Verdict == policy.Deny && v.audits() && d.Reason != policy.ReasonMetadata && d.Reason != "closed" {
		if a.would == "" {
			a.would = d.Reason
		}
		step = stages[r.Stage] + "=would_deny:" + d.Reason
		d = passing(r)
	}
	a.decision = d
	a.record.Steps = append(a.record.Steps, step)
	return d
}

var stages = map[policy.Stage]string{policy.Name: "name", policy.Connect: "connect", policy.Head: "head", policy.Body: "body"}

// Rules that stand for the missing ones in audit mode.
var (
	auditWeb = &policy.Rule{Action: policy.Allow, WebSocket: true}
	auditTCP = &policy.Rule{Action: policy.Allow, Protocol: policy.TCP, TLS: policy.Splice}
)

// passing is what becomes of a denial in audit mode: the act goes on as if a rule
// without any conditions had allowed it.
func passing(r policy.Request) policy.Decision {
	d := policy.Decision{Verdict: policy.Allow, Rule: auditWeb, Reason: "audit_mode", Why: "the policy is in audit mode, where nothing is denied"}
	switch {
	case r.Stage == policy.Connect && r.Scheme == policy.TCP:
		d.Rule = auditTCP
	case r.Stage < policy.Head:
		d.Verdict, d.Need = policy.Continue, r.Stage+1
	}
	return d
}

// Refuse implements act.Act.
func (a *egress) Refuse(reason, why string) policy.Decision {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pin()
	a.decision = policy.Decision{Verdict: policy.Deny, Rule: a.decision.Rule, Reason: reason, Why: why}
	a.record.Steps = append(a.record.Steps, "gate=deny:"+reason)
	return a.decision
}

// Record implements act.Act.
func (a *egress) Record() *audit.Egress { return &a.record }

// dialled notes an address, if the record is not written yet.
func (a *egress) dialled(address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.record.Address = address
}

// Commit implements act.Act. It writes once; later calls give what came of it.
func (a *egress) Commit() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.committed {
		return a.failed
	}
	a.committed = true
	v, b := a.pin(), a.box
	denied := a.decision.Verdict == policy.Deny
	if denied && a.kind == act.NameLookup && b.refused.again(v, &a.record, &a.seq) {
		return nil
	}
	if denied {
		b.totals.denied.Add(1)
		if d := b.pace.wait(time.Now()); d > 0 {
			b.rest(d)
		}
	}
	record := a.record
	r := &audit.Record{
		Kind: string(a.kind), Session: b.session, Sandbox: b.id, Policy: v.digest(),
		Decision: "allow", Reason: a.decision.Reason, Egress: &record,
	}
	if denied {
		r.Decision = "deny"
	}
	if a.decision.Rule != nil {
		r.Rule = a.decision.Rule.Name
	}
	if a.would != "" {
		r.Detail = map[string]string{"would_deny": a.would}
	}
	if err := b.server.options.Audit.Append(r); err != nil {
		a.failed = bailey.Errorf("audit_unavailable", "record what the sandbox does", "free disk space, or see what the error says",
			"nothing passes without its record: %w", err)
		return a.failed
	}
	a.seq = r.Seq
	if !denied {
		a.allowed = true
		b.totals.acts.Add(1)
		return nil
	}
	if a.kind == act.NameLookup {
		b.refused.first(b, v, &a.record, r.Seq)
	}
	b.report(a.denial())
	return nil
}

// rest makes the maker of a denial wait, unless the box ends.
func (b *Box) rest(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.ctx.Done():
	}
}

// Count implements act.Act.
func (a *egress) Count(u policy.Usage) bool {
	a.mu.Lock()
	v, rule := a.pin(), a.decision.Rule
	a.mu.Unlock()
	if v.limited {
		a.box.changed(false)
	}
	return a.box.counters.count(v, rule, u) == "" || v.audits()
}

// End implements act.Act.
func (a *egress) End(o audit.Outcome) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended || !a.allowed || a.failed != nil {
		return
	}
	a.ended = true
	b := a.box
	b.totals.sent.Add(o.Sent)
	b.totals.received.Add(o.Received)
	r := &audit.Record{Kind: audit.KindEnd, Session: b.session, Sandbox: b.id, Of: a.seq, Outcome: &o}
	if a.decision.Verdict == policy.Deny {
		r.Policy, r.Decision, r.Reason = a.version.digest(), "deny", a.decision.Reason
		if a.decision.Rule != nil {
			r.Rule = a.decision.Rule.Name
		}
		if o.Error == "" {
			o.Error = a.decision.Reason
		}
		b.totals.denied.Add(1)
		b.report(a.denial())
	}
	// A log that cannot be written stops the next act; this one is over.
	b.server.options.Audit.Later(r)
}
