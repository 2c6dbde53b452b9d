package gatebench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// Report is the result of a benchmark.
type Report struct {
	Bailey   string         `json:"bailey"`
	Machine  result.Machine `json:"machine"`
	Rounds   int            `json:"rounds"`
	Measures []Measure      `json:"measures"`
}

// Measure is one question with its answer.
type Measure struct {
	Name        string           `json:"name"`
	What        string           `json:"what"`
	Subjects    []Subject        `json:"subjects,omitempty"`
	Memory      *Memory          `json:"memory,omitempty"`
	Targets     []result.Target  `json:"targets"`
	NotMeasured []result.Missing `json:"not_measured,omitempty"`
}

// Subject is one that was measured, and what it had.
type Subject struct {
	Name     string   `json:"name"`
	Features []string `json:"features,omitempty"`
	Requests *Rates   `json:"requests_per_second,omitempty"`
	Bytes    *Rates   `json:"bytes_per_second,omitempty"`
	Latency  *Latency `json:"latency,omitempty"`
	Added    *Added   `json:"added,omitempty"` // to the latency without anybody between
}

// Rates sums up one value a round.
type Rates struct {
	N      int     `json:"n"`
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// Latency sums up the requests of all rounds. In JSON times are nanoseconds.
type Latency struct {
	N      int           `json:"n"`
	Median time.Duration `json:"median"`
	P99    time.Duration `json:"p99"`
}

// Added is how much longer a request takes: Median is the median of what the
// medians of each round differ by, P99 the difference of the two percentiles.
type Added struct {
	Median time.Duration `json:"median"`
	P99    time.Duration `json:"p99"`
}

func summarise(v []float64) *Rates {
	if len(v) == 0 {
		return nil
	}
	return &Rates{N: len(v), Min: slices.Min(v), Median: median(v), Max: slices.Max(v)}
}

// latencies leaves d as it is. The percentile is the smallest value that at
// least 99 of 100 do not exceed.
func latencies(d []time.Duration) *Latency {
	if len(d) == 0 {
		return &Latency{}
	}
	s := slices.Sorted(slices.Values(d))
	n := len(s)
	return &Latency{N: n, Median: s[(n-1)/2] + (s[n/2]-s[(n-1)/2])/2, P99: s[int(math.Ceil(0.99*float64(n)))-1]}
}

// missing notes one that was not measured, if there is one.
func (m *Measure) missing(who *result.Missing) {
	if who != nil {
		m.NotMeasured = append(m.NotMeasured, *who)
	}
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
		width = max(width, len(s.Name))
	}
	for i, s := range m.Subjects {
		if i == 0 {
			switch {
			case s.Requests != nil:
				fmt.Fprintf(b, "  %-*s %9s %9s %9s %9s %9s %9s\n", width, "", "req/s", "min", "median", "p99", "added", "p99")
			case s.Bytes != nil:
				fmt.Fprintf(b, "  %-*s %9s %9s\n", width, "", "MB/s", "min")
			default:
				fmt.Fprintf(b, "  %-*s %9s %9s\n", width, "", "median", "p99")
			}
		}
		fmt.Fprintf(b, "  %-*s", width, s.Name)
		if v := s.Requests; v != nil {
			fmt.Fprintf(b, " %9.0f %9.0f", v.Median, v.Min)
		}
		if v := s.Bytes; v != nil {
			fmt.Fprintf(b, " %9.0f %9.0f", v.Median/1e6, v.Min/1e6)
		}
		if v := s.Latency; v != nil {
			fmt.Fprintf(b, " %9s %9s", human(v.Median), human(v.P99))
		}
		if v := s.Added; v != nil {
			fmt.Fprintf(b, " %9s %9s", human(v.Median), human(v.P99))
		}
		b.WriteByte('\n')
	}
	if v := m.Memory; v != nil {
		fmt.Fprintf(b, "  %.1f MB resident, %.1f MB of it no file's; %.1f MB with the first sandbox, and %.0f kB for each further one\n",
			float64(v.Resident)/1e6, float64(v.Anonymous)/1e6, float64(v.First)/1e6, float64(v.Each)/1e3)
	}
	for _, t := range m.Targets {
		t.Write(b)
	}
	for _, n := range m.NotMeasured {
		fmt.Fprintf(b, "  %s: not measured: %s\n", n.Name, n.Why)
	}
	for _, s := range m.Subjects {
		has := fmt.Sprintf("  %s has %s\n", s.Name, strings.Join(s.Features, "; "))
		if len(s.Features) > 0 && !said[has] {
			b.WriteString(has)
		}
		said[has] = true
	}
}

// human writes a duration that may be below zero, or of less than a microsecond.
func human(d time.Duration) string {
	switch a := d.Abs(); {
	case a < 10*time.Microsecond:
		return fmt.Sprintf("%.2f µs", float64(d)/1e3)
	case a < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	}
	return fmt.Sprintf("%.2f ms", float64(d)/1e6)
}
