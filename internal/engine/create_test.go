//go:build linux

package engine

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestSameKey is T73: creates with the same key at the same time and later are one
// sandbox; with another spec they are a conflict.
func TestSameKey(t *testing.T) {
	e := openEngine(t)
	spec := process
	spec.IdempotencyKey = "k"
	var wg sync.WaitGroup
	ids := make([]string, 10)
	for i := range ids {
		wg.Go(func() {
			s, err := e.Create(t.Context(), me, spec)
			if err != nil {
				t.Error(err)
			}
			ids[i] = s.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("several: %v", ids)
		}
	}
	other := spec
	other.Env = map[string]string{"A": "b"}
	if _, err := e.Create(t.Context(), me, other); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("another spec: %v", err)
	}
	if s, err := e.Create(t.Context(), Caller{Name: "key:else", Local: true}, spec); err != nil || s.ID == ids[0] {
		t.Errorf("somebody else's key: %v %v", s.ID, err)
	}
}

// TestCancelled is T74: of creates that are given up nothing is left, and the
// others are there.
func TestCancelled(t *testing.T) {
	e := openEngine(t)
	const n = 16
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := map[string]bool{}
	for i := range n {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 1 {
				time.AfterFunc(time.Duration(i)*3*time.Millisecond, cancel)
			}
			if s, err := e.Create(ctx, me, process); err == nil {
				mu.Lock()
				made[s.ID] = true
				mu.Unlock()
			} else if i%2 == 0 {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, _, err := e.Sandboxes(t.Context(), me, api.SandboxQuery{})
	if err != nil || len(list) != len(made) || len(made) < n/2 {
		t.Fatalf("%d are listed, and %d were made: %v", len(list), len(made), err)
	}
	for _, s := range list {
		if !made[s.ID] || s.State != api.StateRunning {
			t.Errorf("%s is %s", s.ID, s.State)
		}
	}
	eventually(t, 5*time.Second, "no other folder", func() bool {
		names, err := os.ReadDir(filepath.Join(e.home, sandboxesDir))
		return err == nil && len(names) == len(made)
	})
}

// TestNoRoom is T33: where the disk is nearly full a create is refused, and says
// what to do.
func TestNoRoom(t *testing.T) {
	e := openEngine(t, func(o *Options) { o.LowWater = 1 << 60 })
	if _, err := e.Create(t.Context(), me, process); bailey.CodeOf(err) != bailey.CodeDiskFull {
		t.Errorf("it said %v", err)
	}
	orphan := filepath.Join(e.home, sandboxesDir, "nobodys")
	if err := os.MkdirAll(filepath.Join(orphan, "roots"), 0o700); err != nil {
		t.Fatal(err)
	}
	admin := Caller{Name: "uid:0", Admin: true}
	for _, dry := range []bool{true, false} {
		list, err := e.GC(t.Context(), admin, dry)
		if err != nil || len(list) != 1 || list[0].Kind != "folder" || list[0].Why == "" || list[0].Done == dry {
			t.Errorf("dry=%v: %+v %v", dry, list, err)
		}
	}
	if _, err := os.Stat(orphan); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := e.GC(t.Context(), me, true); bailey.CodeOf(err) != bailey.CodeForbidden {
		t.Errorf("by somebody: %v", err)
	}
}
