package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/layers"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// actSeal is the act of making the upper folders of a sandbox layers; its data is
// a sealing.
const actSeal = "seal"

// sealing says which layer each root's upper folder becomes.
type sealing struct {
	Snapshot string         `json:"snapshot"`
	Layers   map[int]string `json:"layers"` // by root.N
	// Memory is to be put on disk before, where it is a stop.
	Memory bool `json:"memory,omitempty"`
}

// wanted is what a snapshot is to be.
type wanted struct {
	name       string
	labels     map[string]string
	expires    api.Lifetime
	checkpoint bool
	exec       string
	undo       bool
	silent     bool
	act        string // of the receipt
}

// Snapshot freezes the files of a sandbox, running, paused or stopped. Memory is
// not_available at the levels that are there.
func (e *Engine) Snapshot(ctx context.Context, who Caller, ref string, spec api.SnapshotSpec) (api.Snapshot, error) {
	if spec.Memory {
		return api.Snapshot{}, noMemory("snapshot")
	}
	if spec.Name != "" && !nameForm.MatchString(spec.Name) {
		return api.Snapshot{}, bailey.Errorf(bailey.CodeUsage, "take a snapshot", "use letters, digits, dots, dashes and underscores, at most 63", "%.80q cannot be a name", spec.Name)
	}
	if err := checkLabels("take a snapshot", spec.Labels); err != nil {
		return api.Snapshot{}, err
	}
	return e.takeSnapshot(ctx, who, ref, wanted{name: spec.Name, labels: spec.Labels, expires: spec.Expires, act: "snapshot"})
}

// Checkpoint makes a cheap snapshot for Diff and Undo.
func (e *Engine) Checkpoint(ctx context.Context, who Caller, ref, name string) (api.Snapshot, error) {
	if name != "" && !nameForm.MatchString(name) {
		return api.Snapshot{}, bailey.Errorf(bailey.CodeUsage, "make a checkpoint", "use letters, digits, dots, dashes and underscores, at most 63", "%.80q cannot be a name", name)
	}
	return e.takeSnapshot(ctx, who, ref, wanted{name: name, checkpoint: true, act: "checkpoint"})
}

// checkpointBefore makes the checkpoint before an exec.
func (e *Engine) checkpointBefore(ctx context.Context, who Caller, ref, exec string) (api.Snapshot, error) {
	return e.takeSnapshot(ctx, who, ref, wanted{checkpoint: true, exec: exec, act: "checkpoint"})
}

func noMemory(what string) error {
	return bailey.Errorf(bailey.CodeNotAvailable, what+" memory", "leave memory out: files are kept at this level", "levels that run on the host's kernel keep files only")
}

func checkLabels(what string, labels map[string]string) error {
	if len(labels) > maxLabels {
		return bailey.Errorf(bailey.CodeUsage, what, "use at most 64 labels", "there are too many of them")
	}
	for k, v := range labels {
		if k == "" || len(k) > 128 || len(v) > 1024 {
			return bailey.Errorf(bailey.CodeUsage, what, "use keys of 1 to 128 bytes and values of at most 1024", "the label %.40q is too long", k)
		}
	}
	return nil
}

// takeSnapshot takes a snapshot of the sandbox that ref names.
func (e *Engine) takeSnapshot(ctx context.Context, who Caller, ref string, w wanted) (api.Snapshot, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Snapshot{}, err
	}
	if err := b.begin(ctx); err != nil {
		return api.Snapshot{}, err
	}
	defer b.done()
	d, err := e.snapshot(ctx, b, w)
	if err != nil {
		return api.Snapshot{}, err
	}
	return e.tellSnapshot(d), nil
}

