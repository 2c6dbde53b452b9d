package changes

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// ApplyOptions says how changes are carried over.
type ApplyOptions struct {
	// Select limits the apply to some paths. A folder that the run added
	// comes with any file in it that is chosen.
	Select Selection
	// Force applies where the host has changed meanwhile, too. What was there
	// is saved, and Revert puts it back. Nothing makes a refused change pass.
	Force bool
	// Merge merges text files that both sides have changed, where Seal kept
	// what they started from and no two changes touch.
	Merge bool
}

// applyBatch is how many files are staged before the disk is waited for.
const applyBatch = 1024

// Apply carries the changes of a set over to the host, file by file, and
// records the run as applied when nothing is left to do. Each file is replaced
// in one step; what it replaces is saved in the run's folder. A file that is
// not what the set says it was is a conflict, and is left alone; in a git
// folder, so is all that the run did to that folder. After a death
// in the middle, Apply goes on where it was, and Revert takes back what was
// done. The error is about the apply as a whole; paths that could not be
// applied are in the report. The caller holds the run's lock.
func Apply(ctx context.Context, run *folder.Run, set *Set, opts ApplyOptions) (*Report, error) {
	if err := opts.Select.Check(); err != nil {
		return nil, err
	}
	a, err := newApplier(ctx, run, set.Roots)
	if err != nil {
		return nil, err
	}
	defer a.close()
	a.set, a.opts = set, opts
	a.report.forced = opts.Force
	if err := a.all(); err != nil {
		return a.report, applyError(err)
	}
	if a.report.Complete() && run.Record.State == folder.StateKept {
		run.Record.State = folder.StateApplied
		if err := run.Save(); err != nil {
			return a.report, err
		}
	}
	return a.report, nil
}

