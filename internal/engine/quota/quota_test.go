package quota_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/quota"
)

var t0 = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

func at(s int) time.Time { return t0.Add(time.Duration(s) * time.Second) }

// quotas gives the quota of each owner, and with "" that of all.
func quotas(m map[string]api.Quota) func(string) api.Quota {
	return func(owner string) api.Quota { return m[owner] }
}

func one() quota.Claim {
	return quota.Of(api.StateRunning, bailey.Limits{CPUs: 1, Memory: 100, Disk: 10}, 2)
}

func served(r *quota.Request) bool {
	select {
	case <-r.Ready:
		return true
	default:
		return false
	}
}

func ask(t testing.TB, b *quota.Book, id, owner string, c quota.Claim) (*quota.Request, api.QueuePlace) {
	t.Helper()
	r, p, err := b.Ask(id, owner, c, t0)
	if err != nil {
		t.Fatal(err)
	}
	return r, p
}

func TestOf(t *testing.T) {
	l := bailey.Limits{Memory: 100, Disk: 10}
	for _, c := range []struct {
		state api.State
		want  quota.Claim
	}{
		{api.StateQueued, quota.Claim{}},
		{api.StateCreating, quota.Claim{Sandboxes: 1, Running: 1, CPUs: 2, Memory: 100, Disk: 10}},
		{api.StateRunning, quota.Claim{Sandboxes: 1, Running: 1, CPUs: 2, Memory: 100, Disk: 10}},
		{api.StatePaused, quota.Claim{Sandboxes: 1, Memory: 100, Disk: 10}},
		{api.StateStopped, quota.Claim{Disk: 10}},
		{api.StateLost, quota.Claim{Disk: 10}}, // T76
		{api.StateFailed, quota.Claim{}},
		{api.StateEnded, quota.Claim{}},
	} {
		if got := quota.Of(c.state, l, 2); got != c.want {
			t.Errorf("%s takes %+v, want %+v", c.state, got, c.want)
		}
	}
}

// TestEachBound uses up each kind of bound, of the owner and of all, and sees that it
// is what is in the way, and named.
func TestEachBound(t *testing.T) {
	for _, c := range []struct {
		says  string
		quota api.Quota
	}{
		{"sandboxes 2 of 2", api.Quota{Sandboxes: 2}},
		{"running 2 of 2", api.Quota{Running: 2}},
		{"cpus 2 of 2.5", api.Quota{CPUs: 2.5}},
		{"memory 200 of 299", api.Quota{Memory: 299}},
		{"disk 20 of 20", api.Quota{Disk: 20}},
	} {
		for _, whose := range []string{"a", ""} {
			b := quota.NewBook(quotas(map[string]api.Quota{whose: c.quota}))
			for _, id := range []string{"1", "2"} {
				if r, _ := ask(t, b, id, "a", one()); !served(r) {
					t.Fatalf("%q %s: %s had to wait", whose, c.says, id)
				}
			}
			r, p := ask(t, b, "3", "a", one())
			if served(r) || p.Place != 1 || !strings.Contains(p.Why, c.says) {
				t.Errorf("%q: place %+v, want one that says %q", whose, p, c.says)
			}
			b.Set("1", "a", quota.Claim{}, time.Time{}, t0)
			if !served(r) {
				t.Errorf("%q %s: it still waits though there is room", whose, c.says)
			}
		}
	}
}

// TestNeverFits holds that what could never be served is refused and not queued.
func TestNeverFits(t *testing.T) {
	b := quota.NewBook(quotas(map[string]api.Quota{"a": {Memory: 99}, "": {CPUs: 0.5}}))
	for _, owner := range []string{"a", "b"} {
		if _, _, err := b.Ask("x", owner, one(), t0); bailey.CodeOf(err) != bailey.CodeQuotaExceeded || !strings.Contains(err.Error(), "never fit") {
			t.Errorf("%s: %v", owner, err)
		}
	}
	if b.Waiting() != 0 {
		t.Error("it waits")
	}
}