// snapshot takes a snapshot. Nobody is told of it before its files are there; what
// a crash leaves is nobody's, and is removed at the next start. The caller holds op.
func (e *Engine) snapshot(ctx context.Context, b *box, w wanted) (*snapDoc, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	began := e.clock.Now()
	if g := b.generation(); g != nil && g.ctx.Err() != nil {
		if err := e.settle(ctx, b, g); err != nil {
			return nil, err
		}
	}
	r := b.record()
	switch r.Sandbox.State {
	case api.StateRunning, api.StatePaused, api.StateStopped, api.StateLost:
	case api.StateDeleting, api.StateEnded:
		return nil, endedError("take a snapshot of the sandbox ", r)
	default:
		return nil, bailey.Errorf(bailey.CodeConflict, "take a snapshot of the sandbox "+b.id, "wait until it runs", "it is %s", r.Sandbox.State)
	}
	if err := e.roomLeft(); err != nil {
		return nil, err
	}
	if err := e.flattenFirst(ctx, r.Roots); err != nil {
		return nil, err
	}
	d := e.docOf(r)
	s := &d.Snapshot
	s.Name, s.Labels, s.Checkpoint, s.Exec, d.Undo, d.Silent = w.name, w.labels, w.checkpoint, w.exec, w.undo, w.silent
	if w.expires.After > 0 {
		at := s.Created.Add(time.Duration(w.expires.After))
		s.Expires = &at
	}
	plan := sealing{Snapshot: s.ID, Layers: map[int]string{}}
	for _, root := range d.Roots {
		plan.Layers[root.N] = layerID(s.ID, root.N)
		d.Own = append(d.Own, plan.Layers[root.N])
	}
	e.trace("row snapshot making")
	if err := e.putSnapshot(ctx, &d, nil); err != nil {
		return nil, err
	}
	made, err := e.freezeFiles(ctx, b, &d, plan)
	if err != nil {
		return nil, errors.Join(err, e.dropSnapshot(ctx, s.ID))
	}
	s.Receipt = api.Receipt{Act: w.act, Kept: []string{"files"}, Snapshot: s.ID, HashPending: true, Method: methodOf(made)}
	if state := r.Sandbox.State; state == api.StateRunning || state == api.StatePaused {
		s.Receipt.Lost = []string{"memory", "processes"}
	}
	for _, l := range made {
		s.Receipt.Bytes += l.Bytes
		s.Receipt.Files += l.Files
		s.Bytes += l.Bytes
	}
	s.Layers = e.depth(&d)
	e.sign(&s.Receipt, began)
	d.State = state.SnapshotReady
	e.trace("row snapshot ready")
	err = e.putSnapshot(ctx, &d, func(tx *sql.Tx) error {
		if d.Silent {
			return nil
		}
		if err := state.SetCheckpoint(ctx, tx, b.id, s.ID); err != nil {
			return err
		}
		return e.emitSnapshot(ctx, tx, "snapshot.created", &d)
	})
	if err != nil {
		return nil, err
	}
	e.ring()
	e.expireSnapshot(&d)
	e.afterSnapshot(b, &d)
	return &d, nil
}

func (e *Engine) emitSnapshot(ctx context.Context, tx *sql.Tx, kind string, d *snapDoc) error {
	data, err := json.Marshal(struct {
		ID         string `json:"id"`
		Name       string `json:"name,omitempty"`
		Checkpoint bool   `json:"checkpoint,omitempty"`
	}{d.Snapshot.ID, d.Snapshot.Name, d.Snapshot.Checkpoint})
	if err != nil {
		return err
	}
	return e.emit(ctx, tx, api.Event{Kind: kind, Owner: d.Owner, Sandbox: d.Snapshot.Sandbox, Data: data})
}

// freezeFiles makes the layers of a snapshot: by sealing where no user process is
// alive, else by copying while the sandbox is frozen. It sets d.Roots.
func (e *Engine) freezeFiles(ctx context.Context, b *box, d *snapDoc, plan sealing) ([]layers.Layer, error) {
	g := b.generation()
	frozen := b.record().Sandbox.State == api.StatePaused
	if frozen && g != nil {
		return e.captureFiles(ctx, b, d, plan)
	}
	if g == nil {
		return e.sealFiles(ctx, b, d, plan, nil)
	}
	// Nobody new begins from here on, so that what is quiet stays quiet.
	wait, cancel := context.WithTimeout(ctx, usesWithin)
	defer cancel()
	reopen, err := b.drain(wait)
	if err == nil {
		defer reopen()
		busy, err := e.busy(ctx, g)
		if err == nil && !busy {
			return e.sealFiles(ctx, b, d, plan, nil)
		}
	} else if ctx.Err() != nil {
		return nil, err
	}
	reopen = b.quiet(ctx)
	defer reopen()
	e.trace("freeze for a capture")
	if err := g.instance.Pause(ctx); err != nil {
		g.instance.Resume(context.WithoutCancel(ctx)) // some may have stopped
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "freeze the sandbox "+b.id+" to copy its files", "take the snapshot when no command runs in it", "%w", err)
	}
	made, err := e.captureFiles(ctx, b, d, plan)
	e.trace("thaw after a capture")
	if rerr := g.instance.Resume(context.WithoutCancel(ctx)); rerr != nil {
		err = errors.Join(err, bailey.Errorf(bailey.CodeSandboxLost, "let the sandbox "+b.id+" go on", "delete it", "%w", rerr))
	}
	return made, err
}

// sealFiles makes the upper folders layers. then, when given, changes the record further
// at the same moment.
func (e *Engine) sealFiles(ctx context.Context, b *box, d *snapDoc, plan sealing, then func(*record)) (made []layers.Layer, err error) {
	data, err := json.Marshal(plan)
	if err != nil {
		return nil, err
	}
	var failed error
	err = e.rearrange(ctx, b, act{Kind: actSeal, Data: data}, func(ctx context.Context) (func(*record), error) {
		heads := map[int]string{}
		for i := range d.Roots {
			root := &d.Roots[i]
			l, sealed, err := e.sealRoot(ctx, b, *root, plan.Layers[root.N])
			if err != nil {
				// What has been sealed stays so: it is the same to whoever looks.
				failed = err
				break
			}
			if sealed {
				made = append(made, l)
				root.Chain = l.ID
				heads[root.N] = l.ID
			}
		}
		return func(r *record) {
			for i, root := range r.Roots {
				if head, ok := heads[root.N]; ok {
					r.Roots[i].Chain, r.Roots[i].Fresh = head, true
				}
			}
			if failed == nil && then != nil {
				then(r)
			}
		}, nil
	})
	return made, errors.Join(failed, err)
}

