package state

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Session is the row of a session. Doc is what the engine knows about it.
type Session struct {
	ID         string
	Name       string // "" for none
	Owner      string
	State      string // open, closed
	Sandbox    string // the present one, "" for none
	Checkpoint string // what the next sandbox starts from, "" for none
	Key        string // idempotency key, "" for none
	Digest     string // of the spec
	Created    time.Time
	Doc        []byte
}

// ErrSessionKey says that the owner has used the idempotency key before.
var ErrSessionKey = errors.New("the idempotency key was used before")

// PutSession writes a session's row, new or not; the checkpoint of one that is there is
// changed by SetCheckpoint only. The name of one that is closed is
// free for another. A name that another has is an error with code conflict, a key
// that another has is ErrSessionKey.
func PutSession(ctx context.Context, tx *sql.Tx, s Session) error {
	name := null(s.Name)
	if s.State != "open" {
		name = nil
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO sessions (id, name, owner, state, sandbox, checkpoint, key, digest, created, doc) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = excluded.state, sandbox = excluded.sandbox, doc = excluded.doc`,
		s.ID, name, s.Owner, s.State, null(s.Sandbox), null(s.Checkpoint), null(s.Key), s.Digest, s.Created.UnixNano(), string(s.Doc))
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "sessions.name"):
		return bailey.Errorf(bailey.CodeConflict, "name the session "+s.Name, "choose another name, or close that one", "another session has that name")
	case strings.Contains(err.Error(), "sessions.key"):
		return ErrSessionKey
	}
	return storage("write", err)
}

const sessionColumns = `id, COALESCE(name, ''), owner, state, COALESCE(sandbox, ''), COALESCE(checkpoint, ''), COALESCE(key, ''), digest, created, doc`

// Sessions gives the rows of all sessions, the oldest first.
func (db *DB) Sessions(ctx context.Context) ([]Session, error) {
	return db.sessions(ctx, `SELECT `+sessionColumns+` FROM sessions ORDER BY created, id`)
}

// FindSessions gives at most two rows of sessions that ref names: by id or name
// alone, otherwise those whose id begins with it.
func (db *DB) FindSessions(ctx context.Context, ref string) ([]Session, error) {
	if ref == "" {
		return nil, nil
	}
	list, err := db.sessions(ctx, `SELECT `+sessionColumns+` FROM sessions WHERE id = ? OR name = ? ORDER BY id = ? DESC LIMIT 1`, ref, ref, ref)
	if len(list) > 0 || err != nil {
		return list, err
	}
	return db.sessions(ctx, `SELECT `+sessionColumns+` FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT 2`, ref, ref+"\U0010FFFF")
}

// SessionByKey gives the session that the owner has made with an idempotency key;
// false when there is none.
func (db *DB) SessionByKey(ctx context.Context, owner, key string) (Session, bool, error) {
	list, err := db.sessions(ctx, `SELECT `+sessionColumns+` FROM sessions WHERE owner = ? AND key = ?`, owner, key)
	if len(list) == 0 {
		return Session{}, false, err
	}
	return list[0], true, nil
}

func (db *DB) sessions(ctx context.Context, query string, args ...any) (list []Session, err error) {
	rows, err := db.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s Session
		var created int64
		var doc string
		if err := rows.Scan(&s.ID, &s.Name, &s.Owner, &s.State, &s.Sandbox, &s.Checkpoint, &s.Key, &s.Digest, &created, &doc); err != nil {
			return nil, storage("read", err)
		}
		s.Created, s.Doc = time.Unix(0, created).UTC(), []byte(doc)
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

// PinsCheckpoint says whether a session that is open would start its next sandbox
// from the snapshot.
func PinsCheckpoint(ctx context.Context, tx *sql.Tx, snapshot string) (bool, error) {
	var n int
	err := tx.QueryRowContext(ctx, `SELECT COUNT(*) FROM sessions WHERE checkpoint = ? AND state = 'open'`, snapshot).Scan(&n)
	if err != nil {
		return false, storage("read", err)
	}
	return n > 0, nil
}

// PutSessionEvent appends to a session's log and gives the event with its number.
func PutSessionEvent(ctx context.Context, tx *sql.Tx, session string, ev api.SessionEvent) (api.SessionEvent, error) {
	err := tx.QueryRowContext(ctx, `INSERT INTO session_events (session, seq, time, kind, data)
		VALUES (?1, COALESCE((SELECT MAX(seq) FROM session_events WHERE session = ?1), 0) + 1, ?2, ?3, ?4) RETURNING seq`,
		session, ev.Time.UnixNano(), ev.Kind, string(ev.Data)).Scan(&ev.Seq)
	if err != nil {
		return ev, storage("write", err)
	}
	return ev, nil
}

// SessionEvents gives at most limit events of a session's log with numbers from seq
// on, in order.
func (db *DB) SessionEvents(ctx context.Context, session string, seq int64, limit int) (list []api.SessionEvent, err error) {
	rows, err := db.read.QueryContext(ctx, `SELECT seq, time, kind, data FROM session_events WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?`, session, seq, limit)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var ev api.SessionEvent
		var at int64
		var data string
		if err := rows.Scan(&ev.Seq, &at, &ev.Kind, &data); err != nil {
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

// SessionExec is the row of something that a session executes.
type SessionExec struct {
	Session, Exec string
	Created       time.Time
	Request       []byte
	Result        []byte // nil while it goes on
}

// GetSessionExec gives what a session executes under an id; false when nothing is.
func GetSessionExec(ctx context.Context, tx *sql.Tx, session, exec string) (x SessionExec, ok bool, err error) {
	x, err = scanSessionExec(tx.QueryRowContext(ctx, `SELECT session, exec, created, request, result FROM session_execs WHERE session = ? AND exec = ?`, session, exec))
	if errors.Is(err, sql.ErrNoRows) {
		return x, false, nil
	}
	if err != nil {
		return x, false, storage("read", err)
	}
	return x, true, nil
}

// PutSessionExec writes down that something is going to be executed. An id that was
// used before is an error.
func PutSessionExec(ctx context.Context, tx *sql.Tx, x SessionExec) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO session_execs (session, exec, created, request) VALUES (?, ?, ?, ?)`, x.Session, x.Exec, x.Created.UnixNano(), string(x.Request))
	if err != nil {
		return storage("write", err)
	}
	return nil
}