// TestTurns holds that owners take turns: who comes with one request is not behind
// the hundred of another.
func TestTurns(t *testing.T) {
	b := quota.NewBook(quotas(map[string]api.Quota{"": {Running: 1}}))
	ask(t, b, "held", "x", one())
	var line []*quota.Request
	name := map[*quota.Request]string{}
	add := func(owner string, n int) {
		for i := range n {
			id := fmt.Sprintf("%s%d", owner, i)
			r, _ := ask(t, b, id, owner, one())
			line = append(line, r)
			name[r] = id
		}
	}
	add("greedy", 100)
	add("b", 2)
	add("c", 1)
	for _, r := range line[100:] {
		if p, ok := b.Place(r, t0); !ok || p.Place > 5 {
			t.Errorf("%s has the place %+v", name[r], p)
		}
	}
	var order []string
	last := "held"
	for range 6 {
		b.Set(last, "any", quota.Claim{}, time.Time{}, t0)
		last = ""
		for _, r := range line {
			if served(r) && name[r] != "" {
				last = name[r]
				order = append(order, last)
				name[r] = ""
			}
		}
	}
	if got, want := strings.Join(order, " "), "greedy0 b0 c0 greedy1 b1 greedy2"; got != want {
		t.Errorf("served in the order %s, want %s", got, want)
	}
}

// TestOwnQuotaHoldsUpNobodyElse: who waits for their own quota is passed over.
func TestOwnQuotaHoldsUpNobodyElse(t *testing.T) {
	b := quota.NewBook(quotas(map[string]api.Quota{"a": {Running: 1}, "": {Running: 3}}))
	ask(t, b, "a1", "a", one())
	r, _ := ask(t, b, "a2", "a", one())
	if o, _ := ask(t, b, "b1", "b", one()); !served(o) || served(r) {
		t.Error("b waits for a's quota")
	}
}

// TestLargeIsNotStarved: small requests do not get past a large one whose turn it is.
func TestLargeIsNotStarved(t *testing.T) {
	b := quota.NewBook(quotas(map[string]api.Quota{"": {Memory: 400}}))
	small, large := one(), one()
	large.Memory = 400
	for i := range 3 {
		ask(t, b, fmt.Sprint("s", i), "s", small)
	}
	l, _ := ask(t, b, "l", "l", large)
	s, _ := ask(t, b, "s3", "s", small)
	if served(s) {
		t.Fatal("the small one got past")
	}
	for i := range 3 {
		b.Set(fmt.Sprint("s", i), "s", quota.Claim{}, time.Time{}, t0)
	}
	if !served(l) || served(s) {
		t.Error("the large one is not served first")
	}
}

func TestETA(t *testing.T) {
	b := quota.NewBook(quotas(map[string]api.Quota{"": {Running: 2}}))
	for i, until := range []int{100, 300} {
		ask(t, b, fmt.Sprint(i), "a", one())
		b.Set(fmt.Sprint(i), "a", one(), at(until), t0)
	}
	_, p1 := ask(t, b, "x", "a", one())
	_, p2 := ask(t, b, "y", "b", one())
	if p1.ETA == nil || *p1.ETA != api.Duration(100*time.Second) || p2.Place != 2 || p2.ETA == nil || *p2.ETA != api.Duration(300*time.Second) {
		t.Errorf("places %+v %+v", p1, p2)
	}
	// What never ends says nothing about when.
	n := quota.NewBook(quotas(map[string]api.Quota{"": {Running: 1}}))
	ask(t, n, "1", "a", one())
	if _, p := ask(t, n, "2", "a", one()); p.ETA != nil || p.Place != 1 {
		t.Errorf("place %+v", p)
	}
	if _, p := ask(t, n, "3", "a", one()); p.Place != 2 {
		t.Errorf("place %+v", p)
	}
}

func TestCancelLeavesTheQueue(t *testing.T) {
	b := quota.NewBook(quotas(map[string]api.Quota{"": {Running: 1}}))
	ask(t, b, "1", "a", one())
	r2, _ := ask(t, b, "2", "a", one())
	r3, _ := ask(t, b, "3", "a", one())
	b.Cancel(r2)
	b.Cancel(r2) // again is no harm
	if p, _ := b.Place(r3, t0); p.Place != 1 || b.Waiting() != 1 {
		t.Errorf("place %+v of %d", p, b.Waiting())
	}
	b.Set("1", "a", quota.Claim{}, time.Time{}, t0)
	if served(r2) || !served(r3) {
		t.Error("the cancelled one was served")
	}
}

