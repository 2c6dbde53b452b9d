package gvisor

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Adopt gives a sandbox that another process has made: it adopts its cell.
func (d *Driver) Adopt(ctx context.Context, spec driver.Spec, r driver.Record, k driver.Kept) (driver.Instance, error) {
	fail := func(format string, args ...any) (driver.Instance, error) {
		for _, name := range []string{driver.HeldAgent, driver.HeldPidfd, driver.HeldIDs, driver.HeldOutletTCP, driver.HeldOutletUDP} {
			if f := k.Files[name]; f != nil {
				f.Close()
			}
		}
		return nil, bailey.Errorf(bailey.CodeUsage, "adopt the sandbox", "", format, args...)
	}
	if spec.Level != bailey.IsolationGVisor || r.Level != bailey.IsolationGVisor || spec.ID != r.ID {
		return fail("the record is one of %s at level %s", r.ID, r.Level)
	}
	dir, err := folder(spec)
	if err != nil {
		return fail("%w", err)
	}
	spec.Level, r.Level = bailey.IsolationContainer, bailey.IsolationContainer
	in, err := d.opt.Outer.Adopt(ctx, spec, r, k)
	if err != nil {
		return nil, err
	}
	return d.newInstance(in, dir, true), nil
}
