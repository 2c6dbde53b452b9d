package layers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// kind says what an entry of a layer is.
type kind byte

const (
	isDir kind = iota
	isFile
	isSymlink
	isFifo
	isSocket
	isDeletion // of the name in the layers below
	isOther    // a device, which no sandbox can make
)

func kindOf(st *unix.Stat_t) kind {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		return isDir
	case unix.S_IFREG:
		return isFile
	case unix.S_IFLNK:
		return isSymlink
	case unix.S_IFIFO:
		return isFifo
	case unix.S_IFSOCK:
		return isSocket
	case unix.S_IFCHR:
		if st.Rdev == 0 {
			return isDeletion
		}
	}
	return isOther
}

// entry is one name of one or several layers merged, as a walk meets it.
type entry struct {
	path   string // relative to the root, "." for it
	kind   kind
	st     unix.Stat_t // owners as on disk
	opaque bool        // a folder that hides those of its name below
	bare   bool        // below or at such a folder: nothing of the layers below is seen
	xattrs []xattr
	target string // of a symbolic link
	link   string // the path that the walk has met this file under before, or ""

	dir  int // where it lies: an open folder, for as long as the visit lasts
	name string
}

// open opens a regular file's content.
func (e *entry) open() (*os.File, error) {
	fd, err := openOwn(e.dir, e.name, readFile, &e.st)
	if err != nil {
		return nil, err
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd, &now); err != nil || now.Ino != e.st.Ino || now.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, errors.Join(err, errors.New("it was replaced while it was read"))
	}
	return os.NewFile(uintptr(fd), e.path), nil
}

// walker goes through one or several layers as overlayfs merges them.
type walker struct {
	ctx   context.Context
	marks marks
	visit func(*entry) error
	links map[[2]uint64]string
}

// walk calls visit for every entry of the merged layers, given as open folders
// with the highest first: parents before what is in them, names in the order of
// their bytes. What is hidden is not told, and neither are deletions and marks
// where nothing below could be seen anyway: two layers that mean the same give the
// same walk.
func walk(ctx context.Context, m marks, roots []int, visit func(*entry) error) error {
	w := &walker{ctx: ctx, marks: m, visit: visit, links: map[[2]uint64]string{}}
	e := &entry{path: ".", kind: isDir, dir: roots[0], name: "."}
	if err := unix.Fstat(roots[0], &e.st); err != nil {
		return err
	}
	var err error
	// A mark on the root itself means nothing to overlayfs.
	if e.xattrs, _, err = m.attributes(fdPath(roots[0]) + "/."); err != nil {
		return at(".", err)
	}
	if err := visit(e); err != nil {
		return at(".", err)
	}
	return w.folder(roots, ".", false, 0)
}

// folder goes through what is in a folder that dirs, the highest first, make up.
func (w *walker) folder(dirs []int, rel string, bare bool, depth int) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if depth >= maxDepth || len(rel) > maxPath {
		return at(rel, fmt.Errorf("folders are nested more than %d deep", maxDepth))
	}
	list, err := union(dirs)
	if err != nil {
		return at(rel, err)
	}
	for _, name := range list {
		if err := w.entry(dirs, rel, name, bare, depth); err != nil {
			return err
		}
	}
	return nil
}

// union gives the names in any of several folders, sorted.
func union(dirs []int) ([]string, error) {
	if len(dirs) == 1 {
		return names(dirs[0])
	}
	seen := map[string]struct{}{}
	var all []string
	for _, fd := range dirs {
		list, err := names(fd)
		if err != nil {
			return nil, err
		}
		for _, n := range list {
			if _, ok := seen[n]; !ok {
				seen[n] = struct{}{}
				all = append(all, n)
			}
		}
		if len(all) > maxFolder {
			return nil, fmt.Errorf("a folder has more than %d entries", maxFolder)
		}
	}
	sort.Strings(all)
	return all, nil
}

func (w *walker) entry(dirs []int, rel, name string, bare bool, depth int) error {
	p := path.Join(rel, name)
	e := &entry{path: p, name: name, bare: bare}
	i := 0
	for ; i < len(dirs); i++ {
		err := lstatAt(dirs[i], name, &e.st)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.ENOENT) {
			return at(p, err)
		}
	}
	if i == len(dirs) {
		return at(p, errors.New("it vanished while it was read"))
	}
	e.dir, e.kind = dirs[i], kindOf(&e.st)
	switch e.kind {
	case isDeletion:
		if bare {
			return nil
		}
		return at(p, w.visit(e))
	case isOther:
		return at(p, errors.New("it is a device, which no sandbox can have made"))
	case isDir:
		return w.subfolder(e, dirs[i:], depth)
	}
	var err error
	if e.xattrs, _, err = w.marks.attributes(entryPath(e.dir, name)); err != nil {
		return at(p, err)
	}
	if e.kind == isSymlink {
		if e.target, err = readlink(e.dir, name); err != nil {
			return at(p, err)
		}
	}
	if e.st.Nlink > 1 {
		key := [2]uint64{e.st.Dev, e.st.Ino}
		if first, ok := w.links[key]; ok {
			e.link = first
		} else if len(w.links) >= maxLinked {
			return at(p, fmt.Errorf("more than %d files have several names", maxLinked))
		} else {
			w.links[key] = p
		}
	}
	return at(p, w.visit(e))
}

// subfolder goes on in the folder e, which lies in the first of dirs and perhaps
// in those below.
func (w *walker) subfolder(e *entry, dirs []int, depth int) error {
	open, stats, err := w.stack(e, dirs)
	defer func() {
		for i, fd := range open {
			shut(fd, &stats[i])
			unix.Close(fd)
		}
	}()
	if err != nil {
		return at(e.path, err)
	}
	if err := w.visit(e); err != nil {
		return at(e.path, err)
	}
	return w.folder(open, e.path, e.bare, depth+1)
}

// stack opens the folders that e is merged of, and says in e whether something
// below is hidden by one of them.
func (w *walker) stack(e *entry, dirs []int) (open []int, stats []unix.Stat_t, err error) {
	bare := e.bare
	for i, dir := range dirs {
		st := e.st
		if i > 0 {
			err := lstatAt(dir, e.name, &st)
			if errors.Is(err, unix.ENOENT) {
				continue
			}
			if err != nil {
				return open, stats, err
			}
			if kindOf(&st) != isDir {
				e.bare = true // deleted there, or something else
				break
			}
		}
		fd, err := openOwn(dir, e.name, readDir, &st)
		if err != nil {
			return open, stats, err
		}
		open, stats = append(open, fd), append(stats, st)
		list, opaque, err := w.marks.attributes(fdPath(fd) + "/.")
		if err != nil {
			return open, stats, err
		}
		if i == 0 {
			e.xattrs = list
		}
		if opaque {
			e.bare = true
			break
		}
	}
	e.opaque = e.bare && !bare
	return open, stats, nil
}

func readlink(dir int, name string) (string, error) {
	buf := make([]byte, 4097)
	n, err := unix.Readlinkat(dir, name, buf)
	if err != nil {
		return "", err
	}
	if n == len(buf) {
		return "", errors.New("its target is too long")
	}
	return string(buf[:n]), nil
}

// pathError is an error about a path of a layer.
type pathError struct {
	path string
	err  error
}

func (e *pathError) Error() string { return fmt.Sprintf("%q: %v", e.path, e.err) }
func (e *pathError) Unwrap() error { return e.err }

// at says where an error happened, once.
func at(path string, err error) error {
	var known *pathError
	var told *bailey.Error
	if err == nil || errors.As(err, &known) || errors.As(err, &told) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &pathError{path, err}
}
