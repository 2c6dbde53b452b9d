package gvisor

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cell"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// memoryName is where runsc writes memory, in the cell's folder; memoryAt is where a cell sees
// the memory that its sandbox goes on from.
const (
	memoryName = "memory"
	memoryAt   = "/memory"
)

// memoryFiles are all that runsc writes.
var memoryFiles = []string{"checkpoint.img", "pages.img", "pages_meta.img"}

var (
	_ driver.Restorer  = (*Driver)(nil)
	_ driver.Suspender = (*staying)(nil)
)

// Suspend has runsc write the sandbox's memory, which ends it.
func (in *staying) Suspend(ctx context.Context, dir string) (driver.Memory, error) {
	fail := func(format string, args ...any) (driver.Memory, error) {
		return driver.Memory{}, bailey.Errorf(bailey.CodeNotAvailable, "put the sandbox's memory on disk", "", format, args...)
	}
	version, err := in.d.version()
	if err != nil {
		return fail("%w", err)
	}
	// Whatever can be known beforehand is: afterwards the sandbox has ended.
	switch same, err := in.same(); {
	case err != nil:
		return fail("its gVisor is not to be seen: %w", err)
	case !same:
		return fail("gVisor was installed anew since the sandbox started, and another gVisor cannot go on with its memory")
	}
	stats, err := in.Stats(ctx)
	if err != nil {
		return fail("%w", err)
	}
	most, err := bound(stats)
	if err != nil {
		return fail("%w", err)
	}
	// For a moment it is there twice.
	if err := errors.Join(roomy(in.dir, stats.Memory), roomy(dir, 2*stats.Memory)); err != nil {
		return fail("%w", err)
	}
	at := stateAt + "/" + memoryName
	a, f, err := cell.Ask(ctx, filepath.Join(in.dir, controlName), cell.Request{Act: cell.ActRun, Within: within(ctx).Milliseconds(), Argv: []string{
		runscAt, "--root=" + stateAt, "checkpoint", "--compression=none", "--image-path=" + at, name}})
	if f != nil {
		f.Close()
	}
	switch {
	case err != nil:
		return fail("the cell does not answer: %w", err)
	case a.Failed != nil:
		return fail("%q", a.Failed.Why)
	case a.Ran == nil || a.Ran.Code != 0:
		return fail("runsc failed: %+v", a.Ran)
	}
	in.Kill(bailey.EndUser)
	select {
	case <-in.Done():
	case <-ctx.Done():
		return fail("%w", ctx.Err())
	}
	// The cell could write there as long as it lived: nothing is taken for what it seems.
	if err := take(ctx, in.dir, dir, most); err != nil {
		return fail("%w", err)
	}
	r := in.outer.Record()
	return driver.SealMemory(driver.Memory{ID: r.ID, Level: bailey.IsolationGVisor, Version: version}, dir)
}

// Restore makes a sandbox that goes on from memory.
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, m driver.Memory, dir string) (driver.Instance, error) {
	version, err := d.version()
	if err != nil {
		return nil, err
	}
	if err := driver.CheckMemory(m, dir, bailey.IsolationGVisor, version); err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "go on with the memory of "+m.ID, "", "%w", err)
	}
	return d.create(ctx, spec, dir)
}

// longest bounds the writing of memory for whoever names no time: a disk takes that long
// for 60 GB.
const longest = 10 * time.Minute

// within is how long the caller waits.
func within(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return max(time.Until(end), time.Millisecond)
	}
	return longest
}
