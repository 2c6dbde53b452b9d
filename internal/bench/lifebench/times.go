package lifebench

import (
	"math"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// Times sums up durations; in JSON they are nanoseconds.
type Times struct {
	result.Stats
	P99 time.Duration `json:"p99"`
}

// summarise leaves d as it is. Percentiles are the smallest value that so many of
// 100 do not exceed.
func summarise(d []time.Duration) Times {
	t := Times{Stats: result.Summarise(d)}
	if len(d) > 0 {
		s := slices.Sorted(slices.Values(d))
		t.P99 = s[int(math.Ceil(0.99*float64(len(s))))-1]
	}
	return t
}

// pace says when a measure has had its share of the time.
type pace struct {
	until time.Time
	now   func() time.Time
}

// atLeast is how many turns each measure makes, however long they take.
const atLeast = 3

// more says whether a turn is to be made after n of them.
func (p pace) more(n, of int) bool { return n < of && (n < atLeast || p.now().Before(p.until)) }
