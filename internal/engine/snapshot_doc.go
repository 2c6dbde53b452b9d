package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// snapDoc is all that is known about one snapshot: a row of the database, in JSON.
// It says what a sandbox that starts from it is made of, whatever has become of
// the one that it was taken of.
type snapDoc struct {
	Snapshot api.Snapshot `json:"snapshot"`
	Owner    string       `json:"owner"`
	State    string       `json:"state"`
	Gone     *time.Time   `json:"gone,omitempty"`
	// Silent: made for forks; it goes once its content is hashed.
	Silent bool `json:"silent,omitempty"`
	// Undo: made by an undo, of what it took back.
	Undo bool `json:"undo,omitempty"`

	Roots   []root          `json:"roots"` // Chain is the snapshot's, of each
	Own     []string        `json:"own"`   // the layers that are made for it
	Spec    api.SandboxSpec `json:"spec"`  // the sandbox's: its policy, labels, environment travel along
	Lineage string          `json:"lineage"`

	Template string            `json:"template,omitempty"`
	Image    string            `json:"image,omitempty"`
	Digest   string            `json:"digest,omitempty"`
	Rootfs   *rootfs.Root      `json:"rootfs,omitempty"`
	Plan     []folder.Root     `json:"plan,omitempty"`
	Seeds    map[string]string `json:"seeds,omitempty"`
	Level    bailey.Isolation  `json:"level"`
	Reason   string            `json:"reason,omitempty"`
	Account  driver.User       `json:"account"` // who its commands are
	// Base: the image below lies beside the layers; see basePath.
	Base bool `json:"base,omitempty"`
	// Imported snapshots find their root file system when they are used.
	Imported bool `json:"imported,omitempty"`
}

// docOf begins the document of a snapshot of a sandbox.
func (e *Engine) docOf(r *record) snapDoc {
	s := r.Sandbox
	spec := r.Spec
	spec.IdempotencyKey, spec.Name = "", ""
	return snapDoc{
		Snapshot: api.Snapshot{ID: newID(), Sandbox: s.ID, Created: e.clock.Now().UTC()},
		Owner:    s.Owner, State: state.SnapshotMaking,
		Roots: slices.Clone(r.Roots), Spec: spec, Lineage: s.Lineage,
		Template: s.Template, Image: s.Image, Digest: r.Digest, Rootfs: r.Rootfs, Plan: r.Plan, Seeds: maps.Clone(r.Seeds),
		Account: r.Account, Level: s.Isolation, Reason: s.IsolationReason,
	}
}

// row gives the document's row.
func (d *snapDoc) row() (state.Snapshot, error) {
	doc, err := json.Marshal(d)
	if err != nil {
		return state.Snapshot{}, bailey.Errorf(bailey.CodeInternal, "write the record of a snapshot", "", "%w", err)
	}
	s := d.Snapshot
	return state.Snapshot{ID: s.ID, Name: s.Name, Sandbox: s.Sandbox, Owner: d.Owner, State: d.State, Checkpoint: s.Checkpoint,
		Created: s.Created, Gone: d.Gone, Doc: doc}, nil
}

// putSnapshot writes a snapshot's row, and more in the same transaction.
func (e *Engine) putSnapshot(ctx context.Context, d *snapDoc, more func(*sql.Tx) error) error {
	row, err := d.row()
	if err != nil {
		return err
	}
	return e.db.Update(context.WithoutCancel(ctx), func(tx *sql.Tx) error {
		if err := state.PutSnapshot(ctx, tx, row); err != nil {
			return err
		}
		if more != nil {
			return more(tx)
		}
		return nil
	})
}

// changeSnapshot changes what is known about a snapshot that has not gone.
func (e *Engine) changeSnapshot(ctx context.Context, id string, change func(*snapDoc)) error {
	e.snaps.writing.Lock()
	defer e.snaps.writing.Unlock()
	rows, err := e.db.FindSnapshots(ctx, id)
	if err != nil {
		return err
	}
	if len(rows) != 1 || rows[0].ID != id || rows[0].State == state.SnapshotGone {
		return nil
	}
	d, err := readSnapshot(rows[0])
	if err != nil {
		return err
	}
	change(d)
	return e.putSnapshot(ctx, d, nil)
}

func readSnapshot(row state.Snapshot) (*snapDoc, error) {
	var d snapDoc
	if err := json.Unmarshal(row.Doc, &d); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "read the snapshot "+row.ID, "", "its row is damaged: %w", err)
	}
	return &d, nil
}

// findSnapshot gives the snapshot that ref names. One that has gone is the error
// snapshot_gone, one that is somebody else's not_found.
func (e *Engine) findSnapshot(ctx context.Context, who Caller, ref string) (*snapDoc, error) {
	rows, err := e.db.FindSnapshots(ctx, ref)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(s state.Snapshot) bool { return !who.may(s.Owner) || s.State == state.SnapshotMaking })
	if len(rows) > 1 {
		return nil, bailey.Errorf(bailey.CodeUsage, "find the snapshot "+ref, "write more of the id", "several ids begin so")
	}
	if len(rows) == 0 {
		return nil, bailey.Errorf(bailey.CodeNotFound, "find the snapshot "+ref, "`bailey snapshot ls` lists them", "there is no such snapshot, or it is not yours")
	}
	d, err := readSnapshot(rows[0])
	if err != nil {
		return nil, err
	}
	if d.State == state.SnapshotGone {
		return nil, goneError(d)
	}
	return d, nil
}

// goneError says when and why a snapshot went.
func goneError(d *snapDoc) error {
	s := d.Snapshot
	why := "it was deleted"
	if s.Expires != nil && d.Gone != nil && !d.Gone.Before(*s.Expires) {
		why = "it has expired at " + s.Expires.Format(time.RFC3339)
	} else if d.Gone != nil {
		why += " at " + d.Gone.Format(time.RFC3339)
	}
	return bailey.Errorf(bailey.CodeSnapshotGone, "use the snapshot "+s.ID, "use another one, or name a fallback", "%s", why)
}
