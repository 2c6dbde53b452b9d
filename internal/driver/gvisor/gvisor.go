package gvisor

import (
	"context"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Options configure a Driver.
type Options struct {
	// Outer builds the cells. It is not closed.
	Outer Outer
	// State is a folder in which Probe makes one of its own. It is made when it is
	// needed.
	State string
	// Runsc and Cell are the paths of gVisor's runsc and of bailey-cell; "" are those
	// beside the running program.
	Runsc, Cell string
}

// Outer is a driver that builds cells.
type Outer interface {
	driver.Adopter
	// SeveralIDs says whether containers have ids other than the caller's own.
	SeveralIDs() bool
}

// Driver builds sandboxes of the gVisor level.
type Driver struct {
	opt  Options
	hash hashed // runsc's
}

var _ driver.Adopter = (*Driver)(nil)

// New makes a driver. It looks at nothing until it is asked to.
func New(opt Options) *Driver { return &Driver{opt: opt} }

const installRunsc = "run ./scripts/levels gvisor in Bailey's sources, which builds runsc beside the program"

// program gives the path of a program that lies beside this one unless told otherwise.
func program(told, name string) (string, error) {
	path := told
	if path == "" {
		self, err := os.Executable()
		if err != nil {
			return "", err
		}
		if self, err = filepath.EvalSymlinks(self); err != nil {
			return "", err
		}
		path = filepath.Join(filepath.Dir(self), name)
	}
	path, err := filepath.Abs(path)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err == nil {
		_, err = os.Stat(path)
	}
	return path, err
}

// runsc gives the path of gVisor's program.
func (d *Driver) runsc() (string, error) {
	path, err := program(d.opt.Runsc, "runsc")
	if err != nil {
		return "", bailey.Errorf(bailey.CodeIsolationUnavailable, "use the level gvisor", installRunsc, "gVisor's program runsc is not there: %w", err)
	}
	return path, nil
}

// Create builds a sandbox.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	return d.create(ctx, spec, "")
}

// create builds a sandbox, which goes on from the memory in a folder unless that is "".
func (d *Driver) create(ctx context.Context, spec driver.Spec, memory string) (driver.Instance, error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	c, err := d.newCell(spec)
	if err != nil {
		return nil, err
	}
	c.memory = memory
	outer, err := c.spec()
	if err == nil {
		var in driver.Instance
		if in, err = d.opt.Outer.Create(ctx, outer); err == nil {
			return d.newInstance(in, c.dir, spec.Entry.Agent != ""), nil
		}
	}
	c.remove()
	return nil, err
}

// check refuses what this level cannot do, or what would mean something else.
func check(spec driver.Spec) error {
	fail := func(code bailey.Code, fix, format string, args ...any) error {
		return bailey.Errorf(code, "create the sandbox", fix, format, args...)
	}
	switch {
	case spec.Level != bailey.IsolationGVisor:
		return fail(bailey.CodeUsage, "", "this driver has no level %s", spec.Level)
	case spec.Root.Base == nil:
		return fail(bailey.CodeUsage, "name an image or a template", "a sandbox of this level has a root file system of its own")
	case spec.Cell != nil:
		return fail(bailey.CodeUsage, "", "a sandbox of this level is in a cell already")
	case spec.NestedSandboxes:
		return fail(bailey.CodeNotAvailable, "leave --nested-sandboxes out, or use the level container",
			"programs in gVisor make namespaces of gVisor's kernel in any case, and others do not reach them")
	}
	return nil
}
