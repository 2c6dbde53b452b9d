package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Bisect finds the first checkpoint at which a command fails, running it in forks of
// checkpoints: the sandbox itself is not touched. The command has to succeed at Good
// and to fail at Bad, which is now if nothing is said.
func (e *Engine) Bisect(ctx context.Context, who Caller, ref string, req api.BisectRequest) (api.BisectResult, error) {
	const what = "bisect"
	var none api.BisectResult
	if len(req.Args) == 0 || req.Good == "" {
		return none, bailey.Errorf(bailey.CodeUsage, what, "name a checkpoint at which it was good, and a command that tells", "one of them is missing")
	}
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return none, err
	}
	good, err := e.snapshotIn(ctx, who, b, req.Good)
	if err != nil {
		return none, err
	}
	var bad *snapDoc
	if req.Bad == "" {
		d, release, err := e.forkPoint(ctx, b)
		if err != nil {
			return none, err
		}
		defer release()
		bad = d
	} else if bad, err = e.snapshotIn(ctx, who, b, req.Bad); err != nil {
		return none, err
	}
	list, err := e.between(ctx, b, good, bad)
	if err != nil {
		return none, err
	}
	t := trial{e: e, who: who, args: req.Args}
	for _, end := range []struct {
		d    *snapDoc
		fail bool
	}{{list[0], false}, {list[len(list)-1], true}} {
		failed, err := t.run(ctx, end.d)
		if err != nil {
			return none, err
		}
		if failed != end.fail {
			word := map[bool]string{true: "fails", false: "succeeds"}
			return api.BisectResult{Tried: t.tried}, bailey.Errorf(bailey.CodeConflict, what, "name other checkpoints, or another command", "the command %s at %s already", word[failed], end.d.Snapshot.ID)
		}
	}
	// list[low] succeeds and list[high] fails.
	low, high := 0, len(list)-1
	for high-low > 1 {
		middle := (low + high) / 2
		failed, err := t.run(ctx, list[middle])
		if err != nil {
			return none, err
		}
		if failed {
			high = middle
		} else {
			low = middle
		}
	}
	// A checkpoint is made before an exec: what ran between two is that of the first.
	return api.BisectResult{First: list[high].Snapshot.ID, Exec: list[low].Snapshot.Exec, Tried: t.tried}, nil
}

// between gives the checkpoints from good to bad, both included.
func (e *Engine) between(ctx context.Context, b *box, good, bad *snapDoc) ([]*snapDoc, error) {
	docs, err := e.checkpoints(ctx, b)
	if err != nil {
		return nil, err
	}
	list := []*snapDoc{good}
	for _, d := range docs {
		at := d.Snapshot.Created
		if !d.Undo && at.After(good.Snapshot.Created) && at.Before(bad.Snapshot.Created) && d.Snapshot.ID != bad.Snapshot.ID {
			list = append(list, d)
		}
	}
	if !bad.Snapshot.Created.After(good.Snapshot.Created) {
		return nil, bailey.Errorf(bailey.CodeUsage, "bisect", "name the older one as the good one", "%s is not older than %s", good.Snapshot.ID, bad.Snapshot.ID)
	}
	return append(list, bad), nil
}

// trial runs a command at checkpoints.
type trial struct {
	e     *Engine
	who   Caller
	args  []string
	tried []api.BisectStep
}

// run runs the command in a sandbox that starts at d, and says whether it failed.
func (t *trial) run(ctx context.Context, d *snapDoc) (failed bool, err error) {
	for _, s := range t.tried {
		if s.Snapshot == d.Snapshot.ID {
			return s.ExitCode != 0, nil
		}
	}
	heads := d.heads()
	t.e.holdLayers(heads...)
	defer t.e.releaseLayers(heads...)
	from, err := t.e.originFrom(ctx, t.who, d, "fork")
	if err != nil {
		return false, err
	}
	spec := d.Spec
	spec.Name, spec.Snapshot, spec.CheckpointEach, spec.Lease, spec.Queue = "", "", false, nil, 0
	made, err := t.e.createForks(ctx, t.who, spec, from, 1)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, t.e.Delete(context.WithoutCancel(ctx), t.who, made[0].ID)) }()
	x, err := t.e.StartExec(ctx, t.who, made[0].ID, api.ExecSpec{Args: slices.Clone(t.args)})
	if err == nil {
		x, err = t.e.WaitExec(ctx, t.who, made[0].ID, x.ID)
	}
	if err != nil {
		return false, err
	}
	if x.ExitCode == nil || x.End != nil && x.End.Reason == bailey.EndNotStarted {
		return false, bailey.Errorf(bailey.CodeCommandNotFound, "bisect", "name a command that is there", "%q could not be run at %s", t.args[0], d.Snapshot.ID)
	}
	t.tried = append(t.tried, api.BisectStep{Snapshot: d.Snapshot.ID, ExitCode: *x.ExitCode})
	return *x.ExitCode != 0, nil
}
