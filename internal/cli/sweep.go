package cli

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bailey-sandbox/bailey/internal/changes"
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
	recoverRuns(f)
	sweepGroups(f, linux.New(linux.Options{State: f.Path()}))
	return f, nil
}

// recoverRuns takes back what runs with --writable have done to files that
// execute on the host, when their Bailey was killed before it could.
func recoverRuns(f *folder.Folder) {
	// Where there is none, as nearly always, this costs a system call for each run.
	for _, r := range f.Waiting(changes.NeedsRecover) {
		if r.Lock() != nil {
			continue // its Bailey lives
		}
		found, err := changes.Recover(context.Background(), r)
		if len(found) > 0 {
			fmt.Fprintf(os.Stderr, "bailey: run %s with --writable was killed; taken back from it, to be seen with `bailey changes %[1]s`:\n", r.ID())
			for _, e := range found {
				fmt.Fprintf(os.Stderr, "  %s %s [%s]\n", e.Op, changes.Printable(e.Path), e.Class)
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "bailey: run %s with --writable was killed, and not all that would execute on the host could be taken back from it: %s\n",
				r.ID(), changes.Printable(err.Error()))
		}
		r.Close()
	}
}

// sweepGroups removes control groups of this data folder's sandboxes whose
// owners are dead.
func sweepGroups(f *folder.Folder, d *linux.Driver) {
	ctx, cancel := context.WithTimeout(context.Background(), sweepWithin)
	defer cancel()
	d.Sweep(ctx, f.Alive)
}
