package cli

import (
	"math"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// A limit that is no number is refused before anything is made.
func TestLimitsThatAreNone(t *testing.T) {
	for _, cpus := range []float64{math.NaN(), -1, math.Inf(-1)} {
		f := &runFlags{}
		f.Limits.CPUs = cpus
		if err := f.refuse([]string{"true"}); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%v processors: %v", cpus, err)
		}
	}
	if err := (&runFlags{}).refuse([]string{"true"}); err != nil {
		t.Errorf("no limit: %v", err)
	}
}
