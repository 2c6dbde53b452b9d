package engine

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

const (
	maxForks = 100
	// forksAtOnce is how many forks are started at the same time.
	forksAtOnce = 4
)

// Fork makes sandboxes that start as this one is now, and returns when all of them
// run: after an error there are none. Files, labels, policy, environment and the
// name table travel along; host name, machine id, leases and grants are new, and so
// is the time that they live.
func (e *Engine) Fork(ctx context.Context, who Caller, ref string, req api.ForkRequest) ([]api.Sandbox, error) {
	const what = "fork a sandbox"
	if req.Memory {
		return nil, noMemory("fork")
	}
	count := req.Count
	if count == 0 {
		count = 1
	}
	if count < 1 || count > maxForks {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "use 1 to 100", "a count of %d is out of range", req.Count)
	}
	if req.Name != "" && (count > 1 || !nameForm.MatchString(req.Name)) {
		return nil, bailey.Errorf(bailey.CodeUsage, what, "name one fork, with letters, digits, dots, dashes and underscores", "%.80q cannot be a name of %d", req.Name, count)
	}
	if err := checkLabels(what, req.Labels); err != nil {
		return nil, err
	}
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	d, release, err := e.forkPoint(ctx, b)
	if err != nil {
		return nil, err
	}
	defer release()
	spec := d.Spec
	spec.Name, spec.Snapshot, spec.Fallback = req.Name, "", ""
	spec.Labels = maps.Clone(spec.Labels)
	if len(req.Labels) > 0 && spec.Labels == nil {
		spec.Labels = map[string]string{}
	}
	maps.Copy(spec.Labels, req.Labels)
	from, err := e.originFrom(ctx, who, d, "fork")
	if err != nil {
		return nil, err
	}
	from.Names = b.dir + "/" + namesFile
	return e.createForks(ctx, who, spec, from, count)
}

// forkPoint takes the snapshot that forks start from. Its layers are kept until
// release, then it is hashed, and goes; nobody is told of it.
func (e *Engine) forkPoint(ctx context.Context, b *box) (*snapDoc, func(), error) {
	if err := b.begin(ctx); err != nil {
		return nil, nil, err
	}
	defer b.done()
	if err := forkable(b.record().Plan); err != nil {
		return nil, nil, err
	}
	d, err := e.snapshot(ctx, b, wanted{checkpoint: true, silent: true, act: "fork"})
	if err != nil {
		return nil, nil, err
	}
	heads := d.heads()
	e.holdLayers(heads...)
	return d, func() {
		e.releaseLayers(heads...)
		e.hashSoon(d.Snapshot.ID)
	}, nil
}

// forkable refuses what cannot be seen by another sandbox: a copy of a workspace
// that lies in the folder of the one it was made for.
func forkable(plan []folder.Root) error {
	for _, r := range plan {
		if r.Mode == folder.ModeCopy {
			return bailey.Errorf(bailey.CodeNotAvailable, "start another sandbox from these files", "keep the workspace on a file system that overlayfs can stand on",
				"the workspace %s was copied for this one", r.Path)
		}
	}
	return nil
}

// originFrom gives what a sandbox starts from that starts from a snapshot.
func (e *Engine) originFrom(ctx context.Context, who Caller, d *snapDoc, act string) (*origin, error) {
	if err := forkable(d.Plan); err != nil {
		return nil, err
	}
	o := &origin{
		Template: d.Template, Image: d.Image, Digest: d.Digest, Parent: d.Snapshot.ID, Lineage: d.Lineage, Rootfs: d.Rootfs, Plan: d.Plan,
		Seeds: d.Seeds, UID: -1, GID: -1, Level: d.Level, LevelReason: d.Reason,
	}
	for _, r := range d.Roots {
		r.Base = r.Chain
		o.Roots = append(o.Roots, r)
	}
	s := d.Snapshot
	o.Receipt = &api.Receipt{Act: act, Time: e.clock.Now().UTC(), Kept: []string{"files", "labels", "policy", "names"}, Lost: []string{"memory", "processes", "leases", "grants"},
		Method: s.Receipt.Method, Snapshot: s.ID, Hash: s.Hash, HashPending: s.Hash == "", Bytes: s.Bytes, Files: s.Receipt.Files, Took: s.Receipt.Took}
	return o, nil
}

// createForks makes sandboxes of one origin: all or none.
func (e *Engine) createForks(ctx context.Context, who Caller, spec api.SandboxSpec, from *origin, count int) ([]api.Sandbox, error) {
	made := make([]api.Sandbox, count)
	errs := make([]error, count)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, forksAtOnce)
	var tasks sync.WaitGroup
	for i := range count {
		slots <- struct{}{}
		if ctx.Err() != nil {
			errs[i] = context.Cause(ctx)
			<-slots
			continue
		}
		tasks.Go(func() {
			defer func() { <-slots }()
			own := *from
			receipt := *from.Receipt
			own.Receipt = &receipt
			if made[i], errs[i] = e.createFrom(ctx, who, spec, &own); errs[i] != nil {
				cancel(errs[i]) // the first one's reason is what the caller can act on
			}
		})
	}
	tasks.Wait()
	if ctx.Err() == nil {
		return made, nil
	}
	err := context.Cause(ctx)
	for i, s := range made {
		if errs[i] == nil && s.ID != "" {
			err = errors.Join(err, e.Delete(context.WithoutCancel(ctx), who, s.ID))
		}
	}
	return nil, err
}
