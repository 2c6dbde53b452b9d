package lifebench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// limits hold for every sandbox of every subject, where this user can set them.
var limits = bailey.Limits{Memory: 1 << 30, Pids: 512}

// bench is one benchmark under way.
type bench struct {
	opt     Options
	dir     string // temporary; everything lies in it
	service *service
	limits  bailey.Limits
	command command // first of each sandbox: node -v where it is there
	crun    *peer.Crun
	noCrun  string // why not
	peers          // of kernels
}

// measure is one by name. Weight is its share of the time.
type measure struct {
	name   string
	weight int
	run    func(*bench, context.Context, pace) (Measure, error)
}

// lifecycle are the measures of what happens to a sandbox.
var lifecycle = []measure{
	{"first", 6, (*bench).first},
	{"warm", 6, (*bench).warmed},
	{"sequential", 6, (*bench).sequential},
	{"staggered", 6, (*bench).staggered},
	{"burst", 8, (*bench).burst},
	{"fork", 10, (*bench).fork},
	{"snapshot", 12, (*bench).snapshot},
	{"resume", 2, (*bench).resume},
	{"exec", 4, (*bench).exec},
	{"idle", 8, (*bench).idle},
}

// measures are those that a benchmark makes.
func (o Options) measures() []measure {
	if o.Kernels {
		return kernels
	}
	return lifecycle
}

// Names gives the names of the measures: of `bailey bench kernels`, or of `bailey bench lifecycle`.
func Names(ofKernels bool) []string {
	var names []string
	for _, m := range (Options{Kernels: ofKernels}).measures() {
		names = append(names, m.name)
	}
	return names
}

// Run makes the benchmark. It leaves nothing behind.
func Run(ctx context.Context, opt Options) (_ *Report, err error) {
	if err := opt.check(); err != nil {
		return nil, err
	}
	began := time.Now()
	hard, cancel := context.WithDeadlineCause(ctx, began.Add(opt.hard()), errTimeIsUp)
	defer cancel()
	b := &bench{opt: opt}
	defer func() { err = errors.Join(err, b.tearDown()) }()
	if err := b.setUp(hard); err != nil {
		return nil, b.interrupted(hard, err)
	}
	report := &Report{Bailey: opt.Version, Machine: result.Describe(b.dir), Command: b.command.args}
	if b.crun != nil {
		report.Machine.Programs["crun"] = result.ProgramVersion(b.crun.Program, nil)
	}
	if b.runsc != nil {
		report.Machine.Programs["runsc"] = result.ProgramVersion(b.runsc.Program, nil)
	}
	chosen := slices.DeleteFunc(slices.Clone(opt.measures()), func(m measure) bool {
		return len(opt.Only) > 0 && !slices.Contains(opt.Only, m.name)
	})
	weights := 0
	for _, m := range chosen {
		weights += m.weight
	}
	for _, m := range chosen {
		left := time.Until(began.Add(opt.Limit))
		p := pace{until: time.Now().Add(left * time.Duration(m.weight) / time.Duration(weights)), now: time.Now}
		weights -= m.weight
		one, err := b.within(hard, p, m.run)
		switch {
		case ctx.Err() != nil, err != nil && !errors.Is(err, errTimeIsUp):
			return nil, b.interrupted(ctx, fmt.Errorf("%s: %w", m.name, err))
		case err != nil:
			one.miss("the rest", "it was not done in the time that it may take")
		}
		one.Name = m.name
		report.Measures = append(report.Measures, one)
		if hard.Err() != nil {
			continue // the others say so as well
		}
		if err := b.service.clear(ctx); err != nil {
			return nil, b.interrupted(ctx, err)
		}
	}
	report.Machine.Load[1] = result.Load()
	return report, nil
}

var errTimeIsUp = errors.New("the time for it is up")

// within makes one measure and gives it up, with errTimeIsUp, when it takes much
// longer than its share.
func (b *bench) within(ctx context.Context, p pace, run func(*bench, context.Context, pace) (Measure, error)) (Measure, error) {
	share := max(0, time.Until(p.until))
	ctx, cancel := context.WithDeadlineCause(ctx, p.until.Add(share/2+slack), errTimeIsUp)
	defer cancel()
	m, err := run(b, ctx, p)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return m, err
}

// slack is what the turns of which there are some in any case may take beyond a
// small share.
const slack = 3 * time.Second

// interrupted says that the caller has ended it, where that is why it failed.
func (b *bench) interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return bailey.Errorf(bailey.CodeBusy, "finish the benchmark", "", "%w", context.Cause(ctx))
	}
	return err
}

func (b *bench) progress(what string, done, of int) {
	if b.opt.Progress != nil {
		b.opt.Progress(what, done, of)
	}
}

