package lifebench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
)

// timed makes a measurement of one act.
func timed(f func(context.Context) error) func(context.Context, int) (peer.Sample, error) {
	return func(ctx context.Context, _ int) (peer.Sample, error) {
		begin := time.Now()
		err := f(ctx)
		return peer.Sample{Total: time.Since(begin)}, err
	}
}

// ended says what was wrong with a command that was to succeed.
func ended(r api.ExecResult, err error) error {
	if err == nil && (r.ExitCode == nil || *r.ExitCode != 0) {
		err = fmt.Errorf("it ended as %+v: %q", r.End, r.Err)
	}
	return err
}

// noMemory is the reason of a level that keeps files only.
const noMemory = "the level keeps files only, and no memory"

// kept says whether an act kept something.
func kept(r api.Receipt, what string) bool { return slices.Contains(r.Kept, what) }

// kernelsPause: frozen, and stored with its memory.
func (b *bench) kernelsPause(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "pause and resume of a sandbox in which a process sleeps: frozen, and to disk, until a command has run"
	var all []*subject
	var runs []func() error
	for _, l := range ownKernels {
		s, err := b.service.c.Create(ctx, b.spec(l.isolation))
		if err != nil {
			m.miss(l.name, err.Error())
			continue
		}
		if _, err := s.Start(ctx, api.ExecSpec{Args: []string{"sleep", "1000000"}}); err != nil {
			return m, err
		}
		memory := false
		pause := func(disk bool) func(context.Context) error {
			return func(ctx context.Context) error {
				r, err := s.Pause(ctx, api.PauseRequest{ToDisk: disk})
				memory = memory || disk && kept(r, "memory")
				return err
			}
		}
		back := func(ctx context.Context) error { _, err := s.Resume(ctx); return err }
		awake := func(ctx context.Context) error {
			if err := back(ctx); err != nil {
				return err
			}
			return ended(s.Run(ctx, api.ExecSpec{Args: []string{"true"}}))
		}
		freeze, thaw := &subject{name: l.name + ", freeze", once: timed(pause(false))}, &subject{name: l.name + ", resume", once: timed(back)}
		store, wake := &subject{name: l.name + ", to disk", once: timed(pause(true))}, &subject{name: l.name + ", from disk", once: timed(awake)}
		acts := []*subject{freeze, thaw}
		if l.isolation != bailey.IsolationContainer {
			// One round shows whether it keeps memory: without, it is no peer of those that do.
			store.do(ctx, 0)
			if store.failed == nil && memory {
				wake.do(ctx, 0)
				store.again()
				wake.again()
				acts = append(acts, store, wake)
			} else if store.failed != nil {
				m.miss(l.name+", to disk", store.failed.Error())
			} else {
				m.miss(l.name+", to disk", noMemory)
				if err := back(ctx); err != nil {
					return m, err
				}
			}
		}
		all = append(all, acts...)
		runs = append(runs, func() error {
			for _, one := range acts {
				if err := ctx.Err(); err != nil {
					return err
				}
				one.do(ctx, 0)
			}
			return nil
		})
	}
	var bare *subject // what a restore of gVisor's is held against
	if b.runsc != nil {
		c, err := b.runsc.Prepare("bare", "true")
		if err != nil {
			return m, err
		}
		bare = &subject{name: runsc, once: func(context.Context, int) (peer.Sample, error) { return c.Run("") }}
		all = append(all, bare)
	}
	for round := 0; p.more(round, b.opt.Turns); round++ {
		b.progress("pause", round, b.opt.Turns)
		for _, run := range runs {
			if err := run(); err != nil {
				return m, err
			}
		}
		if bare != nil {
			bare.do(ctx, 0)
		}
	}
	m.judgeLevels(b, all, runsc)
	for _, l := range ownKernels {
		m.ms("resume, "+l.name, m.medianOf(l.name+", resume"), 0)
	}
	m.part("from disk until a command has run, "+gvisor+" / runsc run true", m.medianOf(gvisor+", from disk"), m.medianOf(runsc), goalRestore)
	m.ms("from disk until a command has run, "+microvm, m.medianOf(microvm+", from disk"), goalVMRestore)
	return m, ctx.Err()
}

// forked are how many forks are made at once.
var forked = []int{1, 8}

// kernelsFork: sandboxes that go on as one is, in memory.
func (b *bench) kernelsFork(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "fork with memory of a sandbox in which a process sleeps, until a command has run in each; memory of each of 8 beside it"
	var all []*subject
	for _, l := range ownKernels[:2] {
		spec := b.spec(l.isolation)
		spec.Limits.Memory = 256 << 20
		s, err := b.service.c.Create(ctx, spec)
		if err != nil {
			m.miss(l.name, err.Error())
			continue
		}
		if _, err := s.Start(ctx, api.ExecSpec{Args: []string{"sleep", "1000000"}}); err != nil {
			return m, err
		}
		taken := &subject{name: l.name + ", snapshot", once: timed(func(ctx context.Context) error {
			_, err := s.Snapshot(ctx, api.SnapshotSpec{Memory: true})
			return err
		})}
		taken.do(ctx, 0)
		if taken.failed != nil {
			m.miss(l.name, taken.failed.Error())
			continue
		}
		taken.again()
		acts := []*subject{taken}
		for _, n := range forked {
			one := &subject{name: fmt.Sprintf("%s, %d", l.name, n)}
			var each int64
			one.once = func(ctx context.Context, _ int) (v peer.Sample, err error) {
				before, err := b.service.look()
				if err != nil {
					return v, err
				}
				begin := time.Now()
				list, err := s.Fork(ctx, api.ForkRequest{Count: n, Memory: true})
				if err != nil {
					return v, err
				}
				err = inParallel(list, n, func(c *client.Sandbox) error {
					return ended(c.Run(ctx, api.ExecSpec{Args: []string{"true"}}))
				})
				v.Total = time.Since(begin)
				if after, lerr := b.service.look(); lerr == nil && err == nil {
					each = (after.sandboxes - before.sandboxes) / int64(n)
				}
				for _, c := range list {
					err = errors.Join(err, c.Delete(ctx))
				}
				return v, err
			}
			acts = append(acts, one)
			defer func() {
				if each > 0 && n > 1 {
					goal := 0.0
					if l.isolation == bailey.IsolationMicroVM {
						goal = goalVMFork
					}
					m.atMost("kB private of each, "+one.name, float64(each)/1e3, goal)
				}
			}()
		}
		all = append(all, acts...)
	}
	err = b.turns(ctx, p, "fork", b.opt.Turns, all, nil)
	m.judgeLevels(b, all)
	m.ms("snapshot with memory, "+microvm, m.medianOf(microvm+", snapshot"), goalVMSnapshot)
	return m, err
}
