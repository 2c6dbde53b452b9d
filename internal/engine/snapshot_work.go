package engine

import (
	"context"
	"database/sql"

	"slices"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

const (
	// flattenFrom is the length of a chain from which on it is flattened in the
	// background; what is sealed afterwards stands on the flat layer.
	flattenFrom = 32
	// flattenNow is the length at which nothing is sealed before that is done.
	flattenNow = 56
	// maxCheckpoints is how many checkpoints a sandbox keeps.
	maxCheckpoints = 256
	// keepGone is how long it is remembered that a snapshot has gone.
	keepGone = 30 * 24 * time.Hour
)

// snaps is the engine's part for snapshots.
type snaps struct {
	writing sync.Mutex // held from a snapshot's row to the next

	mu     sync.Mutex
	held   map[string]int                                  // layers that somebody is about to stand on
	timers map[string]func() bool                          // of snapshots that expire
	todo   []string                                        // snapshots to be hashed
	stops  []string                                        // stopped sandboxes whose files are to be hashed
	tries  map[string]int                                  // of hashing that failed, by snapshot or sandbox
	hash   func(context.Context, *snapDoc) (string, error) // hashOf, or what a test has instead
	wake   chan struct{}                                   // something is to be done
	clean  bool                                            // layers may have become of no use
}

func (e *Engine) openSnapshots(ctx context.Context) error {
	e.snaps.held, e.snaps.timers, e.snaps.wake = map[string]int{}, map[string]func() bool{}, make(chan struct{}, 1)
	e.snaps.tries, e.snaps.hash = map[string]int{}, e.hashOf
	if e.hooks.acts == nil {
		e.hooks.acts = map[string]func(context.Context, *box, act) error{}
	}
	e.hooks.acts[actSeal] = e.goOnSealing
	e.hooks.gone = append(e.hooks.gone, e.checkpointsGone)
	e.hooks.restarting = append(e.hooks.restarting, e.verifyRestart)
	e.hooks.told = append(e.hooks.told, func(_ *box, before, after *record) {
		if before != nil && after.Sandbox.State == api.StateEnded {
			e.collectSoon()
		}
	})
	e.hooks.opened = append(e.hooks.opened, e.startSnapshots)
	e.hooks.closing = append(e.hooks.closing, func() {
		e.snaps.mu.Lock()
		defer e.snaps.mu.Unlock()
		for _, stop := range e.snaps.timers {
			stop()
		}
		e.snaps.timers = nil
	})
	return nil
}

// startSnapshots takes back snapshots that a crash has interrupted, and goes on
// with what is done in the background.
func (e *Engine) startSnapshots(ctx context.Context) error {
	docs, err := e.snapshotDocs(ctx, "")
	if err != nil {
		return err
	}
	err = e.db.Update(ctx, func(tx *sql.Tx) error {
		for _, d := range docs {
			if d.State == state.SnapshotMaking {
				if err := state.DropSnapshot(ctx, tx, d.Snapshot.ID); err != nil {
					return err
				}
			}
		}
		return state.ForgetSnapshots(ctx, tx, e.clock.Now().Add(-keepGone))
	})
	if err != nil {
		return err
	}
	for _, b := range e.list() {
		if r := b.record(); r.Sandbox.State == api.StateStopped && r.Sandbox.Receipt != nil && r.Sandbox.Receipt.HashPending {
			e.snaps.stops = append(e.snaps.stops, b.id)
		}
	}
	for _, d := range docs {
		if d.State != state.SnapshotReady {
			continue
		}
		e.expireSnapshot(d)
		if d.Snapshot.Receipt.HashPending {
			e.snaps.todo = append(e.snaps.todo, d.Snapshot.ID)
		}
	}
	e.snaps.clean = true
	e.nudgeSnapshots()
	e.spawn(e.attendSnapshots)
	return nil
}

// nudgeSnapshots tells the worker that there is something to do.
func (e *Engine) nudgeSnapshots() {
	select {
	case e.snaps.wake <- struct{}{}:
	default:
	}
}

// attendSnapshots hashes snapshots and removes layers that nobody stands on, one after the
// other: nobody waits for it.
func (e *Engine) attendSnapshots(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.snaps.wake:
		}
		for ctx.Err() == nil {
			e.snaps.mu.Lock()
			id, stop, clean := "", "", e.snaps.clean
			e.snaps.clean = false
			if len(e.snaps.todo) > 0 {
				id, e.snaps.todo = e.snaps.todo[0], e.snaps.todo[1:]
			}
			if len(e.snaps.stops) > 0 {
				stop, e.snaps.stops = e.snaps.stops[0], e.snaps.stops[1:]
			}
			e.snaps.mu.Unlock()
			if id == "" && stop == "" && !clean {
				break
			}
			if clean {
				if err := e.collectLayers(ctx); err != nil && ctx.Err() == nil {
					e.log.Error("remove layers", "error", err)
				}
				if err := e.forgetLineages(ctx); err != nil && ctx.Err() == nil {
					e.log.Error("destroy certificate authorities that nobody needs", "error", err)
				}
			}
			if id != "" {
				if err := e.hashSnapshot(ctx, id); err != nil && ctx.Err() == nil {
					e.log.Error("hash a snapshot", "snapshot", id, "error", err)
				}
			}
			if stop != "" {
				if err := e.hashStop(ctx, stop); err != nil && ctx.Err() == nil {
					e.log.Error("hash the files of a stopped sandbox", "sandbox", stop, "error", err)
				}
			}
		}
	}
}

