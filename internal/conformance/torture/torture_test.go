//go:build linux

package torture

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// How long and how many: what the suite does, and what BAILEY_TORTURE asks for,
// a length of time.
const (
	short, few = 30 * time.Second, 8
	many       = 50
)

// TestTorture is the torture. Each person's sandboxes get their share of the time.
func TestTorture(t *testing.T) {
	length, boxes := short, few
	if text := os.Getenv("BAILEY_TORTURE"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		length, boxes = d, many
	}
	people := rig.People()
	for _, who := range people {
		t.Run(who.Name, func(t *testing.T) { torture(t, who, length/time.Duration(len(people)), boxes) })
	}
}

func torture(t *testing.T, who rig.Person, length time.Duration, n int) {
	y := rig.New(t, who)
	d := y.Serve()
	ctx, cancel := context.WithTimeout(t.Context(), length+10*time.Minute)
	defer cancel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)

	boxes := make([]*box, n)
	for i := range boxes {
		spec := api.SandboxSpec{}
		if i%2 == 0 {
			spec.Allow = []string{"torture.invalid"} // has a way out
		}
		b, err := makeBox(ctx, d.Client, fmt.Sprintf("box%d", i), seed+uint64(i), time.Duration(n)*time.Second/400, spec)
		if err != nil {
			t.Fatal(err)
		}
		boxes[i] = b
	}

	over := make(chan struct{})
	var work, killers sync.WaitGroup
	time.AfterFunc(length, func() { close(over) })
	steps := make([]int, n)
	for i, b := range boxes {
		work.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				if err := b.step(ctx); err != nil {
					t.Errorf("%s: %v", b.name, err)
					return
				}
				steps[i]++
			}
		})
	}
	kills := 0
	killers.Go(func() {
		rnd := rand.New(rand.NewPCG(seed, 2))
		for i := 0; ; i++ {
			select {
			case <-over:
				return
			case <-time.After(time.Second + time.Duration(rnd.Int64N(int64(4*time.Second)))):
			}
			if i%3 == 2 {
				d.KillGate()
				continue
			}
			if d.Kill() {
				kills++
			}
			// Some are killed while they begin, but not one after the other: a daemon
			// that never comes to work loses nothing.
			if rnd.IntN(4) > 0 {
				if _, err := d.Client.Info(ctx); err != nil {
					t.Errorf("after a kill: %v", err)
					return
				}
			}
		}
	})
	work.Wait()
	killers.Wait()
	total := 0
	for _, s := range steps {
		total += s
	}
	t.Logf("%d steps, the daemon was killed %d times", total, kills)
	if kills == 0 || total == 0 {
		t.Error("nothing was put to the test")
	}
	compare(ctx, t, y, d, boxes)
}

// compare holds what is there against the model.
func compare(ctx context.Context, t *testing.T, y *rig.Yard, d *rig.Daemon, boxes []*box) {
	want := map[string]bool{}
	for _, b := range boxes {
		want[b.s.Ref()] = true
		if err := b.counted(ctx); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
		if err := b.check(ctx); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
		if err := b.checkExecs(ctx); err != nil {
			t.Errorf("%s: %v", b.name, err)
		}
	}
	for s, err := range d.Client.AllSandboxes(ctx, api.SandboxQuery{}) {
		if err != nil {
			t.Fatal(err)
		}
		if !want[s.ID] && s.Parent == "" {
			t.Errorf("there is a sandbox that nobody asked for: %+v", s)
		}
		delete(want, s.ID)
		if s.State != api.StateRunning {
			t.Errorf("%s is %s: %v", s.ID, s.State, s.Error)
		}
	}
	if len(want) > 0 {
		t.Errorf("lost: %v", slices.Collect(maps.Keys(want)))
	}
	if r := y.Run("audit", "verify"); r.Code != 0 {
		t.Errorf("the audit log: %v", r)
	}
	orphans, err := d.Client.GC(ctx, true)
	if err != nil || len(orphans) > 0 {
		t.Errorf("orphans: %v, %v", orphans, err)
	}
}
