package gatebench

import (
	"context"
	"fmt"
)

// turns lets each subject do its turn n times, after one that does not count.
// Who begins changes from round to round. A subject of others that fails leaves,
// and has failed set.
func (b *bench) turns(ctx context.Context, what string, n int, subjects []*subject, turn func(s *subject, round int) error) error {
	for round := -1; round < n; round++ {
		if b.opt.progress != nil {
			b.opt.progress(what, max(round, 0), n)
		}
		for i := range subjects {
			s := subjects[(i+round+1)%len(subjects)]
			if s.failed != nil {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			switch err := turn(s, round); {
			case err != nil && s.ours:
				return fmt.Errorf("%s: %w", s.name, err)
			case err != nil:
				s.failed = err
			}
		}
	}
	return nil
}
