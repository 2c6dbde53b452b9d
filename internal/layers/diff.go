package layers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/api"
)

// State is what a sandbox sees: a chain of layers over its ground, "" for none,
// and an upper folder on top, "" for none. Ground are folders, lowest first, that
// are no layers; with none, what is there in neither state is not known.
type State struct {
	Ground []string
	Layer  string
	Upper  string
}

// The words of api.Change.Op.
const (
	opAdded   = "added"
	opChanged = "changed"
	opDeleted = "deleted"
	opMode    = "mode" // owner, mode or attributes only
)

// Diff calls each with what differs between two states, in the order of paths, a
// folder before what is in it. Paths are relative to the root. Contents are
// compared; a new time alone is no change. What both states share below is not
// looked at, so that the cost grows with what was written in between.
func (s *Store) Diff(ctx context.Context, from, to State, each func(api.Change) error) error {
	a, err := s.view(from)
	if err != nil {
		return err
	}
	defer a.close()
	b, err := s.view(to)
	if err != nil {
		return err
	}
	defer b.close()
	shared := 0
	for shared < len(a.names) && shared < len(b.names) && a.names[shared] == b.names[shared] {
		shared++
	}
	d := &differ{ctx: ctx, marks: s.marks, each: each, shared: shared}
	return storage("compare the files", d.folders(a.root(), b.root(), ".", 0))
}

// view is a stack of open folders.
type view struct {
	names []string // lowest first
	fds   []int
}

func (s *Store) view(st State) (*view, error) {
	v := &view{names: append([]string{}, st.Ground...)}
	dirs, err := s.Dirs(st.Layer)
	if err != nil {
		return nil, err
	}
	v.names = append(v.names, dirs...)
	if st.Upper != "" {
		v.names = append(v.names, st.Upper)
	}
	for _, name := range v.names {
		fd, err := openTree(name)
		if err != nil {
			v.close()
			return nil, storage("compare the files", err)
		}
		v.fds = append(v.fds, fd)
	}
	return v, nil
}

func (v *view) close() {
	for _, fd := range v.fds {
		unix.Close(fd)
	}
}

// merged is a folder of a view: what it is merged of, the highest first.
type merged []part

// part is one layer's folder.
type part struct {
	fd    int
	level int // of the layer in its view, from 0 for the lowest
}

func (v *view) root() merged {
	var m merged
	for i := len(v.fds) - 1; i >= 0; i-- {
		m = append(m, part{v.fds[i], i})
	}
	return m
}

// below gives the number of parts that lie in the lowest shared layers.
func (m merged) below(shared int) int {
	n := 0
	for _, p := range m {
		if p.level < shared {
			n++
		}
	}
	return n
}

// differ compares two views.
type differ struct {
	ctx    context.Context
	marks  marks
	each   func(api.Change) error
	shared int // so many of the lowest layers are the same in both
}

// node is one name of a merged folder.
type node struct {
	kind   kind
	st     unix.Stat_t
	level  int
	dir    int
	name   string
	dirs   merged // of a folder; open
	stats  []unix.Stat_t
	xattrs []xattr
	target string
}

func (n *node) close() {
	if n == nil {
		return
	}
	for i, p := range n.dirs {
		shut(p.fd, &n.stats[i])
		unix.Close(p.fd)
	}
	n.dirs = nil
}

// find gives what is seen at a name, nil for nothing.
func (d *differ) find(m merged, name string) (*node, error) {
	for i, p := range m {
		n := &node{dir: p.fd, level: p.level, name: name}
		err := lstatAt(p.fd, name, &n.st)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		switch n.kind = kindOf(&n.st); n.kind {
		case isDeletion:
			return nil, nil
		case isDir:
			err = d.merge(n, m[i:])
		case isSymlink:
			n.target, err = readlink(p.fd, name)
			fallthrough
		default:
			if err == nil {
				n.xattrs, _, err = d.marks.attributes(entryPath(p.fd, name))
			}
		}
		if err != nil {
			n.close()
			return nil, err
		}
		return n, nil
	}
	return nil, nil
}

// merge opens what the folder n is merged of.
func (d *differ) merge(n *node, m merged) error {
	for i, p := range m {
		var st unix.Stat_t
		err := lstatAt(p.fd, n.name, &st)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		if kindOf(&st) != isDir {
			return nil
		}
		fd, err := openOwn(p.fd, n.name, readDir, &st)
		if err != nil {
			return err
		}
		n.dirs, n.stats = append(n.dirs, part{fd, p.level}), append(n.stats, st)
		list, opaque, err := d.marks.attributes(fdPath(fd) + "/.")
		if err != nil {
			return err
		}
		if i == 0 {
			n.xattrs = list
		}
		if opaque {
			return nil
		}
	}
	return nil
}

