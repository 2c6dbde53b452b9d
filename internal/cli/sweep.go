package cli

import (
	"context"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// sweepWithin bounds the wait for processes that a dead Bailey's control groups
// still hold. There are none but while they are just being ended.
const sweepWithin = 5 * time.Second

// openFolder opens the data folder and removes from it, and from the machine,
// what Baileys left that were killed. What cannot be removed now is tried again
// at the next start; it is no reason to refuse what was asked for.
func openFolder() (*folder.Folder, error) {
	f, err := run.OpenFolder("")
	if err != nil {
		return nil, err
	}
	f.Sweep()
	sweepGroups(f, linux.New(linux.Options{State: f.Path()}))
	return f, nil
}

// sweepGroups removes control groups of this data folder's sandboxes whose
// owners are dead.
func sweepGroups(f *folder.Folder, d *linux.Driver) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepWithin)
	defer cancel()
	d.Sweep(ctx, func(id string) bool {
		r, err := f.Find(id)
		switch {
		case bailey.CodeOf(err) == bailey.CodeNotFound:
			return false
		case err != nil:
			return true // whose record cannot be read may live
		}
		return r.State() == folder.StateRunning
	})
}
