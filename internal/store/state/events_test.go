package state_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

var now = time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)

func openDB(t *testing.T) *state.DB {
	t.Helper()
	db, err := state.Open(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func update(t *testing.T, db *state.DB, f func(ctx context.Context, tx *sql.Tx) error) {
	t.Helper()
	ctx := context.Background()
	if err := db.Update(ctx, func(tx *sql.Tx) error { return f(ctx, tx) }); err != nil {
		t.Fatal(err)
	}
}

func TestEvents(t *testing.T) {
	db, ctx := openDB(t), context.Background()
	if first, last, err := db.EventRange(ctx); first != 0 || last != 0 || err != nil {
		t.Errorf("nothing has happened and the range is %d to %d, %v", first, last, err)
	}
	update(t, db, func(ctx context.Context, tx *sql.Tx) error {
		for i, owner := range []string{"a", "b", "a"} {
			seq, err := state.PutEvent(ctx, tx, api.Event{Time: now, Kind: "k", Owner: owner, Sandbox: "s", Data: json.RawMessage(`{"x":1}`)})
			if err != nil || seq != int64(i+1) {
				t.Errorf("event %d, %v", seq, err)
			}
		}
		return nil
	})
	all, err := db.Events(ctx, "", true, 2, 10)
	if err != nil || len(all) != 2 || all[0].Seq != 2 || all[0].Owner != "b" || string(all[0].Data) != `{"x":1}` || !all[0].Time.Equal(now) {
		t.Errorf("%+v, %v", all, err)
	}
	if own, err := db.Events(ctx, "a", false, 0, 1); err != nil || len(own) != 1 || own[0].Seq != 1 {
		t.Errorf("%+v, %v", own, err)
	}
}

// TestEventsAreTrimmed holds that the table does not grow for ever, and that what is
// left is the newest.
func TestEventsAreTrimmed(t *testing.T) {
	db, ctx := openDB(t), context.Background()
	update(t, db, func(ctx context.Context, tx *sql.Tx) error {
		// As if many had been there, of which a few are enough.
		_, err := tx.ExecContext(ctx, `INSERT INTO events (seq, time, kind, owner, sandbox, data)
			VALUES (1, 0, 'k', '', '', ''), (2000, 0, 'k', '', '', ''), (2001, 0, 'k', '', '', ''), (101999, 0, 'k', '', '', '')`)
		return err
	})
	update(t, db, func(ctx context.Context, tx *sql.Tx) error {
		_, err := state.PutEvent(ctx, tx, api.Event{Time: now, Kind: "k"})
		return err
	})
	if first, last, err := db.EventRange(ctx); err != nil || last != 102000 || first != 2001 {
		t.Errorf("events %d to %d are kept, %v", first, last, err)
	}
}

func TestSessions(t *testing.T) {
	db, ctx := openDB(t), context.Background()
	s := state.Session{ID: "s1", Name: "n", Owner: "a", State: "open", Key: "k", Digest: "d", Created: now, Doc: []byte(`{}`)}
	put := func(s state.Session) error {
		return db.Update(ctx, func(tx *sql.Tx) error { return state.PutSession(ctx, tx, s) })
	}
	if err := put(s); err != nil {
		t.Fatal(err)
	}
	s.Sandbox = "box"
	if err := put(s); err != nil {
		t.Fatal(err)
	}
	update(t, db, func(ctx context.Context, tx *sql.Tx) error {
		if err := state.SetCheckpoint(ctx, tx, "another", "x"); err != nil {
			return err
		}
		return state.SetCheckpoint(ctx, tx, "box", "cp")
	})
	if err := put(s); err != nil { // and leaves the checkpoint
		t.Fatal(err)
	}
	other := state.Session{ID: "s2", Name: "n", Owner: "a", State: "open", Created: now.Add(1), Doc: []byte(`{}`)}
	if err := put(other); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("the same name: %v", err)
	}
	other.Name, other.Key = "", "k"
	if err := put(other); !errors.Is(err, state.ErrSessionKey) {
		t.Errorf("the same key: %v", err)
	}
	for _, ref := range []string{"s1", "s", "n"} {
		if l, err := db.FindSessions(ctx, ref); err != nil || len(l) != 1 || l[0].Sandbox != "box" || l[0].Checkpoint != "cp" || !l[0].Created.Equal(now) {
			t.Errorf("%s: %+v, %v", ref, l, err)
		}
	}
	if got, ok, err := db.SessionByKey(ctx, "a", "k"); !ok || err != nil || got.ID != "s1" {
		t.Errorf("by key: %+v %t %v", got, ok, err)
	}
	if _, ok, err := db.SessionByKey(ctx, "b", "k"); ok || err != nil {
		t.Errorf("the key of another: %t %v", ok, err)
	}
	pinned := func() (yes bool) {
		update(t, db, func(ctx context.Context, tx *sql.Tx) (err error) {
			yes, err = state.PinsCheckpoint(ctx, tx, "cp")
			return err
		})
		return yes
	}
	if !pinned() {
		t.Error("the checkpoint is not pinned")
	}
	s.State = "closed"
	if err := put(s); err != nil {
		t.Fatal(err)
	}
	if pinned() {
		t.Error("a closed session pins its checkpoint")
	}
	if l, _ := db.FindSessions(ctx, "n"); len(l) != 0 {
		t.Error("the name of a closed session is not free")
	}
}

func TestSessionLog(t *testing.T) {
	db, ctx := openDB(t), context.Background()
	update(t, db, func(ctx context.Context, tx *sql.Tx) error {
		for _, id := range []string{"s1", "s2"} {
			if err := state.PutSession(ctx, tx, state.Session{ID: id, Owner: "a", State: "open", Created: now, Doc: []byte(`{}`)}); err != nil {
				return err
			}
			for i := range 3 {
				ev, err := state.PutSessionEvent(ctx, tx, id, api.SessionEvent{Time: now, Kind: "note", Data: json.RawMessage(`"x"`)})
				if err != nil || ev.Seq != int64(i+1) {
					t.Errorf("%+v, %v", ev, err)
				}
			}
		}
		return nil
	})
	if l, err := db.SessionEvents(ctx, "s2", 2, 10); err != nil || len(l) != 2 || l[0].Seq != 2 || string(l[0].Data) != `"x"` {
		t.Errorf("%+v, %v", l, err)
	}
	x := state.SessionExec{Session: "s1", Exec: "e", Created: now, Request: []byte(`{"a":1}`)}
	update(t, db, func(ctx context.Context, tx *sql.Tx) error { return state.PutSessionExec(ctx, tx, x) })
	if err := db.Update(ctx, func(tx *sql.Tx) error { return state.PutSessionExec(ctx, tx, x) }); err == nil {
		t.Error("an exec was written twice")
	}
	if l, err := db.OpenSessionExecs(ctx); err != nil || len(l) != 1 || l[0].Exec != "e" || string(l[0].Request) != `{"a":1}` {
		t.Errorf("%+v, %v", l, err)
	}
	for i, want := range []bool{true, false} {
		update(t, db, func(ctx context.Context, tx *sql.Tx) error {
			done, err := state.EndSessionExec(ctx, tx, "s1", "e", []byte{'0' + byte(i)})
			if done != want {
				t.Errorf("outcome %d is written: %t", i, done)
			}
			return err
		})
	}
	update(t, db, func(ctx context.Context, tx *sql.Tx) error {
		got, ok, err := state.GetSessionExec(ctx, tx, "s1", "e")
		if !ok || string(got.Result) != "0" {
			t.Errorf("%+v %t", got, ok)
		}
		return err
	})
	if l, err := db.OpenSessionExecs(ctx); err != nil || len(l) != 0 {
		t.Errorf("%+v, %v", l, err)
	}
}
