package engine

import (
	"context"
	"database/sql"
	"os"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// SnapshotOf gives a snapshot by id, the start of exactly one id, or name. One that
// was deleted or has expired is an error with code snapshot_gone that says when.
func (e *Engine) SnapshotOf(ctx context.Context, who Caller, ref string) (api.Snapshot, error) {
	d, err := e.findSnapshot(ctx, who, ref)
	if err != nil {
		return api.Snapshot{}, err
	}
	return e.tellSnapshot(d), nil
}

// Snapshots lists snapshots, of one sandbox or with "" all, the oldest first;
// checkpoints are among them if asked for.
func (e *Engine) Snapshots(ctx context.Context, who Caller, sandbox string, checkpoints bool) ([]api.Snapshot, error) {
	if sandbox != "" {
		_, r, err := e.look(ctx, who, sandbox)
		if err != nil {
			return nil, err
		}
		sandbox = r.Sandbox.ID
	}
	docs, err := e.snapshotDocs(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	list := []api.Snapshot{}
	for _, d := range docs {
		if who.may(d.Owner) && (checkpoints || !d.Snapshot.Checkpoint) && !d.Silent && d.State == state.SnapshotReady {
			list = append(list, e.tellSnapshot(d))
		}
	}
	return list, nil
}

// snapshotDocs gives the snapshots that have not gone, of a sandbox or with "" all,
// the oldest first. A damaged row is in nobody's way.
func (e *Engine) snapshotDocs(ctx context.Context, sandbox string) ([]*snapDoc, error) {
	rows, err := e.db.Snapshots(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	var list []*snapDoc
	for _, row := range rows {
		d, err := readSnapshot(row)
		if err != nil {
			e.log.Error("a snapshot's record", "snapshot", row.ID, "error", err)
			continue
		}
		list = append(list, d)
	}
	return list, nil
}

// tellSnapshot gives what is told of a snapshot.
func (e *Engine) tellSnapshot(d *snapDoc) api.Snapshot {
	s := d.Snapshot
	s.Layers = e.depth(d)
	s.Refs = e.snapshotRefs(d)
	return s
}

// snapshotRefs counts the sandboxes that stand on a layer of the snapshot's own.
func (e *Engine) snapshotRefs(d *snapDoc) int {
	own := map[string]bool{}
	for _, id := range d.Own {
		own[id] = true
	}
	n := 0
	for _, b := range e.list() {
		r := b.record()
		on := r.Sandbox.Parent == d.Snapshot.ID
		for _, root := range r.Roots {
			chain, _ := e.layers.Chain(root.Chain)
			for _, l := range chain {
				on = on || own[l.ID]
			}
		}
		if on {
			n++
		}
	}
	return n
}

// DeleteSnapshot deletes a snapshot; what stands on it goes on. One that has gone
// is no error. A checkpoint from which a session would go on is one with code
// conflict.
func (e *Engine) DeleteSnapshot(ctx context.Context, who Caller, ref string) error {
	d, err := e.findSnapshot(ctx, who, ref)
	if bailey.CodeOf(err) == bailey.CodeSnapshotGone {
		return nil
	}
	if err != nil {
		return err
	}
	return e.removeSnapshot(ctx, d.Snapshot.ID, false)
}

// removeSnapshot lets a snapshot go. pinned says whether a session may lose it.
func (e *Engine) removeSnapshot(ctx context.Context, id string, pinned bool) error {
	now := e.clock.Now().UTC()
	e.snaps.writing.Lock()
	defer e.snaps.writing.Unlock()
	rows, err := e.db.FindSnapshots(ctx, id)
	if err != nil || len(rows) != 1 || rows[0].State == state.SnapshotGone {
		return err
	}
	d, err := readSnapshot(rows[0])
	if err != nil {
		return err
	}
	d.State, d.Gone, d.Snapshot.Deleted = state.SnapshotGone, &now, true
	// When it went is kept; what it was made of is not.
	d.Roots, d.Own, d.Rootfs, d.Plan, d.Seeds, d.Digest, d.Spec = nil, nil, nil, nil, nil, "", api.SandboxSpec{}
	err = e.putSnapshot(ctx, d, func(tx *sql.Tx) error {
		if pins, err := state.PinsCheckpoint(ctx, tx, id); err != nil || pins && !pinned {
			if err == nil {
				err = bailey.Errorf(bailey.CodeConflict, "delete the snapshot "+id, "close the session first", "a session would go on from it")
			}
			return err
		}
		if d.Silent {
			return nil
		}
		return e.emitSnapshot(ctx, tx, "snapshot.deleted", d)
	})
	if err != nil {
		return err
	}
	e.ring()
	e.collectSoon()
	if d.Base {
		os.Remove(e.basePath(id)) // what stands on it has its layers
	}
	return nil
}