// EndSessionExec writes its outcome down, once: a later one is left out, and done is
// false.
func EndSessionExec(ctx context.Context, tx *sql.Tx, session, exec string, result []byte) (done bool, err error) {
	res, err := tx.ExecContext(ctx, `UPDATE session_execs SET result = ? WHERE session = ? AND exec = ? AND result IS NULL`, string(result), session, exec)
	var n int64
	if err == nil {
		n, err = res.RowsAffected()
	}
	if err != nil {
		return false, storage("write", err)
	}
	return n == 1, nil
}

// OpenSessionExecs gives all that has no outcome yet, the oldest first.
func (db *DB) OpenSessionExecs(ctx context.Context) (list []SessionExec, err error) {
	rows, err := db.read.QueryContext(ctx, `SELECT session, exec, created, request, result FROM session_execs WHERE result IS NULL ORDER BY created`)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		x, err := scanSessionExec(rows)
		if err != nil {
			return nil, storage("read", err)
		}
		list = append(list, x)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

func scanSessionExec(row interface{ Scan(...any) error }) (x SessionExec, err error) {
	var created int64
	var request string
	var result sql.NullString
	if err := row.Scan(&x.Session, &x.Exec, &created, &request, &result); err != nil {
		return x, err
	}
	x.Created, x.Request = time.Unix(0, created).UTC(), []byte(request)
	if result.Valid {
		x.Result = []byte(result.String)
	}
	return x, nil
}

// null is NULL for an empty text.
func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// DropSessionExec removes what was asked for and never began, so that it can be asked
// for again.
func DropSessionExec(ctx context.Context, tx *sql.Tx, session, exec string) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM session_execs WHERE session = ? AND exec = ? AND result IS NULL`, session, exec); err != nil {
		return storage("write", err)
	}
	return nil
}

// SetCheckpoint says from what the next sandbox of the session starts that has this
// one now. Of a sandbox without a session it does nothing.
func SetCheckpoint(ctx context.Context, tx *sql.Tx, sandbox, snapshot string) error {
	if _, err := tx.ExecContext(ctx, `UPDATE sessions SET checkpoint = ? WHERE sandbox = ? AND state = 'open'`, null(snapshot), sandbox); err != nil {
		return storage("write", err)
	}
	return nil
}

// LastSessionEvent is the number of the last event of a session's log.
func (db *DB) LastSessionEvent(ctx context.Context, session string) (seq int64, err error) {
	err = db.read.QueryRowContext(ctx, `SELECT COALESCE(MAX(seq), 0) FROM session_events WHERE session = ?`, session).Scan(&seq)
	if err != nil {
		return 0, storage("read", err)
	}
	return seq, nil
}
