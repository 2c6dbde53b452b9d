package lifebench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// Names of subjects.
const (
	container = "bailey, container"
	process   = "bailey, process"
	warm      = "bailey, warm"
	crun      = "crun"
)

// The bounds, as parts of what crun takes.
const (
	goalCold  = 0.4
	goalWarm  = 0.1
	goalBurst = 0.5
)

// created is a sandbox of the benchmark.
type created struct{ *client.Sandbox }

// howCreated says how sandboxes are measured.
const howCreated = "create, first command, delete; until its output was there, and until all was given back"

// ours gives the subject of a level.
func (b *bench) ours(level bailey.Isolation, name string, first command) *subject {
	return b.living(level, name, first, false)
}

// fromReady is the same of sandboxes that the daemon keeps ready.
func (b *bench) fromReady(level bailey.Isolation, name string, first command) *subject {
	return b.living(level, name, first, true)
}

func (b *bench) living(level bailey.Isolation, name string, first command, ready bool) *subject {
	s := &subject{name: name, slots: 1 << 20, features: b.features(level)}
	s.once = func(ctx context.Context, _ int) (v peer.Sample, err error) {
		begin := time.Now()
		info, err := b.service.c.CreateInfo(ctx, b.spec(level))
		if err != nil {
			return v, err
		}
		one := b.service.c.Sandbox(info.ID)
		r, err := one.Run(ctx, api.ExecSpec{Args: first.args})
		v.First = time.Since(begin)
		if err == nil && (r.ExitCode == nil || *r.ExitCode != 0 || string(r.Out) != first.says) {
			err = fmt.Errorf("it printed %q and %q", r.Out, r.Err)
		}
		err = errors.Join(err, one.Delete(ctx))
		v.Total = time.Since(begin)
		if ready && err == nil && info.Warm != "hit" {
			err = errors.Join(err, fmt.Errorf("it was not taken from those that are ready: %s", info.Warm))
		}
		return v, err
	}
	return s
}

// peer gives crun, for so many at once; nil where it is not measured.
func (b *bench) peer(slots int, first command) (*subject, error) {
	if b.crun == nil {
		return nil, nil
	}
	var list []*peer.Container
	for i := range slots {
		c, err := b.crun.Prepare(strconv.Itoa(i), first.args...)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return &subject{name: crun, slots: slots, features: append(slices.Clone(peer.CrunFeatures), "no daemon, no way out"),
		once: func(_ context.Context, slot int) (peer.Sample, error) { return list[slot].Run(first.says) }}, nil
}

// lives are the subjects that live from create to delete.
func (b *bench) lives(slots int, first command) (all []*subject, err error) {
	all = []*subject{b.ours(bailey.IsolationContainer, container, first), b.ours(bailey.IsolationProcess, process, first)}
	other, err := b.peer(slots, first)
	if other != nil {
		all = append(all, other)
	}
	return all, err
}

// compare adds the results of lives and, with a goal, what container level has to be.
func (b *bench) compare(m *Measure, all []*subject, of string, value func(Times) time.Duration, goal float64) {
	m.take(all...)
	other := m.subject(crun)
	if b.crun == nil {
		m.miss(crun, b.noCrun)
	}
	for _, s := range m.Subjects {
		if s.Name == crun || other == nil || other.First == nil || s.First == nil {
			continue
		}
		bound := 0.0
		if s.Name == container {
			bound = goal
		}
		m.atMost(of+", "+s.Name+" / crun", result.Ratio(value(*s.First), value(*other.First)), bound)
		m.atMost(of+" of all, "+s.Name+" / crun", result.Ratio(value(s.Total), value(other.Total)), 0)
	}
	for _, name := range []string{container, process} {
		if s := m.subject(name); s != nil {
			m.Targets = append(m.Targets, result.AtLeast("success, "+name, s.Success, 1))
		}
	}
}

func median(t Times) time.Duration { return t.Median }

func p95(t Times) time.Duration { return t.P95 }

// first: one after the other, of which the first command takes nearly nothing.
func (b *bench) first(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "one after the other, in turns, the first command is " + strings.Join(echo.args, " ") + ": " + howCreated
	return m, b.one(ctx, p, &m, "first output", echo, goalCold)
}

// sequential: one after the other.
func (b *bench) sequential(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "one after the other, in turns: " + howCreated
	return m, b.one(ctx, p, &m, "median", b.command, 0)
}

// one has subjects live one after the other.
func (b *bench) one(ctx context.Context, p pace, m *Measure, of string, first command, goal float64) error {
	all, err := b.lives(1, first)
	if err != nil {
		return err
	}
	for _, s := range all {
		s.do(ctx, 0)
		s.again() // the first finds nothing in memory
	}
	err = b.turns(ctx, p, of, b.opt.Rounds, all, nil)
	b.compare(m, all, of, median, goal)
	return err
}

// staggered: a new one every so often, whether or not the last has ended.
func (b *bench) staggered(ctx context.Context, p pace) (m Measure, err error) {
	m.What = fmt.Sprintf("%d, one every %s: %s", b.opt.Rounds, b.opt.Stagger, howCreated)
	all, err := b.lives(b.opt.Rounds, b.command)
	if err != nil {
		return m, err
	}
	for i, s := range all {
		b.progress("staggered", i, len(all))
		if err = s.together(ctx, b.opt.Rounds, b.opt.Rounds, b.opt.Stagger); err != nil {
			break
		}
	}
	b.compare(&m, all, "median", median, 0)
	return m, err
}

// burstRounds is how often each subject makes a burst, if there is time.
const burstRounds = 2

// burst: all at once.
func (b *bench) burst(ctx context.Context, p pace) (m Measure, err error) {
	m.What = fmt.Sprintf("%d at once: %s", b.opt.Rounds, howCreated)
	all, err := b.lives(b.opt.Rounds, b.command)
	if err != nil {
		return m, err
	}
	for round := range burstRounds {
		if round > 0 && !p.now().Before(p.until) {
			break
		}
		for i, s := range all {
			b.progress("burst", round*len(all)+i, burstRounds*len(all))
			if err = s.together(ctx, b.opt.Rounds, b.opt.Rounds, 0); err != nil {
				break
			}
		}
		slices.Reverse(all)
	}
	slices.SortFunc(all, func(x, y *subject) int { return slices.Index(order, x.name) - slices.Index(order, y.name) })
	b.compare(&m, all, "p95", p95, goalBurst)
	return m, err
}

// order of subjects in a report.
var order = []string{container, process, crun}
