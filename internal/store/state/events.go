package state

import (
	"context"
	"database/sql"
	"time"

	"github.com/bailey-sandbox/bailey/api"
)

// KeptEvents is how many events are kept at least; older ones are removed.
const KeptEvents = 100_000

// trimEach is after how many new events old ones are removed.
const trimEach = 1000

// PutEvent appends an event and gives its number. Numbers rise and are never used
// again; a transaction that is taken back may leave a gap.
func PutEvent(ctx context.Context, tx *sql.Tx, ev api.Event) (seq int64, err error) {
	res, err := tx.ExecContext(ctx, `INSERT INTO events (time, kind, owner, sandbox, data) VALUES (?, ?, ?, ?, ?)`,
		ev.Time.UnixNano(), ev.Kind, ev.Owner, ev.Sandbox, string(ev.Data))
	if err == nil {
		seq, err = res.LastInsertId()
	}
	if err == nil && seq%trimEach == 0 {
		_, err = tx.ExecContext(ctx, `DELETE FROM events WHERE seq <= ?`, seq-KeptEvents)
	}
	if err != nil {
		return 0, storage("write", err)
	}
	return seq, nil
}

// Events gives at most limit events with numbers from seq on, in order. Those of
// one owner, or with all of everybody.
func (db *DB) Events(ctx context.Context, owner string, all bool, seq int64, limit int) (list []api.Event, err error) {
	query, args := `SELECT seq, time, kind, owner, sandbox, data FROM events WHERE seq >= ? ORDER BY seq LIMIT ?`, []any{seq, limit}
	if !all {
		query, args = `SELECT seq, time, kind, owner, sandbox, data FROM events WHERE owner = ? AND seq >= ? ORDER BY seq LIMIT ?`, []any{owner, seq, limit}
	}
	rows, err := db.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var ev api.Event
		var at int64
		var data string
		if err := rows.Scan(&ev.Seq, &at, &ev.Kind, &ev.Owner, &ev.Sandbox, &data); err != nil {
			return nil, storage("read", err)
		}
		ev.Time, ev.Data = time.Unix(0, at).UTC(), raw(data)
		list = append(list, ev)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

// EventRange gives the numbers of the first event that is kept, and of the last
// there has been; 0 and 0 when there was none.
func (db *DB) EventRange(ctx context.Context) (first, last int64, err error) {
	err = db.read.QueryRowContext(ctx, `SELECT COALESCE((SELECT seq FROM events ORDER BY seq LIMIT 1), 0), COALESCE((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)`).Scan(&first, &last)
	if err != nil {
		return 0, 0, storage("read", err)
	}
	return first, last, nil
}

// raw is JSON as it was written, nil for none.
func raw(s string) []byte {
	if s == "" {
		return nil
	}
	return []byte(s)
}
