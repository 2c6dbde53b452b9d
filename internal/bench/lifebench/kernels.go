package lifebench

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
	"github.com/bailey-sandbox/bailey/internal/microvm/kit"
)

// Names of subjects.
const (
	gvisor  = "bailey, gvisor"
	microvm = "bailey, microvm"
	runsc   = "runsc"
	qemu    = "qemu"
)

// The bounds.
const (
	goalBoot       = 3000.0 // ms, microVM, cold, emulated
	goalGVisorExec = 0.6    // of runsc exec
	goalGVisorWarm = 15.0   // ms
	goalVMWarm     = 12.0   // ms
	goalRestore    = 1.4    // gVisor from memory, of a cold runsc run
	goalVMRestore  = 120.0  // ms
	goalVMPart     = 0.06   // microVM from memory, of its cold boot
	goalVMSnapshot = 30.0   // ms
	goalVMFork     = 25e3   // kB of each of 8 forks
	goalIdleCPU    = 1.0    // percent of one processor, all sandboxes together
)

// kernels are the measures of levels with a kernel of their own.
var kernels = []measure{
	{"cold", 10, (*bench).kernelsCold},
	{"warm", 6, (*bench).kernelsWarm},
	{"exec", 4, (*bench).kernelsExec},
	{"pause", 8, (*bench).kernelsPause},
	{"fork", 8, (*bench).kernelsFork},
	{"idle", 6, (*bench).kernelsIdle},
	{"work", 8, (*bench).kernelsWork},
}

// level is one that is measured.
type level struct {
	isolation bailey.Isolation
	name      string
}

// ownKernels are the levels that are compared, and containers for scale.
var ownKernels = []level{{bailey.IsolationGVisor, gvisor}, {bailey.IsolationMicroVM, microvm}, {bailey.IsolationContainer, container}}

// peers are who the levels with a kernel of their own are held against.
type peers struct {
	runsc   *peer.Runsc
	qemu    *peer.QEMU
	missing []result.Missing // who is not there
}

// findPeers finds gVisor's own program and the kernel of virtual machines where Bailey has them.
func (b *bench) findPeers(ctx context.Context) error {
	miss := func(name, why string) { b.missing = append(b.missing, result.Missing{Name: name, Why: why}) }
	program := filepath.Join(b.opt.Programs, "runsc")
	switch _, err := os.Stat(program); {
	case err != nil:
		miss(runsc, "it is not beside Bailey's programs; ./scripts/levels gvisor builds it")
	case os.Geteuid() != 0:
		miss(runsc, "its root file system is mounted by root only")
	default:
		root, err := peer.HostRoot(ctx, filepath.Join(b.opt.Programs, "baileyd"), filepath.Join(b.dir, "images"))
		if err != nil {
			return err
		}
		b.runsc = &peer.Runsc{Program: program, Dir: filepath.Join(b.dir, "runsc"), Root: root}
	}
	k, err := kit.Open(filepath.Join(b.opt.Programs, kit.FileName), filepath.Join(b.dir, "kit"))
	if err != nil {
		miss(qemu, "its kernel is not beside Bailey's programs; ./scripts/levels microvm makes it")
		return nil
	}
	b.qemu = &peer.QEMU{Root: k.Root(), Monitor: k.Monitor, Vmlinux: k.Vmlinux(), Initramfs: k.Initramfs()}
	return nil
}

// judgeLevels takes the results; a level that is not there is told once for each measure.
func (m *Measure) judgeLevels(b *bench, all []*subject, wants ...string) {
	m.take(all...)
	for _, one := range b.missing {
		for _, name := range wants {
			if name == one.Name {
				m.NotMeasured = append(m.NotMeasured, one)
			}
		}
	}
	for _, l := range ownKernels {
		if s := m.subject(l.name); s != nil {
			m.Targets = append(m.Targets, result.AtLeast("success, "+l.name, s.Success, 1))
		}
	}
}

