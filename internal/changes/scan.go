package changes

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Scan gives what the run did: the sealed set where Seal has been called,
// else what its layers hold at this moment. A run that goes on may change
// under it.
func Scan(ctx context.Context, run *folder.Run) (*Set, error) {
	set, err := loadSet(run)
	if err != nil || set != nil {
		return set, err
	}
	return scan(ctx, run, nil)
}

func scanError(err error) error {
	var e *bailey.Error
	if errors.As(err, &e) {
		return err
	}
	return bailey.Errorf(bailey.CodeStorage, "read what the run changed", "", "%w", err)
}

func scan(ctx context.Context, run *folder.Run, keep *keeper) (*Set, error) {
	if run.Record.State == folder.StateDiscarded {
		return nil, bailey.Errorf(bailey.CodeNotFound, "read what the run changed", "", "the changes of run %s were discarded", run.ID())
	}
	set := &Set{Run: run.ID(), Roots: run.Record.Roots}
	for i, root := range set.Roots {
		if err := scanRoot(ctx, run, set, i, root, keep); err != nil {
			return nil, scanError(err)
		}
	}
	return set, nil
}

// openLayer opens the folder in which the run's writes to a root lie.
func openLayer(run *folder.Run, root folder.Root) (int, error) {
	dir, err := run.LayerDir()
	if err != nil {
		return -1, err
	}
	return unix.Open(workspace.Layer(dir, root), dirFlags|unix.O_CLOEXEC, 0)
}

func scanRoot(ctx context.Context, run *folder.Run, set *Set, i int, root folder.Root, keep *keeper) error {
	layer, err := openLayer(run, root)
	if errors.Is(err, unix.ENOENT) {
		return nil // the run ended before its layer was made
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: root.Layer, Err: err}
	}
	defer unix.Close(layer)
	host, err := openRoot(root)
	if err != nil {
		return err
	}
	defer unix.Close(host)
	s := &scanner{ctx: ctx, set: set, index: i, root: root, started: run.Record.Started.UnixNano(), top: host, keep: keep,
		buf: make([]byte, 128<<10), prefix: "trusted.overlay."}
	if root.UserXattr {
		s.prefix = "user.overlay."
	}
	if !root.Since.IsZero() {
		s.started = root.Since.UnixNano()
	}
	s.hooks = hooksPath(host, i)
	if root.Mode == folder.ModeCopy {
		dir, err := run.LayerDir()
		if err != nil {
			return err
		}
		if err := s.copied(layer, filepath.Join(dir, root.Layer)); err != nil {
			return err
		}
		s.markRepositories()
		return nil
	}
	if err := s.rootItself(layer, host); err != nil {
		return err
	}
	if err := s.overlayDir(layer, host, "", s.opaque(layer, "."), 0); err != nil {
		return err
	}
	s.markRepositories()
	return nil
}

// markRepositories marks what git obeys in folders that are repositories
// without being called .git: what the run made, or what was there.
func (s *scanner) markRepositories() {
	heads := map[string]bool{}
	for i := range s.set.Changes {
		if c := &s.set.Changes[i]; c.Root == s.index && path.Base(c.Path) == "HEAD" && c.Op != Deleted {
			heads[path.Dir(c.Path)] = true
		}
	}
	for i := range s.set.Changes {
		c := &s.set.Changes[i]
		if c.Root != s.index || c.Op == Deleted || c.Is == Dir || match(c.Path) != nil || s.index > 0 {
			continue
		}
		dir, class := inRepository(c.Path)
		if class == "" || strings.Contains("/"+c.Path, "/.git/") {
			continue
		}
		if !heads[dir] {
			fd, err := openBeneath(s.top, path.Join(dir, "HEAD"), unix.O_PATH|unix.O_NOFOLLOW, false)
			if err != nil {
				continue
			}
			unix.Close(fd)
		}
		c.Marks = append(c.Marks, Mark{class, bareWhy})
	}
}

// openRoot opens a root on the host, if it is still the folder that the run
// was started over.
func openRoot(root folder.Root) (int, error) {
	fd, err := unix.Open(root.Path, dirFlags|unix.O_CLOEXEC, 0)
	if err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil && (st.Ino != root.Ino || st.Dev != root.Dev) {
			err = errors.New("it is not the folder that the run was started over")
		}
		if err != nil {
			unix.Close(fd)
		}
	}
	if err != nil {
		return -1, bailey.Errorf(bailey.CodeConflict, "read the workspace", "put the folder back where it was, or discard the run", "%s: %w", root.Path, err)
	}
	return fd, nil
}

