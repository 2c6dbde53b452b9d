package embedded

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/levels"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// Options say where a Client keeps its things.
type Options struct {
	// Home is the data folder; "" is BAILEY_HOME or the default of this user.
	Home string
	// Init is the path of bailey-init; "" looks beside this executable and on PATH.
	Init string
	// Baileyd is the path of baileyd, which containers need; "" looks beside Init,
	// beside this executable and on PATH, when it is needed.
	Baileyd string
	// Warm is how many sandboxes' namespaces are kept ready, at most 64. It
	// makes Create quicker for root and does nothing for an ordinary user.
	// Client.Prepare keeps whole sandboxes ready.
	Warm int
}

// Client makes sandboxes. Its methods may be called by any number of
// goroutines at once.
type Client struct {
	host    *run.Host
	driver  *linux.Driver
	init    string
	baileyd string
	gates   *run.Gates
	pools   pools
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
	c := &Client{init: opt.Init, baileyd: opt.Baileyd}
	if c.init == "" {
		if c.init, err = find("bailey-init", "Init"); err != nil {
			return nil, err
		}
	}
	f.Sweep() // what a Client has left that was killed; what cannot be removed now is tried again
	c.driver = linux.New(linux.Options{State: f.Path()})
	if opt.Warm > 0 {
		c.driver.Warm(opt.Warm, true)
	}
	c.host = run.NewHost(f, levels.Of(c.driver, filepath.Dir(c.init)))
	c.gates = c.host.NewGates(c.daemon)
	c.pools.open()
	c.pools.makers.Go(func() { // and its control groups
		ctx, cancel := context.WithTimeout(c.pools.ctx, sweepWithin)
		defer cancel()
		c.driver.Sweep(ctx, f.Alive)
	})
	return c, nil
}

// sweepWithin bounds the wait for processes that a dead Client's control groups
// still hold. There are none but while they are just being ended.
const sweepWithin = 5 * time.Second

// find looks for another program of Bailey where it usually lies, in the folders
// given first. option is what names it otherwise.
func find(name, option string, dirs ...string) (string, error) {
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
	return "", bailey.Errorf(bailey.CodeNotAvailable, "find "+name, "build it with ./scripts/build and name it in Options."+option,
		"it is neither beside this program nor on PATH")
}

// Close gives back what the Client keeps ready, and returns when the files of
// sandboxes that were closed have gone. Sandboxes that are open are not touched,
// but lose their network: its gate ends.
// The Client must not be used by anybody else at that time or later.
func (c *Client) Close() error {
	err := c.endPools()
	c.gates.Close()
	c.driver.Close()
	return errors.Join(err, c.host.Wait())
}

// Create makes a sandbox that stays until Close, or takes one that Prepare has
// made of an equal Spec. An error has the code of what is in the way; no half of
// a sandbox is left.
func (c *Client) Create(ctx context.Context, spec bailey.Spec) (*Sandbox, error) {
	w, err := c.want(spec)
	if err != nil {
		return nil, err
	}
	s := c.take(ctx, w.key)
	if s == nil {
		if s, err = c.make(ctx, w); err != nil {
			return nil, err
		}
	}
	return &Sandbox{s: s, limits: spec.Limits, level: w.req.Level, reason: w.req.LevelReason}, nil
}

// want is what a Spec asks for.
type want struct {
	req             run.Request // but for the root file system
	image, template string
	network         control.Policy
	policy          string // path of a document
	key             string // equal for equal Specs
}

