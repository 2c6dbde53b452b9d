//go:build linux

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"database/sql"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// eventsOf gives the kinds of a sandbox's events so far.
func eventsOf(t *testing.T, e *Engine, who Caller, sandbox string) (kinds []string) {
	t.Helper()
	for _, ev := range allEvents(t, e, who, 0) {
		if ev.Sandbox == sandbox {
			kinds = append(kinds, ev.Kind)
		}
	}
	return kinds
}

// allEvents gives what has happened so far, from seq on.
func allEvents(t *testing.T, e *Engine, who Caller, seq int64) (list []api.Event) {
	t.Helper()
	if err := e.event(t.Context(), api.Event{Kind: "test.mark", Owner: who.Name}); err != nil {
		t.Fatal(err)
	}
	stop := errors.New("that is all")
	_, last, err := e.db.EventRange(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = e.Events(t.Context(), who, seq, func(ev api.Event) error {
		if ev.Seq == last {
			return stop
		}
		list = append(list, ev)
		return nil
	})
	if !errors.Is(err, stop) {
		t.Fatal(err)
	}
	return list
}

// TestEventsOfALife: each change of a sandbox is told, in order, with why.
func TestEventsOfALife(t *testing.T) {
	e, _, advance := timed(t)
	s := create(t, e, with(func(s *api.SandboxSpec) { s.Idle = seconds(60) }))
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Resume(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	advance(61 * time.Second)
	if err := e.Delete(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	got := eventsOf(t, e, me, s.ID)
	if want := []string{"sandbox.created", "sandbox.stopped", "sandbox.resumed", "sandbox.paused", "sandbox.ended"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, ev := range allEvents(t, e, me, 0) {
		var d changeData
		if ev.Sandbox != s.ID {
			continue
		}
		if err := json.Unmarshal(ev.Data, &d); err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case "sandbox.paused":
			if d.Why != bailey.EndIdle {
				t.Errorf("paused because of %q", d.Why)
			}
		case "sandbox.ended":
			if d.End == nil || d.End.Reason != bailey.EndUser || d.Why != "" {
				t.Errorf("ended with %+v because of %q", d.End, d.Why)
			}
		}
	}
}

// TestEventsFollow: followers get what happens once and in order, from where they
// want, and only what is theirs.
func TestEventsFollow(t *testing.T) {
	e, _, _ := timed(t)
	other := Caller{Name: "uid:12345", Local: true}
	create(t, e, process)
	type got struct {
		ev  api.Event
		who string
	}
	events := make(chan got, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	follow := func(who Caller, name string, seq int64) {
		go func() {
			ended <- e.Events(ctx, who, seq, func(ev api.Event) error {
				events <- got{ev, name}
				return nil
			})
		}()
	}
	// From the begin on, what was is told first.
	follow(me, "old", 0)
	if g := <-events; g.ev.Kind != "sandbox.created" {
		t.Errorf("first is %+v", g.ev)
	}
	follow(other, "other", 0)
	follow(Caller{Name: "root", Admin: true}, "admin", -1)
	eventually(t, 10*time.Second, "all wait", func() bool { // the new one sees only what is to come
		if err := e.event(t.Context(), api.Event{Kind: "test.probe", Owner: other.Name}); err != nil {
			t.Fatal(err)
		}
		select {
		case g := <-events:
			return g.who == "admin" || g.who == "other" && len(events) > 0
		case <-time.After(20 * time.Millisecond):
			return false
		}
	})
	if err := e.event(t.Context(), api.Event{Kind: "test.mine", Owner: me.Name}); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for !seen["old"] || !seen["admin"] {
		select {
		case g := <-events:
			if g.ev.Kind == "test.mine" {
				seen[g.who] = true
			}
			if g.who == "other" && g.ev.Owner != other.Name || g.who == "old" && g.ev.Owner != me.Name {
				t.Fatalf("%s was told of %s's %s", g.who, g.ev.Owner, g.ev.Kind)
			}
		case <-time.After(patience):
			t.Fatalf("nothing comes; seen %v", seen)
		}
	}
	if seen["other"] {
		t.Error("others are told")
	}
	cancel()
	for range 3 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("following ended with %v", err)
		}
	}
}

// TestEventsDropped: what is kept no more is told as a gap, never passed over.
func TestEventsDropped(t *testing.T) {
	e, _, _ := timed(t)
	for range 10 {
		if err := e.event(t.Context(), api.Event{Kind: "test.x", Owner: me.Name}); err != nil {
			t.Fatal(err)
		}
	}
	err := e.db.Update(t.Context(), func(tx *sql.Tx) error {
		_, err := tx.Exec(`DELETE FROM events WHERE seq <= 7`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	list := allEvents(t, e, me, 3)
	if len(list) != 4 || list[0].Kind != "events.dropped" || string(list[0].Data) != `{"from":3,"to":7}` || list[1].Seq != 8 {
		t.Errorf("%+v", list)
	}
	if list := allEvents(t, e, me, 0); len(list) == 0 || list[0].Seq != 8 {
		t.Errorf("from the begin: %+v", list)
	}
}
