package bench

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

func example() *Report {
	ms := func(n int) result.Stats {
		d := time.Duration(n) * time.Millisecond
		return result.Stats{N: 200, Min: d / 2, Median: d, P95: 2 * d}
	}
	first := ms(3)
	m := Measure{Name: "process", What: "echo", Subjects: []Subject{
		{Name: "bailey", Features: []string{"a", "b"}, First: &first, Total: ms(4)}, {Name: "bwrap", Total: ms(10)},
	}, NotMeasured: []result.Missing{{Name: "srt", Why: "it is not installed"}}, Phases: []Phase{{Name: "plan", Median: time.Millisecond}}}
	m.target("bailey", "bwrap", 0.5)
	m.target("bailey", "bwrap", 0.3)
	m.target("bailey", "srt", 0.1)
	mem := &Memory{Sandboxes: 2, Processes: 2, PrivateDirtyEach: 612_000, Opened: time.Second}
	return &Report{Bailey: "v1", Machine: result.Machine{Processors: 2, Processor: "CPU", Programs: map[string]string{"crun": "crun version 1"}}, Rounds: 200,
		Measures: []Measure{m, {Name: "idle", What: "sandboxes", Memory: mem, Targets: []result.Target{{Of: "MB", Goal: 1.2, Value: 0.612, Met: true}}}}}
}

func TestText(t *testing.T) {
	var b strings.Builder
	r := example()
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"bailey v1 on 2 × CPU", "crun version 1\n", "process: echo\n",
		"  bailey   200   3.00 ms   6.00 ms   4.00 ms   8.00 ms   2.00 ms\n",
		"  bwrap    200         -         -   10.0 ms   20.0 ms   5.00 ms\n",
		"  bailey / bwrap: 0.4, at most 0.5: met\n", "  bailey / bwrap: 0.4, at most 0.3: MISSED\n",
		"  where bailey's time goes: plan 1.00 ms\n", "  srt: not measured: it is not installed\n", "  bailey has a; b\n",
		"612 kB private dirty",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "bailey / srt") {
		t.Error("a ratio to one that was not measured")
	}
	if r.Missed() != 1 {
		t.Error("missed:", r.Missed())
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(example())
	if err != nil {
		t.Fatal(err)
	}
	var r struct {
		Measures []struct {
			Subjects []struct {
				First *struct{ Median int64 } `json:"first_byte"`
				Total struct{ N, Median, P95 int64 }
			}
			Targets     []struct{ Met bool }
			NotMeasured []struct{ Name, Why string } `json:"not_measured"`
		}
	}
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatal(err)
	}
	m := r.Measures[0]
	if m.Subjects[0].First.Median != 3e6 || m.Subjects[1].First != nil || m.Subjects[1].Total.P95 != 2e7 || len(m.Targets) != 2 || m.NotMeasured[0].Name != "srt" {
		t.Errorf("%s", b)
	}
}