func (b *bench) setUp(ctx context.Context) error {
	if b.opt.Programs == "" {
		self, err := os.Executable()
		if err != nil {
			return bailey.Errorf(bailey.CodeNotAvailable, "find this program", "", "%w", err)
		}
		b.opt.Programs = filepath.Dir(self)
	}
	parent := b.opt.Parent
	if parent == "" {
		f, err := folder.Open()
		if err != nil {
			return err
		}
		if parent, err = f.Cache(); err != nil {
			return err
		}
	}
	const what = "make a folder for the benchmark"
	var err error
	if b.dir, err = os.MkdirTemp(parent, "bench-"); err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	if err := os.Chmod(b.dir, 0o711); err != nil { // ids of containers pass through it
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	if b.service, err = startService(ctx, b.dir, b.opt.Programs, b.opt.Profile); err != nil {
		return err
	}
	if err := b.probe(ctx); err != nil {
		return err
	}
	if b.opt.Kernels {
		return b.findPeers(ctx)
	}
	return b.findCrun(ctx)
}

func (b *bench) tearDown() error {
	var err error
	if b.service != nil {
		err = b.service.stop()
	}
	if b.dir != "" {
		err = errors.Join(err, folder.RemoveTree(b.dir))
	}
	return err
}

// echo is a first command that costs nearly nothing itself.
var echo = command{[]string{"echo", "hi"}, "hi\n"}

// command is a command and what it prints.
type command struct {
	args []string
	says string
}

// probe makes a sandbox, which prepares the host template, and sees what this user
// can bound and which command is there.
func (b *bench) probe(ctx context.Context) error {
	b.limits = limits
	s, err := b.service.c.Create(ctx, b.spec(bailey.IsolationContainer))
	if err != nil {
		b.limits = bailey.Limits{}
		if s, err = b.service.c.Create(ctx, b.spec(bailey.IsolationContainer)); err != nil {
			return err
		}
	}
	b.command = command{args: []string{"node", "-v"}}
	r, err := s.Run(ctx, api.ExecSpec{Args: b.command.args})
	if b.command.says = string(r.Out); err != nil || r.ExitCode == nil || *r.ExitCode != 0 || b.command.says == "" {
		b.command = echo
	}
	return s.Delete(ctx)
}

func (b *bench) findCrun(ctx context.Context) error {
	program, err := exec.LookPath("crun")
	switch {
	case err != nil:
		b.noCrun = "it is not installed"
		return nil
	case os.Geteuid() != 0:
		b.noCrun = "its root file system is mounted by root only"
		return nil
	}
	root, err := peer.HostRoot(ctx, filepath.Join(b.opt.Programs, "baileyd"), filepath.Join(b.dir, "images"))
	if err != nil {
		return err
	}
	b.crun = &peer.Crun{Program: program, Dir: filepath.Join(b.dir, "crun"), Root: root, Limits: limits}
	return nil
}

// spec is what every sandbox is asked for with.
func (b *bench) spec(level bailey.Isolation) api.SandboxSpec {
	return api.SandboxSpec{Isolation: level, Limits: b.limits, Timeout: api.Lifetime{After: api.Duration(time.Hour)}}
}

// features are what a sandbox of a level has.
func (b *bench) features(level bailey.Isolation) []string {
	f := []string{"user, mount, pid, net, ipc, uts and cgroup namespaces", "system call filter", "memory and pids limit",
		"no capabilities, no_new_privs", "Landlock where the kernel has it", "no way out, since no policy allows one", "a row in the state database before each act, and the audit log",
		"files that outlive the sandbox", "asked over the unix socket"}
	if b.limits == (bailey.Limits{}) {
		f[2] = "no memory limit, and pids by rlimit: this user can set none"
	}
	switch level {
	case bailey.IsolationContainer:
		f[3] = "11 capabilities, no_new_privs"
	case bailey.IsolationGVisor:
		f = append(f, "gVisor's kernel, in a container of Bailey's own")
	case bailey.IsolationMicroVM:
		f = append(f, "a virtual machine, emulated, in a container of Bailey's own")
	}
	return f
}

// sandbox makes one for a measure that looks at what comes later.
func (b *bench) sandbox(ctx context.Context) (created, error) {
	s, err := b.service.c.Create(ctx, b.spec(bailey.IsolationContainer))
	return created{s}, err
}

// shell runs a script and wants it to succeed.
func (s created) shell(ctx context.Context, script string) error {
	r, err := s.Run(ctx, api.ExecSpec{Args: []string{script}, Shell: true})
	if err == nil && (r.ExitCode == nil || *r.ExitCode != 0) {
		err = fmt.Errorf("%q failed: %s", script, strings.TrimSpace(string(r.Err)))
	}
	return err
}