// folders compares two folders that both are there. Either may be nil for none.
func (d *differ) folders(a, b merged, rel string, depth int) error {
	if err := d.ctx.Err(); err != nil {
		return err
	}
	if depth >= maxDepth || len(rel) > maxPath {
		return at(rel, fmt.Errorf("folders are nested more than %d deep", maxDepth))
	}
	list, err := d.union(a, b)
	if err != nil {
		return at(rel, err)
	}
	for _, name := range list {
		if err := d.names(a, b, name, path.Join(rel, name), depth); err != nil {
			return err
		}
	}
	return nil
}

// union gives the names to compare: of what both share, none.
func (d *differ) union(a, b merged) ([]string, error) {
	n := a.below(d.shared)
	if n == b.below(d.shared) && n > 0 {
		same := true
		for i := 1; i <= n; i++ {
			same = same && a[len(a)-i].level == b[len(b)-i].level
		}
		if same {
			a, b = a[:len(a)-n], b[:len(b)-n]
		}
	}
	var fds []int
	for _, m := range []merged{a, b} {
		for _, p := range m {
			fds = append(fds, p.fd)
		}
	}
	if len(fds) == 0 {
		return nil, nil
	}
	return union(fds)
}

func (d *differ) names(a, b merged, name, rel string, depth int) error {
	x, err := d.find(a, name)
	if err != nil {
		return at(rel, err)
	}
	defer x.close()
	y, err := d.find(b, name)
	if err != nil {
		return at(rel, err)
	}
	defer y.close()
	switch {
	case x == nil && y == nil:
		return nil
	case y == nil:
		return d.whole(x, nil, rel, depth)
	case x == nil:
		return d.whole(nil, y, rel, depth)
	case x.kind == isDir && y.kind == isDir:
		if ownership(x) != ownership(y) || !sameXattrs(x, y) {
			if err := d.each(api.Change{Op: opMode, Path: rel}); err != nil {
				return err
			}
		}
		return d.folders(x.dirs, y.dirs, rel, depth+1)
	case x.kind == isDir || y.kind == isDir:
		if err := d.whole(x, nil, rel, depth); err != nil {
			return err
		}
		return d.whole(nil, y, rel, depth)
	}
	return at(rel, d.files(x, y, rel))
}

// whole tells all of what is in one state only.
func (d *differ) whole(x, y *node, rel string, depth int) error {
	c := api.Change{Op: opAdded, Path: rel}
	n := y
	if y == nil {
		c.Op, n = opDeleted, x
	}
	if n.kind == isFile {
		sum, err := n.sum()
		if err != nil {
			return at(rel, err)
		}
		if y == nil {
			c.Old, c.OldHash = n.st.Size, sum
		} else {
			c.Size, c.NewHash = n.st.Size, sum
		}
	}
	if err := d.each(c); err != nil || n.kind != isDir {
		return err
	}
	if y == nil {
		return d.folders(n.dirs, nil, rel, depth+1)
	}
	return d.folders(nil, n.dirs, rel, depth+1)
}

// files compares two names that both are no folders.
func (d *differ) files(x, y *node, rel string) error {
	if x.st.Dev == y.st.Dev && x.st.Ino == y.st.Ino && x.level == y.level && x.level < d.shared {
		return nil
	}
	c := api.Change{Op: opChanged, Path: rel}
	changed := x.kind != y.kind || x.target != y.target
	if !changed && x.kind == isFile && x.st.Size != y.st.Size {
		changed = true
	}
	if x.kind == isFile && (changed || x.st.Dev != y.st.Dev || x.st.Ino != y.st.Ino) {
		sum, err := x.sum()
		if err != nil {
			return err
		}
		c.Old, c.OldHash = x.st.Size, sum
	}
	if y.kind == isFile && (changed || c.OldHash != "") {
		sum, err := y.sum()
		if err != nil {
			return err
		}
		c.Size, c.NewHash = y.st.Size, sum
	}
	if c.OldHash != c.NewHash {
		changed = true
	}
	if changed {
		return d.each(c)
	}
	if ownership(x) != ownership(y) || !sameXattrs(x, y) {
		return d.each(api.Change{Op: opMode, Path: rel, Old: c.Old, Size: c.Size})
	}
	return nil
}

// sum hashes a file's content.
func (n *node) sum() (string, error) {
	e := &entry{dir: n.dir, name: n.name, st: n.st, path: n.name}
	if n.st.Size > logicalFree && n.st.Size/logicalTimes > n.st.Blocks*512 {
		return "", errors.New("it is nearly all holes")
	}
	f, err := e.open()
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, io.LimitReader(f, n.st.Size)); err != nil {
		return "", err
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)), nil
}

// owned is what changes without content.
type owned struct{ mode, uid, gid uint32 }

func ownership(n *node) owned {
	if n.kind == isSymlink {
		return owned{uid: n.st.Uid, gid: n.st.Gid}
	}
	return owned{n.st.Mode & 0o7777, n.st.Uid, n.st.Gid}
}

func sameXattrs(x, y *node) bool {
	if len(x.xattrs) != len(y.xattrs) {
		return false
	}
	for i := range x.xattrs {
		if x.xattrs[i] != y.xattrs[i] {
			return false
		}
	}
	return true
}
