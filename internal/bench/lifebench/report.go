package lifebench

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
	Command  []string       `json:"command"` // the first command of each sandbox
	Measures []Measure      `json:"measures"`
}

// Measure is one question with its answer.
type Measure struct {
	Name        string           `json:"name"`
	What        string           `json:"what"`
	Subjects    []Subject        `json:"subjects,omitempty"`
	Idle        []Idle           `json:"idle,omitempty"`
	Targets     []result.Target  `json:"targets"`
	NotMeasured []result.Missing `json:"not_measured,omitempty"`
}

// Subject is one that was measured, and what it had.
type Subject struct {
	Name      string   `json:"name"`
	Features  []string `json:"features,omitempty"`
	Tried     int      `json:"tried"`
	Success   float64  `json:"success"`           // of those tried, 1 is all
	Failure   string   `json:"failure,omitempty"` // the first one
	First     *Times   `json:"first,omitempty"`   // until there was output
	Total     Times    `json:"total"`             // until all was given back
	PerSecond float64  `json:"per_second,omitempty"`
}

// Idle is what a number of sandboxes cost in which nothing happens. Bytes are those
// that no other process shares and no file holds: private dirty ones.
type Idle struct {
	Sandboxes int     `json:"sandboxes"`
	State     string  `json:"state"`   // running, paused, stopped
	Private   int64   `json:"private"` // of sandboxes, and what the service needs more than without
	Each      int64   `json:"each"`    // Private for one sandbox
	Service   int64   `json:"service"` // private bytes of keeper, daemon, gate and vault
	CPU       float64 `json:"cpu"`     // of one processor, all processes together
	Processes int     `json:"processes"`
}

func (m *Measure) subject(name string) *Subject {
	for i := range m.Subjects {
		if m.Subjects[i].Name == name {
			return &m.Subjects[i]
		}
	}
	return nil
}

// take adds what came of subjects.
func (m *Measure) take(subjects ...*subject) {
	for _, s := range subjects {
		if r := s.result(); r != nil {
			m.Subjects = append(m.Subjects, *r)
			continue
		}
		why := "there was no time for it"
		if s.failed != nil {
			why = s.failed.Error()
		}
		m.miss(s.name, why)
	}
}

func (m *Measure) miss(name, why string) {
	m.NotMeasured = append(m.NotMeasured, result.Missing{Name: name, Why: why})
}

func (m *Measure) atMost(of string, value, goal float64) {
	m.Targets = append(m.Targets, result.AtMost(of, value, goal))
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
	fmt.Fprintf(&b, "bailey %s on %s; first command: %s\n", r.Bailey, r.Machine, strings.Join(r.Command, " "))
	said := map[string]bool{}
	for _, m := range r.Measures {
		m.write(&b, said)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write leaves out what was said of a subject before.
func (m *Measure) write(b *strings.Builder, said map[string]bool) {
	fmt.Fprintf(b, "\n%s: %s\n", m.Name, m.What)
	width := 0
	for _, s := range m.Subjects {
		width = max(width, len(s.Name)+len(", all"))
	}
	row := func(name string, t Times, more string) {
		fmt.Fprintf(b, "  %-*s %9s %9s %9s %9s %5d%s\n", width, name, result.Human(t.Min), result.Human(t.Median), result.Human(t.P95), result.Human(t.P99), t.N, more)
	}
	for i, s := range m.Subjects {
		if i == 0 {
			fmt.Fprintf(b, "  %-*s %9s %9s %9s %9s %5s\n", width, "", "min", "median", "p95", "p99", "n")
		}
		more := ""
		if s.Success < 1 {
			more = fmt.Sprintf("  %.1f %% succeeded", s.Success*100)
		}
		if s.PerSecond > 0 {
			more += fmt.Sprintf("  %.0f/s", s.PerSecond)
		}
		if s.First != nil {
			row(s.Name, *s.First, "")
			row(s.Name+", all", s.Total, more)
		} else {
			row(s.Name, s.Total, more)
		}
	}
	for _, v := range m.Idle {
		fmt.Fprintf(b, "  %5d %-8s %8.1f MB private, %7.0f kB each, %6.1f MB of the service, %5.2f %% of a processor, %d processes\n",
			v.Sandboxes, v.State, float64(v.Private)/1e6, float64(v.Each)/1e3, float64(v.Service)/1e6, v.CPU*100, v.Processes)
	}
	for _, t := range m.Targets {
		t.Write(b)
	}
	for _, n := range m.NotMeasured {
		fmt.Fprintf(b, "  %s: not measured: %s\n", n.Name, n.Why)
	}
	for _, s := range m.Subjects {
		if s.Failure != "" {
			fmt.Fprintf(b, "  %s failed first: %s\n", s.Name, s.Failure)
		}
		has := fmt.Sprintf("  %s has %s\n", s.Name, strings.Join(s.Features, "; "))
		if len(s.Features) > 0 && !said[has] {
			b.WriteString(has)
		}
		said[has] = true
	}
}
