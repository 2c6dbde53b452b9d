package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Promote moves a sandbox to a stronger isolation level, behind the same id: files,
// environment, working folder, policy, name table, ports and labels stay, and its processes
// end with the reason promoted. One that ran or was paused runs at the new level, as the next
// generation; one that was stopped starts there when it is used. Of one that is at the level already
// it is the state.
//
// What shows before anything is done that the level cannot have it leaves it as it is; when
// the start fails all the same, it goes on at the level that it had, with its processes ended.
func (e *Engine) Promote(ctx context.Context, who Caller, ref string, req api.PromoteRequest) (api.Sandbox, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if err := b.begin(ctx); err != nil {
		return api.Sandbox{}, err
	}
	defer b.done()
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := e.mend(ctx, b); err != nil {
		return api.Sandbox{}, err
	}
	r := b.record()
	if r.Sandbox.Isolation == req.Isolation {
		return e.show(b), nil
	}
	if err := e.canPromote(ctx, r, req.Isolation); err != nil {
		return api.Sandbox{}, err
	}
	if err := e.promote(ctx, b, req.Isolation); err != nil {
		return api.Sandbox{}, err
	}
	return e.show(b), nil
}

// canPromote says what keeps a sandbox from a level.
func (e *Engine) canPromote(ctx context.Context, r *record, to bailey.Isolation) error {
	s := &r.Sandbox
	what := fmt.Sprintf("promote the sandbox %s to %s", s.ID, to)
	switch s.State {
	case api.StateRunning, api.StatePaused, api.StateStopped:
	case api.StateDeleting, api.StateEnded:
		return endedError("promote the sandbox ", r)
	case api.StateLost:
		return bailey.Errorf(bailey.CodeSandboxLost, what, "resume it first", "it was lost: %s", inFull(r.end()))
	default:
		return bailey.Errorf(bailey.CodeConflict, what, "wait until it runs", "it is %s", s.State)
	}
	switch {
	case to < s.Isolation:
		return bailey.Errorf(bailey.CodeUsage, what, "name a stronger level; snapshot it, and make a sandbox from that, for a weaker one", "it is at the level %s, and a promotion never weakens", s.Isolation)
	case !s.Isolation.OwnRoot():
		return bailey.Errorf(bailey.CodeNotAvailable, what, "make a sandbox with a template or an image", "at the level %s it shows the host's own tools, and has no root file system that another kernel could have", s.Isolation)
	}
	can := e.can(ctx, to)
	if ctx.Err() != nil {
		return bailey.Errorf(bailey.CodeBusy, what, "try again", "%w", context.Cause(ctx))
	}
	if !can.Available {
		return bailey.Errorf(bailey.CodeIsolationUnavailable, what, can.Fix, "%s", orElse(can.Why, "this host does not have it"))
	}
	needs := needsOf(r.Spec)
	if len(r.Spec.Mounts)+len(r.Spec.Volumes) > 0 {
		needs = append(needs, driver.NeedMounts)
	}
	for _, n := range needs {
		if slices.Contains(can.Lacks, n) {
			return bailey.Errorf(bailey.CodeNotAvailable, what, "choose another level", "the level %s has no %s", to, n)
		}
	}
	for _, l := range limitsOf(s.Limits) {
		if !slices.Contains(can.Limits, l) {
			return bailey.Errorf(bailey.CodeLimitUnavailable, what, "choose another level", "the level %s cannot limit %s here", to, l)
		}
	}
	return nil
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// promote stops a sandbox, writes its new level down and starts it there. A crash leaves it
// stopped, at the one level or the other, with all its files. The caller holds op.
func (e *Engine) promote(ctx context.Context, b *box, to bailey.Isolation) error {
	from := b.record().Sandbox.Isolation
	reason := b.record().Sandbox.IsolationReason
	ran := b.record().Sandbox.State != api.StateStopped
	began := e.clock.Now()
	if ran {
		end := bailey.End{Reason: bailey.EndPromoted, Detail: "its sandbox was promoted from " + from.String() + " to " + to.String()}
		if _, err := e.stopBox(withEnd(ctx, end), b, false); err != nil {
			return err
		}
	}
	receipt := api.Receipt{Act: "promote", Kept: []string{"files", "environment", "working folder", "policy", "names", "ports", "labels"}, Lost: []string{"memory", "processes"},
		Notes: []string{"it was at the level " + from.String()}}
	if b.record().Memory != nil { // another kernel has no use for it
		if _, err := e.dropMemory(ctx, b); err != nil {
			return err
		}
	}
	e.trace("promote")
	err := e.transition(ctx, b, api.StateStopped, func(r *record) {
		r.Sandbox.Isolation, r.Sandbox.IsolationReason = to, "promoted from "+from.String()
	})
	if err == nil && ran {
		if err = e.resume(ctx, b); err != nil {
			back := context.WithoutCancel(ctx)
			berr := e.transition(back, b, api.StateStopped, func(r *record) { r.Sandbox.Isolation, r.Sandbox.IsolationReason = from, reason })
			if berr == nil && ctx.Err() == nil {
				berr = e.resume(back, b)
			}
			return bailey.Errorf(bailey.CodeOf(err), fmt.Sprintf("promote the sandbox %s to %s", b.id, to), "it is at the level "+from.String()+" still, and its processes have ended", "%w", errors.Join(err, berr))
		}
	}
	if err != nil {
		return err
	}
	e.sign(&receipt, began)
	return e.update(ctx, b, func(r *record) { r.Sandbox.Receipt = &receipt })
}
