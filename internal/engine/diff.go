package engine

import (
	"context"
	"path"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/layers"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// Diff calls each with what changed between two snapshots or checkpoints of a
// sandbox; from "" is what it started from, to "" is now. Of a sandbox that runs,
// now is a moving thing. Files that Bailey itself has written, and nobody else since,
// are no changes.
func (e *Engine) Diff(ctx context.Context, who Caller, ref, from, to string, each func(api.Change) error) error {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return err
	}
	a, heads, err := e.statesAt(ctx, who, b, from, true)
	if err != nil {
		return err
	}
	e.holdLayers(heads...)
	defer e.releaseLayers(heads...)
	z, more, err := e.statesAt(ctx, who, b, to, false)
	if err != nil {
		return err
	}
	e.holdLayers(more...)
	defer e.releaseLayers(more...)
	var targets []string
	for target := range z {
		targets = append(targets, target)
	}
	slices.Sort(targets)
	seeds := b.record().Seeds
	for _, target := range targets {
		err := e.layers.Diff(ctx, a[target], z[target], func(c api.Change) error {
			c.Path = path.Join(target, c.Path)
			if target == "/" && c.NewHash != "" && seeds[c.Path] == strings.TrimPrefix(c.NewHash, "sha256:") {
				return nil // as Bailey has written it
			}
			return each(c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// statesAt gives what a sandbox's places hold at a snapshot, or where ref is "" at
// its start or now, and the layers that must stay for it.
func (e *Engine) statesAt(ctx context.Context, who Caller, b *box, ref string, start bool) (map[string]layers.State, []string, error) {
	r := b.record()
	var d *snapDoc
	if ref != "" {
		var err error
		if d, err = e.snapshotIn(ctx, who, b, ref); err != nil {
			return nil, nil, err
		}
	}
	states := map[string]layers.State{}
	var heads []string
	for _, root := range r.Roots {
		st := layers.State{Ground: root.Ground, Layer: root.Chain}
		switch {
		case d != nil:
			st.Layer = ""
			for _, at := range d.Roots {
				if at.Target == root.Target {
					st.Layer = at.Chain
				}
			}
		case start:
			st.Layer = root.Base
		default:
			if written, err := e.written(b, root); err != nil {
				return nil, nil, err
			} else if written {
				st.Upper = b.upper(root.N)
			}
		}
		heads = append(heads, st.Layer)
		states[root.Target] = st
	}
	return states, heads, nil
}

// snapshotIn gives a snapshot that the sandbox's files can be compared with or
// taken back to: one of its own, or of another sandbox of its lineage.
func (e *Engine) snapshotIn(ctx context.Context, who Caller, b *box, ref string) (*snapDoc, error) {
	if d, err := e.checkpointNamed(ctx, b, ref); d != nil || err != nil {
		return d, err
	}
	d, err := e.findSnapshot(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	if d.Snapshot.Sandbox != b.id && d.Lineage != b.record().Sandbox.Lineage {
		return nil, bailey.Errorf(bailey.CodeUsage, "use the snapshot "+d.Snapshot.ID+" with the sandbox "+b.id, "name one of its own", "it is of another sandbox")
	}
	return d, nil
}

// checkpointNamed finds a checkpoint of the sandbox's own by what it was before: an
// exec's id. nil is none.
func (e *Engine) checkpointNamed(ctx context.Context, b *box, exec string) (*snapDoc, error) {
	docs, err := e.checkpoints(ctx, b)
	if err != nil {
		return nil, err
	}
	for _, d := range docs {
		if d.Snapshot.Exec == exec {
			return d, nil
		}
	}
	return nil, nil
}

// checkpoints gives a sandbox's checkpoints, the oldest first.
func (e *Engine) checkpoints(ctx context.Context, b *box) ([]*snapDoc, error) {
	docs, err := e.snapshotDocs(ctx, b.id)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(docs, func(d *snapDoc) bool {
		return !d.Snapshot.Checkpoint || d.Silent || d.State != state.SnapshotReady
	}), nil
}
