package result

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Stats sums up durations. In JSON they are nanoseconds.
type Stats struct {
	N      int           `json:"n"`
	Min    time.Duration `json:"min"`
	Median time.Duration `json:"median"`
	P95    time.Duration `json:"p95"`
}

// Summarise leaves d as it is. The median of an even number is the mean of the
// middle two, the 95th percentile the smallest value that at least 95 of 100
// do not exceed (nearest rank).
func Summarise(d []time.Duration) Stats {
	if len(d) == 0 {
		return Stats{}
	}
	s := slices.Sorted(slices.Values(d))
	n := len(s)
	return Stats{
		N: n, Min: s[0],
		Median: s[(n-1)/2] + (s[n/2]-s[(n-1)/2])/2,
		P95:    s[int(math.Ceil(0.95*float64(n)))-1],
	}
}

// Ratio is a/b, and 0 when b is nothing.
func Ratio(a, b time.Duration) float64 {
	if b <= 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// Human writes a duration with three digits that mean something.
func Human(d time.Duration) string {
	switch {
	case d <= 0:
		return "-"
	case d < time.Millisecond:
		return fmt.Sprintf("%.0f µs", float64(d)/1e3)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/1e6)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/1e6)
	case d < 10*time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/1e6)
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