// TestWake: a sandbox that has something already asks for more in its place.
func TestWake(t *testing.T) {
	b := quota.NewBook(quotas(map[string]api.Quota{"a": {Sandboxes: 1, Running: 1, Memory: 100}}))
	b.Set("1", "a", quota.Of(api.StatePaused, bailey.Limits{CPUs: 1, Memory: 100, Disk: 10}, 2), time.Time{}, t0)
	if r, p := ask(t, b, "1", "a", one()); !served(r) {
		t.Fatalf("it waits for itself: %+v", p)
	}
	if got := b.Used("a"); got != one() {
		t.Errorf("used %+v", got)
	}
}

func TestRecheck(t *testing.T) {
	m := map[string]api.Quota{"a": {Running: 1}}
	b := quota.NewBook(quotas(m))
	ask(t, b, "1", "a", one())
	r, _ := ask(t, b, "2", "a", one())
	m["a"] = api.Quota{Running: 2}
	if b.Recheck(); !served(r) {
		t.Error("a greater quota lets nobody go on")
	}
}

// TestBounds plays random requests: no bound is ever exceeded, sums are right, whoever
// waits has a place and a reason, and once all is free everybody has been served.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		owners := []string{"a", "b", "c"}
		m := map[string]api.Quota{"": {Running: rapid.IntRange(1, 5).Draw(t, "running"), Memory: int64(rapid.IntRange(4, 10).Draw(t, "memory"))}}
		for _, o := range owners {
			m[o] = api.Quota{Running: rapid.IntRange(0, 3).Draw(t, o), CPUs: 4}
		}
		b := quota.NewBook(quotas(m))
		type entry struct {
			owner string
			claim quota.Claim
			r     *quota.Request
		}
		live, waits := map[string]entry{}, []string{}
		all := map[string]entry{}
		check := func() {
			sums := map[string]quota.Claim{}
			for _, e := range live {
				for _, o := range []string{e.owner, ""} {
					s := sums[o]
					s.Running += e.claim.Running
					s.Memory += e.claim.Memory
					s.CPUs += e.claim.CPUs
					sums[o] = s
				}
			}
			for _, o := range append(owners, "") {
				u, s, q := b.Used(o), sums[o], m[o]
				if u.Running != s.Running || u.Memory != s.Memory || u.CPUs != s.CPUs {
					t.Fatalf("%q has %+v, the book says %+v", o, s, u)
				}
				if q.Running > 0 && u.Running > q.Running || q.Memory > 0 && u.Memory > q.Memory || q.CPUs > 0 && u.CPUs > q.CPUs {
					t.Fatalf("%q has %+v of %+v", o, u, q)
				}
			}
		}
		collect := func() {
			rest := waits[:0]
			for _, id := range waits {
				if e := all[id]; served(e.r) {
					live[id] = e
				} else {
					rest = append(rest, id)
				}
			}
			waits = rest
			for _, id := range waits {
				p, ok := b.Place(all[id].r, t0)
				if !ok || p.Place < 1 || p.Place > len(waits) || p.Why == "" {
					t.Fatalf("%s waits at %+v (%t) of %d", id, p, ok, len(waits))
				}
			}
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			id := fmt.Sprint("s", i)
			switch {
			case len(live) > 0 && rapid.Bool().Draw(t, "free"):
				for gone, e := range live {
					delete(live, gone)
					b.Set(gone, e.owner, quota.Claim{}, time.Time{}, at(i))
					break
				}
			case len(waits) > 0 && rapid.IntRange(0, 5).Draw(t, "cancel") == 0:
				b.Cancel(all[waits[0]].r)
				waits = waits[1:]
			default:
				e := entry{owner: rapid.SampledFrom(owners).Draw(t, "owner"), claim: quota.Claim{Sandboxes: 1, Running: 1, CPUs: 1, Memory: int64(rapid.IntRange(1, 4).Draw(t, "size"))}}
				r, _, err := b.Ask(id, e.owner, e.claim, at(i))
				if err != nil {
					t.Fatal(err)
				}
				e.r = r
				all[id] = e
				waits = append(waits, id)
			}
			collect()
			check()
		}
		for len(live) > 0 {
			for id, e := range live {
				delete(live, id)
				b.Set(id, e.owner, quota.Claim{}, time.Time{}, t0)
			}
			collect()
			check()
		}
		if len(waits) > 0 || b.Waiting() > 0 {
			t.Fatalf("all is free and %v wait", waits)
		}
	})
}
