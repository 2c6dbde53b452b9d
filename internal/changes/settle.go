package changes

import (
	"errors"
	"path"
	"strconv"

	"golang.org/x/sys/unix"
)

// settle finds out how far a step came that a death cut short, finishes what
// took effect, clears away what did not, and writes that down. Each file is
// the old or the new one at any moment, and inodes tell which.
func (a *applier) settle(s *step) error {
	parent, err := a.parent(s.Root, s.path())
	if err != nil {
		if _, herr := a.host(s.Root); herr != nil {
			return herr
		}
		if gone(err) {
			return a.journal.note(s, dropped) // the host has removed it all since
		}
		return err
	}
	defer unix.Close(parent)
	name := path.Base(s.path())
	at, err := lstatAt(parent, name)
	if err != nil {
		return err
	}
	aside, err := lstatAt(parent, s.Temp)
	if err != nil {
		return err
	}
	if s.Phase == undoing {
		return a.settleUndo(s, parent, at, aside)
	}
	isNew := func(st *unix.Stat_t) bool { return st != nil && s.New != nil && st.Ino == s.New.Ino }
	happened := false
	switch s.Act {
	case actAdd:
		happened = isNew(at)
	case actReplace:
		// The new file is in place, or was and has been replaced since,
		// unless it is still aside.
		happened = isNew(at) || s.Phase == staged && !isNew(aside) && (aside != nil || a.hasOriginal(s))
	case actDelete:
		happened = aside != nil || at == nil && a.hasOriginal(s)
	case actRmdir:
		happened = at == nil
	case actChmod:
		happened = at != nil && s.New != nil && at.Ino == s.New.Ino && at.Mode == s.New.Mode
	}
	if !happened {
		if aside != nil {
			removeTemp(parent, s.Temp)
		}
		return a.journal.note(s, dropped)
	}
	if aside != nil && (s.Act == actReplace || s.Act == actDelete) {
		var copied bool
		if err := a.saveOriginal(s, parent, &copied); err != nil {
			return err
		}
		if copied {
			if err := unix.Syncfs(a.saved); err != nil {
				return err
			}
			removeTemp(parent, s.Temp)
		}
	}
	if isNew(at) {
		s.New.Ctime = at.Ctim.Nano()
	}
	return a.journal.note(s, done)
}

func (a *applier) hasOriginal(s *step) bool {
	st, err := lstatAt(a.saved, strconv.Itoa(s.N))
	return err == nil && st != nil
}

// settleUndo does the same for a step that Revert was taking back.
func (a *applier) settleUndo(s *step, parent int, at, aside *unix.Stat_t) error {
	back := at != nil && s.Undo != 0 && at.Ino == s.Undo
	switch s.Act {
	case actAdd:
		// The new file is moved aside and then removed.
		back = at == nil || s.New == nil || at.Ino != s.New.Ino
	case actRmdir:
		back = at != nil
	case actChmod:
		back = at == nil || s.Old == nil || at.Mode == s.Old.Mode
	}
	if back {
		if aside != nil {
			removeTemp(parent, s.Temp)
		}
		return a.journal.note(s, undone)
	}
	if aside != nil && s.Undo != 0 && aside.Ino == s.Undo && !a.hasOriginal(s) {
		// The original itself was brought over, and not a copy of it.
		if err := unix.Renameat(parent, s.Temp, a.saved, strconv.Itoa(s.N)); err != nil {
			return err
		}
	} else if aside != nil && a.hasOriginal(s) {
		removeTemp(parent, s.Temp)
	} else if aside != nil {
		return errors.New("a file from a broken-off revert is under " + s.Temp + " and cannot be told")
	}
	return a.journal.note(s, done)
}
