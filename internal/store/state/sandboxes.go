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

// Sandbox is the row of a sandbox. Doc is what the engine knows about it.
type Sandbox struct {
	ID      string
	Name    string // "" for none
	Owner   string
	State   api.State
	Created time.Time
	Expires *time.Time // nil: never
	Doc     []byte
}

// PutSandbox writes a sandbox's row, new or not. The name of one that has ended
// is free for another. A name that another has is an error with code conflict.
func PutSandbox(ctx context.Context, tx *sql.Tx, s Sandbox) error {
	var name, expires any
	if s.Name != "" && s.State != api.StateEnded {
		name = s.Name
	}
	if s.Expires != nil {
		expires = s.Expires.UnixNano()
	}
	_, err := tx.ExecContext(ctx, `INSERT INTO sandboxes (id, name, owner, state, created, expires, doc) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = excluded.state, expires = excluded.expires, doc = excluded.doc`,
		s.ID, name, s.Owner, string(s.State), s.Created.UnixNano(), expires, string(s.Doc))
	if err != nil && strings.Contains(err.Error(), "sandboxes.name") {
		return bailey.Errorf(bailey.CodeConflict, "name the sandbox "+s.Name, "choose another name, or delete that one", "another sandbox has that name")
	}
	if err != nil {
		return storage("write", err)
	}
	return nil
}

const sandboxColumns = `id, COALESCE(name, ''), owner, state, created, expires, doc`

// scanSandbox reads a row of sandboxColumns.
func scanSandbox(row interface{ Scan(...any) error }) (s Sandbox, err error) {
	var created int64
	var expires sql.NullInt64
	var doc string
	if err := row.Scan(&s.ID, &s.Name, &s.Owner, (*string)(&s.State), &created, &expires, &doc); err != nil {
		return s, err
	}
	s.Created, s.Doc = time.Unix(0, created).UTC(), []byte(doc)
	if expires.Valid {
		t := time.Unix(0, expires.Int64).UTC()
		s.Expires = &t
	}
	return s, nil
}

// Sandboxes gives the rows of all sandboxes that have not ended, the oldest first.
func (db *DB) Sandboxes(ctx context.Context) ([]Sandbox, error) {
	return db.sandboxes(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE state <> 'ended' ORDER BY created, id`)
}

// EndedSandboxes gives at most limit rows of sandboxes that have ended, the oldest
// first, behind the one that was created at the time and has the id.
func (db *DB) EndedSandboxes(ctx context.Context, after time.Time, id string, limit int) ([]Sandbox, error) {
	return db.sandboxes(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE state = 'ended' AND (created, id) > (?, ?) ORDER BY created, id LIMIT ?`,
		after.UnixNano(), id, limit)
}

func (db *DB) sandboxes(ctx context.Context, query string, args ...any) (list []Sandbox, err error) {
	rows, err := db.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		s, err := scanSandbox(rows)
		if err != nil {
			return nil, storage("read", err)
		}
		list = append(list, s)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

// FindSandboxes gives at most two rows of sandboxes, ended ones among them, whose
// id is ref or begins with it. The one whose id it is comes alone.
func (db *DB) FindSandboxes(ctx context.Context, ref string) ([]Sandbox, error) {
	if ref == "" {
		return nil, nil
	}
	list, err := db.sandboxes(ctx, `SELECT `+sandboxColumns+` FROM sandboxes WHERE id >= ? AND id < ? ORDER BY id LIMIT 2`, ref, ref+"\U0010FFFF")
	if len(list) > 0 && list[0].ID == ref {
		list = list[:1]
	}
	return list, err
}

// ForgetSandboxes removes the rows of sandboxes that ended before the time.
func (db *DB) ForgetSandboxes(ctx context.Context, before time.Time) error {
	return db.Update(ctx, func(tx *sql.Tx) error {
		const gone = `state = 'ended' AND julianday(json_extract(doc, '$.sandbox.ended')) < julianday(?)`
		at := before.UTC().Format("2006-01-02T15:04:05.000Z")
		for _, q := range []string{`DELETE FROM idempotency WHERE sandbox IN (SELECT id FROM sandboxes WHERE ` + gone + `)`, `DELETE FROM sandboxes WHERE ` + gone} {
			if _, err := tx.ExecContext(ctx, q, at); err != nil {
				return storage("write", err)
			}
		}
		return nil
	})
}

// Claim binds an owner's idempotency key to a sandbox that is about to be made of
// a spec with the digest. If the key was claimed before, it gives the sandbox of
// then; the error has code conflict when the spec was another.
func Claim(ctx context.Context, tx *sql.Tx, owner, key, digest, sandbox string, now time.Time) (earlier string, err error) {
	var was string
	err = tx.QueryRowContext(ctx, `SELECT digest, sandbox FROM idempotency WHERE owner = ? AND key = ?`, owner, key).Scan(&was, &earlier)
	switch {
	case err == nil && was != digest:
		return "", bailey.Errorf(bailey.CodeConflict, "create the sandbox again", "use another idempotency key", "the key %q was used with another spec", key)
	case err == nil:
		return earlier, nil
	case !errors.Is(err, sql.ErrNoRows):
		return "", storage("read", err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO idempotency (owner, key, digest, sandbox, created) VALUES (?, ?, ?, ?, ?)`, owner, key, digest, sandbox, now.UnixNano())
	if err != nil {
		return "", storage("write", err)
	}
	return "", nil
}

// Unclaim frees the idempotency keys of a sandbox that was never made, with its row.
func Unclaim(ctx context.Context, tx *sql.Tx, sandbox string) error {
	for _, q := range []string{`DELETE FROM idempotency WHERE sandbox = ?`, `DELETE FROM sandboxes WHERE id = ?`} {
		if _, err := tx.ExecContext(ctx, q, sandbox); err != nil {
			return storage("write", err)
		}
	}
	return nil
}
