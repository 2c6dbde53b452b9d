package folder

import (
	"errors"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
)

// List gives all runs, the latest first. A run whose record cannot be read is
// in the list with Err set, so that a damaged one hides no other.
func (f *Folder) List() ([]*Run, error) {
	runs := filepath.Join(f.path, "runs")
	names, err := readNames(runs)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "list the runs", "", "%w", err)
	}
	var list []*Run
	for _, name := range names {
		if validID(name) {
			if r := f.load(name); r != nil {
				list = append(list, r)
			}
		}
	}
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i].Record, list[j].Record
		if !a.Started.Equal(b.Started) {
			return a.Started.After(b.Started)
		}
		return a.ID < b.ID
	})
	return list, nil
}

// Waiting gives the runs whose folder needs says yes to. It reads no other
// run's record, and needs sees none.
func (f *Folder) Waiting(needs func(*Run) bool) (list []*Run) {
	runs := filepath.Join(f.path, "runs")
	names, _ := readNames(runs)
	for _, name := range names {
		if !validID(name) || !needs(&Run{Record: Record{ID: name}, folder: f, dir: filepath.Join(runs, name)}) {
			continue
		}
		if r := f.load(name); r != nil && r.Err == nil {
			list = append(list, r)
		}
	}
	return list
}

// load reads one run; nil when it has gone meanwhile.
func (f *Folder) load(id string) *Run {
	r := &Run{folder: f, dir: filepath.Join(f.path, "runs", id)}
	rec, err := readRecord(r.dir)
	if errors.Is(err, os.ErrNotExist) {
		if _, serr := os.Lstat(r.dir); serr != nil {
			return nil
		}
	}
	if err == nil && rec.ID != id {
		err = errors.New("the record names another run")
	}
	if err != nil {
		r.Record.ID = id
		r.Err = bailey.Errorf(bailey.CodeStorage, "read the record of run "+id, "discard the run if it is of no use", "%w", err)
		return r
	}
	r.Record = rec
	return r
}

// Find opens the run that ref names: an id, the start of exactly one id, or
// "latest". The run is not locked. No such run is an error with code
// not_found, several are one with code usage.
func (f *Folder) Find(ref string) (*Run, error) {
	const what = "find the run"
	if validID(ref) {
		if r := f.load(ref); r != nil {
			return r, r.Err
		}
		return nil, bailey.Errorf(bailey.CodeNotFound, what, "list them with bailey changes", "there is no run %s", ref)
	}
	list, err := f.List()
	if err != nil {
		return nil, err
	}
	if ref == "latest" {
		for _, r := range list {
			if r.Err == nil {
				return r, nil
			}
		}
		return nil, bailey.Errorf(bailey.CodeNotFound, what, "", "there are no runs in %s", f.path)
	}
	var found []*Run
	for _, r := range list {
		if ref != "" && strings.HasPrefix(r.ID(), ref) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, bailey.Errorf(bailey.CodeNotFound, what, "list them with bailey changes", "no run's id starts with %q", ref)
	case 1:
		return found[0], found[0].Err
	}
	return nil, bailey.Errorf(bailey.CodeUsage, what, "give more of the id", "%d runs have ids that start with %q", len(found), ref)
}

// Sweep removes what deaths left behind: runs that were never finished being
// made, and removals that did not end. It acts only on what nobody holds, and
// gives the number of folders it removed.
func (f *Folder) Sweep() (int, error) {
	runs := filepath.Join(f.path, "runs")
	gate, err := os.Open(runs)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, bailey.Errorf(bailey.CodeStorage, "sweep the data folder", "", "%w", err)
	}
	defer gate.Close()
	// Somebody is making a run at this moment: the next sweep will do.
	if err := unix.Flock(int(gate.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return 0, nil
	}
	names, err := readNames(runs)
	if err != nil {
		return 0, bailey.Errorf(bailey.CodeStorage, "sweep the data folder", "", "%w", err)
	}
	n := 0
	var errs []error
	for _, name := range names {
		id, isNew := strings.CutPrefix(name, newPrefix)
		if !isNew && !strings.HasPrefix(name, gonePrefix) {
			continue
		}
		r := &Run{Record: Record{ID: id}, folder: f, dir: filepath.Join(runs, name)}
		if isNew && r.held() {
			continue
		}
		if err := RemoveTree(r.dir); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
