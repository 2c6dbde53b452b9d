package engine

import (
	"context"
	"reflect"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

// UpdatePolicy puts another policy in force, at once for what is begun and within a
// second for what is open. Of spec it takes Policy, Allow, Profiles and Secrets. A
// sandbox that was made without a network gets one with its next generation only:
// the error then has code not_available while it runs. So has that of a policy which
// says something else beside what may be reached (level, limits, variables, folders):
// that is for a sandbox that is made. And so has that of one whose memory is on disk, and
// which would get a network, or lose its own. After an error the earlier policy is in force.
func (e *Engine) UpdatePolicy(ctx context.Context, who Caller, ref string, spec api.SandboxSpec) (api.Sandbox, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if err := b.begin(ctx); err != nil {
		return api.Sandbox{}, err
	}
	defer b.done()
	p, err := policyOf(spec)
	if err == nil {
		err = mayAsk(who, p)
	}
	if err != nil {
		return api.Sandbox{}, err
	}
	if err := e.sameBeside(ctx, b, p); err != nil {
		return api.Sandbox{}, err
	}
	if m := b.record().Memory; m != nil && m.Outlet == p.Empty() {
		return api.Sandbox{}, bailey.Errorf(bailey.CodeNotAvailable, "give the sandbox "+b.id+" another policy", "drop its memory first: pause it to disk with files_only",
			"its memory on disk goes on with a network as it had one, or with none")
	}
	// What the new one does not let be reached from outside is so no longer.
	bound, err := e.portBound(ctx, p)
	if err != nil {
		return api.Sandbox{}, err
	}
	digest := ""
	var placeholders []string // NAME=VALUE
	back := func(err error) error { return err }
	switch {
	case b.way != nil:
		w, err := e.gate()
		if err != nil {
			return api.Sandbox{}, err
		}
		was := b.way
		back = func(err error) error { // the gate may have the new one already
			b.way = was
			if _, berr := w.Update(context.WithoutCancel(ctx), b.id, was.policy); berr != nil {
				e.log.Error("put the earlier policy in force again", "sandbox", b.id, "error", berr)
			}
			return err
		}
		u, err := w.Update(ctx, b.id, p)
		if err != nil {
			return api.Sandbox{}, back(err)
		}
		opened := *b.way.opened
		opened.Env = append(slices.Clone(opened.Env), u.Env...) // placeholders of secrets that are new
		b.way = &boxWay{opened: &opened, policy: p}
		digest, placeholders = u.Policy, u.Env
	case b.generation() != nil && !p.Empty():
		return api.Sandbox{}, bailey.Errorf(bailey.CodeNotAvailable, "give the sandbox "+b.id+" a network", "pause it to disk with files_only first, or create it with a policy",
			"it was started without a way out")
	case !p.Empty():
		w, err := e.gate()
		if err != nil {
			return api.Sandbox{}, err
		}
		c, err := w.Check(ctx, p)
		if err != nil {
			return api.Sandbox{}, err
		}
		digest = c.Policy
	}
	err = e.update(ctx, b, func(r *record) {
		r.Spec.Policy, r.Spec.Allow, r.Spec.Profiles, r.Spec.Secrets = spec.Policy, spec.Allow, spec.Profiles, spec.Secrets
		r.Sandbox.Policy = digest
		r.Env = withEnv(r.Env, placeholders)
		r.Ports = within(r.Ports, bound)
	})
	if err != nil {
		return api.Sandbox{}, back(err)
	}
	return e.show(b), nil
}

// sameBeside refuses a policy that cannot be read, or that says something else than the
// present one beside what may be reached: a sandbox is held to that when it is made.
func (e *Engine) sameBeside(ctx context.Context, b *box, to control.Policy) error {
	from, err := policyOf(b.record().Spec)
	if err != nil {
		return err
	}
	var said [2]control.Session
	for i, p := range []control.Policy{from, to} {
		if p.Document == nil && (i == 0 || p.Empty()) {
			continue
		}
		w, err := e.gate()
		if err != nil {
			return err
		}
		c, err := w.Check(ctx, p)
		if err != nil {
			return err
		}
		if p.Document != nil { // see holdTo
			said[i] = c.Session
			said[i].Ports = nil // those of the new one are in force
		}
	}
	if !reflect.DeepEqual(said[0], said[1]) {
		return bailey.Errorf(bailey.CodeNotAvailable, "give the sandbox "+b.id+" another policy", "change only what may be reached, or create another sandbox with it",
			"it says something else of the session (level, limits, variables, folders), which holds from the start of a sandbox")
	}
	return nil
}
