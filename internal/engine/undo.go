package engine

import (
	"context"
	"database/sql"
	"errors"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/layers"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// Undo takes a sandbox's files back to a checkpoint or snapshot, by default the last
// checkpoint at which they were something else. What is taken back is kept as a
// checkpoint, to which another undo can go. While processes live it is an error with
// code busy, unless req.Kill says to end them.
func (e *Engine) Undo(ctx context.Context, who Caller, ref string, req api.UndoRequest) (api.Receipt, error) {
	const what = "take files back"
	if req.Steps < 0 || req.Steps > maxCheckpoints || req.Steps > 0 && req.To != "" {
		return api.Receipt{}, bailey.Errorf(bailey.CodeUsage, what, "name a checkpoint, or say how many steps, 1 to 256", "%d steps to %q make no sense", req.Steps, req.To)
	}
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Receipt{}, err
	}
	if err := b.begin(ctx); err != nil {
		return api.Receipt{}, err
	}
	defer b.done()
	began := e.clock.Now()
	to, err := e.undoTarget(ctx, who, b, req)
	if err != nil {
		return api.Receipt{}, err
	}
	heads := to.heads()
	e.holdLayers(heads...)
	defer e.releaseLayers(heads...)
	verified := true
	for _, root := range to.Roots {
		ok, err := e.layers.Verify(ctx, root.Chain, false)
		if err != nil {
			return api.Receipt{}, err
		}
		verified = verified && ok
	}
	if g := b.generation(); g != nil && !req.Kill && b.record().Sandbox.State == api.StateRunning {
		wait, cancel := context.WithTimeout(ctx, usesWithin)
		defer cancel()
		reopen, err := b.drain(wait)
		if err != nil {
			return api.Receipt{}, err
		}
		defer reopen()
		busy, err := e.busy(ctx, g)
		if err != nil {
			return api.Receipt{}, err
		}
		if busy {
			return api.Receipt{}, bailey.Errorf(bailey.CodeBusy, what+" in the sandbox "+b.id, "end its processes, or have them killed with kill", "processes are alive that would see their files change")
		}
	}
	if b.record().Memory != nil { // it does not fit other files
		if !req.Kill {
			return api.Receipt{}, bailey.Errorf(bailey.CodeBusy, what+" in the sandbox "+b.id, "have its processes killed with kill", "processes are in its memory on disk that would see their files change")
		}
		if _, err := e.dropMemory(ctx, b); err != nil {
			return api.Receipt{}, err
		}
	}
	was, err := e.rewind(ctx, b, to)
	if err != nil {
		return api.Receipt{}, err
	}
	receipt := api.Receipt{Act: "undo", Kept: []string{"files of " + to.Snapshot.ID}, Lost: []string{"memory", "processes"}, Method: layers.Sealed,
		Snapshot: to.Snapshot.ID, Hash: to.Snapshot.Hash, HashPending: to.Snapshot.Hash == "", Verified: verified,
		Notes: []string{"what was taken back is kept as the checkpoint " + was.Snapshot.ID}}
	e.sign(&receipt, began)
	err = e.update(ctx, b, func(r *record) { r.Sandbox.Receipt = &receipt })
	if err == nil && receipt.HashPending {
		e.hashSoon(to.Snapshot.ID)
	}
	return receipt, err
}

// rewind seals what there is as a checkpoint, and stands the sandbox on another one.
func (e *Engine) rewind(ctx context.Context, b *box, to *snapDoc) (*snapDoc, error) {
	r := b.record()
	d := e.docOf(r)
	s := &d.Snapshot
	s.Checkpoint, d.Undo = true, true
	plan := sealing{Snapshot: s.ID, Layers: map[int]string{}}
	for _, root := range d.Roots {
		plan.Layers[root.N] = layerID(s.ID, root.N)
		d.Own = append(d.Own, plan.Layers[root.N])
	}
	if err := e.putSnapshot(ctx, &d, nil); err != nil {
		return nil, err
	}
	made, err := e.sealFiles(ctx, b, &d, plan, func(r *record) {
		for i, root := range r.Roots {
			chain := root.Base
			for _, at := range to.Roots {
				if at.Target == root.Target {
					chain = at.Chain
				}
			}
			r.Roots[i].Chain = chain
		}
		r.Seeds = to.Seeds
		r.At, r.Rewound = to.Snapshot.ID, s.Created
	})
	if err != nil {
		return nil, errors.Join(err, e.dropSnapshot(ctx, s.ID))
	}
	s.Receipt = api.Receipt{Act: "checkpoint", Kept: []string{"files"}, Snapshot: s.ID, HashPending: true, Method: methodOf(made)}
	e.sign(&s.Receipt, s.Created)
	d.State = state.SnapshotReady
	if err := e.putSnapshot(ctx, &d, func(tx *sql.Tx) error {
		return state.SetCheckpoint(ctx, tx, b.id, to.Snapshot.ID)
	}); err != nil {
		return nil, err
	}
	e.afterSnapshot(b, &d)
	return &d, nil
}

// undoTarget finds what an undo goes to.
func (e *Engine) undoTarget(ctx context.Context, who Caller, b *box, req api.UndoRequest) (*snapDoc, error) {
	if req.To != "" {
		return e.snapshotIn(ctx, who, b, req.To)
	}
	docs, err := e.checkpoints(ctx, b)
	if err != nil {
		return nil, err
	}
	r := b.record()
	// Those that came after the one that it was taken back to were taken back too;
	// what was made since then counts.
	var list []*snapDoc
	back := false
	for _, d := range docs {
		if !d.Undo && (!back || d.Snapshot.Created.After(r.Rewound)) {
			list = append(list, d)
		}
		back = back || d.Snapshot.ID == r.At
	}
	steps := max(req.Steps, 1)
	if same, err := e.unchanged(b, list); err != nil {
		return nil, err
	} else if same {
		list = list[:len(list)-1]
	}
	if len(list) < steps {
		return nil, bailey.Errorf(bailey.CodeNotFound, "take files back in the sandbox "+b.id, "`bailey checkpoint` makes one", "it has only %d checkpoints at which they were something else", len(list))
	}
	return list[len(list)-steps], nil
}

// unchanged says whether nothing was written since the last of the checkpoints.
func (e *Engine) unchanged(b *box, list []*snapDoc) (bool, error) {
	if len(list) == 0 {
		return false, nil
	}
	last := map[string]string{}
	for _, root := range list[len(list)-1].Roots {
		last[root.Target] = root.Chain
	}
	for _, root := range b.record().Roots {
		if written, err := e.written(b, root); written || err != nil || last[root.Target] != root.Chain {
			return false, err
		}
	}
	return true, nil
}
