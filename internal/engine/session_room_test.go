//go:build linux

package engine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestSessionRoom: what sessions of one owner write is bounded. Closed ones make room,
// the oldest first, and go when they are old; those of others are not touched.
func TestSessionRoom(t *testing.T) {
	e, clock, _ := timed(t)
	e.sessions.most = 100_000
	stranger := Caller{Name: "key:stranger", Local: true}
	theirs, err := e.NewSession(t.Context(), stranger, api.SessionSpec{})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.CloseSession(t.Context(), stranger, theirs.ID); err != nil {
		t.Fatal(err)
	}
	note := api.SessionEvent{Data: json.RawMessage(`"` + strings.Repeat("x", 9000) + `"`)}
	fill := func(id string) (n int) {
		for ; ; n++ {
			if _, err := e.AppendSession(t.Context(), me, id, note); bailey.CodeOf(err) == bailey.CodeQuotaExceeded {
				return n
			} else if err != nil {
				t.Fatal(err)
			} else if n > 20 {
				t.Fatal("there is no bound")
			}
		}
	}
	one := newSession(t, e, api.SessionSpec{})
	execute(t, e, one.ID, step("a", 0, "head -c 5000 /dev/zero | tr '\\0' y"))
	if n := fill(one.ID); n < 7 || n > 10 {
		t.Errorf("%d notes of 9000 bytes are in 100000", n)
	}
	if _, err := e.Execute(t.Context(), me, one.ID, step("b", 0, "true; # "+strings.Repeat("x", 9000))); bailey.CodeOf(err) != bailey.CodeQuotaExceeded {
		t.Errorf("a step without room: %v", err)
	}
	by, err := e.db.SessionBytes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if have, counted := by[me.Name], e.sessions.bytes[me.Name]; have > counted+8*rowBytes || have < counted*3/4 || counted > e.sessions.most {
		t.Errorf("%d bytes are there, and %d are counted", have, counted)
	}
	if err := e.CloseSession(t.Context(), me, one.ID); err != nil {
		t.Fatal(err)
	}
	two := newSession(t, e, api.SessionSpec{})
	if n := fill(two.ID); n < 8 {
		t.Errorf("a closed session makes room for %d notes only", n)
	}
	if _, err := e.SessionOf(t.Context(), me, one.ID); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("the closed one: %v", err)
	}
	for id, who := range map[string]Caller{two.ID: me, theirs.ID: stranger} {
		if _, err := e.SessionOf(t.Context(), who, id); err != nil {
			t.Errorf("another one: %v", err)
		}
	}
	if err := e.CloseSession(t.Context(), me, two.ID); err != nil {
		t.Fatal(err)
	}
	left := func() (n int) {
		for id, who := range map[string]Caller{two.ID: me, theirs.ID: stranger} {
			if _, err := e.SessionOf(t.Context(), who, id); err == nil {
				n++
			}
		}
		return n
	}
	clock.advance(keepSessions-time.Hour, nil)
	e.forgetSessions(t.Context())
	if n := left(); n != 2 {
		t.Errorf("%d of 2 are left before their time", n)
	}
	clock.advance(2*time.Hour, nil)
	e.forgetSessions(t.Context())
	if n := left(); n != 0 {
		t.Errorf("%d are left after their time", n)
	}
	if by, err := e.db.SessionBytes(t.Context()); err != nil || len(by) != 0 {
		t.Errorf("%v is left in the database, %v", by, err)
	}
}
