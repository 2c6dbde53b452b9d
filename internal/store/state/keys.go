package state

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// AddKey writes a new API key with the hash of its token. A name that is taken is
// an error with code conflict.
func (db *DB) AddKey(ctx context.Context, k api.Key, hash []byte) error {
	k.Token = ""
	doc, err := json.Marshal(k)
	if err != nil {
		return storage("write", err)
	}
	return db.Update(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO keys (name, hash, doc) VALUES (?, ?, ?)`, k.Name, hash, string(doc))
		if err != nil && strings.Contains(err.Error(), "keys.name") {
			return bailey.Errorf(bailey.CodeConflict, "make the key "+k.Name, "choose another name, or delete that one", "there is one with that name")
		}
		if err != nil {
			return storage("write", err)
		}
		return nil
	})
}

// KeyByHash gives the key whose token has the hash; ok is false if there is none.
func (db *DB) KeyByHash(ctx context.Context, hash []byte) (k api.Key, ok bool, err error) {
	return oneKey(db.read.QueryRowContext(ctx, `SELECT doc FROM keys WHERE hash = ?`, hash))
}

// KeyByName gives the key with the name; ok is false if there is none.
func (db *DB) KeyByName(ctx context.Context, name string) (k api.Key, ok bool, err error) {
	return oneKey(db.read.QueryRowContext(ctx, `SELECT doc FROM keys WHERE name = ?`, name))
}

func oneKey(row *sql.Row) (k api.Key, ok bool, err error) {
	var doc string
	switch err := row.Scan(&doc); {
	case errors.Is(err, sql.ErrNoRows):
		return k, false, nil
	case err != nil:
		return k, false, storage("read", err)
	}
	if err := json.Unmarshal([]byte(doc), &k); err != nil {
		return k, false, storage("read", err)
	}
	return k, true, nil
}

// Keys gives all keys by name.
func (db *DB) Keys(ctx context.Context) (list []api.Key, err error) {
	rows, err := db.read.QueryContext(ctx, `SELECT doc FROM keys ORDER BY name`)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var doc string
		var k api.Key
		err := rows.Scan(&doc)
		if err == nil {
			err = json.Unmarshal([]byte(doc), &k)
		}
		if err != nil {
			return nil, storage("read", err)
		}
		list = append(list, k)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

// DeleteKey removes a key; there is false if there is none of that name.
func (db *DB) DeleteKey(ctx context.Context, name string) (there bool, err error) {
	err = db.Update(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `DELETE FROM keys WHERE name = ?`, name)
		if err != nil {
			return storage("write", err)
		}
		n, err := r.RowsAffected()
		there = n > 0
		return err
	})
	return there, err
}
