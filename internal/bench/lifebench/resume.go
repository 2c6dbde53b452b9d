package lifebench

import (
	"context"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
)

// goalResume is in milliseconds.
const goalResume = 5.0

// resume: there and back, with a process that lives.
func (b *bench) resume(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "pause and resume of a sandbox in which a process sleeps; from disk: its processes are gone and its files stay"
	s, err := b.sandbox(ctx)
	if err != nil {
		return m, err
	}
	sleep := api.ExecSpec{Args: []string{"sleep", "1000000"}}
	if _, err := s.Start(ctx, sleep); err != nil {
		return m, err
	}
	timed := func(f func() error) func(context.Context, int) (peer.Sample, error) {
		return func(context.Context, int) (peer.Sample, error) {
			begin := time.Now()
			err := f()
			return peer.Sample{Total: time.Since(begin)}, err
		}
	}
	pause := func(disk bool) func() error {
		return func() error {
			_, err := s.Pause(ctx, api.PauseRequest{ToDisk: disk})
			return err
		}
	}
	back := func() error {
		_, err := s.Resume(ctx)
		return err
	}
	freeze, thaw := &subject{name: "pause", once: timed(pause(false))}, &subject{name: "resume", once: timed(back)}
	stop, wake := &subject{name: "pause to disk", once: timed(pause(true))}, &subject{name: "resume from disk", once: timed(back)}
	run := &subject{name: "resume from disk, first command", once: timed(func() error { return s.shell(ctx, "exit 0") })}
	all := []*subject{freeze, thaw, stop, wake, run}
	for round := 0; p.more(round, b.opt.Turns); round++ {
		b.progress("resume", round, b.opt.Turns)
		for _, one := range all {
			if err = ctx.Err(); err != nil {
				break
			}
			one.do(ctx, 0)
		}
		if err != nil {
			break
		}
		if _, err = s.Start(ctx, sleep); err != nil {
			break
		}
	}
	m.take(all...)
	if r := m.subject("resume"); r != nil {
		m.atMost("resume, ms", float64(r.Total.Median)/1e6, goalResume)
	}
	return m, err
}
