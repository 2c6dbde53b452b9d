package state_test

import (
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// TestForgetSandboxes: what counts is when a sandbox ended, however long it lived.
func TestForgetSandboxes(t *testing.T) {
	db := openDB(t)
	born := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	put := func(id string, st api.State, ended *time.Time) {
		t.Helper()
		doc, err := json.Marshal(map[string]api.Sandbox{"sandbox": {ID: id, State: st, Ended: ended}})
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(t.Context(), func(tx *sql.Tx) error {
			if _, err := state.Claim(t.Context(), tx, "me", "key-"+id, "d", id, born); err != nil {
				return err
			}
			return state.PutSandbox(t.Context(), tx, state.Sandbox{ID: id, Owner: "me", State: st, Created: born, Doc: doc})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	at := func(day int, more time.Duration) *time.Time {
		x := born.AddDate(0, 0, day).Add(more)
		return &x
	}
	put("early", api.StateEnded, at(10, 123456789))
	put("justbefore", api.StateEnded, at(20, -time.Millisecond))
	put("justafter", api.StateEnded, at(20, time.Millisecond))
	put("late", api.StateEnded, at(40, 0))
	put("alive", api.StateRunning, nil)
	if err := db.ForgetSandboxes(t.Context(), *at(20, 0)); err != nil {
		t.Fatal(err)
	}
	for id, there := range map[string]bool{"early": false, "justbefore": false, "justafter": true, "late": true, "alive": true} {
		rows, err := db.FindSandboxes(t.Context(), id)
		if err != nil || (len(rows) == 1) != there {
			t.Errorf("%s: %d rows, %v", id, len(rows), err)
		}
		var earlier string
		err = db.Update(t.Context(), func(tx *sql.Tx) (err error) {
			earlier, err = state.Claim(t.Context(), tx, "me", "key-"+id, "d", "another", born)
			return err
		})
		if err != nil || (earlier == id) != there {
			t.Errorf("the idempotency key of %s gives %q, %v", id, earlier, err)
		}
	}
}
