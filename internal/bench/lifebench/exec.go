package lifebench

import (
	"context"
	"fmt"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

const (
	execsAtOnce = 50
	// goalExec is of the slowest 1 in 100, in milliseconds: beyond it people say that
	// a command hangs.
	goalExec = 1000.0
)

// exec: commands in a sandbox that is there.
func (b *bench) exec(ctx context.Context, p pace) (m Measure, err error) {
	m.What = fmt.Sprintf("true in a sandbox that is there, until its whole outcome was told: one after the other, and %d of them with %d at once", b.opt.Execs, execsAtOnce)
	s, err := b.sandbox(ctx)
	if err != nil {
		return m, err
	}
	once := func(ctx context.Context, _ int) (peer.Sample, error) {
		begin := time.Now()
		r, err := s.Run(ctx, api.ExecSpec{Args: []string{"true"}})
		if err == nil && (r.ExitCode == nil || *r.ExitCode != 0) {
			err = fmt.Errorf("it ended as %+v", r.End)
		}
		return peer.Sample{Total: time.Since(begin)}, err
	}
	one, many := &subject{name: "sequential", once: once}, &subject{name: fmt.Sprintf("%d at once", execsAtOnce), once: once}
	one.do(ctx, 0)
	one.again()
	began := time.Now()
	half := pace{until: began.Add(p.until.Sub(began) / 3), now: p.now}
	err = b.turns(ctx, half, "exec", b.opt.Execs, []*subject{one}, nil)
	one.elapsed = time.Since(began)
	if err == nil {
		b.progress("exec, at once", 0, b.opt.Execs)
		err = many.together(ctx, b.opt.Execs, execsAtOnce, 0)
	}
	m.take(one, many)
	if r := m.subject(many.name); r != nil {
		m.Targets = append(m.Targets, result.AtLeast("success, "+many.name, r.Success, 1))
		m.atMost("p99, ms, "+many.name, float64(r.Total.P99)/1e6, goalExec)
	}
	return m, err
}
