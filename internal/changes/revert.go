package changes

import (
	"context"
	"errors"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Revert takes an apply back, the last step first, also one that a death broke
// off. A path that is not what Apply left there is refused, and stays as it
// is, together with the folders that it needs; in a git folder, so does all
// that was applied to that folder, since deleting objects that the host's
// branches lead to would break it. What cannot be reverted now can
// be later: the originals stay saved until they are back. A run of which
// nothing is on the host any more is kept again. The caller holds the run's
// lock.
func Revert(ctx context.Context, run *folder.Run) (*Report, error) {
	if run.Record.Journal == "" {
		return nil, bailey.Errorf(bailey.CodeNotFound, "take the apply back", "", "nothing of run %s was applied", run.ID())
	}
	a, err := newApplier(ctx, run, run.Record.Roots)
	if err != nil {
		return nil, err
	}
	defer a.close()
	a.report.revert = true
	held, err := a.heldByGit()
	if err != nil {
		return nil, applyError(err)
	}
	left := 0
	steps := a.journal.steps
	for i := len(steps) - 1; i >= 0; i-- {
		if err := ctx.Err(); err != nil {
			return a.report, err
		}
		s := steps[i]
		if s.Phase != done {
			continue
		}
		if g, ok := a.gitFolderOf(s.Root, s.path()); ok && held[g] {
			left++
			continue
		}
		why, err := a.undo(s)
		if err != nil {
			return a.report, bailey.Errorf(bailey.CodeStorage, "take the apply back", "revert again to go on", "%s: %w", Printable(s.path()), err)
		}
		if why != "" {
			left++
			a.report.Refused = append(a.report.Refused, Refusal{Root: s.Root, Path: s.path(), Why: why})
			if err := a.journal.note(s, done); err != nil {
				return a.report, err
			}
			continue
		}
		a.report.Done++
		if err := a.journal.note(s, undone); err != nil {
			return a.report, err
		}
	}
	if err := a.journal.sync(); err != nil {
		return a.report, applyError(err)
	}
	if left == 0 && run.Record.State == folder.StateApplied {
		run.Record.State = folder.StateKept
		if err := run.Save(); err != nil {
			return a.report, err
		}
	}
	return a.report, nil
}

// asLeft says whether what is there now is what Apply left there.
func asLeft(at *unix.Stat_t, s *step) bool {
	if at == nil || s.New == nil {
		return at == nil && s.New == nil
	}
	id := workspace.IdentityOf(at)
	if kindOf(at.Mode) == Dir {
		return id.Ino == s.New.Ino && id.Dev == s.New.Dev && kindOf(s.New.Mode) == Dir
	}
	return id.Same(*s.New)
}

const (
	changedSince = "it has been changed on the host since it was applied"
	takenSince   = "something else is there on the host now"
)

// undo takes one step back. why is set when it must be left alone.
func (a *applier) undo(s *step) (why string, err error) {
	parent, err := a.parent(s.Root, s.path())
	if err != nil {
		if _, herr := a.host(s.Root); herr != nil {
			return "", herr
		}
		if gone(err) {
			if s.Act == actAdd {
				return "", nil // gone with its folder
			}
			return "its folder is gone, or is no longer a folder, on the host", nil
		}
		return err.Error(), nil
	}
	defer unix.Close(parent)
	name := path.Base(s.path())
	at, err := lstatAt(parent, name)
	if err != nil {
		return err.Error(), nil
	}
	s.Undo = 0
	if err := a.journal.note(s, undoing); err != nil {
		return "", err
	}
	switch s.Act {
	case actAdd:
		return a.undoAdd(s, parent, name, at)
	case actReplace:
		return a.undoReplace(s, parent, name, at)
	case actDelete:
		return a.undoDelete(s, parent, name, at)
	case actRmdir:
		return a.undoRmdir(s, parent, name, at)
	case actChmod:
		if at == nil || at.Ino != s.New.Ino || at.Mode != s.New.Mode {
			return changedSince, nil
		}
		if err := chmodStill(parent, name, s.New, s.Old.Mode); err != nil {
			return err.Error(), nil
		}
		return "", nil
	}
	return "", errors.New("the journal has a step of an unknown kind")
}

func (a *applier) undoAdd(s *step, parent int, name string, at *unix.Stat_t) (string, error) {
	if at == nil {
		return "", nil // the host has removed it itself
	}
	if !asLeft(at, s) {
		return changedSince, nil
	}
	if kindOf(at.Mode) == Dir {
		err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return "it holds files that were not applied", nil
		}
		if err != nil {
			return err.Error(), nil
		}
		return "", nil
	}
	if err := moveFree(parent, name, s.Temp); err != nil {
		return err.Error(), nil
	}
	if st, err := lstatAt(parent, s.Temp); err != nil || !still(st, s.New) {
		if err := moveFree(parent, s.Temp, name); err != nil {
			return "", err
		}
		return changedSince, nil
	}
	return "", unix.Unlinkat(parent, s.Temp, 0)
}