// want reads a Spec. Equal are Specs whose sandboxes are the same: with paths
// from the root and with the folder that the workspace's links lead to now.
func (c *Client) want(spec bailey.Spec) (w want, err error) {
	w.image, w.template = spec.Image, spec.Template
	w.network, w.policy = control.Policy{Allow: spec.Allow, Profiles: spec.Profiles, Secrets: spec.Secrets}, spec.Policy
	w.req = run.Request{
		Dir: spec.Workspace, Workdir: spec.Workdir, UID: -1, GID: -1,
		SetEnv: spec.Env, Limits: spec.Limits, Nested: spec.NestedSandboxes, IUnderstand: spec.IUnderstand,
	}
	ask := run.Ask{Level: spec.Isolation, Min: spec.MinIsolation, Root: spec.Image != "" || spec.Template != ""}
	if w.req.Level, w.req.LevelReason, err = run.Choose(ask); err != nil {
		return w, err
	}
	wd, err := os.Getwd()
	if err != nil {
		return w, bailey.Errorf(bailey.CodeUsage, "use the working folder", "", "%w", err)
	}
	for _, m := range spec.Mounts {
		mount, err := hostview.ParseMount(m, wd, c.host.Home)
		if err != nil {
			return w, err
		}
		w.req.Mounts = append(w.req.Mounts, mount)
	}
	if !filepath.IsAbs(w.req.Dir) {
		w.req.Dir = filepath.Join(wd, w.req.Dir)
	}
	if dir, err := filepath.EvalSymlinks(w.req.Dir); err == nil {
		w.req.Dir = dir // if not, Create says what is wrong with it
	}
	if w.image != "" && !filepath.IsAbs(w.image) {
		w.image = filepath.Join(wd, w.image)
	}
	if w.policy != "" && !filepath.IsAbs(w.policy) {
		w.policy = filepath.Join(wd, w.policy)
	}
	spec.Workspace, spec.Image, spec.Mounts, spec.Policy = w.req.Dir, w.image, nil, w.policy
	key, err := json.Marshal(struct {
		Spec   bailey.Spec
		Mounts []hostview.Mount
	}{spec, w.req.Mounts})
	if err != nil { // a number of processors that is none
		return w, bailey.Errorf(bailey.CodeUsage, "read the Spec", "", "%w", err)
	}
	w.key = string(key)
	return w, nil
}

// root has the root file system of a container prepared.
func (c *Client) root(ctx context.Context, w *want) (err error) {
	if !w.req.Level.OwnRoot() || w.req.Rootfs != nil {
		return nil
	}
	w.req.Rootfs, err = run.PrepareRoot(ctx, c.host.Folder, c.daemon, w.image, w.template)
	return err
}

// daemon finds baileyd.
func (c *Client) daemon() (string, error) {
	if c.baileyd != "" {
		return c.baileyd, nil
	}
	return find("baileyd", "Baileyd", filepath.Dir(c.init))
}

// reaches says that a network was asked for.
func (w *want) reaches() bool { return w.policy != "" || !w.network.Empty() }

// gate makes the way out of a sandbox that has a network, and holds the sandbox to
// its policy. One gate serves all sandboxes.
func (c *Client) gate(ctx context.Context, w *want) (err error) {
	if !w.reaches() {
		return nil
	}
	o := run.GateOptions{Policy: w.network}
	if w.policy != "" {
		if o.Policy.Document, err = run.ReadPolicy(w.policy); err != nil {
			return err
		}
	}
	if w.req.Gate, err = c.gates.Way(o); err != nil || w.policy == "" {
		return err
	}
	checked, err := w.req.Gate.Check(ctx)
	if err != nil {
		return err
	}
	min, err := w.req.Hold(checked.Session, w.req.Dir)
	if err == nil && w.req.Level < min {
		err = bailey.Errorf(bailey.CodeUsage, "choose an isolation level", "set Spec.MinIsolation to "+min.String(), "%s is weaker than the policy wants", w.req.Level)
	}
	return err
}

// make makes a sandbox.
func (c *Client) make(ctx context.Context, w want) (*run.Sandbox, error) {
	err := c.root(ctx, &w)
	if err == nil {
		err = c.gate(ctx, &w)
	}
	if err != nil {
		w.req.Gate.Close()
		return nil, err
	}
	return c.host.Open(ctx, w.req, c.init)
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
	before, _ := s.s.Denials(ctx)
	res, err := s.s.RunCommand(ctx, spec, stdin, limit)
	if err != nil {
		return nil, err
	}
	after, err := s.s.Denials(ctx)
	denials := since(before, after)
	if err != nil { // no reason to lose what the command has done
		denials = []bailey.Denial{{What: "everything", Reason: "gate_lost", Why: err.Error(), Ask: "make another sandbox", Count: 1}}
	}
	return &bailey.Result{Stdout: res.Stdout, Stderr: res.Stderr, Truncated: res.Truncated, End: res.End.End(), Denials: denials}, nil
}

// since gives the denials that came between two looks. A gate lists what is
// new behind what it knew.
func since(before, after []control.Denial) (list []bailey.Denial) {
	for i, d := range after {
		if i < len(before) {
			d.Count -= before[i].Count
		}
		if d.Count > 0 {
			list = append(list, bailey.Denial{What: d.What, Rule: d.Rule, Reason: d.Reason, Why: d.Why, Ask: d.Ask, Count: d.Count})
		}
	}
	return list
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

// Close ends the sandbox and everything in it, and keeps what it changed; of a
// sandbox that has changed nothing no record is left. It may be called again,
// and then gives the same result.
func (s *Sandbox) Close(ctx context.Context) error {
	_, err := s.s.Leave(ctx)
	if cerr := s.s.Run.Close(); err == nil {
		err = cerr
	}
	return err
}
