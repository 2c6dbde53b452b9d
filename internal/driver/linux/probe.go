package linux

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// probeTime bounds one trial. A sandbox of the probe's kind takes milliseconds, and
// seconds on an emulated machine that is busy.
const probeTime = 30 * time.Second

// Probe builds the smallest sandbox of the level and says what worked: whether
// a setting allows something is a guess, whether it works is a fact.
func (d *Driver) Probe(ctx context.Context, level bailey.Isolation) driver.Capabilities {
	_, several := subordinates()
	several = os.Geteuid() == 0 || several && level == bailey.IsolationContainer
	c := driver.Capabilities{Pause: d.PauseMethod(), Landlock: landlockABI(), MultiUser: several}
	for _, s := range d.cgroupHost().Status() {
		if s.OK {
			c.Limits = append(c.Limits, limitName(string(s.Controller)))
		}
	}
	if !several || level == bailey.IsolationProcess {
		c.Limits = appendNew(c.Limits, "pids") // by RLIMIT_NPROC
	}
	err := d.try(ctx, level, true, false)
	c.Overlay = err == nil
	if err != nil && level == bailey.IsolationProcess {
		err = d.try(ctx, level, false, false) // a copy of the workspace does
	}
	c.Available = err == nil
	if c.Why, c.Fix = whyAndFix(err); err != nil {
		c.EgressWhy = "no sandbox can be made"
		return c
	}
	err = d.try(ctx, level, c.Overlay, true)
	if c.EgressWhy, c.EgressFix = whyAndFix(err); err != nil {
		return c
	}
	c.Egress = driver.EgressTransparent
	if !hostIPv6() {
		c.EgressWhy = "this kernel has no IPv6, so sandboxes have none"
	}
	return c
}

// SeveralIDs says whether containers have ids other than the caller's own:
// Capabilities.MultiUser without a probe.
func (d *Driver) SeveralIDs() bool {
	_, several := subordinates()
	return os.Geteuid() == 0 || several && !d.omit[NoUserNS]
}

func whyAndFix(err error) (why, fix string) {
	var be *bailey.Error
	if errors.As(err, &be) {
		return be.Why, be.Fix
	} else if err != nil {
		return err.Error(), ""
	}
	return "", ""
}

// limitName gives a controller's limit by the name of its flag.
func limitName(controller string) string {
	if controller == "cpu" {
		return "cpus"
	}
	return controller
}

func appendNew(list []string, s string) []string {
	for _, have := range list {
		if have == s {
			return list
		}
	}
	return append(list, s)
}

// try runs `true` in a sandbox that shows little more than /usr.
func (d *Driver) try(ctx context.Context, level bailey.Isolation, overlay, outlet bool) error {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if err := os.MkdirAll(d.opt.State, 0o700); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.opt.State, "probe-")
	if err != nil {
		return err
	}
	defer func() {
		// overlayfs has made folders there that their owner may not even read.
		for _, name := range []string{"", "/incompat", "/incompat/volatile"} {
			os.Chmod(filepath.Join(dir, "layer/work/work"+name), 0o700)
		}
		os.RemoveAll(dir)
	}()
	for _, name := range []string{"lower", "layer/upper", "layer/work"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	o := &driver.Overlay{Lower: []string{filepath.Join(dir, "lower")}, Layer: filepath.Join(dir, "layer"), HostIDs: true}
	uid, gid := os.Geteuid(), os.Getegid()
	if uid > 65535 || gid > 65535 {
		uid, gid = 1000, 1000
	}
	spec := driver.Spec{ID: filepath.Base(dir), Level: level, Workdir: "/", Env: []string{"PATH=/usr/bin:/bin"}, Outlet: outlet,
		User: driver.User{UID: uid, GID: gid, HostUID: uid, HostGID: gid}}
	if level == bailey.IsolationContainer {
		spec.Root.Base = o
	} else if overlay {
		spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.CoW, Target: "/probe", IsDir: true, Overlay: o})
	}
	spec.Root.Places = append(spec.Root.Places, programPlaces()...)
	spec.Entry.Command = []string{"true"}
	in, err := d.Create(ctx, spec)
	if err != nil {
		return err
	}
	defer in.Destroy(context.WithoutCancel(ctx))
	select {
	case <-in.Done():
	case <-ctx.Done():
		return bailey.Errorf(bailey.CodeIsolationUnavailable, "run a command in a sandbox", "", "it did not end within %v", probeTime)
	}
	if e := in.End(); e.Reason != bailey.EndExit || e.ExitCode != 0 {
		return bailey.Errorf(bailey.CodeIsolationUnavailable, "run a command in a sandbox", "", "`true` %s %s", e, e.Detail)
	}
	return nil
}

// programPlaces shows the folders of the host's programs: what a dynamic
// program needs to start.
func programPlaces() []driver.Place {
	var places []driver.Place
	for _, dir := range []string{"/usr", "/bin", "/lib", "/lib64", "/nix"} {
		fi, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		p := driver.Place{Kind: driver.Bind, Source: dir, Target: dir, IsDir: true, ReadOnly: true, HostIDs: true}
		if fi.Mode()&fs.ModeSymlink != 0 {
			to, err := os.Readlink(dir)
			if err != nil {
				continue
			}
			p = driver.Place{Kind: driver.Symlink, Target: dir, Source: to}
		}
		places = append(places, p)
	}
	return places
}
