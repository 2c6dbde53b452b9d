package changes

import (
	"errors"
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// runBatch stages some changes, waits for the disk once, and lets them take
// effect one by one.
func (a *applier) runBatch(batch []*work) error {
	if len(batch) == 0 {
		return nil
	}
	if err := a.ctx.Err(); err != nil {
		return err
	}
	for _, w := range batch {
		var err error
		if w.s, err = a.journal.plan(a.run.ID(), w.c.Root, w.c.Path); err != nil {
			return err
		}
	}
	if err := a.journal.sync(); err != nil {
		return err
	}
	written := map[int]bool{}
	for _, w := range batch {
		if err := a.stage(w); err != nil {
			return err
		}
		if w.state == workStaged && w.s.New != nil && w.s.Act != actChmod {
			written[w.c.Root] = true
		}
	}
	// What takes effect must be whole on the disk first, and the journal
	// must know it.
	for root := range written {
		if err := unix.Syncfs(a.hosts[root]); err != nil {
			return err
		}
	}
	if err := a.journal.sync(); err != nil {
		return err
	}
	// Folders go last, when no original is left in them under a temporary
	// name.
	for _, folders := range []bool{false, true} {
		for _, w := range batch {
			if w.state == workStaged && (w.s.Act == actRmdir) == folders {
				if err := a.commit(w); err != nil {
					return err
				}
			}
		}
		if err := a.finish(batch); err != nil {
			return err
		}
	}
	return nil
}

// finish removes originals from the host once their copies are on the disk.
func (a *applier) finish(batch []*work) error {
	copied := false
	for _, w := range batch {
		copied = copied || w.unlink
	}
	if !copied {
		return nil
	}
	if err := unix.Syncfs(a.saved); err != nil {
		return err
	}
	for _, w := range batch {
		if !w.unlink {
			continue
		}
		if parent, err := a.parent(w.c.Root, w.c.Path); err == nil {
			removeTemp(parent, w.s.Temp)
			unix.Close(parent)
		}
		w.unlink = false
		if err := a.journal.note(w.s, done); err != nil {
			return err
		}
	}
	return nil
}

// still says whether what was moved aside is what was looked at. Moving it
// has changed its change time.
func still(st *unix.Stat_t, want *workspace.Identity) bool {
	if st == nil || want == nil {
		return st == nil && want == nil
	}
	id := workspace.IdentityOf(st)
	if kindOf(st.Mode) == Dir {
		return id.Ino == want.Ino && id.Dev == want.Dev
	}
	id.Ctime = want.Ctime
	return id.Same(*want)
}

// commit lets a staged step take effect.
func (a *applier) commit(w *work) error {
	c, s := w.c, w.s
	parent, err := a.parent(c.Root, c.Path)
	if err != nil {
		a.spoil(c)
		a.conflict(c, "its folder was taken away on the host at this moment")
		return a.drop(w)
	}
	defer unix.Close(parent)
	name := path.Base(c.Path)
	lost := func(why string) error {
		if s.Act == actAdd || s.Act == actReplace {
			removeTemp(parent, s.Temp)
		}
		a.spoil(c)
		a.conflict(c, why)
		return a.drop(w)
	}
	const raced = "it was changed on the host at this moment"
	switch s.Act {
	case actAdd:
		if err := moveFree(parent, s.Temp, name); err != nil {
			return lost(raced)
		}
	case actReplace:
		if err := a.exchange(w, parent, name); err != nil {
			return lost(raced)
		}
	case actDelete:
		if err := moveFree(parent, name, s.Temp); err != nil {
			return lost(raced)
		}
		if st, _ := lstatAt(parent, s.Temp); !still(st, w.cur) {
			if err := moveFree(parent, s.Temp, name); err != nil {
				return err // neither way: the file is under its temporary name
			}
			return lost(raced)
		}
	case actRmdir:
		err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		if (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)) && a.opts.Force && a.inGit(c) {
			// The host has put something there since, as its own git does with
			// objects. A repository is whole with it, and it is not the sandbox's.
			a.report.Same++
			return a.drop(w)
		}
		if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return lost("it holds something that the sandbox did not delete")
		}
		if err != nil {
			a.spoil(c)
			a.refuse(c, (&os.PathError{Op: "rmdir", Path: c.Path, Err: err}).Error())
			return a.drop(w)
		}
	case actChmod:
		if err := chmodStill(parent, name, w.cur, s.New.Mode); err != nil {
			a.refuse(c, err.Error())
			return a.drop(w)
		}
	}
	hook()
	a.touch(s.Old)
	if s.Act == actReplace || s.Act == actDelete {
		if err := a.save(w, parent); err != nil {
			return err
		}
	}
	if s.Act != actDelete && s.Act != actRmdir {
		st, err := lstatAt(parent, name)
		if err != nil {
			return err
		}
		if st != nil {
			id := workspace.IdentityOf(st)
			if id.Ino == s.New.Ino { // else the host has replaced it at once
				s.New = &id
			}
		}
	}
	w.state = workDone
	if !(w.mode && c.Was != Dir) {
		a.report.Done++
		s.counted = true
	}
	if w.merged != nil {
		a.report.Merged++
	}
	if w.unlink {
		return nil // not done before its original is safe; see finish
	}
	return a.journal.note(s, done)
}

