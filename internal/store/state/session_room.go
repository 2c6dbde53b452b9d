package state

import (
	"context"
	"database/sql"
	"time"
)

// sessionRows is the size in bytes of each row that sessions have, with its session and
// owner. Each counts some bytes more, for what is the database's own.
const sessionRows = `(SELECT id, owner, 256 + octet_length(doc) AS n FROM sessions
	UNION ALL SELECT s.id, s.owner, 256 + octet_length(e.data) FROM session_events e JOIN sessions s ON s.id = e.session
	UNION ALL SELECT s.id, s.owner, 256 + octet_length(x.request) + COALESCE(octet_length(x.result), 0) FROM session_execs x JOIN sessions s ON s.id = x.session)`

// SessionBytes gives how much the sessions of each owner take in the database.
func (db *DB) SessionBytes(ctx context.Context) (map[string]int64, error) {
	rows, err := db.read.QueryContext(ctx, `SELECT owner, SUM(n) FROM `+sessionRows+` GROUP BY owner`)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	by := map[string]int64{}
	for rows.Next() {
		var owner string
		var n int64
		if err := rows.Scan(&owner, &n); err != nil {
			return nil, storage("read", err)
		}
		by[owner] = n
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return by, nil
}

// ForgottenSession is a session whose rows were removed.
type ForgottenSession struct {
	ID, Owner string
	Bytes     int64 // that they took
}

// ForgetSessions removes at most limit sessions with all their rows that are closed, have
// no sandbox and execute nothing, and in whose logs nothing was written since before: the
// oldest first. owner "" is everybody.
func (db *DB) ForgetSessions(ctx context.Context, owner string, before time.Time, limit int) (list []ForgottenSession, err error) {
	err = db.Update(ctx, func(tx *sql.Tx) error {
		list = nil
		rows, err := tx.QueryContext(ctx, `SELECT s.id, s.owner, (SELECT SUM(n) FROM `+sessionRows+` r WHERE r.id = s.id) FROM sessions s
			WHERE s.state <> 'open' AND s.sandbox IS NULL AND (?1 = '' OR s.owner = ?1)
			AND NOT EXISTS (SELECT 1 FROM session_execs x WHERE x.session = s.id AND x.result IS NULL)
			AND NOT EXISTS (SELECT 1 FROM session_events e WHERE e.session = s.id AND e.time >= ?2)
			ORDER BY s.created, s.id LIMIT ?3`, owner, before.UnixNano(), limit)
		if err != nil {
			return storage("read", err)
		}
		defer rows.Close()
		for rows.Next() {
			var f ForgottenSession
			if err := rows.Scan(&f.ID, &f.Owner, &f.Bytes); err != nil {
				return storage("read", err)
			}
			list = append(list, f)
		}
		if err := rows.Err(); err != nil {
			return storage("read", err)
		}
		rows.Close()
		for _, f := range list {
			for _, q := range []string{`DELETE FROM session_execs WHERE session = ?`, `DELETE FROM session_events WHERE session = ?`, `DELETE FROM sessions WHERE id = ?`} {
				if _, err := tx.ExecContext(ctx, q, f.ID); err != nil {
					return storage("write", err)
				}
			}
		}
		return nil
	})
	return list, err
}
