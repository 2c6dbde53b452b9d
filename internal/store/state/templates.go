package state

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Template is the row of a template. Doc is what the engine knows about it.
type Template struct {
	Name    string // NAME:TAG
	Owner   string
	State   string // building, ready, failed
	Digest  string // of its image, "" until there is one
	Created time.Time
	Doc     []byte
}

// PutTemplate writes a template's row, new or not.
func PutTemplate(ctx context.Context, tx *sql.Tx, t Template) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO templates (name, owner, state, digest, created, doc) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, state = excluded.state, digest = excluded.digest, created = excluded.created, doc = excluded.doc`,
		t.Name, t.Owner, t.State, t.Digest, t.Created.UnixNano(), string(t.Doc))
	if err != nil {
		return storage("write", err)
	}
	return nil
}

// DropTemplate removes a template's row; one that is not there is no error.
func DropTemplate(ctx context.Context, tx *sql.Tx, name string) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM templates WHERE name = ?`, name); err != nil {
		return storage("write", err)
	}
	return nil
}

// Templates gives all templates, by name; with a name only that one.
func (db *DB) Templates(ctx context.Context, name string) (list []Template, err error) {
	rows, err := db.read.QueryContext(ctx, `SELECT name, owner, state, digest, created, doc FROM templates WHERE ? = '' OR name = ? ORDER BY name`, name, name)
	if err != nil {
		return nil, storage("read", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var t Template
		var created int64
		var doc string
		if err := rows.Scan(&t.Name, &t.Owner, &t.State, &t.Digest, &created, &doc); err != nil {
			return nil, storage("read", err)
		}
		t.Created, t.Doc = time.Unix(0, created).UTC(), []byte(doc)
		list = append(list, t)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

// Volume is the row of a volume.
type Volume struct {
	Name    string
	Owner   string
	Created time.Time
	Doc     []byte
}

// AddVolume writes a new volume's row; added is false if there is one of the name.
func AddVolume(ctx context.Context, tx *sql.Tx, v Volume) (added bool, err error) {
	res, err := tx.ExecContext(ctx, `INSERT INTO volumes (name, owner, created, doc) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING`,
		v.Name, v.Owner, v.Created.UnixNano(), string(v.Doc))
	if err != nil {
		return false, storage("write", err)
	}
	n, err := res.RowsAffected()
	if err != nil {
		return false, storage("write", err)
	}
	return n > 0, nil
}

// DropVolume removes a volume's row; one that is not there is no error.
func DropVolume(ctx context.Context, tx *sql.Tx, name string) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM volumes WHERE name = ?`, name); err != nil {
		return storage("write", err)
	}
	return nil
}

// Volumes gives all volumes, by name; with a name only that one.
func (db *DB) Volumes(ctx context.Context, name string) (list []Volume, err error) {
	rows, err := db.read.QueryContext(ctx, `SELECT name, owner, created, doc FROM volumes WHERE ? = '' OR name = ? ORDER BY name`, name, name)
	if err != nil {
		return nil, storage("read", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var v Volume
		var created int64
		var doc string
		if err := rows.Scan(&v.Name, &v.Owner, &created, &doc); err != nil {
			return nil, storage("read", err)
		}
		v.Created, v.Doc = time.Unix(0, created).UTC(), []byte(doc)
		list = append(list, v)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

// SetVolume writes another document for a volume.
func SetVolume(ctx context.Context, tx *sql.Tx, name string, doc []byte) error {
	if _, err := tx.ExecContext(ctx, `UPDATE volumes SET doc = ? WHERE name = ?`, string(doc), name); err != nil {
		return storage("write", err)
	}
	return nil
}
