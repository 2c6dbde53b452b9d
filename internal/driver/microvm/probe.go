package microvm

import (
	"context"
	"errors"
	"os"
	"runtime"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/microvm/kit"
)

// Probe says what the level needs and whether it is there. It starts no machine: emulated
// ones take seconds.
func (d *Driver) Probe(ctx context.Context, level bailey.Isolation) driver.Capabilities {
	lacks := []driver.Need{driver.NeedAttach, driver.NeedNested}
	if level != bailey.IsolationMicroVM {
		return driver.Capabilities{Why: "this driver has no level " + level.String()}
	}
	if runtime.GOARCH != "amd64" {
		return driver.Capabilities{Why: "virtual machines run on amd64 only in this version", Lacks: lacks}
	}
	for _, name := range []string{"bailey-vmm", kit.FileName} {
		path, err := d.program(name)
		if err == nil && name == kit.FileName {
			_, err = kit.Read(path)
		}
		if err != nil {
			why, fix := err.Error(), install
			var be *bailey.Error
			if errors.As(err, &be) {
				why, fix = be.Why, be.Fix
			}
			return driver.Capabilities{Why: why, Fix: fix, Lacks: lacks}
		}
	}
	c := d.opt.Outer.Probe(ctx, bailey.IsolationContainer)
	c.Lacks, c.Landlock = lacks, 0
	// This version imitates the processor everywhere: it does not use /dev/kvm yet.
	c.Emulated = true
	if !c.Available {
		c.Why = "its container cannot be made: " + c.Why
	}
	if err := os.MkdirAll(d.opt.State, 0o700); err != nil {
		c.Available, c.Why = false, err.Error()
	}
	return c
}