// afterSnapshot does what follows a snapshot: its hash, a flatter chain, fewer checkpoints.
func (e *Engine) afterSnapshot(b *box, d *snapDoc) {
	if !d.Silent { // what starts from it must be there before it goes: see forkPoint
		e.hashSoon(d.Snapshot.ID)
	}
	for _, root := range b.record().Roots {
		e.flattenSoon(root.Chain)
	}
	if d.Snapshot.Checkpoint {
		e.spawn(func(ctx context.Context) { e.pruneCheckpoints(ctx, b.id) })
	}
}

// hashSoon has a snapshot's content hashed in the background, and the receipts of what
// started from it completed. Whoever writes a receipt whose hash is pending calls it
// afterwards: what was hashed before then has not seen the receipt.
func (e *Engine) hashSoon(id string) {
	e.snaps.mu.Lock()
	e.snaps.todo = append(e.snaps.todo, id)
	e.snaps.mu.Unlock()
	e.nudgeSnapshots()
}

// flattenSoon has a chain flattened in the background if it has become long.
func (e *Engine) flattenSoon(head string) {
	if chain, err := e.layers.Chain(head); err != nil || len(chain) < flattenFrom || e.layers.FlatOf(head) != "" {
		return
	}
	e.holdLayers(head)
	e.spawn(func(ctx context.Context) {
		defer e.releaseLayers(head)
		e.flatten(ctx, head)
	})
}

// flattenFirst flattens chains on which nothing may be put before that is done.
func (e *Engine) flattenFirst(ctx context.Context, roots []root) error {
	for _, root := range roots {
		if chain, err := e.layers.Chain(root.Chain); err != nil || len(chain) < flattenNow || e.layers.FlatOf(root.Chain) != "" {
			continue
		}
		if _, err := e.layers.Flatten(ctx, root.Chain, "flat-"+newID()); err != nil && e.layers.FlatOf(root.Chain) == "" {
			return err
		}
	}
	return nil
}

// flatten makes one layer of a chain, so that what comes next stands on that.
func (e *Engine) flatten(ctx context.Context, head string) {
	if _, err := e.layers.Flatten(ctx, head, "flat-"+newID()); err != nil && ctx.Err() == nil {
		e.log.Error("flatten layers", "layer", head, "error", err)
	}
}

// pruneCheckpoints lets the oldest checkpoints of a sandbox go if there are too many.
func (e *Engine) pruneCheckpoints(ctx context.Context, sandbox string) {
	docs, err := e.snapshotDocs(ctx, sandbox)
	if err != nil {
		return
	}
	docs = slices.DeleteFunc(docs, func(d *snapDoc) bool { return !d.Snapshot.Checkpoint || d.State != state.SnapshotReady })
	for i := 0; i < len(docs)-maxCheckpoints; i++ {
		if err := e.removeSnapshot(ctx, docs[i].Snapshot.ID, false); err != nil && bailey.CodeOf(err) != bailey.CodeConflict {
			e.log.Error("remove a checkpoint", "snapshot", docs[i].Snapshot.ID, "error", err)
		}
	}
}

// checkpointsGone lets a sandbox's checkpoints go with it, but those that a session
// would go on from.
func (e *Engine) checkpointsGone(ctx context.Context, b *box) error {
	docs, err := e.snapshotDocs(ctx, b.id)
	if err != nil {
		return err
	}
	for _, d := range docs {
		if !d.Snapshot.Checkpoint {
			continue
		}
		if err := e.removeSnapshot(ctx, d.Snapshot.ID, false); err != nil && bailey.CodeOf(err) != bailey.CodeConflict {
			return err
		}
	}
	return nil
}

// expireSnapshot has a snapshot go when its time has come.
func (e *Engine) expireSnapshot(d *snapDoc) {
	if d.Snapshot.Expires == nil {
		return
	}
	id := d.Snapshot.ID
	e.snaps.mu.Lock()
	defer e.snaps.mu.Unlock()
	if e.snaps.timers == nil {
		return
	}
	e.snaps.timers[id] = e.clock.AfterFunc(max(d.Snapshot.Expires.Sub(e.clock.Now()), 0), func() {
		e.snaps.mu.Lock()
		open := e.snaps.timers != nil
		if open {
			delete(e.snaps.timers, id)
			e.spawn(func(ctx context.Context) {
				if err := e.removeSnapshot(ctx, id, true); err != nil && ctx.Err() == nil {
					e.log.Error("let a snapshot expire", "snapshot", id, "error", err)
				}
			})
		}
		e.snaps.mu.Unlock()
	})
}

// snapshotDigests gives the images that snapshots stand on, and which ones do: they
// hold them as sandboxes do.
func (e *Engine) snapshotDigests(ctx context.Context) (map[string][]string, error) {
	rows, err := e.db.Snapshots(ctx, "")
	if err != nil {
		return nil, err
	}
	holders := map[string][]string{}
	for _, row := range rows {
		d, err := readSnapshot(row)
		if err != nil {
			return nil, err
		}
		if d.Digest != "" {
			holders[d.Digest] = append(holders[d.Digest], d.Snapshot.ID)
		}
	}
	return holders, nil
}

// verifyRestart compares the layers that a sandbox stands on with what they were
// before it starts anew. The error names what is missing or changed.
func (e *Engine) verifyRestart(ctx context.Context, b *box, receipt *api.Receipt) error {
	verified, any := true, false
	for _, root := range b.record().Roots {
		if root.Chain == "" {
			continue
		}
		any = true
		ok, err := e.layers.Verify(ctx, root.Chain, false)
		if err != nil {
			return err
		}
		verified = verified && ok
	}
	receipt.Verified = verified && any
	if last := b.record().Sandbox.Receipt; receipt.Verified && last != nil && last.Act == "stop" {
		receipt.Hash = last.Hash
	}
	return nil
}
