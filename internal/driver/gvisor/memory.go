package gvisor

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	_ driver.Restorer = (*Driver)(nil)
	_ driver.Copier   = (*staying)(nil)
)

// Suspend has runsc write the sandbox's memory, which ends it.
func (in *staying) Suspend(ctx context.Context, dir string) (driver.Memory, error) {
	most, err := in.ready(ctx, dir)
	if err != nil {
		return noMemory(err)
	}
	if err := in.checkpoint(ctx); err != nil {
		return noMemory(err)
	}
	in.Kill(bailey.EndUser)
	select {
	case <-in.Done():
	case <-ctx.Done():
		return noMemory(ctx.Err())
	}
	return in.sealed(ctx, dir, most)
}

func noMemory(err error) (driver.Memory, error) {
	return driver.Memory{}, bailey.Errorf(bailey.CodeNotAvailable, "put the sandbox's memory on disk", "", "%w", err)
}

// ready finds out beforehand whatever can be, and says how much runsc can have to write, in
// bytes. What an earlier time has left is removed.
func (in *staying) ready(ctx context.Context, dir string) (most int64, err error) {
	switch same, err := in.same(); {
	case err != nil:
		return 0, fmt.Errorf("its gVisor is not to be seen: %w", err)
	case !same:
		return 0, errors.New("gVisor was installed anew since the sandbox started, and another gVisor cannot go on with its memory")
	}
	stats, err := in.Stats(ctx)
	if err != nil {
		return 0, err
	}
	if most, err = bound(stats); err != nil {
		return 0, err
	}
	if err := in.sweep(); err != nil {
		return 0, err
	}
	// For a moment it is there twice.
	return most, errors.Join(roomy(in.dir, stats.Memory), roomy(dir, 2*stats.Memory))
}

// sweep removes memory from the cell's folder. No link in it leads out.
func (in *staying) sweep() error {
	root, err := os.OpenRoot(in.dir)
	if err != nil {
		return err
	}
	return errors.Join(root.RemoveAll(memoryName), root.Close())
}

// checkpoint has runsc write memory into the cell's folder.
func (in *staying) checkpoint(ctx context.Context, more ...string) error {
	args := append([]string{"checkpoint", "--compression=none", "--image-path=" + stateAt + "/" + memoryName}, more...)
	return in.runsc(ctx, append(args, name)...)
}

// runsc runs a command of runsc's in the cell.
func (in *staying) runsc(ctx context.Context, args ...string) error {
	a, f, err := cell.Ask(ctx, filepath.Join(in.dir, controlName), cell.Request{Act: cell.ActRun, Within: within(ctx).Milliseconds(),
		Argv: append([]string{runscAt, "--root=" + stateAt}, args...)})
	if f != nil {
		f.Close()
	}
	switch {
	case err != nil:
		return fmt.Errorf("the cell does not answer: %w", err)
	case a.Failed != nil:
		return fmt.Errorf("%q", a.Failed.Why)
	case a.Ran == nil || a.Ran.Code != 0:
		return fmt.Errorf("runsc %s failed: %+v", args[0], a.Ran)
	}
	return nil
}

// sealed takes what runsc wrote to the cell's folder. The cell could write there as long as it
// lived: nothing is taken for what it seems.
func (in *staying) sealed(ctx context.Context, dir string, most int64) (driver.Memory, error) {
	version, err := in.d.version()
	if err == nil {
		err = take(ctx, in.dir, dir, most)
	}
	if err != nil {
		return noMemory(err)
	}
	return driver.SealMemory(driver.Memory{ID: in.outer.Record().ID, Level: bailey.IsolationGVisor, Version: version}, dir)
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