// bring puts the saved original under the step's temporary name, on the
// host's file system. moved says that it is the original itself.
func (a *applier) bring(s *step, parent int) (moved bool, id *workspace.Identity, err error) {
	from := strconv.Itoa(s.N)
	st, err := lstatAt(a.saved, from)
	if err != nil {
		return false, nil, err
	}
	if st == nil {
		return false, nil, os.ErrNotExist
	}
	s.Undo = st.Ino
	if err := a.journal.note(s, undoing); err != nil {
		return false, nil, err
	}
	err = unix.Renameat(a.saved, from, parent, s.Temp)
	moved = err == nil
	hook()
	if errors.Is(err, unix.EXDEV) {
		s.Undo = 0
		if err = a.journal.note(s, undoing); err == nil {
			err = copyAcross(a.ctx, a.saved, from, parent, s.Temp)
		}
	}
	if err != nil {
		return false, nil, err
	}
	if st, err = lstatAt(parent, s.Temp); err != nil || st == nil {
		return moved, nil, errors.Join(err, os.ErrNotExist)
	}
	if !moved {
		s.Undo = st.Ino
		if err := a.journal.note(s, undoing); err != nil {
			return moved, nil, err
		}
	}
	got := workspace.IdentityOf(st)
	return moved, &got, nil
}

// putAway is the inverse of bring.
func (a *applier) putAway(s *step, parent int, moved bool) error {
	if moved {
		return unix.Renameat(parent, s.Temp, a.saved, strconv.Itoa(s.N))
	}
	return unix.Unlinkat(parent, s.Temp, 0)
}

// dropOriginal removes a saved original that is back in its place as a copy.
func (a *applier) dropOriginal(s *step, moved bool) error {
	if moved {
		return nil
	}
	host, err := a.host(s.Root)
	if err != nil {
		return err
	}
	if err := unix.Syncfs(host); err != nil {
		return err
	}
	return unix.Unlinkat(a.saved, strconv.Itoa(s.N), 0)
}

func (a *applier) undoReplace(s *step, parent int, name string, at *unix.Stat_t) (string, error) {
	if !asLeft(at, s) {
		return changedSince, nil
	}
	if kindOf(s.Old.Mode) == Dir {
		return a.undoFolder(s, parent, name)
	}
	moved, _, err := a.bring(s, parent)
	if err != nil {
		return "its original cannot be brought back: " + err.Error(), nil
	}
	err = unix.Renameat2(parent, s.Temp, parent, name, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		if err := unix.Renameat(parent, s.Temp, parent, name); err != nil {
			return err.Error(), a.putAway(s, parent, moved)
		}
		return "", a.dropOriginal(s, moved)
	}
	if err != nil {
		return err.Error(), a.putAway(s, parent, moved)
	}
	hook()
	st, err := lstatAt(parent, s.Temp)
	ok := err == nil && still(st, s.New)
	if ok && kindOf(st.Mode) == Dir {
		ok = unix.Unlinkat(parent, s.Temp, unix.AT_REMOVEDIR) == nil
	} else if ok {
		ok = unix.Unlinkat(parent, s.Temp, 0) == nil
	}
	if !ok {
		if err := unix.Renameat2(parent, s.Temp, parent, name, unix.RENAME_EXCHANGE); err != nil {
			return "", err
		}
		return changedSince, a.putAway(s, parent, moved)
	}
	return "", a.dropOriginal(s, moved)
}

// undoFolder puts the folder back that a file has replaced; what was in it
// comes back by steps of its own.
func (a *applier) undoFolder(s *step, parent int, name string) (string, error) {
	ino, err := remake(s, parent)
	if err != nil {
		removeTemp(parent, s.Temp)
		return err.Error(), nil
	}
	s.Undo = ino
	if err := a.journal.note(s, undoing); err != nil {
		return "", err
	}
	if err := unix.Renameat2(parent, s.Temp, parent, name, unix.RENAME_EXCHANGE); err != nil {
		removeTemp(parent, s.Temp)
		return err.Error(), nil
	}
	if st, err := lstatAt(parent, s.Temp); err != nil || !still(st, s.New) {
		if err := unix.Renameat2(parent, s.Temp, parent, name, unix.RENAME_EXCHANGE); err != nil {
			return "", err
		}
		removeTemp(parent, s.Temp)
		return changedSince, nil
	}
	return "", unix.Unlinkat(parent, s.Temp, 0)
}

// remake makes the folder that a step has removed, under the temporary name.
func remake(s *step, parent int) (uint64, error) {
	if err := unix.Mkdirat(parent, s.Temp, 0o700); err != nil {
		return 0, err
	}
	if err := chownTo(parent, s.Temp, s.Old.UID, s.Old.GID); err != nil {
		return 0, err
	}
	// All rights for its owner until its files are back would need one more
	// step; a folder without them could not be emptied by an apply either.
	if err := unix.Fchmodat(parent, s.Temp, s.Old.Mode&metaModes, 0); err != nil {
		return 0, err
	}
	st, err := lstatAt(parent, s.Temp)
	if err != nil || st == nil {
		return 0, errors.Join(err, unix.ENOENT)
	}
	return st.Ino, nil
}

func (a *applier) undoDelete(s *step, parent int, name string, at *unix.Stat_t) (string, error) {
	if at != nil {
		return takenSince, nil
	}
	moved, _, err := a.bring(s, parent)
	if err != nil {
		return "its original cannot be brought back: " + err.Error(), nil
	}
	if err := moveFree(parent, s.Temp, name); err != nil {
		return takenSince, a.putAway(s, parent, moved)
	}
	return "", a.dropOriginal(s, moved)
}

func (a *applier) undoRmdir(s *step, parent int, name string, at *unix.Stat_t) (string, error) {
	if at != nil {
		if kindOf(at.Mode) == Dir {
			return "", nil // it has been made again
		}
		return takenSince, nil
	}
	if _, err := remake(s, parent); err != nil {
		removeTemp(parent, s.Temp)
		return err.Error(), nil
	}
	if err := moveFree(parent, s.Temp, name); err != nil {
		removeTemp(parent, s.Temp)
		return takenSince, nil
	}
	return "", nil
}
