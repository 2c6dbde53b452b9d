package lifebench

import (
	"context"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/peer"
)

// subject is one that is measured. Its once may run many times at once; slot is
// different in each of those.
type subject struct {
	name     string
	features []string
	slots    int // how many there may be at once
	once     func(ctx context.Context, slot int) (peer.Sample, error)

	mu      sync.Mutex
	first   []time.Duration
	total   []time.Duration
	tried   int
	failed  error         // the first failure
	elapsed time.Duration // of all rounds together
}

// do makes one measurement and counts it.
func (s *subject) do(ctx context.Context, slot int) {
	v, err := s.once(ctx, slot)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tried++
	switch {
	case err != nil && ctx.Err() != nil: // it was not its own failure
		s.tried--
	case err == nil:
		if v.First > 0 {
			s.first = append(s.first, v.First)
		}
		s.total = append(s.total, v.Total)
	case s.failed == nil:
		s.failed = err
	}
}

// again forgets what was counted.
func (s *subject) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.first, s.total, s.tried, s.elapsed = nil, nil, 0, 0
}

// result is nil if nothing succeeded.
func (s *subject) result() *Subject {
	if len(s.total) == 0 {
		return nil
	}
	r := &Subject{Name: s.name, Features: s.features, Tried: s.tried, Success: float64(len(s.total)) / float64(s.tried), Total: summarise(s.total)}
	if len(s.first) > 0 {
		f := summarise(s.first)
		r.First = &f
	}
	if s.failed != nil && len(s.total) < s.tried {
		r.Failure = s.failed.Error()
	}
	if s.elapsed > 0 {
		r.PerSecond = float64(len(s.total)) / s.elapsed.Seconds()
	}
	return r
}

// turns measures every subject up to n times, in turns. Who begins changes from
// round to round, so that nobody always runs after the same one. between, when
// given, is done before each measurement, and is not measured.
func (b *bench) turns(ctx context.Context, p pace, what string, n int, subjects []*subject, between func(*subject) error) error {
	for round := 0; p.more(round, n); round++ {
		b.progress(what, round, n)
		for i := range subjects {
			s := subjects[(i+round)%len(subjects)]
			if err := ctx.Err(); err != nil {
				return err
			}
			if between != nil {
				if err := between(s); err != nil {
					return err
				}
			}
			s.do(ctx, 0)
		}
	}
	return ctx.Err()
}

// together runs a subject n times, wide at once, each beginning so long after the
// one before.
func (s *subject) together(ctx context.Context, n, wide int, after time.Duration) error {
	slots := make(chan int, wide)
	for i := range wide {
		slots <- i
	}
	began := time.Now()
	var all sync.WaitGroup
	for i := range n {
		if wait := time.Until(began.Add(time.Duration(i) * after)); wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
		slot := -1
		select {
		case slot = <-slots:
		case <-ctx.Done():
		}
		if slot < 0 || ctx.Err() != nil {
			break
		}
		all.Go(func() {
			s.do(ctx, slot)
			slots <- slot
		})
	}
	all.Wait()
	s.mu.Lock()
	s.elapsed += time.Since(began)
	s.mu.Unlock()
	return ctx.Err()
}
