package lifebench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// The bounds, for each of 1,000 sandboxes.
const (
	goalPaused  = 2e3 // kB
	goalStopped = 50  // kB
	goalCPU     = 1.0 // percent of one processor: what cannot be measured on a busy machine
	// judged is the least number of sandboxes of which bounds are judged: with fewer,
	// what a daemon's heap happens to hold is more than theirs.
	judged = 100
	atOnce = 8
)

// counts are 10, 100 … and the most that is asked for.
func (b *bench) counts() (list []int) {
	for n := 10; n < b.opt.Idle; n *= 10 {
		list = append(list, n)
	}
	return append(list, b.opt.Idle)
}

// idle: what sandboxes cost in which nothing happens.
func (b *bench) idle(ctx context.Context, p pace) (m Measure, err error) {
	m.What = fmt.Sprintf("container level, no command runs: private memory, without what the service has before, and processor time for %s", b.opt.Watch)
	before, err := b.service.look()
	if err != nil {
		return m, err
	}
	var all []created
	for i, n := range b.counts() {
		if i > 0 && !p.now().Before(p.until) {
			m.miss(strconv.Itoa(n)+" sandboxes", "there was no time for it")
			break
		}
		if all, err = b.grow(ctx, all, n); err != nil {
			return m, err
		}
		for _, step := range []struct {
			state api.State
			enter func(created) error
		}{
			{api.StateRunning, nil},
			{api.StatePaused, func(s created) error { _, err := s.Pause(ctx, api.PauseRequest{}); return err }},
			{api.StateStopped, func(s created) error { _, err := s.Pause(ctx, api.PauseRequest{ToDisk: true}); return err }},
		} {
			b.progress(fmt.Sprintf("idle, %s", step.state), 0, n)
			if step.enter != nil {
				if err := inParallel(all, atOnce, step.enter); err != nil {
					return m, err
				}
			}
			one, unread, err := b.watch(ctx, n, before)
			if err != nil {
				return m, err
			}
			if unread > 0 {
				m.miss(fmt.Sprintf("memory of %d %s", n, step.state), fmt.Sprintf("this user may not look at %d processes", unread))
			}
			one.State = string(step.state)
			m.Idle = append(m.Idle, one)
			m.judge(one)
		}
	}
	return m, nil
}

func (m *Measure) judge(one Idle) {
	name := fmt.Sprintf("%d %s", one.Sandboxes, one.State)
	bound := func(goal float64) float64 {
		if one.Sandboxes < judged {
			return 0
		}
		return goal
	}
	switch api.State(one.State) {
	case api.StatePaused:
		m.atMost("kB each, "+name, float64(one.Each)/1e3, bound(goalPaused))
		m.Targets = append(m.Targets, result.Target{Of: "% of a processor, " + name, Goal: goalCPU, Value: one.CPU * 100, Met: one.CPU*100 <= goalCPU})
	case api.StateStopped:
		// Nothing at all is what one that is stopped should cost, not a lack of numbers.
		goal, each := bound(goalStopped), float64(one.Each)/1e3
		m.Targets = append(m.Targets, result.Target{Of: "kB each, " + name, Goal: goal, Value: each, Met: goal == 0 || each <= goal})
	}
}

// grow has n sandboxes running.
func (b *bench) grow(ctx context.Context, all []created, n int) ([]created, error) {
	if err := inParallel(all, atOnce, func(s created) error { _, err := s.Resume(ctx); return err }); err != nil {
		return all, err
	}
	fresh := make([]created, n-len(all))
	list := make([]*created, len(fresh))
	for i := range fresh {
		list[i] = &fresh[i]
	}
	err := inParallel(list, atOnce, func(s *created) (err error) {
		*s, err = b.sandbox(ctx)
		return err
	})
	return append(all, fresh...), err
}

// settle is how long what follows a change may still be at work before processor
// time is watched.
const settle = time.Second

// watch lets time pass and sees what is used meanwhile.
func (b *bench) watch(ctx context.Context, n int, before use) (one Idle, unread int, err error) {
	pass := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	pass(settle)
	from, err := b.service.processor()
	if err != nil {
		return one, 0, err
	}
	began := time.Now()
	pass(b.opt.Watch)
	if ctx.Err() != nil {
		return one, 0, ctx.Err()
	}
	to, err := b.service.processor()
	if err != nil {
		return one, 0, err
	}
	took := time.Since(began)
	now, err := b.service.look()
	if err != nil {
		return one, 0, err
	}
	private := max(0, now.service+now.sandboxes-before.service-before.sandboxes)
	return Idle{
		Sandboxes: n, Private: private, Each: private / int64(n), Service: now.service, Processes: now.processes,
		CPU: max(0, (to-from).Seconds()/took.Seconds()),
	}, now.unread, nil
}
