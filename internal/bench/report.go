package bench

import (
	"fmt"
	"io"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// Report is the result of a benchmark.
type Report struct {
	Bailey   string         `json:"bailey"`
	Machine  result.Machine `json:"machine"`
	Rounds   int            `json:"rounds"` // asked for; each measure says how many it made
	Measures []Measure      `json:"measures"`
}

// Measure is one question with its answer.
type Measure struct {
	Name        string           `json:"name"`
	What        string           `json:"what"`
	Subjects    []Subject        `json:"subjects,omitempty"`
	Memory      *Memory          `json:"memory,omitempty"`
	Targets     []result.Target  `json:"targets"`
	Phases      []Phase          `json:"phases,omitempty"` // of Bailey, where it runs in this process
	NotMeasured []result.Missing `json:"not_measured,omitempty"`
}

// Subject is one that was measured, and what it had.
type Subject struct {
	Name     string        `json:"name"`
	Features []string      `json:"features"`
	First    *result.Stats `json:"first_byte,omitempty"` // until the first byte of output
	Total    result.Stats  `json:"total"`                // until it was over and given back
}

// target compares two subjects by the medians of their totals. Without either
// there is nothing to compare.
func (m *Measure) target(ours, other string, goal float64) {
	a, b := m.subject(ours), m.subject(other)
	if a == nil || b == nil {
		return
	}
	v := result.Ratio(a.Total.Median, b.Total.Median)
	m.Targets = append(m.Targets, result.AtMost(ours+" / "+other, v, goal))
}

// ratio compares two subjects as target does, with no goal.
func (m *Measure) ratio(ours, other string) { m.target(ours, other, 0) }

func (m *Measure) subject(name string) *Subject {
	for i := range m.Subjects {
		if m.Subjects[i].Name == name {
			return &m.Subjects[i]
		}
	}
	return nil
}

// Missed counts the targets that were not met.
func (r *Report) Missed() (n int) {
	for _, m := range r.Measures {
		for _, t := range m.Targets {
			if !t.Met {
				n++
			}
		}
	}
	return n
}

// Write shows the report to a person.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "bailey %s on %s\n", r.Bailey, r.Machine)
	for _, m := range r.Measures {
		m.write(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (m *Measure) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s: %s\n", m.Name, m.What)
	if len(m.Subjects) > 0 {
		width := 0
		for _, s := range m.Subjects {
			width = max(width, len(s.Name))
		}
		fmt.Fprintf(b, "  %-*s %5s %9s %9s %9s %9s %9s\n", width, "", "n", "first", "p95", "total", "p95", "min")
		for _, s := range m.Subjects {
			first, p95 := "-", "-"
			if s.First != nil {
				first, p95 = result.Human(s.First.Median), result.Human(s.First.P95)
			}
			fmt.Fprintf(b, "  %-*s %5d %9s %9s %9s %9s %9s\n", width, s.Name, s.Total.N, first, p95,
				result.Human(s.Total.Median), result.Human(s.Total.P95), result.Human(s.Total.Min))
		}
	}
	if m.Memory != nil {
		m.Memory.write(b)
	}
	for _, t := range m.Targets {
		t.Write(b)
	}
	writePhases(b, m.Phases)
	for _, n := range m.NotMeasured {
		fmt.Fprintf(b, "  %s: not measured: %s\n", n.Name, n.Why)
	}
	for _, s := range m.Subjects {
		if len(s.Features) > 0 {
			fmt.Fprintf(b, "  %s has %s\n", s.Name, strings.Join(s.Features, "; "))
		}
	}
}
