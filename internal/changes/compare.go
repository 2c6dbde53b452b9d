package changes

import (
	"errors"
	"io"
	"os"
	"path"
	"sort"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// metaModes are the bits of a mode that count as the mode.
const metaModes = 0o7777

// rootItself compares the attributes of the root folder. Its owner is left
// out: an ordinary user cannot give the layer's root away.
func (s *scanner) rootItself(up, host int) error {
	var is, was unix.Stat_t
	if err := unix.Fstat(up, &is); err != nil {
		return err
	}
	if err := unix.Fstat(host, &was); err != nil {
		return err
	}
	c := Change{Op: Modified, Path: ".", Was: Dir, Is: Dir, Host: workspace.IdentityOf(&was), Layer: workspace.IdentityOf(&is)}
	c.Mode = is.Mode&metaModes != was.Mode&metaModes
	var err error
	if c.Xattr, err = differentXattrs(procPath(up, "."), procPath(host, ".")); err != nil {
		return err
	}
	if c.Mode || c.Xattr {
		s.add(&c)
	}
	return nil
}

func differentXattrs(a, b string) (bool, error) {
	x, err := workspace.Xattrs(a)
	if err != nil {
		return false, err
	}
	y, err := workspace.Xattrs(b)
	if err != nil {
		return false, err
	}
	return workspace.HashXattrs(x) != workspace.HashXattrs(y), nil
}

// compare records the change of one name that the layer has, if it is one. A
// file that was copied up and then left as it was is none; nor is a new time
// alone.
func (s *scanner) compare(up, host int, name, p string, is, was *unix.Stat_t) error {
	c := Change{Op: Added, Path: p, Is: kindOf(is.Mode), Layer: workspace.IdentityOf(is)}
	if was != nil {
		c.Op, c.Was, c.Host = Modified, kindOf(was.Mode), workspace.IdentityOf(was)
	}
	restore, err := readable(up, name, is)
	if err != nil {
		return err
	}
	defer restore()
	if err := s.describeNew(&c, up, name); err != nil {
		return err
	}
	if was == nil {
		s.add(&c)
		return nil
	}
	c.Owner = is.Uid != was.Uid || is.Gid != was.Gid
	if c.TypeChanged() {
		c.Content, c.Mode = true, c.Is != Symlink && is.Mode&metaModes != was.Mode&metaModes
		if err := s.describeOld(&c, host, name); err != nil {
			return err
		}
		s.add(&c)
		return nil
	}
	c.Mode = c.Is != Symlink && is.Mode&metaModes != was.Mode&metaModes
	if c.Xattr, err = differentXattrs(procPath(up, name), procPath(host, name)); err != nil {
		return err
	}
	switch c.Is {
	case File:
		if c.Content, err = s.contentDiffers(up, host, name, is, was); err != nil {
			return err
		}
	case Symlink:
		old, err := os.Readlink(procPath(host, name))
		if err != nil {
			return err
		}
		c.Content = old != c.Target
	case Device:
		c.Content = is.Rdev != was.Rdev
	}
	if !c.Content && !c.Mode && !c.Owner && !c.Xattr {
		return nil
	}
	if err := s.describeOld(&c, host, name); err != nil {
		return err
	}
	s.add(&c)
	return nil
}

func (s *scanner) contentDiffers(up, host int, name string, is, was *unix.Stat_t) (bool, error) {
	if is.Size != was.Size {
		return true, nil
	}
	if is.Size == 0 {
		return false, nil
	}
	a, _, err := openFile(up, name, true)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, _, err := openFile(host, name, false)
	if err != nil {
		return false, err
	}
	defer b.Close()
	same, err := sameContent(a, b, s.buf)
	return !same, err
}

// describeNew fills in what is to be known of the layer's file.
func (s *scanner) describeNew(c *Change, up int, name string) error {
	switch c.Is {
	case Symlink:
		target, err := os.Readlink(procPath(up, name))
		if err != nil {
			return err
		}
		c.Target = target
	case File:
		f, _, err := openFile(up, name, true)
		if err != nil {
			return err
		}
		defer f.Close()
		if c.Binary, err = binaryFile(f); err != nil {
			return err
		}
	}
	return nil
}

// copied compares a full copy with what its manifest says was copied, both
// in the order of a walk.
func (s *scanner) copied(tree int, layer string) error {
	m, err := workspace.OpenManifest(layer)
	if err != nil {
		return err
	}
	defer m.Close()
	w := &copyScan{s: s, m: m}
	if err := w.next(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(tree, &st); err != nil {
		return err
	}
	if err := w.meet(tree, ".", ".", &st); err != nil {
		return err
	}
	if err := w.dir(tree, "", 0); err != nil {
		return err
	}
	for w.more {
		if err := w.gone(); err != nil {
			return err
		}
	}
	return nil
}

type copyScan struct {
	s    *scanner
	m    *workspace.Manifest
	at   workspace.Entry // the next line of the manifest
	more bool
}

func (w *copyScan) next() error {
	e, err := w.m.Next()
	w.at, w.more = e, err == nil
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, "read what the run changed", "discard the run; its copy was never finished",
			"the list of what was copied is damaged: %w", err)
	}
	return nil
}