// PartlyApplied says whether some of the changes of a run that is not recorded
// as applied are on the host, as far as its journal tells: some were not
// chosen or left alone, or the apply was broken off. It needs no lock.
func PartlyApplied(run *folder.Run) bool {
	if run.Record.Journal == "" || run.Record.State == folder.StateApplied {
		return false
	}
	f, err := os.OpenFile(filepath.Join(run.Dir(), journalName), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	steps, _, err := parseJournal(f, run.ID())
	return err == nil && slices.ContainsFunc(steps, func(s *step) bool { return s.Phase != dropped && s.Phase != undone && s.Phase != planned })
}

func applyError(err error) error {
	var e *bailey.Error
	if errors.As(err, &e) {
		return err
	}
	return bailey.Errorf(bailey.CodeStorage, "apply the changes", "apply again to go on, or apply --revert to take it back", "%w", err)
}

// applier holds what Apply and Revert work with.
type applier struct {
	ctx     context.Context
	run     *folder.Run
	roots   []folder.Root
	set     *Set
	opts    ApplyOptions
	journal *journal
	saved   int // the folder of saved originals
	report  *Report
	hosts   map[int]int // roots on the host, opened
	layers  map[int]int
	owners  map[int]unix.Stat_t
	applied map[[2]string]bool // root number and path: done by an earlier apply
	// touched are files that this run's apply has given or taken a name:
	// their change time is our doing.
	touched map[[2]uint64]bool
	bare    *bool              // whether the workspace itself is a git folder; nil while not known
	spoilt  map[gitFolder]bool // of which some is applied and some could not be
	buf     []byte             // room to compare files in
}

func newApplier(ctx context.Context, run *folder.Run, roots []folder.Root) (*applier, error) {
	const what = "apply the changes"
	if run.LockFile() == nil {
		return nil, bailey.Errorf(bailey.CodeInternal, what, "", "the run's lock is not held")
	}
	if run.Record.State == folder.StateRunning {
		// We hold the lock, so whoever ran it has ended, well or not.
		run.Record.State = folder.StateKept
	}
	a := &applier{ctx: ctx, run: run, roots: roots, report: &Report{}, hosts: map[int]int{}, layers: map[int]int{}, owners: map[int]unix.Stat_t{},
		applied: map[[2]string]bool{}, touched: map[[2]uint64]bool{}, spoilt: map[gitFolder]bool{}, saved: -1}
	originals := filepath.Join(run.Dir(), originalsName)
	if err := os.MkdirAll(originals, 0o700); err != nil {
		return nil, applyError(err)
	}
	var err error
	if a.saved, err = unix.Open(originals, dirFlags|unix.O_CLOEXEC, 0); err != nil {
		return nil, applyError(err)
	}
	if a.journal, err = openJournal(run); err != nil {
		unix.Close(a.saved)
		return nil, applyError(err)
	}
	if run.Record.Journal == "" {
		run.Record.Journal = journalName
		if err := run.Save(); err != nil {
			a.close()
			return nil, err
		}
	}
	for _, s := range a.journal.steps {
		if s.Root >= len(roots) {
			a.close()
			return nil, bailey.Errorf(bailey.CodeStorage, what, "", "the journal names a root that the run does not have")
		}
		if s.pending() {
			if err := a.settle(s); err != nil {
				a.close()
				return nil, applyError(err)
			}
		}
		if s.Phase == done {
			a.applied[key(s.Root, s.path())] = true
			a.touch(s.Old)
			a.touch(s.New)
		}
	}
	return a, nil
}

func key(root int, p string) [2]string { return [2]string{string(rune('0' + root)), p} }

func (a *applier) touch(id *workspace.Identity) {
	if id != nil && id.Nlink > 1 {
		a.touched[[2]uint64{id.Dev, id.Ino}] = true
	}
}

func (a *applier) close() {
	if a.journal != nil {
		a.journal.close()
	}
	if a.saved >= 0 {
		unix.Close(a.saved)
	}
	for _, m := range []map[int]int{a.hosts, a.layers} {
		for _, fd := range m {
			unix.Close(fd)
		}
	}
}

func (a *applier) host(root int) (int, error) {
	if fd, ok := a.hosts[root]; ok {
		return fd, nil
	}
	fd, err := openRoot(a.roots[root])
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	a.hosts[root], a.owners[root] = fd, st
	return fd, nil
}

func (a *applier) layer(root int) (int, error) {
	if fd, ok := a.layers[root]; ok {
		return fd, nil
	}
	fd, err := openLayer(a.run, a.roots[root])
	if err != nil {
		return -1, err
	}
	a.layers[root] = fd
	return fd, nil
}

// sameMount says whether no mount may be crossed: below an overlay there was
// none when the run began.
func (a *applier) sameMount(root int) bool { return a.roots[root].Mode == folder.ModeOverlay }

// parent opens the folder of a path on the host.
func (a *applier) parent(root int, p string) (int, error) {
	host, err := a.host(root)
	if err != nil {
		return -1, err
	}
	return openParent(host, p, a.sameMount(root))
}

// all applies in three passes: what goes, from the leaves up; what comes, from
// the root down; then folders' modes from the leaves up, since one that
// cannot be written to would keep its own files out.
func (a *applier) all() error {
	chosen := a.choose()
	if err := a.holdGit(chosen); err != nil {
		return err
	}
	list, from := a.set.Changes, len(a.journal.steps)
	var batch []*work
	flush := func() error {
		err := a.runBatch(batch)
		batch = batch[:0]
		return err
	}
	add := func(w *work) error {
		batch = append(batch, w)
		if len(batch) >= applyBatch {
			return flush()
		}
		return nil
	}
	for i := len(list) - 1; i >= 0; i-- {
		if c := &list[i]; chosen[i] && c.Op == Deleted {
			if err := add(&work{c: c}); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	for i := range list {
		c := &list[i]
		if chosen[i] && c.Op != Deleted && !(c.Was == Dir && c.Is == Dir) {
			if err := add(&work{c: c}); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	for i := len(list) - 1; i >= 0; i-- {
		c := &list[i]
		if chosen[i] && c.Is == Dir && (c.Was == Dir || c.Layer.Mode&0o700 != 0o700) {
			if err := add(&work{c: c, mode: true}); err != nil {
				return err
			}
		}
	}
	if err := flush(); err != nil {
		return err
	}
	return a.unspoil(from)
}

// choose gives what is selected and not applied yet, with the folders that a
// chosen file needs.
func (a *applier) choose() []bool {
	list := a.set.Changes
	chosen := make([]bool, len(list))
	needed := map[[2]string]bool{}
	for i := range list {
		c := &list[i]
		if !a.opts.Select.Has(c.Path) {
			a.report.Left++
			continue
		}
		if a.applied[key(c.Root, c.Path)] {
			a.report.Same++
			continue
		}
		chosen[i] = true
		if c.Op != Deleted {
			for p := path.Dir(c.Path); p != "."; p = path.Dir(p) {
				needed[key(c.Root, p)] = true
			}
		}
	}
	if a.report.Left > 0 {
		for i := range list {
			c := &list[i]
			if !chosen[i] && c.Op == Added && c.Is == Dir && needed[key(c.Root, c.Path)] && !a.applied[key(c.Root, c.Path)] {
				chosen[i] = true
				a.report.Left--
			}
		}
	}
	return chosen
}

func (a *applier) refuse(c *Change, why string) {
	a.report.Refused = append(a.report.Refused, Refusal{Root: c.Root, Path: c.Path, Why: why})
}

func (a *applier) conflict(c *Change, why string) {
	f := Conflict{Refusal: Refusal{Root: c.Root, Path: c.Path, Why: why}, Sandbox: sideOf(c.Layer, c.Is), Base: sideOf(c.Host, c.Was)}
	if c.Stale {
		f.Base = Side{}
	}
	if host, err := a.host(c.Root); err == nil {
		f.Host = sideAt(host, c.Path)
	}
	if layer, err := a.layer(c.Root); err == nil && c.Is == File {
		f.Sandbox = sideAt(layer, c.Path)
	}
	a.report.Conflicts = append(a.report.Conflicts, f)
}

// unfit says why a change is never applied; "" when it may be.
func (a *applier) unfit(c *Change) string {
	switch {
	case c.Is == Device:
		return "it is a device"
	case c.Is == Socket:
		return "it is a socket"
	case c.Is == File && c.Layer.Mode&0o6000 != 0:
		return "it has a setuid or setgid bit"
	case c.Op == Modified && c.Owner && !c.Content && !c.Mode && !c.Xattr && !c.TypeChanged():
		return "only its owner changed, and owners stay as they are"
	case strings.HasPrefix(path.Base(c.Path), tempPrefix):
		return "its name is one that applying uses itself"
	}
	return ""
}
