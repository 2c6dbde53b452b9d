package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// Options say what to measure, and with which programs.
type Options struct {
	Parent  string   // the folder in which a temporary one is made
	Bailey  string   // programs of Bailey, absolute
	Init    string   //
	Daemon  string   //
	Version string   // of Bailey
	Rounds  int      // how often each subject is measured
	Only    []string // measures by name; none: all
	// SRT is the sandbox-runtime program, "" to look for it on PATH and in
	// scripts/npm beside the programs.
	SRT       string
	Files     int // in the workspace of `git status`
	GitRounds int
	Idle      int // sandboxes at once
	// Progress, when given, is told what goes on.
	Progress func(measure string, done, of int)
}

// limits hold for every sandbox of every subject, where this user can set them.
var limits = bailey.Limits{Memory: 1 << 30, Pids: 512}

// bench is one benchmark under way.
type bench struct {
	opt    Options
	dir    string // temporary; everything lies in it
	home   string // the data folder of the sandboxes
	work   string // their workspace
	host   *run.Host
	driver *linux.Driver
	groups *cgroup.Host // nil where this user can set no limits
	bwrap  string
	crun   string
	srt    string
	srtEnv []string
	phases phases
	filter *os.File // Bailey's own system call filter, for bwrap
}

// measures are all there are, by name.
var measures = []struct {
	name string
	run  func(*bench, context.Context) (Measure, error)
}{
	{"process", (*bench).process},
	{"run", (*bench).whole},
	{"container", (*bench).container},
	{"exec", (*bench).exec},
	{"git-status", (*bench).gitStatus},
	{"idle", (*bench).idle},
}

// Names gives the names of the measures.
func Names() []string {
	var names []string
	for _, m := range measures {
		names = append(names, m.name)
	}
	return names
}

// Run makes the benchmark. It leaves nothing behind.
func Run(ctx context.Context, opt Options) (_ *Report, err error) {
	for _, name := range opt.Only {
		if !slices.Contains(Names(), name) {
			return nil, bailey.Errorf(bailey.CodeUsage, "measure "+name, "choose from "+strings.Join(Names(), ", "), "there is no such measure")
		}
	}
	if opt.Rounds < 1 || opt.GitRounds < 1 || opt.Files < 1 || opt.Idle < 1 {
		return nil, bailey.Errorf(bailey.CodeUsage, "measure", "give numbers above zero", "there would be nothing to count")
	}
	b := &bench{opt: opt}
	if err := b.setUp(); err != nil {
		b.tearDown()
		return nil, err
	}
	defer func() { err = errors.Join(err, b.tearDown()) }()
	report := &Report{Bailey: opt.Version, Machine: result.Describe(b.dir), Rounds: opt.Rounds}
	b.versions(report.Machine.Programs)
	for _, m := range measures {
		if len(opt.Only) > 0 && !slices.Contains(opt.Only, m.name) {
			continue
		}
		one, err := m.run(b, ctx)
		if err != nil {
			return nil, err
		}
		one.Name = m.name
		report.Measures = append(report.Measures, one)
	}
	report.Machine.Load[1] = result.Load()
	return report, nil
}

func (b *bench) setUp() error {
	var err error
	if b.dir, err = os.MkdirTemp(b.opt.Parent, "bench-"); err != nil {
		return bailey.Errorf(bailey.CodeStorage, "make a folder for the benchmark", "", "%w", err)
	}
	b.home, b.work = filepath.Join(b.dir, "home"), filepath.Join(b.dir, "work")
	for _, d := range []string{b.home, b.work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return bailey.Errorf(bailey.CodeStorage, "make a folder for the benchmark", "", "%w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(b.work, "file"), []byte("on the host\n"), 0o600); err != nil {
		return bailey.Errorf(bailey.CodeStorage, "make a workspace for the benchmark", "", "%w", err)
	}
	f, err := folder.OpenAt(b.home)
	if err != nil {
		return err
	}
	b.driver = linux.New(linux.Options{State: f.Path(), Trace: b.phases.step})
	b.driver.Warm(1, true)
	b.host = &run.Host{Folder: f, Driver: b.driver, Env: os.Environ(), Home: os.Getenv("HOME"), Trace: b.phases.step}
	if u, err := user.Current(); err == nil {
		b.host.User = u.Username
		if b.host.Home == "" {
			b.host.Home = u.HomeDir
		}
	}
	groups := cgroup.Detect("/")
	if groups.Can(limits) == nil {
		b.groups = groups
	}
	return b.findPeers()
}

func (b *bench) tearDown() error {
	if b.driver != nil {
		b.driver.Close()
	}
	if b.filter != nil {
		b.filter.Close()
	}
	if b.dir == "" {
		return nil
	}
	var err error
	if b.host != nil {
		err = b.host.Wait()
	}
	return errors.Join(err, folder.RemoveTree(b.dir))
}

func (b *bench) findPeers() error {
	b.bwrap, _ = exec.LookPath("bwrap")
	b.crun, _ = exec.LookPath("crun")
	b.findSRT()
	if b.bwrap == "" {
		return nil
	}
	var err error
	b.filter, err = filterFile()
	return err
}

func (b *bench) versions(into map[string]string) {
	for _, p := range []string{b.bwrap, b.crun} {
		if p != "" {
			into[filepath.Base(p)] = result.ProgramVersion(p, nil)
		}
	}
	if b.srt != "" {
		into["srt"] = "srt " + result.ProgramVersion(b.srt, b.srtEnv)
	}
	if git, err := exec.LookPath("git"); err == nil {
		into["git"] = result.ProgramVersion(git, nil)
	}
}

// request is what `bailey run` would ask for.
func (b *bench) request(level bailey.Isolation, command ...string) run.Request {
	req := run.Request{
		Command: command, Dir: b.work, UID: -1, GID: -1, Level: level, LevelReason: "a benchmark", Streams: terminal.Streams{},
	}
	if b.groups != nil {
		req.Limits = limits
	}
	return req
}

// measure lets the subjects take turns and notes who was missing.
func (b *bench) measure(ctx context.Context, what string, n int, subjects []*subject, missing []result.Missing) (Measure, error) {
	m := Measure{What: what, NotMeasured: missing}
	var progress func(int, int)
	if b.opt.Progress != nil {
		progress = func(done, of int) { b.opt.Progress(what, done, of) }
	}
	b.phases.take()
	samples, failed, err := takeTurns(ctx, n, subjects, progress)
	if err != nil {
		return m, err
	}
	m.Phases = b.phases.take()
	for _, s := range subjects {
		if err := failed[s]; err != nil {
			m.NotMeasured = append(m.NotMeasured, result.Missing{Name: s.name, Why: err.Error()})
			continue
		}
		m.Subjects = append(m.Subjects, describe(s, samples[s]))
	}
	return m, nil
}

func describe(s *subject, samples []sample) Subject {
	first, total := make([]time.Duration, len(samples)), make([]time.Duration, len(samples))
	for i, v := range samples {
		first[i], total[i] = v.First, v.Total
	}
	out := Subject{Name: s.name, Features: s.features, Total: result.Summarise(total)}
	if f := result.Summarise(first); f.Min > 0 {
		out.First = &f
	}
	return out
}
