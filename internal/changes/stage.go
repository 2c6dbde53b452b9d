package changes

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// work is one change on its way to the host.
type work struct {
	c      *Change
	mode   bool // the folder's mode is all there is to do
	s      *step
	cur    *workspace.Identity // what the host has, to be replaced or deleted; nil for nothing
	merged []byte              // the content, instead of the layer's
	state  int                 // workNew …
	unlink bool                // the temporary name still holds a copied original
}

const (
	workNew = iota
	workStaged
	workDone
	workDropped
)

// drop ends a step that does not happen.
func (a *applier) drop(w *work) error {
	w.state = workDropped
	return a.journal.note(w.s, dropped)
}

// gone says whether an error of openParent means that the folder is not
// there any more, or that something else is in its place.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV)
}

// stage looks at the host and prepares the new file under a temporary name.
// Its error is about the apply as a whole.
func (a *applier) stage(w *work) error {
	c := w.c
	if why := a.unfit(c); why != "" {
		a.refuse(c, why)
		return a.drop(w)
	}
	parent, err := a.parent(c.Root, c.Path)
	if err != nil {
		if _, herr := a.host(c.Root); herr != nil {
			return herr
		}
		if gone(err) {
			if c.Op == Deleted && errors.Is(err, unix.ENOENT) {
				a.report.Same++
			} else {
				a.spoil(c)
				a.conflict(c, "its folder is gone, or is no longer a folder, on the host")
			}
		} else {
			a.spoil(c)
			a.refuse(c, err.Error())
		}
		return a.drop(w)
	}
	defer unix.Close(parent)
	name := path.Base(c.Path)
	if w.mode {
		return a.stageMode(w, parent, name)
	}
	v, cur, why, err := a.check(parent, name, c)
	if err != nil {
		a.spoil(c)
		a.refuse(c, err.Error())
		return a.drop(w)
	}
	if v == already {
		a.report.Same++
		return a.drop(w)
	}
	if v == conflict && a.opts.Merge && !a.inGit(c) {
		if w.merged, err = a.merge(parent, name, c, cur); err != nil {
			a.refuse(c, err.Error())
			return a.drop(w)
		}
	}
	if v == conflict && w.merged == nil {
		forced := a.opts.Force && !(cur != nil && kindOf(cur.Mode) == Dir && c.Was != Dir)
		if !forced {
			a.spoil(c)
			a.conflict(c, why)
			return a.drop(w)
		}
	}
	if cur != nil {
		id := workspace.IdentityOf(cur)
		w.cur, w.s.Old = &id, &id
	}
	switch {
	case c.Op == Deleted && cur != nil && kindOf(cur.Mode) == Dir:
		w.s.Act = actRmdir
	case c.Op == Deleted:
		w.s.Act = actDelete
	default:
		w.s.Act = actAdd
		if cur != nil {
			w.s.Act = actReplace
		}
		id, err := a.makeTemp(w, parent)
		if err != nil {
			removeTemp(parent, w.s.Temp)
			a.spoil(c)
			a.refuse(c, err.Error())
			return a.drop(w)
		}
		w.s.New = id
	}
	w.state = workStaged
	if err := a.journal.note(w.s, staged); err != nil {
		return err
	}
	if c.Op != Deleted && c.Is == Dir {
		// What is in it comes next in the same batch.
		return a.commit(w)
	}
	return nil
}

// stageMode prepares the change of a folder's mode: of one that was there, or
// of one that was added with all rights for its owner.
func (a *applier) stageMode(w *work, parent int, name string) error {
	c := w.c
	cur, err := lstatAt(parent, name)
	switch {
	case err != nil:
		a.refuse(c, err.Error())
		return a.drop(w)
	case cur == nil || kindOf(cur.Mode) != Dir:
		if c.Op == Modified && c.Was == Dir {
			a.conflict(c, "it is no longer a folder on the host")
		}
		return a.drop(w)
	case cur.Mode&metaModes == c.Layer.Mode&metaModes:
		if c.Was == Dir {
			if c.Xattr || c.Owner {
				a.refuse(c, "attributes and owners of folders stay as they are")
			} else {
				a.report.Same++
			}
		}
		return a.drop(w)
	case c.Was == Dir && cur.Mode != c.Host.Mode && !a.opts.Force:
		a.conflict(c, "its mode was changed on the host")
		return a.drop(w)
	}
	if c.Was != Dir && !a.ours(w.c, cur) {
		return a.drop(w) // the folder was there already, or could not be added
	}
	old, is := workspace.IdentityOf(cur), workspace.IdentityOf(cur)
	is.Mode = cur.Mode&unix.S_IFMT | c.Layer.Mode&metaModes
	w.cur, w.s.Old, w.s.New, w.s.Act, w.state = &old, &old, &is, actChmod, workStaged
	return a.journal.note(w.s, staged)
}

// ours says whether the folder is one that this run's apply has made.
func (a *applier) ours(c *Change, cur *unix.Stat_t) bool {
	for _, s := range a.journal.steps {
		if s.Phase == done && s.Root == c.Root && s.path() == c.Path && s.New != nil && s.New.Ino == cur.Ino {
			return true
		}
	}
	return false
}