// medianOf is the median of all of a subject, in milliseconds; 0 when it was not measured.
func (m *Measure) medianOf(name string) float64 {
	if s := m.subject(name); s != nil {
		return float64(s.Total.Median) / 1e6
	}
	return 0
}

// firstOf is the same until the first output.
func (m *Measure) firstOf(name string) float64 {
	if s := m.subject(name); s != nil && s.First != nil {
		return float64(s.First.Median) / 1e6
	}
	return 0
}

// part adds x / y as a target, where both were measured.
func (m *Measure) part(of string, x, y, goal float64) {
	if x > 0 && y > 0 {
		m.atMost(of, x/y, goal)
	}
}

// ms adds a time as a target, where it was measured.
func (m *Measure) ms(of string, x, goal float64) {
	if x > 0 {
		m.atMost(of+", ms", x, goal)
	}
}

// kernelsCold: nothing was made before.
func (b *bench) kernelsCold(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "one after the other, in turns, the first command is " + strings.Join(echo.args, " ") + ": " + howCreated + ". qemu: until its kernel looks for a program"
	var all []*subject
	for _, l := range ownKernels {
		all = append(all, b.ours(l.isolation, l.name, echo))
	}
	if b.runsc != nil {
		c, err := b.runsc.Prepare("cold", echo.args...)
		if err != nil {
			return m, err
		}
		all = append(all, &subject{name: runsc, features: peer.RunscFeatures,
			once: func(context.Context, int) (peer.Sample, error) { return c.Run(echo.says) }})
	}
	if b.qemu != nil {
		all = append(all, &subject{name: qemu, features: peer.QEMUFeatures,
			once: func(ctx context.Context, _ int) (peer.Sample, error) { return b.qemu.Boot(ctx) }})
	}
	for _, s := range all {
		s.do(ctx, 0)
		if s.failed == nil {
			s.again() // the first finds nothing in memory
		}
	}
	err = b.turns(ctx, p, "cold", b.opt.Turns, all, nil)
	m.judgeLevels(b, all, runsc, qemu)
	m.part("first output, "+gvisor+" / runsc run", m.firstOf(gvisor), m.firstOf(runsc), 0)
	m.part("of all, "+gvisor+" / runsc run", m.medianOf(gvisor), m.medianOf(runsc), 0)
	m.ms("first output, "+microvm, m.firstOf(microvm), goalBoot)
	m.part("first output, "+microvm+" / plain boot of qemu", m.firstOf(microvm), m.medianOf(qemu), 0)
	return m, err
}

// kernelsExec: a command in a sandbox that is there.
func (b *bench) kernelsExec(ctx context.Context, p pace) (m Measure, err error) {
	m.What = "true in a sandbox that is there, until its whole outcome was told"
	var all []*subject
	for _, l := range ownKernels {
		s, err := b.service.c.Create(ctx, b.spec(l.isolation))
		if err != nil {
			m.miss(l.name, err.Error())
			continue
		}
		all = append(all, b.trueIn(l.name, created{s}))
	}
	if b.runsc != nil {
		live, err := b.runsc.Start(ctx, "exec")
		if err != nil {
			return m, err
		}
		defer func() {
			if serr := live.Stop(); err == nil {
				err = serr
			}
		}()
		all = append(all, &subject{name: runsc, once: func(context.Context, int) (peer.Sample, error) { return live.Exec("true") }})
	}
	for _, s := range all {
		s.do(ctx, 0)
		s.again()
	}
	err = b.turns(ctx, p, "exec", b.opt.Execs, all, nil)
	m.judgeLevels(b, all, runsc)
	m.part(gvisor+" / runsc exec", m.medianOf(gvisor), m.medianOf(runsc), goalGVisorExec)
	return m, err
}

// trueIn runs true in a sandbox.
func (b *bench) trueIn(name string, s created) *subject {
	return &subject{name: name, once: timed(func(ctx context.Context) error {
		r, err := s.Run(ctx, api.ExecSpec{Args: []string{"true"}})
		return ended(r, err)
	})}
}
