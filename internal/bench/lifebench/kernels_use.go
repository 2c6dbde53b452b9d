package lifebench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// kernelsWarm: sandboxes that were made before they were asked for.
func (b *bench) kernelsWarm(ctx context.Context, p pace) (m Measure, err error) {
	m.What = fmt.Sprintf("one after the other, from %d kept ready, the first command is echo hi: %s", keptReady, howCreated)
	var all []*subject
	for _, l := range ownKernels[:2] {
		if err := b.warmAt(ctx, p, l, &all); err != nil {
			m.miss(l.name, err.Error())
		}
		if ctx.Err() != nil {
			break
		}
	}
	m.judgeLevels(b, all)
	m.ms("first output, "+gvisor, m.firstOf(gvisor), goalGVisorWarm)
	m.ms("first output, "+microvm, m.firstOf(microvm), goalVMWarm)
	return m, ctx.Err()
}

// warmAt measures one level, with a daemon of its own.
func (b *bench) warmAt(ctx context.Context, p pace, l level, all *[]*subject) (err error) {
	own, end, err := b.readyService(ctx, l.isolation)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	taker := b.taker(own, l.isolation, l.name)
	if err := own.filled(ctx); err != nil {
		return err
	}
	taker.do(ctx, 0)
	if taker.failed == nil {
		taker.again()
	}
	*all = append(*all, taker)
	return b.turns(ctx, p, "warm, "+l.name, b.opt.Turns, []*subject{taker}, func(*subject) error { return own.filled(ctx) })
}

// idleKernels is how many sandboxes of a level are watched at once.
const idleKernels = 4

// kernelsIdle: what sandboxes cost in which nothing happens.
func (b *bench) kernelsIdle(ctx context.Context, p pace) (m Measure, err error) {
	m.What = fmt.Sprintf("%d sandboxes in which no command runs: private memory, without what the service has before, and processor time for %s", idleKernels, b.opt.Watch)
	for i, l := range ownKernels {
		if i > 0 && !p.now().Before(p.until) {
			m.miss(l.name, "there was no time for it")
			continue
		}
		before, err := b.service.look()
		if err != nil {
			return m, err
		}
		failed := inParallel(make([]struct{}, idleKernels), idleKernels, func(struct{}) error {
			s, err := b.service.c.Create(ctx, b.spec(l.isolation))
			if err != nil {
				return err
			}
			return created{s}.shell(ctx, "exit 0")
		})
		if failed != nil {
			m.miss(l.name, failed.Error())
		} else {
			one, unread, err := b.watch(ctx, idleKernels, before)
			if err != nil {
				return m, err
			}
			if unread > 0 {
				m.miss("memory of "+l.name, fmt.Sprintf("this user may not look at %d processes", unread))
			}
			one.State = l.isolation.String()
			m.Idle = append(m.Idle, one)
			t := result.Target{Of: "% of a processor, " + l.name, Value: one.CPU * 100, Met: true}
			if l.isolation == bailey.IsolationGVisor {
				t.Goal, t.Met = goalIdleCPU, t.Value <= goalIdleCPU
			}
			m.Targets = append(m.Targets, t)
		}
		if err := b.service.clear(ctx); err != nil {
			return m, err
		}
	}
	return m, nil
}

// native is the machine itself, without a sandbox.
const native = "no sandbox"

// works are what programs do with a kernel. Each is one command whose own time is measured
// together with its start.
var works = []struct{ name, script string }{
	{"write 64 MB", "dd if=/dev/zero of=$HOME/bench.bin bs=1M count=64 conv=fsync 2>/dev/null && rm $HOME/bench.bin"},
	{"make 1,000 files", "mkdir $HOME/bench && cd $HOME/bench && seq 1 1000 | xargs touch && rm -r $HOME/bench"},
	{"100,000 system calls", "dd if=/dev/zero of=/dev/null bs=1 count=50000 2>/dev/null"},
	{"compute", `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`},
}

// kernelsWork: what a kernel of one's own costs programs.
func (b *bench) kernelsWork(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "commands that ask much of a kernel, in a sandbox that is there; each with the start of a shell in it"
	var all []*subject
	add := func(name, work string, f func(context.Context) error) {
		all = append(all, &subject{name: name + ": " + work, once: timed(f)})
	}
	for _, w := range works {
		add(native, w.name, func(ctx context.Context) error {
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", w.script)
			cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + b.dir}
			return cmd.Run()
		})
	}
	for _, l := range ownKernels {
		s, err := b.service.c.Create(ctx, b.spec(l.isolation))
		if err != nil {
			m.miss(l.name, err.Error())
			continue
		}
		for _, w := range works {
			add(l.name, w.name, func(ctx context.Context) error {
				return ended(s.Run(ctx, api.ExecSpec{Args: []string{w.script}, Shell: true}))
			})
		}
	}
	err = b.turns(ctx, p, "work", b.opt.Turns, all, nil)
	m.take(all...)
	for _, w := range works {
		plain := m.medianOf(native + ": " + w.name)
		for _, l := range ownKernels {
			m.part(strings.Join([]string{w.name, l.name}, ", ")+" / "+native, m.medianOf(l.name+": "+w.name), plain, 0)
		}
	}
	return m, err
}
