package state

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Exec is the row of an exec. Doc is what the engine knows about it.
type Exec struct {
	Sandbox, ID string
	Open        bool // it has not ended, or something may still write its output
	Started     time.Time
	Ended       *time.Time // nil until it has
	Size        int64      // bytes of output that are kept once it is not open
	Doc         []byte
}

// ErrExecID says that the sandbox has an exec of that id.
var ErrExecID = errors.New("the sandbox has an exec of that id")

// AddExec writes the row of a new exec. One whose id the sandbox knows is
// ErrExecID.
func AddExec(ctx context.Context, tx *sql.Tx, x Exec) error {
	res, err := tx.ExecContext(ctx, `INSERT INTO execs (sandbox, id, open, started, ended, size, doc) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
		x.Sandbox, x.ID, x.Open, x.Started.UnixNano(), nanos(x.Ended), x.Size, string(x.Doc))
	if err != nil {
		return storage("write", err)
	}
	if n, err := res.RowsAffected(); err != nil {
		return storage("write", err)
	} else if n == 0 {
		return ErrExecID
	}
	return nil
}

// PutExec writes what has become of an exec.
func PutExec(ctx context.Context, tx *sql.Tx, x Exec) error {
	_, err := tx.ExecContext(ctx, `UPDATE execs SET open = ?, ended = ?, size = ?, doc = ? WHERE sandbox = ? AND id = ?`,
		x.Open, nanos(x.Ended), x.Size, string(x.Doc), x.Sandbox, x.ID)
	if err != nil {
		return storage("write", err)
	}
	return nil
}

// DeleteExec takes the row of an exec back.
func (db *DB) DeleteExec(ctx context.Context, sandbox, id string) error {
	return db.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM execs WHERE sandbox = ? AND id = ?`, sandbox, id); err != nil {
			return storage("write", err)
		}
		return nil
	})
}

const execColumns = `sandbox, id, open, started, ended, size, doc`

// ExecOf gives the row of an exec; ok is false when there is none.
func (db *DB) ExecOf(ctx context.Context, sandbox, id string) (x Exec, ok bool, err error) {
	list, err := execs(ctx, db.read, `SELECT `+execColumns+` FROM execs WHERE sandbox = ? AND id = ?`, sandbox, id)
	if err != nil || len(list) == 0 {
		return x, false, err
	}
	return list[0], true, nil
}

// Execs gives the rows of a sandbox's execs, the oldest first.
func (db *DB) Execs(ctx context.Context, sandbox string) ([]Exec, error) {
	return execs(ctx, db.read, `SELECT `+execColumns+` FROM execs WHERE sandbox = ? ORDER BY started, id`, sandbox)
}

// OpenExecs gives the rows of all execs that are open.
func (db *DB) OpenExecs(ctx context.Context) ([]Exec, error) {
	return execs(ctx, db.read, `SELECT `+execColumns+` FROM execs WHERE open = 1 ORDER BY sandbox, started, id`)
}

// KeptOutput gives how many bytes of output are kept of a sandbox's execs that are
// not open.
func (db *DB) KeptOutput(ctx context.Context, sandbox string) (n int64, err error) {
	err = db.read.QueryRowContext(ctx, `SELECT COALESCE(SUM(size), 0) FROM execs WHERE sandbox = ?`, sandbox).Scan(&n)
	if err != nil {
		return 0, storage("read", err)
	}
	return n, nil
}

// OldestOutput gives the row of the exec that ended first among those of a sandbox
// that are not open and of which output is kept.
func (db *DB) OldestOutput(ctx context.Context, sandbox string) (x Exec, ok bool, err error) {
	list, err := execs(ctx, db.read, `SELECT `+execColumns+` FROM execs WHERE sandbox = ? AND open = 0 AND size > 0 ORDER BY ended, id LIMIT 1`, sandbox)
	if err != nil || len(list) == 0 {
		return x, false, err
	}
	return list[0], true, nil
}

// ForgetExecs removes the rows of at most limit execs that ended before the time
// and are not open, and gives them.
func (db *DB) ForgetExecs(ctx context.Context, before time.Time, limit int) (list []Exec, err error) {
	err = db.Update(ctx, func(tx *sql.Tx) error {
		list, err = execs(ctx, tx, `DELETE FROM execs WHERE (sandbox, id) IN (SELECT sandbox, id FROM execs WHERE ended < ? AND open = 0 ORDER BY ended LIMIT ?) RETURNING `+execColumns,
			before.UnixNano(), limit)
		return err
	})
	return list, err
}

func execs(ctx context.Context, q interface {
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
}, query string, args ...any) (list []Exec, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var x Exec
		var started int64
		var ended sql.NullInt64
		var doc string
		if err := rows.Scan(&x.Sandbox, &x.ID, &x.Open, &started, &ended, &x.Size, &doc); err != nil {
			return nil, storage("read", err)
		}
		x.Started, x.Doc = time.Unix(0, started).UTC(), []byte(doc)
		if ended.Valid {
			t := time.Unix(0, ended.Int64).UTC()
			x.Ended = &t
		}
		list = append(list, x)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

// nanos is a time for a column that may be NULL.
func nanos(t *time.Time) any {
	if t == nil {
		return nil
	}
	return t.UnixNano()
}
