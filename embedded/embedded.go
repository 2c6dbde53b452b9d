package embedded

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// Options say where a Client keeps its things.
type Options struct {
	// Home is the data folder; "" is BAILEY_HOME or the default of this user.
	Home string
	// Init is the path of bailey-init; "" looks beside this executable and on PATH.
	Init string
	// Warm is how many sandboxes' namespaces are kept ready, at most 64. It
	// makes Create quicker for root and does nothing for an ordinary user.
	Warm int
}

// Client makes sandboxes. Its methods may be called by any number of
// goroutines at once.
type Client struct {
	host   *run.Host
	driver *linux.Driver
	init   string
}

// Open makes a Client. It starts nothing but what Options.Warm asks for.
func Open(opt Options) (*Client, error) {
	if opt.Warm < 0 || opt.Warm > linux.MaxWarm {
		return nil, bailey.Errorf(bailey.CodeUsage, "keep namespaces ready", fmt.Sprintf("use 0 to %d", linux.MaxWarm),
			"%d is out of range", opt.Warm)
	}
	f, err := run.OpenFolder(opt.Home)
	if err != nil {
		return nil, err
	}
	c := &Client{init: opt.Init}
	if c.init == "" {
		if c.init, err = findInit(); err != nil {
			return nil, err
		}
	}
	c.driver = linux.New(linux.Options{State: f.Path()})
	if opt.Warm > 0 {
		c.driver.Warm(opt.Warm, true)
	}
	c.host = run.NewHost(f, c.driver)
	return c, nil
}

// findInit looks for bailey-init where it usually lies.
func findInit() (string, error) {
	const name = "bailey-init"
	var dirs []string
	if self, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(self))
	}
	dirs = append(dirs, filepath.SplitList(os.Getenv("PATH"))...)
	for _, dir := range dirs {
		p := filepath.Join(dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 && filepath.IsAbs(p) {
			return p, nil
		}
	}
	return "", bailey.Errorf(bailey.CodeNotAvailable, "find "+name, "build it with ./scripts/build and name it in Options.Init",
		"it is neither beside this program nor on PATH")
}

// Close gives back what the Client keeps ready, and returns when the files of
// sandboxes that were closed have gone. Sandboxes that are open are not touched.
func (c *Client) Close() error {
	c.driver.Close()
	return c.host.Wait()
}

// Create makes a sandbox that stays until Close. An error has the code of what
// is in the way; no half of a sandbox is left.
func (c *Client) Create(ctx context.Context, spec bailey.Spec) (*Sandbox, error) {
	req := run.Request{
		Dir: spec.Workspace, Workdir: spec.Workdir, UID: -1, GID: -1,
		SetEnv: spec.Env, Limits: spec.Limits, Nested: spec.NestedSandboxes, IUnderstand: spec.IUnderstand,
	}
	var err error
	if req.Level, req.LevelReason, err = run.Choose(run.Ask{Level: spec.Isolation, Min: spec.MinIsolation}); err != nil {
		return nil, err
	}
	if req.Level != bailey.IsolationProcess {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "create a sandbox at the level "+req.Level.String(), "use bailey run, or the level process",
			"the embedded client makes sandboxes of the level process in this version")
	}
	wd, err := os.Getwd()
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeUsage, "use the working folder", "", "%w", err)
	}
	for _, m := range spec.Mounts {
		mount, err := hostview.ParseMount(m, wd, c.host.Home)
		if err != nil {
			return nil, err
		}
		req.Mounts = append(req.Mounts, mount)
	}
	s, err := c.host.Open(ctx, req, c.init)
	if err != nil {
		return nil, err
	}
	return &Sandbox{s: s, limits: spec.Limits, level: req.Level, reason: req.LevelReason}, nil
}

// Sandbox is one sandbox. Its methods may be called by any number of
// goroutines at once.
type Sandbox struct {
	s      *run.Sandbox
	limits bailey.Limits
	level  bailey.Isolation
	reason string
	execs  atomic.Int64
}

// ID names the sandbox, and its changes for `bailey changes`.
func (s *Sandbox) ID() string { return s.s.Run.ID() }

// Isolation gives the level that is in force, and why it was chosen.
func (s *Sandbox) Isolation() (bailey.Isolation, string) { return s.level, s.reason }

// Run runs a command to its end and gives its output, up to Limits.Output
// bytes of each stream (64 MiB if that is zero). A command that could not be
// started is an error with code command_not_found or command_not_executable;
// one that fails is a Result.
func (s *Sandbox) Run(ctx context.Context, cmd bailey.Command) (*bailey.Result, error) {
	limit := s.limits.Output
	if limit == 0 {
		limit = 64 << 20
	}
	spec := guest.ExecSpec{
		ID: "run-" + strconv.FormatInt(s.execs.Add(1), 10), Argv: cmd.Args, Dir: cmd.Dir,
		Env: mergeEnv(s.s.Env, cmd.Env), Timeout: s.limits.Timeout,
	}
	if spec.Dir == "" {
		spec.Dir = s.s.Workdir
	}
	var stdin io.Reader
	if cmd.Stdin != nil {
		stdin = bytes.NewReader(cmd.Stdin)
	}
	res, err := s.s.Client.Run(ctx, spec, stdin, limit)
	if err != nil {
		return nil, err
	}
	return &bailey.Result{Stdout: res.Stdout, Stderr: res.Stderr, Truncated: res.Truncated, End: res.End.End()}, nil
}

// mergeEnv puts more on top of base, by name.
func mergeEnv(base, more []string) []string {
	out := slices.Clone(base)
	for _, e := range more {
		name, _, _ := strings.Cut(e, "=")
		out = slices.DeleteFunc(out, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		out = append(out, e)
	}
	return out
}

// Close ends the sandbox and everything in it, and keeps what it changed. It
// may be called again, and then gives the same result.
func (s *Sandbox) Close(ctx context.Context) error {
	_, err := s.s.Close(ctx)
	if cerr := s.s.Run.Close(); err == nil {
		err = cerr
	}
	return err
}
