package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// open makes a sandbox that stays, over dir. The function given gives it back.
func (b *bench) open(ctx context.Context, dir string) (*run.Sandbox, func() error, error) {
	req := b.request(bailey.IsolationProcess)
	req.Dir, req.Limits = dir, bailey.Limits{}
	s, err := b.host.Open(ctx, req, b.opt.Init)
	if err != nil {
		return nil, nil, err
	}
	return s, func() error {
		_, err := s.Close(context.WithoutCancel(ctx))
		return errors.Join(err, b.host.Drop(s.Run))
	}, nil
}

// exec: one more command in a sandbox that lives.
func (b *bench) exec(ctx context.Context) (m Measure, err error) {
	s, done, err := b.open(ctx, b.work)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, done()) }()
	n := 0
	subjects := []*subject{
		{name: "bailey", ours: true, features: b.ourFeatures(bailey.IsolationProcess, "input and outputs are /dev/null"), once: func(ctx context.Context) (sample, error) {
			n++
			spec := guest.ExecSpec{ID: "bench-" + strconv.Itoa(n), Argv: []string{"/bin/true"}, Env: s.Env, Dir: s.Workdir, Files: &[3]*os.File{}}
			begin := time.Now()
			p, err := s.Exec(ctx, spec)
			if err != nil {
				return sample{}, err
			}
			end, err := p.Wait(ctx)
			v := sample{Total: time.Since(begin)}
			p.Close()
			if err == nil && end.End().ExitCode != 0 {
				err = fmt.Errorf("it ended as %+v", end)
			}
			return v, err
		}},
		{name: "host", ours: true, features: []string{"fork and exec by Go's os/exec on the host, no protection", "input and outputs are /dev/null"}, once: func(ctx context.Context) (sample, error) {
			begin := time.Now()
			err := exec.Command("/bin/true").Run()
			return sample{Total: time.Since(begin)}, err
		}},
		{name: "bailey, output collected", ours: true, features: []string{"as bailey, output through pipes"}, once: func(ctx context.Context) (sample, error) {
			n++
			begin := time.Now()
			r, err := s.Client.Run(ctx, guest.ExecSpec{ID: "bench-" + strconv.Itoa(n), Argv: []string{"/bin/true"}, Env: s.Env, Dir: s.Workdir}, nil, 1<<20)
			v := sample{Total: time.Since(begin)}
			if err == nil && r.End.End().ExitCode != 0 {
				err = fmt.Errorf("it ended as %+v", r.End)
			}
			return v, err
		}},
		{name: "host, output collected", ours: true, features: []string{"as host, output through pipes"}, once: func(ctx context.Context) (sample, error) {
			var out, errs bytes.Buffer
			begin := time.Now()
			cmd := exec.Command("/bin/true")
			cmd.Stdout, cmd.Stderr = &out, &errs
			err := cmd.Run()
			return sample{Total: time.Since(begin)}, err
		}},
	}
	m, err = b.measure(ctx, "a command in a sandbox that lives: /bin/true, until its end is known", b.opt.Rounds, subjects, nil)
	m.target("bailey", "host", 1.5)
	m.target("bailey, output collected", "host, output collected", 1.5)
	return m, err
}

// gitStatus: a large workspace through the copy-on-write layer.
func (b *bench) gitStatus(ctx context.Context) (m Measure, err error) {
	git, err := exec.LookPath("git")
	if err != nil {
		return Measure{What: "git status", NotMeasured: []result.Missing{{Name: "bailey", Why: "git is not installed"}}}, nil
	}
	dir := filepath.Join(b.dir, "repository")
	if err := b.makeRepository(ctx, git, dir); err != nil {
		return m, bailey.Errorf(bailey.CodeStorage, "make a repository", "", "%w", err)
	}
	s, done, err := b.open(ctx, dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, done()) }()
	n := 0
	check := func(out []byte, err error) error {
		if err == nil && len(out) > 0 {
			err = fmt.Errorf("it does not find the work tree clean: %.200q", out)
		}
		return err
	}
	status := []string{git, "status", "--porcelain"}
	subjects := []*subject{
		{name: "bailey", ours: true, features: []string{"workspace copy-on-write over the same files", "git has run before, on both sides: the index is fresh, caches are warm"}, once: func(ctx context.Context) (sample, error) {
			n++
			begin := time.Now()
			r, err := s.Client.Run(ctx, guest.ExecSpec{ID: "git-" + strconv.Itoa(n), Argv: status, Env: s.Env, Dir: dir}, nil, 1<<20)
			v := sample{Total: time.Since(begin)}
			if err == nil && r.End.End().ExitCode != 0 {
				err = fmt.Errorf("git ended as %+v: %s", r.End, r.Stderr)
			}
			return v, check(r.Stdout, err)
		}},
		{name: "host", ours: true, features: []string{"the files themselves"}, once: func(ctx context.Context) (sample, error) {
			cmd := exec.CommandContext(ctx, git, status[1:]...)
			cmd.Dir, cmd.Env = dir, s.Env
			begin := time.Now()
			out, err := cmd.Output()
			return sample{Total: time.Since(begin)}, check(out, err)
		}},
	}
	m, err = b.measure(ctx, fmt.Sprintf("git status over %d files", b.opt.Files), b.opt.GitRounds, subjects, nil)
	m.target("bailey", "host", 1.3)
	return m, err
}

