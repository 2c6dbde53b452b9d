//go:build linux

package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/quota"
)

// bounded opens an engine with a quota for everybody together.
func bounded(t *testing.T, q api.Quota) (*Engine, func(time.Duration)) {
	t.Helper()
	e, _, advance := timed(t, func(o *Options) {
		o.Quota = func(owner string) api.Quota {
			if owner == "" {
				return q
			}
			return api.Quota{}
		}
	})
	return e, advance
}

// TestSameKeyTenTimes is T73: who repeats a create whose answer was lost gets the one
// sandbox that there is.
func TestSameKeyTenTimes(t *testing.T) {
	e, _ := bounded(t, api.Quota{Sandboxes: 1})
	spec := with(func(s *api.SandboxSpec) { s.IdempotencyKey = "k" })
	var mu sync.Mutex
	ids := map[string]bool{}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			s, err := e.Create(context.Background(), me, spec)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			ids[s.ID] = true
			mu.Unlock()
		})
	}
	all.Wait()
	list, _, err := e.Sandboxes(t.Context(), me, api.SandboxQuery{})
	if err != nil || len(list) != 1 || len(ids) != 1 {
		t.Errorf("%d sandboxes, %d ids were given, %v", len(list), len(ids), err)
	}
	if u := e.book.Used(me.Name); u.Sandboxes != 1 {
		t.Errorf("the book has %+v", u)
	}
}

