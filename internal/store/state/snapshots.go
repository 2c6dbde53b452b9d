package state

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// The states of a snapshot.
const (
	SnapshotMaking = "making" // nobody has been told of it
	SnapshotReady  = "ready"
	SnapshotGone   = "gone" // deleted or expired
)

// Snapshot is the row of a snapshot. Doc is what the engine knows about it.
type Snapshot struct {
	ID         string
	Name       string // "" for none
	Sandbox    string
	Owner      string
	State      string
	Checkpoint bool
	Created    time.Time
	Gone       *time.Time // when it went
	Doc        []byte
}

// PutSnapshot writes a snapshot's row, new or not. The name of one that has gone is
// free for another. A name that another has is an error with code conflict.
func PutSnapshot(ctx context.Context, tx *sql.Tx, s Snapshot) error {
	var name, gone any
	if s.Name != "" && s.State != SnapshotGone {
		name = s.Name
	}
	if s.Gone != nil {
		gone = s.Gone.UnixNano()
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO snapshots (id, name, sandbox, owner, state, checkpoint, created, gone, doc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = excluded.state, gone = excluded.gone, doc = excluded.doc`,
		s.ID, name, s.Sandbox, s.Owner, s.State, s.Checkpoint, s.Created.UnixNano(), gone, string(s.Doc))
	if err != nil && strings.Contains(err.Error(), "snapshots.name") {
		return bailey.Errorf(bailey.CodeConflict, "name the snapshot "+s.Name, "choose another name, or delete that one", "another snapshot has that name")
	}
	if err != nil {
		return storage("write", err)
	}
	return nil
}

// DropSnapshot removes a snapshot's row as if it had never been.
func DropSnapshot(ctx context.Context, tx *sql.Tx, id string) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM snapshots WHERE id = ?`, id); err != nil {
		return storage("write", err)
	}
	return nil
}

// ForgetSnapshots removes the rows of snapshots that went before the time.
func ForgetSnapshots(ctx context.Context, tx *sql.Tx, before time.Time) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM snapshots WHERE state = 'gone' AND gone < ?`, before.UnixNano()); err != nil {
		return storage("write", err)
	}
	return nil
}

const snapshotColumns = `id, COALESCE(name, ''), sandbox, owner, state, checkpoint, created, gone, doc`

// Snapshots gives the rows of all snapshots that have not gone, of one sandbox or
// with "" of all, the oldest first.
func (db *DB) Snapshots(ctx context.Context, sandbox string) ([]Snapshot, error) {
	if sandbox == "" {
		return db.snapshots(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE state <> 'gone' ORDER BY created, id`)
	}
	return db.snapshots(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE sandbox = ? AND state <> 'gone' ORDER BY created, id`, sandbox)
}

// FindSnapshots gives at most two rows of snapshots, gone ones among them, that ref
// names: the one whose id or name it is alone, otherwise those whose id begins so.
func (db *DB) FindSnapshots(ctx context.Context, ref string) ([]Snapshot, error) {
	if ref == "" {
		return nil, nil
	}
	list, err := db.snapshots(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE id = ? OR name = ? ORDER BY id = ? DESC LIMIT 1`, ref, ref, ref)
	if len(list) > 0 || err != nil {
		return list, err
	}
	return db.snapshots(ctx, `SELECT `+snapshotColumns+` FROM snapshots WHERE id >= ? AND id < ? ORDER BY id LIMIT 2`, ref, ref+"\U0010FFFF")
}

func (db *DB) snapshots(ctx context.Context, query string, args ...any) (list []Snapshot, err error) {
	rows, err := db.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s Snapshot
		var created int64
		var gone sql.NullInt64
		var doc string
		if err := rows.Scan(&s.ID, &s.Name, &s.Sandbox, &s.Owner, &s.State, &s.Checkpoint, &created, &gone, &doc); err != nil {
			return nil, storage("read", err)
		}
		s.Created, s.Doc = time.Unix(0, created).UTC(), []byte(doc)
		if gone.Valid {
			t := time.Unix(0, gone.Int64).UTC()
			s.Gone = &t
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}
