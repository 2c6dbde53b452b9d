package engine

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"syscall"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/layers"
)

// holdLayers keeps layers for somebody who is about to stand on them; releaseLayers ends that.
func (e *Engine) holdLayers(ids ...string) {
	e.snaps.mu.Lock()
	defer e.snaps.mu.Unlock()
	for _, id := range ids {
		e.snaps.held[id]++
	}
}

func (e *Engine) releaseLayers(ids ...string) {
	e.snaps.mu.Lock()
	for _, id := range ids {
		if e.snaps.held[id]--; e.snaps.held[id] == 0 {
			delete(e.snaps.held, id)
		}
	}
	e.snaps.mu.Unlock()
	e.collectSoon()
}

// collectSoon removes, in the background, layers that nobody stands on.
func (e *Engine) collectSoon() {
	e.snaps.mu.Lock()
	e.snaps.clean = true
	e.snaps.mu.Unlock()
	e.nudgeSnapshots()
}

// collectLayers removes layers that nobody stands on: no sandbox, no snapshot, and
// nobody who is about to.
func (e *Engine) collectLayers(ctx context.Context) error {
	list, err := e.unusedLayers(ctx)
	if err != nil {
		return err
	}
	for _, id := range list {
		if err := e.layers.Remove(ctx, id); err != nil && bailey.CodeOf(err) != bailey.CodeBusy {
			return err
		}
	}
	return nil
}

// unusedLayers gives the layers that nobody stands on. The list of those there are
// is made first: what is made later is in a row already.
func (e *Engine) unusedLayers(ctx context.Context) ([]string, error) {
	there := map[string]bool{}
	for _, l := range e.layers.All() {
		there[l.ID] = true
	}
	if len(there) == 0 { // so it is after most deletes
		return nil, nil
	}
	heads := map[string]bool{}
	e.snaps.mu.Lock()
	for id := range e.snaps.held {
		heads[id] = true
	}
	e.snaps.mu.Unlock()
	rows, err := e.db.Snapshots(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		d, err := readSnapshot(row)
		if err != nil {
			return nil, err // it may need any of them
		}
		for _, id := range d.heads() {
			heads[id] = true
		}
	}
	boxes, err := e.db.Sandboxes(ctx)
	if err != nil {
		return nil, err
	}
	for _, row := range boxes {
		r, err := readRecord(row)
		if err != nil {
			return nil, err
		}
		for _, root := range r.Roots {
			heads[root.Chain], heads[root.Base] = true, true
		}
		if r.Act != nil && r.Act.Kind == actSeal { // they may be all that there is of its files
			var plan sealing
			if err := json.Unmarshal(r.Act.Data, &plan); err != nil {
				return nil, err
			}
			for _, id := range plan.Layers {
				heads[id] = true
			}
		}
	}
	e.snaps.mu.Lock()
	for id := range e.snaps.held {
		heads[id] = true
	}
	e.snaps.mu.Unlock()
	return slices.DeleteFunc(e.layers.Unused(heads), func(id string) bool { return !there[id] }), nil
}

// layerIDs says how owners of files in a root are those inside.
func (e *Engine) layerIDs(r *record, root root) layers.IDs {
	uids, gids := linux.LayerIDs(r.Sandbox.Isolation, r.Account, root.HostIDs)
	return layers.IDs{UID: ranges(uids), GID: ranges(gids)}
}

func ranges(list [][3]int) []layers.IDRange {
	var out []layers.IDRange
	for _, r := range list {
		out = append(out, layers.IDRange{Disk: uint32(r[0]), Inside: uint32(r[1]), Count: uint32(r[2])})
	}
	return out
}

// sameLook says whether two folders have the same mode and owner.
func sameLook(a, b os.FileInfo) bool {
	x, ok1 := a.Sys().(*syscall.Stat_t)
	y, ok2 := b.Sys().(*syscall.Stat_t)
	return ok1 && ok2 && x.Mode == y.Mode && x.Uid == y.Uid && x.Gid == y.Gid
}
