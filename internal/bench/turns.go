package bench

import (
	"context"
	"fmt"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
)

// subject is one that is measured.
type subject struct {
	name     string
	features []string
	ours     bool // a failure is an error of the whole benchmark
	once     func(ctx context.Context) (sample, error)
}

// sample is one measurement.
type sample = peer.Sample

// warmUp is how many turns do not count.
const warmUp = 3

// takeTurns measures every subject n times, in turns. Who begins changes from
// round to round, so that nobody always runs after the same one. A subject of
// others that fails leaves the race and is in failed.
func takeTurns(ctx context.Context, n int, subjects []*subject, progress func(done, of int)) (samples map[*subject][]sample, failed map[*subject]error, err error) {
	samples, failed = map[*subject][]sample{}, map[*subject]error{}
	for round := -warmUp; round < n; round++ {
		if progress != nil {
			progress(max(round, 0), n)
		}
		for i := range subjects {
			s := subjects[(i+round+warmUp)%len(subjects)]
			if failed[s] != nil {
				continue
			}
			if err := ctx.Err(); err != nil {
				return nil, nil, bailey.Errorf(bailey.CodeBusy, "finish the benchmark", "", "%w", context.Cause(ctx))
			}
			v, err := s.once(ctx)
			switch {
			case err != nil && s.ours:
				return nil, nil, fmt.Errorf("%s: %w", s.name, err)
			case err != nil:
				failed[s] = err
			case round >= 0:
				samples[s] = append(samples[s], v)
			}
		}
	}
	return samples, failed, nil
}
