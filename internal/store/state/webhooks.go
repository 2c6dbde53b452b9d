package state

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/bailey-sandbox/bailey/api"
)

// Webhook is the row of a webhook.
type Webhook struct {
	api.Webhook
	Owner  string
	Key    []byte // signs bodies
	Cursor int64  // the last event that is delivered or given up
}

// webhookDoc is what the column doc has.
type webhookDoc struct {
	URL   string   `json:"url"`
	Kinds []string `json:"kinds,omitempty"`
	Owner string   `json:"owner"`
}

// AddWebhook writes a new webhook.
func (db *DB) AddWebhook(ctx context.Context, w Webhook) error {
	doc, err := json.Marshal(webhookDoc{w.URL, w.Kinds, w.Owner})
	if err != nil {
		return storage("write", err)
	}
	return db.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO webhooks (id, cursor, secret, doc) VALUES (?, ?, ?, ?)`, w.ID, w.Cursor, w.Key, string(doc)); err != nil {
			return storage("write", err)
		}
		return nil
	})
}

// Webhooks gives all webhooks by id.
func (db *DB) Webhooks(ctx context.Context) (list []Webhook, err error) {
	rows, err := db.read.QueryContext(ctx, `SELECT id, cursor, failed, secret, doc FROM webhooks ORDER BY id`)
	if err != nil {
		return nil, storage("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		var w Webhook
		var text string
		var doc webhookDoc
		err := rows.Scan(&w.ID, &w.Cursor, &w.Failed, &w.Key, &text)
		if err == nil {
			err = json.Unmarshal([]byte(text), &doc)
		}
		if err != nil {
			return nil, storage("read", err)
		}
		w.URL, w.Kinds, w.Owner = doc.URL, doc.Kinds, doc.Owner
		list = append(list, w)
	}
	if err := rows.Err(); err != nil {
		return nil, storage("read", err)
	}
	return list, nil
}

// MoveWebhook sets a webhook's cursor, and counts an event that was given up. One
// that is there no more is no error.
func (db *DB) MoveWebhook(ctx context.Context, id string, cursor int64, failed bool) error {
	more := 0
	if failed {
		more = 1
	}
	return db.Update(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE webhooks SET cursor = ?, failed = failed + ? WHERE id = ?`, cursor, more, id); err != nil {
			return storage("write", err)
		}
		return nil
	})
}

// DeleteWebhook removes a webhook; there is false if there is none of that id.
func (db *DB) DeleteWebhook(ctx context.Context, id string) (there bool, err error) {
	err = db.Update(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `DELETE FROM webhooks WHERE id = ?`, id)
		if err != nil {
			return storage("write", err)
		}
		n, err := r.RowsAffected()
		there = n > 0
		return err
	})
	return there, err
}
