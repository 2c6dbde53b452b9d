package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/bailey-sandbox/bailey/internal/driver"
)

// still is a file that is there while gVisor's kernel stands still for a copy of its
// memory. It lies beside the cell's folder, where the cell has nothing to write.
func (in *instance) still() string { return in.dir + ".still" }

// goOnWithin bounds what lets a kernel go on that stood still, whoever waits.
const goOnWithin = time.Minute

// Copy has runsc write the sandbox's memory while its kernel stands still. runsc itself
// would let it go on at once, and files would not be those of that moment any more; but it counts who
// has stopped the kernel, and Bailey has before.
func (in *staying) Copy(ctx context.Context, dir string, files func() error) (driver.Memory, error) {
	most, err := in.ready(ctx, dir)
	if err != nil {
		return noMemory(err)
	}
	if err := os.WriteFile(in.still(), nil, 0o600); err != nil {
		return noMemory(err)
	}
	if err = in.runsc(ctx, "pause", name); err == nil {
		if err = in.checkpoint(ctx, "--leave-running"); err == nil {
			if err = files(); err != nil {
				return driver.Memory{}, errors.Join(err, in.goOn(ctx), in.sweep())
			}
		}
	}
	if err = errors.Join(err, in.goOn(ctx)); err != nil {
		_, err = noMemory(errors.Join(err, in.sweep()))
		return driver.Memory{}, err
	}
	m, err := in.sealed(ctx, dir, most)
	return m, errors.Join(err, in.sweep())
}

// Resume lets all processes go on, also those of a kernel that stands still because
// whoever copied its memory died.
func (in *staying) Resume(ctx context.Context) error {
	if err := in.instance.Resume(ctx); err != nil {
		return err
	}
	if _, err := os.Lstat(in.still()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// One that was on its way to stop it is waited for: runsc does one after the other.
	in.runsc(ctx, "pause", name)
	return errors.Join(in.goOn(ctx), in.sweep())
}

// goOn lets a kernel go on that stands still.
func (in *staying) goOn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goOnWithin)
	defer cancel()
	if err := in.runsc(ctx, "resume", name); err != nil {
		return err
	}
	return os.Remove(in.still())
}
