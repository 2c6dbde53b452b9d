package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func named(name string, order *[]string, fail func(turn int) error, ours bool) *subject {
	turn := 0
	return &subject{name: name, ours: ours, once: func(context.Context) (sample, error) {
		turn++
		*order = append(*order, name)
		return sample{Total: time.Duration(turn)}, fail(turn)
	}}
}

func never(int) error { return nil }

func TestTurnsAreTaken(t *testing.T) {
	var order []string
	a, b, c := named("a", &order, never, true), named("b", &order, never, false), named("c", &order, never, false)
	samples, failed, err := takeTurns(context.Background(), 4, []*subject{a, b, c}, nil)
	if err != nil || len(failed) > 0 {
		t.Fatal(err, failed)
	}
	if got := strings.Join(order, ""); got != "abcbcacababcbcacababc" {
		t.Errorf("the order is %s", got)
	}
	for _, s := range []*subject{a, b, c} {
		if len(samples[s]) != 4 || samples[s][0].Total != warmUp+1 {
			t.Errorf("%s: %v: the first turns must not count", s.name, samples[s])
		}
	}
}

func TestWhoFailsLeaves(t *testing.T) {
	bad := errors.New("bad")
	third := func(turn int) error {
		if turn == warmUp+3 {
			return bad
		}
		return nil
	}
	var order []string
	a, b := named("a", &order, never, true), named("b", &order, third, false)
	samples, failed, err := takeTurns(context.Background(), 5, []*subject{a, b}, nil)
	if err != nil || failed[b] != bad || failed[a] != nil || len(samples[a]) != 5 || len(samples[b]) != 2 {
		t.Fatal(samples, failed, err)
	}
	m := Measure{}
	m.Subjects = append(m.Subjects, describe(a, samples[a]))
	m.target("a", "b", 1)
	if len(m.Targets) != 0 {
		t.Error("a target was judged against one that failed:", m.Targets)
	}
	b.ours = true
	b.once = func(context.Context) (sample, error) { return sample{}, bad }
	if _, _, err := takeTurns(context.Background(), 5, []*subject{a, b}, nil); !errors.Is(err, bad) {
		t.Error("our own failure must be an error, not", err)
	}
}

func TestAnInterruptEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	turns := 0
	s := &subject{name: "s", once: func(context.Context) (sample, error) {
		if turns++; turns == 5 {
			cancel()
		}
		return sample{}, nil
	}}
	if _, _, err := takeTurns(ctx, 100, []*subject{s}, nil); !errors.Is(err, context.Canceled) || turns != 5 {
		t.Error(turns, err)
	}
}

func TestPhases(t *testing.T) {
	var p phases
	for range 3 {
		for _, name := range []string{"plan", "start", ""} {
			p.step(name)
		}
	}
	list := p.take()
	if len(list) != 2 || list[0].Name != "plan" || list[1].Name != "start" || list[0].Median < list[0].Min {
		t.Errorf("%+v", list)
	}
	if again := p.take(); len(again) != 0 {
		t.Errorf("they were not forgotten: %+v", again)
	}
}
