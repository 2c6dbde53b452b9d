package machine

import (
	"math"
	"time"
)

func counter() uint64

// counterKHz measures how fast the processor's counter runs, which an emulated
// processor passes on. The best of a few short measurements is the one that was not
// interrupted.
func counterKHz() int {
	best, khz := time.Duration(math.MaxInt64), 0.0
	for range 5 {
		a0 := counter()
		begin := time.Now()
		a1 := counter()
		for time.Since(begin) < 4*time.Millisecond {
		}
		b0 := counter()
		took := time.Since(begin)
		b1 := counter()
		unsure := time.Duration(float64(a1-a0+b1-b0) / float64(b0-a1) * float64(took))
		if unsure < best {
			best, khz = unsure, float64((b0+b1)/2-(a0+a1)/2)/float64(took)*1e6
		}
	}
	return int(khz + 0.5)
}
