//go:build linux

package engine

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/bailey-sandbox/bailey/api"
)

// TestActsThatCannotBeWritten: an act whose end cannot be written down leaves no sandbox
// that nobody attends to. Once it can be, the sandbox goes on with files and, where none
// were to end, processes.
func TestActsThatCannotBeWritten(t *testing.T) {
	e := openEngine(t)
	var mu sync.Mutex
	var full []api.State
	e.hooks.changed = append(e.hooks.changed, func(_ context.Context, _ *sql.Tx, before, after *record) error {
		mu.Lock()
		defer mu.Unlock()
		if before != nil && before.Sandbox.State != after.Sandbox.State && slices.Contains(full, after.Sandbox.State) {
			return errors.New("it was to fail")
		}
		return nil
	})
	broken := func(states ...api.State) {
		mu.Lock()
		defer mu.Unlock()
		full = states
	}
	pause := func(toDisk bool) func(id string) error {
		return func(id string) error {
			_, err := e.Pause(t.Context(), me, id, api.PauseRequest{ToDisk: toDisk})
			return err
		}
	}
	resume := func(id string) error { _, err := e.Resume(t.Context(), me, id); return err }
	for _, test := range []struct {
		name   string
		before func(id string) error
		full   []api.State
		act    func(id string) error
		then   api.State // what it is, once rows can be written, before it is used
		ends   bool      // its processes
	}{
		{"pause, taken back", nil, []api.State{api.StatePaused}, pause(false), api.StateRunning, false},
		{"pause", nil, []api.State{api.StatePaused, api.StateRunning}, pause(false), api.StatePausing, false},
		{"resume", pause(false), []api.State{api.StatePaused, api.StateRunning}, resume, api.StateResuming, false},
		{"stop", nil, []api.State{api.StateStopped, api.StateLost}, pause(true), api.StateStopping, true},
		{"start", pause(true), []api.State{api.StateStopped, api.StateRunning}, resume, api.StateResuming, true},
	} {
		for _, next := range []string{"use", "stop", "resume"} {
			t.Run(test.name+", then "+next, func(t *testing.T) {
				defer broken()
				s := create(t, e, process)
				sh(t, e, s.ID, "cd; sleep 1000 >/dev/null 2>&1 & cd; echo $! > pid; echo here > f")
				if test.before != nil {
					if err := test.before(s.ID); err != nil {
						t.Fatal(err)
					}
				}
				broken(test.full...)
				if err := test.act(s.ID); err == nil {
					t.Fatal("it did not fail")
				}
				broken()
				want(t, e, s.ID, test.then, "after the failure")
				// What it wrote may be in a layer that no row has yet.
				if err := e.collectLayers(t.Context()); err != nil {
					t.Fatal(err)
				}
				ends := test.ends
				switch next {
				case "stop":
					ends = true
					if err := pause(true)(s.ID); err != nil {
						t.Fatal(err)
					}
					want(t, e, s.ID, api.StateStopped, "then")
				case "resume":
					if err := resume(s.ID); err != nil {
						t.Fatal(err)
					}
					want(t, e, s.ID, api.StateRunning, "then")
				}
				expect := "here\nalive"
				if ends {
					expect = "here\nended"
				}
				if out := sh(t, e, s.ID, "cd; cat f; grep -qs sleep /proc/$(cat pid)/comm && echo alive || echo ended"); out != expect {
					t.Errorf("it says %q", out)
				}
				if err := e.Delete(t.Context(), me, s.ID); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
