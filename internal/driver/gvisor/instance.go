package gvisor

import (
	"context"
	"errors"
	"os"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// instance is a sandbox: its cell, and what is different about it.
type instance struct {
	driver.Instance
	dir  string
	stay bool

	once sync.Once
	end  bailey.End
}

func (d *Driver) newInstance(in driver.Instance, dir string, stay bool) driver.Instance {
	i := &instance{Instance: in, dir: dir, stay: stay}
	if outer, ok := in.(driver.Staying); ok && stay {
		return &staying{instance: i, outer: outer, d: d}
	}
	return i
}

// End says how it ended.
func (in *instance) End() bailey.End {
	select {
	case <-in.Done():
	default:
		return bailey.End{}
	}
	in.once.Do(func() {
		if in.end = in.Instance.End(); in.stay {
			in.end = judgeStay(in.end, complaint(in.dir))
		} else {
			in.end = judge(in.end, complaint(in.dir))
		}
	})
	return in.end
}

// Destroy ends the sandbox and removes the cell's folder.
func (in *instance) Destroy(ctx context.Context) error {
	if err := in.Instance.Destroy(ctx); err != nil {
		return err
	}
	in.End() // while what it is read from is there
	if err := errors.Join(os.RemoveAll(in.dir), os.RemoveAll(in.still())); err != nil {
		return bailey.Errorf(bailey.CodeStorage, "remove the cell's folder", "", "%w", err)
	}
	return nil
}
