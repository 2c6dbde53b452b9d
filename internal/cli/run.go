package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cli/values"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/faults"
	"github.com/bailey-sandbox/bailey/internal/levels"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// runFlags are the flags of `bailey run`.
type runFlags struct {
	run.Request
	isolation, min       bailey.Isolation
	image, template      string
	mounts               []string
	user                 string
	net                  netFlags
	apply, discard, keep bool
	verbose              bool
	writable             []string
	noProject            bool
}

func (f *runFlags) register(inv *invocation) {
	fs := inv.Flags
	fs.Var(values.Isolation{To: &f.isolation}, "isolation", "how strong the boundary is: auto, process, container, gvisor or microvm")
	fs.Var(values.Isolation{To: &f.min}, "min-isolation", "refuse anything weaker than this")
	fs.StringVar(&f.image, "image", "", "root file system: a folder, a tar or an OCI image layout")
	fs.StringVar(&f.template, "template", "", "root file system: `host`, made from this machine's own /usr")
	fs.StringVar(&f.Dir, "workspace", "", "the folder to work on (this folder)")
	fs.StringVar(&f.Workdir, "workdir", "", "where the command starts, inside (the workspace)")
	fs.StringArrayVar(&f.mounts, "mount", nil, "show a file or folder: SRC[:DST][:ro|rw]")
	fs.StringArrayVar(&f.SetEnv, "env", nil, "set a variable (NAME=VALUE) or pass one on (NAME)")
	fs.StringVar(&f.user, "user", "", "who the command is inside: UID[:GID]")
	fs.StringVar(&f.Home, "home", "", "keep HOME under this name for this project")
	fs.Float64Var(&f.Limits.CPUs, "cpus", 0, "processors, as in 1.5")
	fs.Var(values.Bytes{To: &f.Limits.Memory}, "memory", "memory and swap together")
	fs.Int64Var(&f.Limits.Pids, "pids", 0, "processes and threads at once")
	fs.Var(values.Bytes{To: &f.Limits.Disk}, "disk", "what may be written to its own layers")
	fs.Var(values.Bytes{To: &f.Limits.IO}, "io", "to and from disks per second, each way")
	fs.Var(values.Bytes{To: &f.Limits.Output}, "output", "stdout and stderr together")
	fs.Var(values.Duration{To: &f.Limits.Timeout}, "timeout", "end the command after this time")
	fs.BoolVar(&f.apply, "apply", false, "apply the changes afterwards, without a question")
	fs.BoolVar(&f.discard, "discard", false, "throw the changes away afterwards, without a question")
	fs.BoolVar(&f.keep, "keep", false, "keep the changes for `bailey changes`, without a question")
	fs.StringArrayVar(&f.writable, "writable", nil, "write straight through to the workspace; =NAME also to that file, which runs on the host")
	fs.Lookup("writable").NoOptDefVal = "."
	fs.BoolVar(&f.ForceCopy, "copy", false, "work on a full copy of the workspace instead of an overlay")
	fs.BoolVar(&f.Nested, "nested-sandboxes", false, "let programs inside make namespaces of their own")
	fs.BoolVar(&f.IUnderstand, "i-understand", false, "allow a workspace or mount that hands over much of the machine")
	f.net.register(fs)
	fs.BoolVar(&f.noProject, "no-project-file", false, "do not look at bailey.yaml")
	fs.BoolVarP(&f.verbose, "verbose", "v", false, "say what was left out of its view and why")
	fs.BoolVar(&inv.JSON, "json", false, "print one JSON object with output, end and changes")
}

// refuse reports flags that cannot be, or not yet, be had.
func (f *runFlags) refuse(inv *invocation, cmd []string) error {
	usage := func(what, fix, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, what, fix, format, args...)
	}
	n := 0
	for _, b := range []bool{f.apply, f.discard, f.keep} {
		if b {
			n++
		}
	}
	switch {
	case len(cmd) == 0:
		return usage("run a command", "write it behind --, as in: bailey run -- make test", "there is none")
	case n > 1:
		return usage("deal with the changes", "choose one", "--apply, --discard and --keep exclude each other")
	case len(f.writable) > 0 && n > 0:
		return usage("deal with the changes", "leave one of them out", "with --writable changes are on the host at once")
	case f.Limits.Pids <= 0 && inv.Flags.Changed("pids"):
		return usage("set the limit --pids", "leave it out for the default", "it is a number above zero")
	case !(f.Limits.CPUs > 0) && inv.Flags.Changed("cpus"): // NaN is not above zero
		return usage("set the limit --cpus", "leave it out for no limit", "it is a number above zero")
	}
	return f.net.check()
}

func runCommand(inv *invocation) (int, error) {
	f := &runFlags{}
	f.register(inv)
	cmd, err := inv.Parse()
	if err != nil {
		return 0, err
	}
	if err := f.refuse(inv, cmd); err != nil {
		return 0, err
	}
	f.Command = cmd
	f.Streams = terminal.Std()
	if f.UID, f.GID, err = parseUser(f.user); err != nil {
		return 0, err
	}
	ws, err := f.folder()
	if err != nil {
		return 0, err
	}
	h, done, err := newHost()
	if err != nil {
		return 0, err
	}
	defer done()
	defer func() { f.Gate.Close() }()
	if err := f.settle(inv, h, ws); err != nil {
		return 0, err
	}
	if f.Level.OwnRoot() {
		daemon := func() (string, error) { return program("baileyd") }
		if f.Rootfs, err = run.PrepareRoot(context.Background(), h.Folder, daemon, f.image, f.template); err != nil {
			return 0, err
		}
	}
	if inv.JSON {
		f.Capture = &run.Capture{}
	}
	out, err := h.Do(context.Background(), f.Request)
	if err != nil {
		return 0, err
	}
	defer out.Run.Close()
	code, err := f.report(inv, h.Append, out)
	if werr := h.Wait(); err == nil && werr != nil {
		return bailey.ExitBailey, werr
	}
	return code, err
}

// parseUser reads --user: UID[:GID]. Nothing gives -1, the level's own choice.
func parseUser(s string) (uid, gid int, err error) {
	if s == "" {
		return -1, -1, nil
	}
	u, g, both := strings.Cut(s, ":")
	if !both {
		g = u
	}
	uid, err1 := strconv.Atoi(u)
	gid, err2 := strconv.Atoi(g)
	if errors.Join(err1, err2) != nil || uid < 0 || gid < 0 || uid > 65535 || gid > 65535 {
		return 0, 0, bailey.Errorf(bailey.CodeUsage, "run as "+strconv.Quote(s), "write it as UID or UID:GID", "ids are numbers from 0 to 65535")
	}
	return uid, gid, nil
}

// newHost gathers what a run needs to know about its caller. What was left by
// Baileys that were killed is removed once: while the command runs, or when done
// is called. That also gives back what was made ahead for a run that is refused.
func newHost() (h *run.Host, done func(), err error) {
	f, err := run.OpenFolder("")
	if err != nil {
		return nil, nil, err
	}
	f.Sweep() // before a run is made, which would hold it off
	recoverRuns(f)
	d := linux.New(linux.Options{State: f.Path(), Trace: faults.Trace, StopAt: linux.Stop(faults.Child())})
	d.Warm(1, false)
	h = run.NewHost(f, levels.Of(d, ""))
	h.Trace = faults.Trace
	sweep := sync.OnceFunc(func() { sweepGroups(f, d) })
	h.Running = sweep
	return h, func() { sweep(); d.Close() }, nil
}