// moveFree renames within a folder, never over something.
func moveFree(dir int, from, to string) error {
	defer hook()
	err := unix.Renameat2(dir, from, dir, to, unix.RENAME_NOREPLACE)
	if !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) {
		return err
	}
	// A file system without the flag: a link does not replace either.
	if err := unix.Linkat(dir, from, dir, to, 0); err == nil {
		return unix.Unlinkat(dir, from, 0)
	} else if errors.Is(err, unix.EEXIST) {
		return err
	}
	if st, err := lstatAt(dir, to); err != nil || st != nil {
		return errors.Join(err, unix.EEXIST)
	}
	return unix.Renameat(dir, from, dir, to)
}

// exchange puts the new file at name and what was there at the temporary
// name, in one step, and takes that back when it was not what was looked at.
func (a *applier) exchange(w *work, parent int, name string) error {
	s := w.s
	err := unix.Renameat2(parent, s.Temp, parent, name, unix.RENAME_EXCHANGE)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		return a.overwrite(w, parent, name)
	}
	if err != nil {
		return err
	}
	hook()
	st, err := lstatAt(parent, s.Temp)
	ok := err == nil && still(st, w.cur)
	if ok && kindOf(st.Mode) == Dir {
		// A folder that was emptied; what came into it since stays.
		ok = unix.Unlinkat(parent, s.Temp, unix.AT_REMOVEDIR) == nil
	}
	if !ok {
		if err := unix.Renameat2(parent, s.Temp, parent, name, unix.RENAME_EXCHANGE); err != nil {
			return err
		}
		return errors.New("changed")
	}
	return nil
}

// overwrite is exchange where the file system, such as NFS, has no such call:
// the original is copied first, and looked at once more.
func (a *applier) overwrite(w *work, parent int, name string) error {
	if w.cur.Mode&unix.S_IFMT == unix.S_IFDIR {
		return errors.New("the file system cannot exchange a folder for a file")
	}
	if err := copyAcross(a.ctx, parent, name, a.saved, strconv.Itoa(w.s.N)); err != nil {
		return err
	}
	if err := unix.Syncfs(a.saved); err != nil {
		return err
	}
	if st, err := lstatAt(parent, name); err != nil || !still(st, w.cur) {
		return errors.Join(err, errors.New("changed"))
	}
	return unix.Renameat(parent, w.s.Temp, parent, name)
}

func chmodStill(parent int, name string, want *workspace.Identity, mode uint32) error {
	fd, err := openBeneath(parent, name, unix.O_PATH|unix.O_NOFOLLOW, false)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Ino != want.Ino || st.Dev != want.Dev {
		return errors.New("it was replaced on the host at this moment")
	}
	return unix.Chmod(selfPath(fd), mode&metaModes)
}

// save moves what a step took off the host, which is under the temporary
// name, into the run's folder.
func (a *applier) save(w *work, parent int) error {
	var copied bool
	err := a.saveOriginal(w.s, parent, &copied)
	w.unlink = copied
	return err
}

func (a *applier) saveOriginal(s *step, parent int, copied *bool) error {
	st, err := lstatAt(parent, s.Temp)
	if err != nil || st == nil {
		return err // a folder, which is gone already
	}
	to := strconv.Itoa(s.N)
	err = unix.Renameat(parent, s.Temp, a.saved, to)
	hook()
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	*copied = true
	return copyAcross(a.ctx, parent, s.Temp, a.saved, to)
}
