package microvm

import (
	"context"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/microvm/kit"
)

// Options configure a Driver.
type Options struct {
	// Outer builds the cells. It is not closed.
	Outer Outer
	// State is a folder for what is unpacked of the kit, in "microvm". It is made when it
	// is needed.
	State string
	// Programs is the folder with the kit, bailey-vmm and bailey-cell; "" is that of the
	// running program.
	Programs string
}

// Outer is a driver that builds cells.
type Outer interface {
	driver.Adopter
	// SeveralIDs says whether containers have ids other than the caller's own.
	SeveralIDs() bool
}

// Driver builds sandboxes of the microVM level.
type Driver struct{ opt Options }

var _ driver.Adopter = (*Driver)(nil)

// New makes a driver. It looks at nothing until it is asked to.
func New(opt Options) *Driver { return &Driver{opt} }

const install = "run ./scripts/levels microvm in Bailey's sources, and keep the programs in bin/ together"

// program gives the path of a file that lies with the programs, no link left in it.
func (d *Driver) program(name string) (string, error) {
	dir := d.opt.Programs
	if dir == "" {
		self, err := os.Executable()
		if err == nil {
			self, err = filepath.EvalSymlinks(self)
		}
		if err != nil {
			return "", err
		}
		dir = filepath.Dir(self)
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return "", bailey.Errorf(bailey.CodeIsolationUnavailable, "use the level microvm", install, "%s is not there: %w", name, err)
	}
	return path, nil
}

// state is the driver's folder, no link left in it: the outer driver follows none.
func (d *Driver) state() string {
	if real, err := filepath.EvalSymlinks(d.opt.State); err == nil {
		return filepath.Join(real, "microvm")
	}
	return filepath.Join(d.opt.State, "microvm")
}

func (d *Driver) kit() (*kit.Kit, error) {
	path, err := d.program(kit.FileName)
	if err != nil {
		return nil, err
	}
	dir := d.state()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "unpack what virtual machines need", "", "%w", err)
	}
	return kit.Open(path, filepath.Join(d.state(), "kit"))
}

// Create builds a sandbox.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	c, err := d.newCell(spec)
	if err != nil {
		return nil, err
	}
	if err = c.makeDir(); err != nil {
		return nil, err
	}
	outer, err := c.spec()
	if err == nil {
		var in driver.Instance
		if in, err = d.opt.Outer.Create(ctx, outer); err == nil {
			return c.instance(in), nil
		}
	}
	c.remove()
	return nil, err
}

// Adopt gives a sandbox that another process has made.
func (d *Driver) Adopt(ctx context.Context, spec driver.Spec, r driver.Record, k driver.Kept) (driver.Instance, error) {
	c, err := d.newCell(spec)
	var outer driver.Spec
	if err == nil {
		outer, err = c.spec()
	}
	if err != nil {
		for _, f := range k.Files {
			f.Close()
		}
		return nil, err
	}
	r.Level = bailey.IsolationContainer
	in, err := d.opt.Outer.Adopt(ctx, outer, r, k)
	if err != nil {
		return nil, err
	}
	return c.instance(in), nil
}

// check refuses what this level cannot do, or what would mean something else.
func check(spec driver.Spec) error {
	fail := func(code bailey.Code, fix, format string, args ...any) error {
		return bailey.Errorf(code, "create the sandbox", fix, format, args...)
	}
	switch {
	case spec.Level != bailey.IsolationMicroVM:
		return fail(bailey.CodeUsage, "", "this driver has no level %s", spec.Level)
	case spec.Root.Base == nil:
		return fail(bailey.CodeUsage, "name an image or a template", "a sandbox of this level has a root file system of its own")
	case spec.Cell != nil:
		return fail(bailey.CodeUsage, "", "a sandbox of this level is in a cell already")
	case spec.NestedSandboxes:
		return fail(bailey.CodeNotAvailable, "leave --nested-sandboxes out", "programs in a virtual machine make namespaces of its kernel in any case")
	case spec.Limits.Memory > 0 && spec.Limits.Memory < minMemory:
		return fail(bailey.CodeLimitUnavailable, "give it 128 MiB or more", "a virtual machine with its kernel does not fit into %d bytes of memory", spec.Limits.Memory)
	}
	return nil
}
