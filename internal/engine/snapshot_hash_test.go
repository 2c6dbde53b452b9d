//go:build linux

package engine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/api"
)

// TestHashedAgain: what cannot be hashed for a while is hashed later, and its receipt
// waits for it; what never can be says so.
func TestHashedAgain(t *testing.T) {
	e, _, forward := timed(t)
	var mu sync.Mutex
	calls, fail := 0, 0
	real := e.snaps.hash
	e.snaps.hash = func(ctx context.Context, d *snapDoc) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if calls++; calls <= fail {
			return "", errors.New("the disk does not answer")
		}
		return real(ctx, d)
	}
	snapshot := func(id string) func() api.Receipt {
		s, err := e.Snapshot(t.Context(), me, id, api.SnapshotSpec{})
		if err != nil {
			t.Fatal(err)
		}
		return func() api.Receipt {
			s, err := e.SnapshotOf(t.Context(), me, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			return s.Receipt
		}
	}
	stop := func(id string) func() api.Receipt {
		if _, err := e.Pause(t.Context(), me, id, api.PauseRequest{ToDisk: true}); err != nil {
			t.Fatal(err)
		}
		return func() api.Receipt { return *sandboxOf(t, e, id).Receipt }
	}
	for _, test := range []struct {
		name string
		make func(id string) func() api.Receipt
		fail int
	}{
		{"snapshot", snapshot, hashTries - 1}, {"stop", stop, hashTries - 1}, {"snapshot, never", snapshot, hashTries}, {"stop, never", stop, hashTries},
	} {
		t.Run(test.name, func(t *testing.T) {
			spec := process
			spec.Idle.Never, spec.Timeout.Never = true, true
			s := create(t, e, spec)
			sh(t, e, s.ID, "cd; echo kept > f")
			mu.Lock()
			calls, fail = 0, test.fail
			mu.Unlock()
			receipt := test.make(s.ID)
			for n := 1; n < hashTries; n++ {
				eventually(t, time.Second, "it was tried", func() bool {
					e.snaps.mu.Lock()
					defer e.snaps.mu.Unlock()
					mu.Lock()
					defer mu.Unlock()
					return calls == n && len(e.snaps.timers) == 1
				})
				if r := receipt(); !r.HashPending || r.Hash != "" || len(r.Notes) > 0 {
					t.Fatalf("after %d tries its receipt says %+v", n, r)
				}
				forward(hashPause)
			}
			eventually(t, time.Second, "the last try", func() bool { return !receipt().HashPending })
			if r, never := receipt(), test.fail == hashTries; (r.Hash == "") != never || (len(r.Notes) > 0) != never {
				t.Errorf("its receipt says %+v", r)
			}
			if err := e.Delete(t.Context(), me, s.ID); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestHashedMeanwhile: a sandbox whose snapshot is hashed while it is being made has
// the hash in its receipt all the same.
func TestHashedMeanwhile(t *testing.T) {
	e := openEngine(t)
	a := create(t, e, process)
	hold := make(chan struct{})
	real := e.snaps.hash
	e.snaps.hash = func(ctx context.Context, d *snapDoc) (string, error) {
		<-hold
		return real(ctx, d)
	}
	s := snap(t, e, a.ID, api.SnapshotSpec{})
	d, err := e.findSnapshot(t.Context(), me, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	from, err := e.originFrom(t.Context(), me, d, "restore")
	if err != nil || !from.Receipt.HashPending {
		t.Fatalf("%v: %+v", err, from.Receipt)
	}
	close(hold)
	eventually(t, 20*time.Second, "the snapshot is hashed", func() bool {
		s, err := e.SnapshotOf(t.Context(), me, s.ID)
		return err == nil && s.Hash != ""
	})
	spec := process
	b, err := e.createFrom(t.Context(), me, spec, from)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, "its receipt has the hash", func() bool {
		c := sandboxOf(t, e, b.ID).Receipt
		return c != nil && c.Hash != "" && !c.HashPending
	})
}
