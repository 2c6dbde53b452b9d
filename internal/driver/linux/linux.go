package linux

import (
	"sync"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
)

// Options configure a Driver.
type Options struct {
	// State is a folder of BAILEY_HOME for what the driver keeps between
	// sandboxes: locks of id ranges.
	State string
	// Part tells the control groups of one part of a data folder from those of
	// others, which Sweep leaves alone: who sweeps knows only its own sandboxes.
	Part string
	// Omit leaves out protections, for the control runs of the escape suite.
	Omit []Protection
	// Trace, when given, is called in the parent before each of its steps, and
	// StopAt says where the child stops. Both are for the fault suite.
	Trace  func(step string)
	StopAt Stop
}

// Stop says where the child stops. See package faults.
type Stop struct {
	After int                  // it stops when it has taken this many steps; 0: never
	Gate  int                  // it writes a byte here, and goes on when it has read one
	Steps func(names []string) // told the names of all its steps
}

// Driver builds sandboxes of the process and container levels.
type Driver struct {
	opt  Options
	omit map[Protection]bool

	cgroups sync.Once
	pool    *reserves // nil until Warm
	host    *cgroup.Host
}

var _ driver.Driver = (*Driver)(nil)

// New makes a driver. It looks at nothing until it is asked to.
func New(opt Options) *Driver {
	d := &Driver{opt: opt, omit: make(map[Protection]bool, len(opt.Omit))}
	for _, p := range opt.Omit {
		d.omit[p] = true
	}
	return d
}

// State gives Options.State.
func (d *Driver) State() string { return d.opt.State }

func (d *Driver) trace(step string) {
	if d.opt.Trace != nil {
		d.opt.Trace(step)
	}
}
