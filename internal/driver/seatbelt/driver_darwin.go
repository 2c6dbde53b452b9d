package seatbelt

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

const (
	launcher   = "/usr/bin/sandbox-exec"
	maxProfile = 512 << 10 // bytes; arguments and environment together may have 1 MiB
)

// Driver provides the process level on macOS.
type Driver struct{}

// New returns the driver.
func New() *Driver { return &Driver{} }

// Probe starts a harmless command under a profile made by this package.
func (d *Driver) Probe(ctx context.Context, level bailey.Isolation) driver.Capabilities {
	if level != bailey.IsolationProcess {
		return driver.Capabilities{Why: "macOS has no " + level.String() + " level of its own", Fix: "use --isolation process"}
	}
	text, err := Profile{Read: []string{"/usr", "/bin"}}.Text()
	if err == nil {
		err = exec.CommandContext(ctx, launcher, "-p", text, "/usr/bin/true").Run()
	}
	if err != nil {
		return driver.Capabilities{Why: launcher + " does not work: " + err.Error(), Fix: "run Bailey outside of other sandboxes; macOS does not nest them"}
	}
	return driver.Capabilities{Available: true, MultiUser: false, Overlay: false, Limits: []string{}}
}

// Create copies what is copy-on-write, and starts the command.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	resolved, err := resolve(spec)
	if err != nil {
		return nil, err
	}
	plan, err := Translate(resolved)
	if err != nil {
		return nil, err
	}
	in := &instance{done: make(chan struct{}), stopped: make(chan syscall.Signal)}
	var slave *os.File
	if size := spec.Entry.Terminal; size != nil {
		if in.terminal, slave, err = openTerminal(*size); err != nil {
			return nil, failed(err, "make a terminal")
		}
		defer slave.Close()
		plan.Profile.TTY = slave.Name()
	}
	if err := in.start(ctx, spec, plan, slave); err != nil {
		if in.terminal != nil {
			_ = in.terminal.Close()
		}
		return nil, err
	}
	return in, nil
}

func (in *instance) start(ctx context.Context, spec driver.Spec, plan Plan, slave *os.File) error {
	text, err := plan.Profile.Text()
	if err != nil {
		return err
	}
	if len(text) > maxProfile {
		return bailey.Errorf(bailey.CodeSetupFailed, what, "allow or protect fewer paths", "the profile has %d bytes, more than macOS takes", len(text))
	}
	for _, c := range plan.Clones {
		if err := clone(ctx, c); err != nil {
			return err
		}
	}
	// No core files, in which a command's memory could outlive it. The limit is
	// set before the profile holds, so that the shell need not be in it.
	args := append([]string{"-c", `ulimit -c 0; exec "$0" "$@"`, launcher, "-p", text, "--"}, plan.Command...)
	cmd := exec.Command("/bin/sh", args...)
	cmd.Dir, cmd.Env = plan.Workdir, plan.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if slave != nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr.Setctty = true
		if f := spec.Entry.Stdio[2]; f != nil { // 2>log
			cmd.Stderr = f
		}
	} else {
		// Assigned one by one: a nil *os.File in an interface is not nil.
		if f := spec.Entry.Stdio[0]; f != nil {
			cmd.Stdin = f
		}
		if f := spec.Entry.Stdio[1]; f != nil {
			cmd.Stdout = f
		}
		if f := spec.Entry.Stdio[2]; f != nil {
			cmd.Stderr = f
		}
	}
	if err := cmd.Start(); err != nil {
		return failed(err, what)
	}
	in.cmd = cmd
	go in.wait()
	return nil
}

func failed(err error, what string) error {
	return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
}

// resolve replaces the sources of places by what the kernel will compare:
// paths without symbolic links. What is to be denied may not exist yet; its
// folder does.
func resolve(spec driver.Spec) (driver.Spec, error) {
	places := make([]driver.Place, len(spec.Root.Places))
	for i, p := range spec.Root.Places {
		var err error
		if p.Source != "" && p.Kind != driver.Symlink {
			same := p.Source == p.Target
			p.Source, err = filepath.EvalSymlinks(p.Source)
			if same && err == nil {
				p.Target = p.Source
			}
		}
		if err == nil && p.Overlay != nil {
			o := *p.Overlay
			o.Lower = append([]string(nil), o.Lower...)
			for j := range o.Lower {
				if err == nil {
					o.Lower[j], err = filepath.EvalSymlinks(o.Lower[j])
				}
			}
			if err == nil && o.Layer != "" {
				o.Layer, err = filepath.EvalSymlinks(o.Layer)
			}
			p.Overlay = &o
		}
		if err == nil && p.Kind == driver.Mask {
			p.Target, err = resolveMissing(p.Target)
		}
		if err != nil {
			return spec, bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
		}
		places[i] = p
	}
	spec.Root.Places = places
	return spec, nil
}

// resolveMissing resolves a path of which the end may not exist.
func resolveMissing(p string) (string, error) {
	real, err := filepath.EvalSymlinks(p)
	if !errors.Is(err, fs.ErrNotExist) || p == "/" {
		return real, err
	}
	dir, err := resolveMissing(filepath.Dir(p))
	return filepath.Join(dir, filepath.Base(p)), err
}

// clone copies a folder: on APFS in one call, without copying data, elsewhere
// file by file with what cp(1) keeps.
func clone(ctx context.Context, c Clone) error {
	err := unix.Clonefileat(unix.AT_FDCWD, c.From, unix.AT_FDCWD, c.To, unix.CLONE_NOFOLLOW)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EXDEV) {
		return failed(err, "copy the workspace")
	}
	out, err := exec.CommandContext(ctx, "/bin/cp", "-a", c.From, c.To).CombinedOutput()
	if err != nil {
		return bailey.Errorf(bailey.CodeSetupFailed, "copy the workspace", "see that there is room for a copy", "%w: %.200q", err, out)
	}
	return nil
}