// sealRoot makes a root's upper folder a layer, if there is something in it.
func (e *Engine) sealRoot(ctx context.Context, b *box, root root, id string) (layers.Layer, bool, error) {
	upper := b.upper(root.N)
	written, err := e.written(b, root)
	if err != nil || !written {
		return layers.Layer{}, false, err
	}
	e.trace("seal a root")
	l, err := e.layers.Seal(ctx, id, e.standOn(root), upper, e.layerIDs(b.record(), root))
	return l, err == nil, err
}

// standOn gives the layer that a root's next one stands on: what replaces the chain
// where it has been flattened.
func (e *Engine) standOn(root root) string {
	if flat := e.layers.FlatOf(root.Chain); flat != "" {
		return flat
	}
	return root.Chain
}

// written says whether a root's upper folder says anything: an empty one that looks
// like what it stands on does not.
func (e *Engine) written(b *box, root root) (bool, error) {
	upper := b.upper(root.N)
	f, err := os.Open(upper)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return !errors.Is(err, os.ErrPermission), nil // closed to its owner: it is looked into by whoever seals it
	}
	defer f.Close()
	if names, _ := f.Readdirnames(1); len(names) > 0 {
		return true, nil
	}
	below := ""
	if root.Chain != "" {
		l, err := e.layers.Get(root.Chain)
		if err != nil {
			return false, err
		}
		below = l.Dir
	} else if n := len(root.Ground); n > 0 {
		below = root.Ground[n-1]
	}
	own, err := f.Stat()
	if err != nil {
		return false, err
	}
	ground, err := os.Stat(below)
	return err != nil || !sameLook(own, ground), nil
}

// captureFiles copies the upper folders of a sandbox that is frozen.
func (e *Engine) captureFiles(ctx context.Context, b *box, d *snapDoc, plan sealing) (made []layers.Layer, err error) {
	for i := range d.Roots {
		root := &d.Roots[i]
		written, err := e.written(b, *root)
		if err != nil {
			return made, err
		}
		if !written {
			continue
		}
		e.trace("capture a root")
		l, err := e.layers.Capture(ctx, plan.Layers[root.N], e.standOn(*root), b.upper(root.N), e.layerIDs(b.record(), *root))
		if err != nil {
			return made, err
		}
		made = append(made, l)
		root.Chain = l.ID
	}
	return made, nil
}

// methodOf says how files were kept: the most laborious of the ways.
func methodOf(made []layers.Layer) string {
	method := layers.Sealed
	for _, l := range made {
		if l.Method == layers.Copied || l.Method == layers.Reflinked && method == layers.Sealed {
			method = l.Method
		}
	}
	return method
}

// goOnSealing brings record and layers together after a crash in seal: what was
// sealed is sealed.
func (e *Engine) goOnSealing(ctx context.Context, b *box, a act) error {
	var plan sealing
	if err := json.Unmarshal(a.Data, &plan); err != nil {
		return bailey.Errorf(bailey.CodeInternal, "go on with a snapshot of "+b.id, "", "%w", err)
	}
	return e.update(ctx, b, func(r *record) {
		for i, root := range r.Roots {
			id := plan.Layers[root.N]
			if _, err := e.layers.Get(id); id != "" && err == nil {
				r.Roots[i].Chain = id
			}
		}
	})
}

// dropSnapshot takes a snapshot back that nobody was told of.
func (e *Engine) dropSnapshot(ctx context.Context, id string) error {
	err := e.db.Update(context.WithoutCancel(ctx), func(tx *sql.Tx) error { return state.DropSnapshot(ctx, tx, id) })
	e.collectSoon()
	return err
}

// layerID names the layer of a snapshot for a root.
func layerID(snapshot string, n int) string { return snapshot + "." + strconv.Itoa(n) }

// depth is the length of a snapshot's longest chain.
func (e *Engine) depth(d *snapDoc) int {
	longest := 0
	for _, root := range d.Roots {
		if chain, err := e.layers.Chain(root.Chain); err == nil {
			longest = max(longest, len(chain))
		}
	}
	return longest
}

// heads are the layers that a snapshot stands on.
func (d *snapDoc) heads() []string {
	list := slices.Clone(d.Own)
	for _, root := range d.Roots {
		list = append(list, root.Chain, root.Base)
	}
	return list
}