type scanner struct {
	ctx     context.Context
	set     *Set
	index   int
	root    folder.Root
	started int64
	prefix  string // of overlay's attributes in this layer
	top     int    // the host's root
	hooks   string // core.hooksPath below the root, or ""
	keep    *keeper
	buf     []byte
}

// overlayDir compares one folder of an upper layer, up, with the host's, or
// with nothing when host is -1. In an opaque folder what the layer does not
// have is deleted.
func (s *scanner) overlayDir(up, host int, rel string, opaque bool, depth int) error {
	if err := s.check(rel, depth); err != nil {
		return err
	}
	list, err := names(up)
	if err != nil {
		return &os.PathError{Op: "read", Path: rel, Err: err}
	}
	var inLayer map[string]bool // nil: all that is in list
	if opaque && host >= 0 {
		inLayer = make(map[string]bool, len(list))
		for _, n := range list {
			inLayer[n] = true
		}
		old, err := names(host)
		if err != nil {
			return &os.PathError{Op: "read", Path: rel, Err: err}
		}
		for _, n := range old {
			if !inLayer[n] {
				list = append(list, n)
			}
		}
	}
	sort.Strings(list)
	for _, name := range list {
		p := path.Join(rel, name)
		var was *unix.Stat_t
		if host >= 0 {
			if was, err = lstatAt(host, name); err != nil {
				return err
			}
		}
		var is *unix.Stat_t
		if inLayer == nil || inLayer[name] {
			if is, err = lstatAt(up, name); err != nil {
				return err
			}
		}
		if is == nil || s.whiteout(up, name, is) {
			if was != nil {
				if err := s.deleted(host, name, p, was, depth); err != nil {
					return err
				}
			}
			continue
		}
		if err := s.entry(up, host, name, p, is, was, depth); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) check(rel string, depth int) error {
	if err := s.ctx.Err(); err != nil {
		return err
	}
	if depth > maxDepth {
		return bailey.Errorf(bailey.CodeStorage, "read what the run changed", "discard the run",
			"%s… is nested more than %d folders deep", Printable(rel[:min(len(rel), 60)]), maxDepth)
	}
	return nil
}

// entry compares one name that the layer has with what the host has there.
func (s *scanner) entry(up, host int, name, p string, is, was *unix.Stat_t, depth int) error {
	isDir := kindOf(is.Mode) == Dir
	wasDir := was != nil && kindOf(was.Mode) == Dir
	if err := s.compare(up, host, name, p, is, was); err != nil {
		return err
	}
	if isDir {
		restore, err := readable(up, name, is)
		if err != nil {
			return err
		}
		defer restore()
		a, err := openBeneath(up, name, dirFlags, true)
		if err != nil {
			return &os.PathError{Op: "open", Path: p, Err: err}
		}
		defer unix.Close(a)
		b := -1
		if wasDir {
			// What was mounted over the host's folder since is not what the
			// sandbox saw.
			if b, err = openBeneath(host, name, dirFlags, true); err != nil {
				return &os.PathError{Op: "open", Path: p, Err: err}
			}
			defer unix.Close(b)
		}
		return s.overlayDir(a, b, p, s.opaque(up, name), depth+1)
	}
	if wasDir {
		return s.deletedBelow(host, name, p, depth)
	}
	return nil
}

// whiteout says whether the layer's entry stands for "nothing here": a
// character device 0:0, or an empty file with the attribute overlay.whiteout
// (Documentation/filesystems/overlayfs.rst of Linux).
func (s *scanner) whiteout(up int, name string, st *unix.Stat_t) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFCHR:
		return st.Rdev == 0
	case unix.S_IFREG:
		if st.Size != 0 {
			return false
		}
		_, err := unix.Lgetxattr(procPath(up, name), s.prefix+"whiteout", nil)
		return err == nil
	}
	return false
}

// opaque says whether the layer's folder hides the host's of the same name:
// its attribute overlay.opaque is "y". The value "x" says only that there are
// whiteouts of the second kind in it.
func (s *scanner) opaque(up int, name string) bool {
	var v [8]byte
	n, err := unix.Lgetxattr(procPath(up, name), s.prefix+"opaque", v[:])
	return err == nil && n == 1 && v[0] == 'y'
}