// makeRepository makes a repository with one commit of small files, 100 in a folder.
func (b *bench) makeRepository(ctx context.Context, git, dir string) error {
	const perFolder = 100
	for i := range b.opt.Files {
		d := filepath.Join(dir, fmt.Sprintf("d%02d/e%03d", i/perFolder/100, i/perFolder))
		if i%perFolder == 0 {
			if err := os.MkdirAll(d, 0o755); err != nil {
				return err
			}
		}
		if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("f%03d.txt", i%perFolder)), []byte(strconv.Itoa(i/perFolder)+"\n"), 0o644); err != nil {
			return err
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"},
		{"-c", "user.name=Bench", "-c", "user.email=bench@example.org", "-c", "gc.auto=0", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "files"}} {
		cmd := exec.CommandContext(ctx, git, args...)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + peer.SearchPath, "HOME=" + b.dir, "GIT_CONFIG_NOSYSTEM=1"}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// idle: what sandboxes cost that do nothing.
func (b *bench) idle(ctx context.Context) (m Measure, err error) {
	m.What = fmt.Sprintf("%d sandboxes at once, process level, each with bailey-init and nothing to do", b.opt.Idle)
	var open []func() error
	defer func() {
		for _, done := range open {
			err = errors.Join(err, done())
		}
	}()
	mem := &Memory{Sandboxes: b.opt.Idle}
	before := available()
	begin := time.Now()
	var pids []int
	for i := range b.opt.Idle {
		if b.opt.Progress != nil {
			b.opt.Progress(m.What, i, b.opt.Idle)
		}
		if err := ctx.Err(); err != nil {
			return m, bailey.Errorf(bailey.CodeBusy, "finish the benchmark", "", "%w", err)
		}
		s, done, err := b.open(ctx, b.work)
		if err != nil {
			return m, err
		}
		open = append(open, done)
		pids = append(pids, s.Instance.Pid())
	}
	mem.Opened = time.Since(begin)
	mem.AvailableEach = (before - available()) / int64(b.opt.Idle)
	for _, pid := range pids {
		if err := mem.add(pid); err != nil {
			return m, bailey.Errorf(bailey.CodeInternal, "read the memory of a sandbox", "", "%w", err)
		}
	}
	mem.PrivateDirtyEach /= int64(b.opt.Idle)
	mem.PrivateCleanEach /= int64(b.opt.Idle)
	m.Memory = mem
	mb := float64(mem.PrivateDirtyEach) / 1e6
	m.Targets = append(m.Targets, result.AtMost("private megabytes of each", mb, 1.2))
	return m, nil
}

// Memory is what idle sandboxes use, in bytes.
type Memory struct {
	Sandboxes        int   `json:"sandboxes"`
	Processes        int   `json:"processes"`
	PrivateDirtyEach int64 `json:"private_dirty_each"` // Private_Dirty of smaps_rollup, of all processes inside
	PrivateCleanEach int64 `json:"private_clean_each"` // pages of files that only it has mapped; the kernel can drop them
	// AvailableEach is by how much MemAvailable of the machine shrank: with the
	// kernel's share, and with whatever else happened on the machine.
	AvailableEach int64         `json:"available_each"`
	Opened        time.Duration `json:"opened"` // how long it took to make all of them
}

// add counts a sandbox's first process and all below it.
func (m *Memory) add(pid int) error {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(dir, "smaps_rollup"))
	if err != nil {
		return err
	}
	dirty, clean := result.MemField(text, "Private_Dirty"), result.MemField(text, "Private_Clean")
	if dirty < 0 || clean < 0 {
		return errors.New("smaps_rollup has no private pages")
	}
	m.Processes++
	m.PrivateDirtyEach += dirty
	m.PrivateCleanEach += clean
	children, err := filepath.Glob(filepath.Join(dir, "task/*/children"))
	if err != nil {
		return err
	}
	for _, c := range children {
		text, err := os.ReadFile(c)
		if errors.Is(err, fs.ErrNotExist) {
			continue // a thread that ended
		}
		if err != nil {
			return err
		}
		for _, f := range strings.Fields(string(text)) {
			child, err := strconv.Atoi(f)
			if err != nil {
				return err
			}
			if err := m.add(child); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Memory) write(b *strings.Builder) {
	fmt.Fprintf(b, "  each: %.0f kB private dirty, %.0f kB private clean (pages of files), in %d processes altogether; MemAvailable shrank by %.0f kB each; made in %s\n",
		float64(m.PrivateDirtyEach)/1e3, float64(m.PrivateCleanEach)/1e3, m.Processes, float64(m.AvailableEach)/1e3, result.Human(m.Opened))
}

func available() int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return result.MemField(text, "MemAvailable")
}
