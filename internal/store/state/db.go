package state

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/bailey-sandbox/bailey"
)

//go:embed migrations/*.sql
var migrations embed.FS

// DB is the database of one data folder. Its methods may be called by any number
// of goroutines at once; writes are done one after the other.
type DB struct {
	write *sql.DB // one connection
	read  *sql.DB
}

// File is the database's name in the data folder.
const File = "state.db"

// Open opens the database in the data folder home, making it and bringing its
// tables up to this version. One that a newer version has written is an error
// with code storage: going back is done with a backup.
func Open(ctx context.Context, home string) (*DB, error) {
	path := filepath.Join(home, File)
	const options = "?_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=busy_timeout(10000)&_pragma=foreign_keys(on)&_txlock=immediate"
	write, err := openKept("file:" + path + options)
	if err != nil {
		return nil, storage("open", err)
	}
	write.SetMaxOpenConns(1)
	read, err := openKept("file:" + path + options + "&_pragma=query_only(on)")
	if err != nil {
		write.Close()
		return nil, storage("open", err)
	}
	read.SetMaxOpenConns(4)
	db := &DB{write: write, read: read}
	if err := db.migrate(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// Close closes the database.
func (db *DB) Close() error { return errors.Join(db.read.Close(), db.write.Close()) }

// Update runs f in a transaction that is committed if f gives no error.
func (db *DB) Update(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := db.write.BeginTx(ctx, nil)
	if err != nil {
		return storage("write", err)
	}
	if err := f(tx); err != nil {
		tx.Rollback() // f's error tells more
		return err
	}
	if err := tx.Commit(); err != nil {
		return storage("write", err)
	}
	return nil
}

// migrate applies what has not been applied yet.
func (db *DB) migrate(ctx context.Context) error {
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return storage("open", err)
	}
	sort.Strings(names)
	return db.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY) STRICT`); err != nil {
			return storage("open", err)
		}
		known := map[string]bool{}
		for _, n := range names {
			known[n] = true
		}
		rows, err := tx.QueryContext(ctx, `SELECT name FROM migrations`)
		if err != nil {
			return storage("open", err)
		}
		defer rows.Close()
		done := map[string]bool{}
		for rows.Next() {
			var n string
			if err := rows.Scan(&n); err != nil {
				return storage("open", err)
			}
			if !known[n] {
				return bailey.Errorf(bailey.CodeStorage, "open the state database", "use the newer version, or the backup made before the upgrade",
					"a newer version of Bailey has changed it (%s)", n)
			}
			done[n] = true
		}
		if err := rows.Err(); err != nil {
			return storage("open", err)
		}
		for _, n := range names {
			if done[n] {
				continue
			}
			text, err := migrations.ReadFile(n)
			if err == nil {
				_, err = tx.ExecContext(ctx, string(text))
			}
			if err == nil {
				_, err = tx.ExecContext(ctx, `INSERT INTO migrations (name) VALUES (?)`, n)
			}
			if err != nil {
				return storage("bring up to date", fmt.Errorf("%s: %w", n, err))
			}
		}
		return nil
	})
}

func storage(verb string, err error) error {
	return bailey.Errorf(bailey.CodeStorage, verb+" the state database", "see that the disk has room and the data folder is yours", "%w", err)
}