// deleted records that a host file, or a folder and all that is in it, is
// gone.
func (s *scanner) deleted(host int, name, p string, was *unix.Stat_t, depth int) error {
	c := Change{Op: Deleted, Path: p, Was: kindOf(was.Mode), Host: workspace.IdentityOf(was)}
	if err := s.describeOld(&c, host, name); err != nil {
		return err
	}
	s.add(&c)
	if c.Was == Dir {
		return s.deletedBelow(host, name, p, depth)
	}
	return nil
}

func (s *scanner) deletedBelow(host int, name, p string, depth int) error {
	if err := s.check(p, depth); err != nil {
		return err
	}
	fd, err := openBeneath(host, name, dirFlags, true)
	if err != nil {
		return &os.PathError{Op: "open", Path: p, Err: err}
	}
	defer unix.Close(fd)
	list, err := names(fd)
	if err != nil {
		return err
	}
	sort.Strings(list)
	for _, n := range list {
		st, err := lstatAt(fd, n)
		if err != nil {
			return err
		}
		if st != nil {
			if err := s.deleted(fd, n, path.Join(p, n), st, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// describeOld fills in what is to be known of the host's file.
func (s *scanner) describeOld(c *Change, host int, name string) error {
	switch c.Was {
	case Symlink:
		target, err := os.Readlink(procPath(host, name))
		if err != nil {
			return err
		}
		c.OldTarget = target
	case File:
		f, st, err := openFile(host, name, false)
		if errors.Is(err, unix.EACCES) {
			// Somebody else's, in a folder of this user's: what it held is not for
			// this user to know, and its identity tells whether it changes.
			c.Binary = true
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		id := workspace.IdentityOf(st)
		if !id.Same(c.Host) {
			c.Host, c.Stale = id, true
		}
		bin, err := binaryFile(f)
		if err != nil {
			return err
		}
		c.Binary = c.Binary || bin
		if s.root.Mode == folder.ModeOverlay && c.Host.Ctime > s.started {
			c.Stale = true
		}
		if s.keep != nil {
			return s.keep.old(c, f)
		}
	}
	return nil
}

// add records a change.
func (s *scanner) add(c *Change) {
	c.Root = s.index
	s.mark(c)
	s.set.Changes = append(s.set.Changes, *c)
}

// hooksPath gives core.hooksPath of the repository at the root, if it lies
// below the root.
func hooksPath(host, index int) string {
	name := ".git/config"
	if index > 0 {
		name = "config"
	}
	f, st, err := openFile(host, name, false)
	if err != nil || st.Size > 1<<20 {
		return ""
	}
	defer f.Close()
	data := make([]byte, st.Size)
	n, _ := f.ReadAt(data, 0)
	p := workspace.GitConfigValue(data[:n], "core", "hookspath")
	if p == "" || !filepath.IsLocal(p) {
		return ""
	}
	return path.Clean(p)
}

func (s *scanner) mark(c *Change) {
	if c.Op == Deleted || c.Is == Dir {
		return
	}
	p := c.Path
	if s.index > 0 {
		p = ".git/" + p // the other roots are git folders
	}
	if r := match(p); r != nil {
		c.Marks = append(c.Marks, Mark{r.class, r.why})
	} else if s.hooks != "" && strings.HasPrefix(c.Path, s.hooks+"/") {
		c.Marks = append(c.Marks, Mark{"git_hook", "git runs it, since core.hooksPath names its folder"})
	}
	if c.Is == File && c.Layer.Mode&0o111 != 0 && (c.Was != File || c.Host.Mode&0o111 == 0) {
		c.Marks = append(c.Marks, Mark{"executable", "it can now be executed, and could not before"})
	}
	if c.Is == Symlink && leadsOut(s.root.Path, c.Path, c.Target) {
		c.Marks = append(c.Marks, Mark{"link_outside", "it leads out of the workspace"})
	}
}

// leadsOut says whether a link's target may lie outside the root. Names alone
// cannot tell where ".." after another link ends, so that counts as outside.
func leadsOut(root, link, target string) bool {
	if filepath.IsAbs(target) {
		clean := filepath.Clean(target)
		return clean != root && !strings.HasPrefix(clean, root+"/") || strings.Contains(target, "/..")
	}
	down := false
	for _, part := range strings.Split(target, "/") {
		switch part {
		case "..":
			if down {
				return true
			}
		case "", ".":
		default:
			down = true
		}
	}
	return !filepath.IsLocal(path.Join(path.Dir(link), target))
}