func removeTemp(parent int, name string) {
	if unix.Unlinkat(parent, name, 0) != nil {
		unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	}
}

// makeTemp makes what the change wants under the step's temporary name.
func (a *applier) makeTemp(w *work, parent int) (*workspace.Identity, error) {
	c, temp := w.c, w.s.Temp
	uid, gid, err := a.owner(w, parent)
	if err != nil {
		return nil, err
	}
	switch c.Is {
	case Dir:
		if err := unix.Mkdirat(parent, temp, 0o700); err != nil {
			return nil, &os.PathError{Op: "mkdir", Path: c.Path, Err: err}
		}
		if err := chownTo(parent, temp, uid, gid); err != nil {
			return nil, err
		}
		// Its final mode comes last, if it would keep us out.
		if err := unix.Fchmodat(parent, temp, c.Layer.Mode&metaModes|0o700, 0); err != nil {
			return nil, err
		}
	case Symlink:
		if err := unix.Symlinkat(c.Target, parent, temp); err != nil {
			return nil, &os.PathError{Op: "symlink", Path: c.Path, Err: err}
		}
		if err := chownTo(parent, temp, uid, gid); err != nil {
			return nil, err
		}
	case FIFO:
		if err := unix.Mknodat(parent, temp, unix.S_IFIFO|0o600, 0); err != nil {
			return nil, &os.PathError{Op: "mkfifo", Path: c.Path, Err: err}
		}
		if err := chownTo(parent, temp, uid, gid); err != nil {
			return nil, err
		}
		if err := unix.Fchmodat(parent, temp, c.Layer.Mode&0o777, 0); err != nil {
			return nil, err
		}
	default:
		if err := a.makeFile(w, parent, uid, gid); err != nil {
			return nil, err
		}
	}
	st, err := lstatAt(parent, temp)
	if err != nil {
		return nil, err
	}
	if st == nil {
		return nil, errors.New("the new file has vanished")
	}
	id := workspace.IdentityOf(st)
	return &id, nil
}

// owner gives whom the new file belongs to: as what it replaces, else as the
// workspace, in a group that the folder hands down as the kernel would.
func (a *applier) owner(w *work, parent int) (uid, gid uint32, err error) {
	if w.cur != nil {
		return w.cur.UID, w.cur.GID, nil
	}
	root := a.owners[w.c.Root]
	uid, gid = root.Uid, root.Gid
	var st unix.Stat_t
	if err := unix.Fstat(parent, &st); err != nil {
		return 0, 0, err
	}
	if st.Mode&unix.S_ISGID != 0 {
		gid = st.Gid
	}
	return uid, gid, nil
}

// chownTo gives a new file away. An ordinary user cannot, and then a file
// that would change hands is refused, but for the group of a new one.
func chownTo(parent int, name string, uid, gid uint32) error {
	st, err := lstatAt(parent, name)
	if err != nil || st == nil {
		return errors.Join(err, unix.ENOENT)
	}
	if st.Uid == uid && st.Gid == gid {
		return nil
	}
	err = unix.Fchownat(parent, name, int(uid), int(gid), unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		if st.Uid != uid {
			return fmt.Errorf("it belongs to user %d, and cannot be given back to that user", uid)
		}
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	return nil
}

func (a *applier) makeFile(w *work, parent int, uid, gid uint32) error {
	c, temp := w.c, w.s.Temp
	layer, err := a.layer(c.Root)
	if err != nil {
		return err
	}
	src, st, done, err := openLayerFile(layer, c.Path)
	if err != nil {
		return err
	}
	defer done()
	defer src.Close()
	if !sameLayer(workspace.IdentityOf(st), c.Layer) {
		return errors.New("the layer has been changed since it was read")
	}
	xattrs, err := workspace.Xattrs(procPath(layer, c.Path))
	if err != nil {
		return err
	}
	fd, err := unix.Openat(parent, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: c.Path, Err: err}
	}
	dst := os.NewFile(uintptr(fd), temp)
	defer dst.Close()
	if w.merged != nil {
		_, err = dst.Write(w.merged)
	} else {
		err = workspace.CopyContent(a.ctx, src, dst, st.Size)
	}
	if err != nil {
		return err
	}
	if err := chownTo(parent, temp, uid, gid); err != nil {
		return err
	}
	if err := unix.Fchmod(fd, c.Layer.Mode&0o1777); err != nil {
		return err
	}
	for _, x := range xattrs {
		switch {
		case strings.HasPrefix(x.Name, "user."):
			if err := unix.Fsetxattr(fd, x.Name, x.Value, 0); err != nil && !errors.Is(err, unix.ENOTSUP) {
				return &os.PathError{Op: "setxattr " + x.Name, Path: c.Path, Err: err}
			}
		case x.Name == "security.selinux", x.Name == "security.ima", x.Name == "security.evm":
			// The host labels its own files.
		case strings.HasPrefix(x.Name, "security."):
			return fmt.Errorf("it has the attribute %s", Printable(x.Name))
		}
	}
	if w.merged == nil {
		t := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, st.Mtim}
		if err := unix.UtimesNanoAt(parent, temp, t, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	return nil
}