// TestCancelledCreates is T74: of 50 creates at once half are cancelled; those are gone
// and the others are there, in the list, in the book and on the disk.
func TestCancelledCreates(t *testing.T) {
	e, _, _ := timed(t)
	var mu sync.Mutex
	var made []string
	var all sync.WaitGroup
	for i := range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if i%2 == 1 {
			time.AfterFunc(time.Duration(i)*time.Millisecond, cancel) // whatever it is at
		}
		all.Go(func() {
			s, err := e.Create(ctx, me, process)
			if err != nil && ctx.Err() == nil {
				t.Error(err)
			}
			if err == nil {
				mu.Lock()
				made = append(made, s.ID)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	list, _, err := e.Sandboxes(t.Context(), me, api.SandboxQuery{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var there []string
	for _, s := range list {
		if s.State != api.StateRunning {
			t.Errorf("%s is %s", s.ID, s.State)
		}
		there = append(there, s.ID)
	}
	slices.Sort(there)
	slices.Sort(made)
	if !slices.Equal(there, made) || len(made) < 25 {
		t.Errorf("%d were made, %d are there", len(made), len(there))
	}
	if u := e.book.Used(""); u.Sandboxes != len(made) || u.Running != len(made) {
		t.Errorf("%d are there, and the book has %+v", len(made), u)
	}
	for _, id := range made {
		if err := e.Delete(t.Context(), me, id); err != nil {
			t.Error(err)
		}
	}
	if u := e.book.Used(""); u != (quota.Claim{}) {
		t.Errorf("nothing is there, and the book has %+v", u)
	}
}

// TestRefusedWithPlace: who does not want to wait is told what is used up, place and
// ETA, and leaves nothing.
func TestRefusedWithPlace(t *testing.T) {
	e, advance := bounded(t, api.Quota{Running: 1})
	first := create(t, e, with(func(s *api.SandboxSpec) { s.Timeout = minutes(10) }))
	advance(4 * time.Minute)
	_, err := e.Create(t.Context(), me, process)
	if bailey.CodeOf(err) != bailey.CodeQuotaExceeded || !strings.Contains(err.Error(), "running 1 of 1") || !strings.Contains(err.Error(), "number 1") || !strings.Contains(err.Error(), "6m0s") {
		t.Errorf("%v", err)
	}
	if list, _, _ := e.Sandboxes(t.Context(), me, api.SandboxQuery{}); len(list) != 1 {
		t.Errorf("%d sandboxes", len(list))
	}
	// Waking one asks too.
	if _, err := e.Pause(t.Context(), me, first.ID, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	second := create(t, e, process)
	if _, err := e.Resume(t.Context(), me, first.ID); bailey.CodeOf(err) != bailey.CodeQuotaExceeded {
		t.Errorf("resumed over the quota: %v", err)
	}
	want(t, e, first.ID, api.StatePaused, "not resumed")
	if err := e.Delete(t.Context(), me, second.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Resume(t.Context(), me, first.ID); err != nil {
		t.Errorf("with room again: %v", err)
	}
	// What could never fit is said at once.
	huge := with(func(s *api.SandboxSpec) { s.Queue = api.Duration(time.Hour) })
	e.opt.Quota = nil
	e.book = quota.NewBook(func(string) api.Quota { return api.Quota{Memory: 1} })
	if _, err := e.Create(t.Context(), me, huge); bailey.CodeOf(err) != bailey.CodeQuotaExceeded || !strings.Contains(err.Error(), "never fit") {
		t.Errorf("%v", err)
	}
}

// TestQueue: with queue a create waits in the state queued, with its place, and owners
// take turns.
func TestQueue(t *testing.T) {
	e, advance := bounded(t, api.Quota{Running: 1})
	waiting := with(func(s *api.SandboxSpec) { s.Queue = api.Duration(time.Hour) })
	first := create(t, e, waiting)
	type outcome struct {
		name string
		s    api.Sandbox
		err  error
	}
	outcomes := make(chan outcome, 10)
	cancels := map[string]context.CancelFunc{}
	begin := func(owner, name string, spec api.SandboxSpec) {
		ctx, cancel := context.WithCancel(t.Context())
		cancels[name] = cancel
		spec.Name = name
		n := e.book.Waiting()
		go func() {
			s, err := e.Create(ctx, Caller{Name: owner, Local: true}, spec)
			outcomes <- outcome{name, s, err}
		}()
		eventually(t, 10*time.Second, name+" waits", func() bool { return e.book.Waiting() == n+1 })
	}
	for i := range 4 {
		begin("greedy", fmt.Sprint("greedy", i), waiting)
	}
	begin("modest", "modest0", waiting)
	admin := Caller{Name: "root", Admin: true}
	placeOf := func(name string) int {
		var place int
		eventually(t, 10*time.Second, name+" is queued", func() bool {
			s, err := e.Sandbox(t.Context(), admin, name)
			if err == nil && s.State == api.StateQueued && s.Queue != nil {
				place = s.Queue.Place
			}
			return place > 0
		})
		return place
	}
	for name, want := range map[string]int{"greedy0": 1, "modest0": 2, "greedy1": 3, "greedy3": 5} {
		if got := placeOf(name); got != want {
			t.Errorf("%s has place %d, want %d", name, got, want)
		}
	}
	// Who is cancelled, or deleted, has left the queue and nothing behind.
	cancels["greedy1"]()
	if o := <-outcomes; o.name != "greedy1" || o.err == nil {
		t.Errorf("cancelled: %+v", o)
	}
	if err := e.Delete(t.Context(), admin, "greedy2"); err != nil {
		t.Error(err)
	}
	if o := <-outcomes; o.name != "greedy2" || o.err == nil {
		t.Errorf("deleted: %+v", o)
	}
	if got := placeOf("greedy3"); got != 3 {
		t.Errorf("then greedy3 has place %d", got)
	}
	last := first.ID
	for _, name := range []string{"greedy0", "modest0", "greedy3"} {
		if err := e.Delete(t.Context(), admin, last); err != nil {
			t.Fatal(err)
		}
		o := <-outcomes
		if o.name != name || o.err != nil || o.s.State != api.StateRunning || o.s.Queue != nil {
			t.Fatalf("next is %s (%v), %s, queue %+v; want %s", o.name, o.err, o.s.State, o.s.Queue, name)
		}
		last = o.s.ID
	}
	// And who has waited for as long as it wanted is refused.
	begin("late", "late0", waiting)
	advance(time.Hour)
	if o := <-outcomes; bailey.CodeOf(o.err) != bailey.CodeQuotaExceeded {
		// the one that runs has a timeout of an hour as well: either may be first
		if o.err != nil || o.s.State != api.StateRunning {
			t.Errorf("late: %+v", o)
		}
	}
}

// TestQuotasChanged: a greater quota lets those go on who wait.
func TestQuotasChanged(t *testing.T) {
	var mu sync.Mutex
	q := api.Quota{Running: 1}
	e, _, _ := timed(t, func(o *Options) {
		o.Quota = func(string) api.Quota {
			mu.Lock()
			defer mu.Unlock()
			return q
		}
	})
	create(t, e, process)
	done := make(chan error, 1)
	go func() {
		_, err := e.Create(context.Background(), me, with(func(s *api.SandboxSpec) { s.Queue = api.Duration(time.Hour) }))
		done <- err
	}()
	eventually(t, 10*time.Second, "one waits", func() bool { return e.book.Waiting() == 1 })
	mu.Lock()
	q.Running = 2
	mu.Unlock()
	e.QuotasChanged()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
