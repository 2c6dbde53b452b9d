package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// probeTime bounds one trial. A sandbox of its kind takes a third of a second.
const probeTime = 20 * time.Second

// Probe builds the smallest sandbox of the level and says what worked.
func (d *Driver) Probe(ctx context.Context, level bailey.Isolation) driver.Capabilities {
	lacks := []driver.Need{driver.NeedAttach, driver.NeedNested}
	if level != bailey.IsolationGVisor {
		return driver.Capabilities{Why: "this driver has no level " + level.String()}
	}
	if _, err := d.runsc(); err != nil {
		why, fix := whyAndFix(err)
		return driver.Capabilities{Why: why, Fix: fix, Lacks: lacks, Memory: true}
	}
	c := d.opt.Outer.Probe(ctx, bailey.IsolationContainer)
	c.Lacks, c.Landlock, c.Memory = lacks, 0, true
	if !c.Available {
		c.Why = "its container cannot be made: " + c.Why
		return c
	}
	if err := d.try(ctx, c.Egress != ""); err == nil {
		return c
	} else if c.Egress != "" {
		c.Egress = ""
		c.EgressWhy, c.EgressFix = whyAndFix(err)
		if d.try(ctx, false) == nil {
			return c
		}
	}
	err := d.try(ctx, false)
	if err == nil { // a moment's shortage
		return c
	}
	c.Available, c.Egress, c.EgressWhy = false, "", "no sandbox can be made"
	c.Why, c.Fix = whyAndFix(err)
	return c
}

func whyAndFix(err error) (why, fix string) {
	var be *bailey.Error
	if errors.As(err, &be) {
		return be.Why, be.Fix
	}
	return err.Error(), ""
}

// try runs a program in a sandbox that holds nothing else: runsc itself, which needs
// no file beside it, and which tells its version.
func (d *Driver) try(ctx context.Context, outlet bool) error {
	const what = "run a command in gVisor"
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	runsc, err := d.runsc()
	if err == nil {
		err = os.MkdirAll(d.opt.State, 0o700)
	}
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.opt.State, "gvisor-probe-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return err
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	spec := driver.Spec{ID: filepath.Base(dir), Own: filepath.Join(dir, "own"), Level: bailey.IsolationGVisor, Workdir: "/", Env: []string{"PATH=/"}, Outlet: outlet}
	spec.User.HostUID, spec.User.HostGID = os.Geteuid(), os.Getegid()
	spec.Root.Base = &driver.Overlay{Lower: []string{root}}
	spec.Root.Places = []driver.Place{{Kind: driver.Bind, Target: "/runsc", Source: runsc, ReadOnly: true}}
	spec.Entry.Command = []string{"/runsc", "--version"}
	in, err := d.Create(ctx, spec)
	if err != nil {
		return err
	}
	defer in.Destroy(context.WithoutCancel(ctx))
	select {
	case <-in.Done():
	case <-ctx.Done():
		return bailey.Errorf(bailey.CodeIsolationUnavailable, what, "", "it did not end within %v", probeTime)
	}
	if e := in.End(); e.Reason != bailey.EndExit || e.ExitCode != 0 {
		return bailey.Errorf(bailey.CodeIsolationUnavailable, what, "", "`runsc --version` %s %s", e, e.Detail)
	}
	return nil
}
