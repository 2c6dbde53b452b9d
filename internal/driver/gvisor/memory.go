package gvisor

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

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
	at := stateAt + "/" + memoryName
	a, f, err := cell.Ask(ctx, filepath.Join(in.dir, controlName), cell.Request{Act: cell.ActRun, Argv: []string{
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
	for _, file := range memoryFiles {
		if err := take(filepath.Join(in.dir, memoryName, file), filepath.Join(dir, file)); err != nil {
			return fail("%w", err)
		}
	}
	r := in.outer.Record()
	return driver.SealMemory(driver.Memory{ID: r.ID, Level: bailey.IsolationGVisor, Version: version}, dir)
}

// take copies a regular file to one that the cell of a later life can read.
func take(from, to string) error {
	src, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	if fi, err := src.Stat(); err != nil || !fi.Mode().IsRegular() {
		return errors.Join(fmt.Errorf("%s is no regular file", filepath.Base(from)), err)
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Chmod(0o444), dst.Close())
}

// version is the hash of runsc.
func (d *Driver) version() (string, error) {
	path, err := d.runsc()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return hex.EncodeToString(h.Sum(nil)), err
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
