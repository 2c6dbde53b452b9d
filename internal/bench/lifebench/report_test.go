package lifebench

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

func pid() string { return strconv.Itoa(os.Getpid()) }

func TestTimes(t *testing.T) {
	d := make([]time.Duration, 200)
	for i := range d {
		d[i] = time.Duration(200 - i)
	}
	if x := summarise(d); x.N != 200 || x.P99 != 198 || x.P95 != 190 || d[0] != 200 {
		t.Errorf("%+v", x)
	}
	if x := summarise(nil); x != (Times{}) {
		t.Errorf("%+v", x)
	}
}

// However little time there is, some turns are made; more of them only while there is.
func TestPace(t *testing.T) {
	at := time.Unix(100, 0)
	p := pace{until: at.Add(time.Second), now: func() time.Time { return at }}
	if !p.more(50, 100) || p.more(100, 100) {
		t.Error("with time left")
	}
	at = at.Add(time.Second)
	if !p.more(atLeast-1, 100) || p.more(atLeast, 100) || p.more(1, 1) {
		t.Error("with no time left")
	}
}

func TestSubject(t *testing.T) {
	n := 0
	s := &subject{name: "s", once: func(context.Context, int) (peer.Sample, error) {
		if n++; n == 2 {
			return peer.Sample{}, errors.New("no")
		}
		return peer.Sample{Total: time.Duration(n)}, nil
	}}
	if s.result() != nil {
		t.Error("nothing was measured")
	}
	b := &bench{}
	if err := b.turns(t.Context(), pace{now: time.Now}, "", 4, []*subject{s}, nil); err != nil {
		t.Fatal(err)
	}
	if r := s.result(); r.Tried != 3 || r.Failure != "no" || r.Total.N != 2 || r.Success < 0.66 || r.Success > 0.67 || r.First != nil {
		t.Errorf("%+v", r)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.once = func(context.Context, int) (peer.Sample, error) { return peer.Sample{}, ended.Err() }
	if s.do(ended, 0); s.tried != 3 {
		t.Error("what was interrupted counts as failed")
	}
}

// Slots are of one each at any moment, and no more than there are run at once.
func TestTogether(t *testing.T) {
	used := make([]chan struct{}, 3)
	for i := range used {
		used[i] = make(chan struct{}, 1)
	}
	s := &subject{once: func(_ context.Context, slot int) (peer.Sample, error) {
		select {
		case used[slot] <- struct{}{}:
		default:
			return peer.Sample{}, errors.New("it is used")
		}
		<-used[slot]
		return peer.Sample{Total: 1}, nil
	}}
	if err := s.together(t.Context(), 50, 3, 0); err != nil {
		t.Fatal(err)
	}
	if r := s.result(); r.Tried != 50 || r.Success != 1 || r.PerSecond <= 0 {
		t.Errorf("%+v", r)
	}
}

func TestParent(t *testing.T) {
	for text, want := range map[string]int{"12 (a) S 7 1": 7, "12 (a) b) (c) S 8 1": 8, "": -1, "12 (a)": -1, "12 (a) S x": -1} {
		if got, ok := parentOf([]byte(text)); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %d, %v", text, got, ok)
		}
	}
	all, err := below(os.Getpid())
	if err != nil || len(all) == 0 || all[0] != os.Getpid() {
		t.Error(all, err)
	}
}

func TestText(t *testing.T) {
	x := Times{Stats: result.Stats{N: 3, Min: time.Millisecond, Median: 2 * time.Millisecond, P95: 3 * time.Millisecond}, P99: 4 * time.Millisecond}
	m := Measure{Name: "burst", What: "at once", Subjects: []Subject{
		{Name: container, Features: []string{"a row"}, Tried: 4, Success: 0.75, Failure: "it broke", First: &x, Total: x, PerSecond: 20},
		{Name: crun, Tried: 3, Success: 1, Total: x},
	}, Targets: []result.Target{result.AtMost("p95", 0.6, 0.5)}, NotMeasured: []result.Missing{{Name: warm, Why: "none was there"}}}
	idle := Measure{Name: "idle", What: "memory"}
	for _, one := range []Idle{{Sandboxes: 100, State: "paused", Each: 3e6, CPU: 0.02}, {Sandboxes: 10, State: "paused", Each: 3e6}, {Sandboxes: 100, State: "stopped", Private: 5e6, Each: 50e3}, {Sandboxes: 1000, State: "stopped"}} {
		idle.Idle = append(idle.Idle, one)
		idle.judge(one)
	}
	r := Report{Bailey: "v1", Command: []string{"node", "-v"}, Measures: []Measure{m, m, idle}}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"first command: node -v\n", "  bailey, container, all   1.00 ms   2.00 ms   3.00 ms   4.00 ms     3  75.0 % succeeded  20/s\n",
		"  p95: 0.6, at most 0.5: MISSED\n", "  bailey, warm: not measured: none was there\n", "bailey, container failed first: it broke\n",
		"  kB each, 100 paused: 3e+03, at most 2000: MISSED\n", "  kB each, 10 paused: 3e+03\n", "  kB each, 100 stopped: 50, at most 50: met\n", "  kB each, 1000 stopped: 0, at most 50: met\n", "% of a processor, 100 paused: 2, at most 1: MISSED\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Count(b.String(), "bailey, container has a row") != 1 || r.Missed() != 4 {
		t.Errorf("missed %d in\n%s", r.Missed(), b.String())
	}
}
