//go:build linux

package approval

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

func durable() Question {
	q := question()
	q.Durable = true
	return q
}

// TestAskedAgain: what a daemon asked before it died is open for its owner, and an
// answer that comes meanwhile is that of the same question asked again by the next
// one, once.
func TestAskedAgain(t *testing.T) {
	for _, answered := range []Verdict{"", Once, Session, No} {
		d, home := desk(t)
		first := put(t, d, durable())
		d.Close() // as far as files go, what a death leaves
		e := entry(t, home, first.ID)
		if answered != "" {
			if err := Decide(home, e, answered); err != nil {
				t.Fatal(err)
			}
		}
		next, err := Open(home)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(next.Close)
		other := durable()
		other.Sandbox = "another"
		if p := put(t, next, other); p.answer != (Answer{}) {
			t.Errorf("another sandbox has the answer %+v", p.answer)
		}
		again := put(t, next, durable())
		if answered == "" {
			if list, err := List(home); err != nil || len(list) != 2 {
				t.Errorf("open are %+v, %v", list, err)
			}
			if err := Decide(home, e, Once); bailey.CodeOf(err) != bailey.CodeNotFound {
				t.Errorf("the old one is answered: %v", err)
			}
			if err := Decide(home, entry(t, home, again.ID), Once); err != nil {
				t.Error(err)
			}
			answered = Once
		}
		if a := again.Wait(t.Context()); a.Verdict != answered || a.Via != "approvals" {
			t.Errorf("%q: the answer is %+v", answered, a)
		}
		third := put(t, next, durable())
		select {
		case <-third.Done():
			t.Errorf("%q: it was answered twice", answered)
		default:
		}
	}
}

// TestLeftQuestion: whoever asks may go and come back; when its time is up it is
// taken away, and when nobody wants it any more at once.
func TestLeftQuestion(t *testing.T) {
	d, home := desk(t)
	q := durable()
	q.Until = time.Now().Add(time.Hour)
	p := put(t, d, q)
	p.Leave()
	if a := p.Wait(t.Context()); a.Verdict != Withdrawn {
		t.Errorf("%+v", a)
	}
	if list, err := List(home); err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	q.Until = time.Now().Add(-time.Second)
	late := put(t, d, q)
	late.Leave()
	if list, err := List(home); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	put(t, d, durable()).Wait(ctx)
	if names, err := os.ReadDir(filepath.Join(home, "approvals")); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
}