func (w *copyScan) dir(fd int, rel string, depth int) error {
	if err := w.s.check(rel, depth); err != nil {
		return err
	}
	list, err := names(fd)
	if err != nil {
		return &os.PathError{Op: "read", Path: rel, Err: err}
	}
	sort.Strings(list)
	for _, name := range list {
		p := path.Join(rel, name)
		st, err := lstatAt(fd, name)
		if err != nil {
			return err
		}
		if st == nil {
			continue
		}
		if err := w.meet(fd, name, p, st); err != nil {
			return err
		}
		if kindOf(st.Mode) == Dir {
			if err := w.below(fd, name, p, st, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// below goes into one folder of the copy.
func (w *copyScan) below(fd int, name, p string, st *unix.Stat_t, depth int) error {
	restore, err := readable(fd, name, st)
	if err != nil {
		return err
	}
	defer restore()
	sub, err := openBeneath(fd, name, dirFlags, true)
	if err != nil {
		return &os.PathError{Op: "open", Path: p, Err: err}
	}
	defer unix.Close(sub)
	return w.dir(sub, p, depth+1)
}

// meet compares one entry of the copy.
func (w *copyScan) meet(fd int, name, p string, is *unix.Stat_t) error {
	restore, err := readable(fd, name, is)
	if err != nil {
		return err
	}
	defer restore()
	for w.more && workspace.ComparePaths(w.at.Path, p) < 0 {
		if err := w.gone(); err != nil {
			return err
		}
	}
	if !w.more || w.at.Path != p {
		c := Change{Op: Added, Path: p, Is: kindOf(is.Mode), Layer: workspace.IdentityOf(is)}
		if err := w.s.describeNew(&c, fd, name); err != nil {
			return err
		}
		w.s.add(&c)
		return nil
	}
	e := w.at
	if err := w.next(); err != nil {
		return err
	}
	now := workspace.IdentityOf(is)
	if now.Same(e.Copy) {
		return nil
	}
	c := Change{Op: Modified, Path: p, Was: kindOf(e.Host.Mode), Is: kindOf(is.Mode), Host: e.Host, Layer: now, OldTarget: e.Target}
	if err := w.s.describeNew(&c, fd, name); err != nil {
		return err
	}
	c.Mode = c.Is != Symlink && now.Mode&metaModes != e.Host.Mode&metaModes
	if c.Was == Dir {
		c.Owner = os.Geteuid() == 0 && (now.UID != e.Host.UID || now.GID != e.Host.GID)
	} else {
		c.Owner = now.UID != e.Copy.UID || now.GID != e.Copy.GID
	}
	if c.TypeChanged() {
		c.Content = true
		return w.record(&c)
	}
	x, err := workspace.Xattrs(procPath(fd, name))
	if err != nil {
		return err
	}
	c.Xattr = workspace.HashXattrs(x) != e.Xattrs
	switch c.Is {
	case Symlink:
		c.Content = c.Target != e.Target
	case File:
		if now.Size != e.Host.Size {
			c.Content = true
		} else if now.Ino != e.Copy.Ino || now.Mtime != e.Copy.Mtime || now.Ctime != e.Copy.Ctime {
			if c.Content, err = w.contentDiffers(&c, fd, name); err != nil {
				return err
			}
		}
	}
	if !c.Content && !c.Mode && !c.Owner && !c.Xattr {
		return nil
	}
	return w.record(&c)
}

// contentDiffers compares with the host's file, as long as that is what was
// copied; else the content counts as changed.
func (w *copyScan) contentDiffers(c *Change, fd int, name string) (bool, error) {
	a, _, err := openFile(fd, name, true)
	if err != nil {
		return false, err
	}
	defer a.Close()
	b, st, err := openFile(w.s.top, c.Path, false)
	if err != nil || !workspace.IdentityOf(st).Same(c.Host) {
		if err == nil {
			b.Close()
		}
		c.Stale = true
		return true, nil
	}
	defer b.Close()
	same, err := sameContent(a, b, w.s.buf)
	return !same, err
}

// gone records that the copy lacks the manifest's next entry.
func (w *copyScan) gone() error {
	e := w.at
	if err := w.next(); err != nil {
		return err
	}
	return w.record(&Change{Op: Deleted, Path: e.Path, Was: kindOf(e.Host.Mode), Host: e.Host, OldTarget: e.Target})
}

// record describes the host's side, where it is still what was copied.
func (w *copyScan) record(c *Change) error {
	if c.Was == File {
		f, st, err := openFile(w.s.top, c.Path, false)
		if err != nil || !workspace.IdentityOf(st).Same(c.Host) {
			c.Stale = true
		} else {
			bin, berr := binaryFile(f)
			if berr == nil && w.s.keep != nil {
				berr = w.s.keep.old(c, f)
			}
			if berr != nil {
				f.Close()
				return berr
			}
			c.Binary = c.Binary || bin
		}
		if err == nil {
			f.Close()
		}
	}
	w.s.add(c)
	return nil
}
