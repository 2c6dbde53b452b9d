package main

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/gate"
	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/inject"
	"github.com/bailey-sandbox/bailey/internal/gate/names"
	"github.com/bailey-sandbox/bailey/internal/gate/web"
	"github.com/bailey-sandbox/bailey/policy"
)

// opening is one sandbox's way out.
type opening struct {
	session string
	names   *names.Table
	box     *gate.Box
	web     *web.Web
	leave   func() // of its certificate authority

	changing sync.Mutex      // of policy and grants
	grants   *inject.Grants  // nil without secrets
	saved    json.RawMessage // of grants that an earlier gate has made, while there are none
	seq      int64           // of the last save
}

// Attach implements control.Gate.
func (g *gateway) Attach(_ context.Context, sandbox string, tcp, udp *os.File) error {
	w, err := g.find(sandbox)
	if err != nil {
		tcp.Close()
		udp.Close()
		return err
	}
	return w.box.Serve(tcp, udp)
}

func (g *gateway) find(sandbox string) (*opening, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.open[sandbox]
	if w == nil {
		return nil, noWay(sandbox)
	}
	return w, nil
}

func noWay(sandbox string) error {
	return bailey.Errorf(bailey.CodeNotFound, "use a sandbox's way out", "", "there is none of %q", sandbox)
}

// Detach implements control.Gate.
func (g *gateway) Detach(_ context.Context, sandbox string) error {
	w, err := g.find(sandbox)
	if err == nil {
		w.box.Leave()
	}
	return err
}

// Update implements control.Gate.
func (g *gateway) Update(ctx context.Context, sandbox string, asked control.Policy) (control.Updated, error) {
	w, err := g.find(sandbox)
	if err != nil {
		return control.Updated{}, err
	}
	p, err := combine(asked)
	if err != nil {
		return control.Updated{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, secretsWithin)
	defer cancel()
	mark, err := g.await(ctx, p)
	if err != nil {
		return control.Updated{}, err
	}
	w.changing.Lock()
	if err = g.bind(w, p, mark); err == nil {
		err = g.logPolicy(sandbox, w.session, p, asked)
	}
	if err == nil {
		var grants act.Secrets
		if w.grants != nil {
			grants = w.grants
		}
		w.box.Update(p, grants)
	}
	w.changing.Unlock()
	if err != nil {
		return control.Updated{}, err
	}
	return control.Updated{Policy: p.Digest(), Notes: notes(p), Env: w.environment(), Saved: w.save()}, nil
}

// bind gives a sandbox the grants of a policy.
func (g *gateway) bind(w *opening, p *policy.Policy, mark string) (err error) {
	switch {
	case w.grants != nil:
		return w.grants.Bind(p.Secrets())
	case len(p.Secrets()) == 0:
		return nil
	}
	g.mu.Lock()
	if g.issuer == nil {
		g.issuer = inject.NewIssuer(g.feed.Held(), mark)
	}
	issuer := g.issuer
	g.mu.Unlock()
	w.grants, err = issuer.Restore(w.saved, p.Secrets())
	return err
}

// environment gives the variables that hold placeholders.
func (w *opening) environment() (env []string) {
	w.changing.Lock()
	defer w.changing.Unlock()
	if w.grants == nil {
		return nil
	}
	for name, value := range w.grants.Environment() {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env
}

// save gives what the next gate needs of this way.
func (w *opening) save() json.RawMessage {
	w.changing.Lock()
	defer w.changing.Unlock()
	s := saved{Grants: w.saved, State: w.box.State()}
	if w.grants != nil {
		s.Grants = w.grants.Save()
	}
	w.seq++
	s.Seq = w.seq
	text, _ := json.Marshal(s) // maps and numbers: it never fails
	return text
}

// changed tells the starter of what it is to save. Whoever says so may hold locks.
func (g *gateway) changed(sandbox string) {
	go func() {
		if w, err := g.find(sandbox); err == nil {
			g.peer.Saved(sandbox, w.save())
		}
	}()
}

// logPolicy says which version of a policy comes into force, and where it is
// from. Without the record it does not.
func (g *gateway) logPolicy(sandbox, session string, p *policy.Policy, asked control.Policy) error {
	return g.log.Append(&audit.Record{Kind: audit.KindPolicy, Sandbox: sandbox, Session: session, Policy: p.Digest(), Detail: sourceOf(asked)})
}

// Revoke implements control.Gate.
func (g *gateway) Revoke(_ context.Context, sandbox, secret string) (json.RawMessage, error) {
	w, err := g.find(sandbox)
	if err != nil {
		return nil, err
	}
	w.changing.Lock()
	if w.grants != nil {
		w.grants.Revoke(secret)
	}
	w.changing.Unlock()
	return w.save(), nil
}

// Used implements control.Gate.
func (g *gateway) Used(context.Context) map[string]control.Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := map[string]control.Usage{}
	for id, w := range g.open {
		t := w.box.Totals()
		if u := (control.Usage{Sent: t.Sent, Received: t.Received, Activity: t.Activity, Open: t.Open, Asking: t.Asking}); u != (control.Usage{}) {
			all[id] = u
		}
	}
	return all
}

// Close implements control.Gate.
func (g *gateway) Close(_ context.Context, sandbox string) (control.Closed, error) {
	g.mu.Lock()
	w := g.open[sandbox]
	delete(g.open, sandbox)
	g.tidyLater()
	g.mu.Unlock()
	if w == nil {
		return control.Closed{}, noWay(sandbox)
	}
	w.close()
	t := w.box.Totals()
	return control.Closed{Requests: t.Acts, Sent: t.Sent, Received: t.Received, Denied: control.Denied{Further: w.box.Dropped()}, Saved: w.save()}, nil
}

// close ends what there is of it.
func (w *opening) close() {
	switch {
	case w.box != nil:
		w.box.Close()
	case w.names != nil:
		w.names.Close()
	}
	if w.web != nil {
		w.web.Close()
	}
	if w.leave != nil {
		w.leave()
	}
}
