package linux

import (
	"slices"
	"testing"
	"time"
)

// laps are the times that one step of a benchmark took.
type laps struct {
	at   time.Time
	list []time.Duration
}

func (l *laps) begin() { l.at = time.Now() }
func (l *laps) end()   { l.list = append(l.list, time.Since(l.at)) }

// report tells the median, in microseconds.
func (l *laps) report(b *testing.B, unit string) {
	slices.Sort(l.list)
	b.ReportMetric(float64(l.list[len(l.list)/2].Microseconds()), unit)
}
