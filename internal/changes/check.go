package changes

import (
	"io"
	"os"

	udiff "github.com/aymanbagabas/go-udiff"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// verdict is what a look at the host says about a change.
type verdict int

const (
	fits     verdict = iota // the host's file is what the set says it was
	already                 // it is as the change would make it
	conflict                // it is something else
)

// check looks at what the host has at name now. why is for people, and only
// set with conflict.
func (a *applier) check(parent int, name string, c *Change) (v verdict, cur *unix.Stat_t, why string, err error) {
	if cur, err = lstatAt(parent, name); err != nil {
		return conflict, nil, "", err
	}
	if cur == nil {
		switch c.Op {
		case Added:
			return fits, nil, "", nil
		case Deleted:
			return already, nil, "", nil
		}
		return conflict, nil, "it has been deleted on the host", nil
	}
	kind := kindOf(cur.Mode)
	if c.Op != Deleted && kind == c.Is {
		same, err := a.asLayer(parent, name, c, cur)
		if err != nil {
			return conflict, cur, "", err
		}
		if same {
			return already, cur, "", nil
		}
	}
	if c.Op == Added {
		return conflict, cur, "the host has made a " + string(kind) + " there", nil
	}
	if kind != c.Was {
		return conflict, cur, "it was a " + string(c.Was) + " and is a " + string(kind) + " on the host", nil
	}
	if c.Stale {
		return conflict, cur, "it was changed on the host while the run went on", nil
	}
	unchanged, err := a.unchanged(parent, name, c, cur)
	if err != nil {
		return conflict, cur, "", err
	}
	if !unchanged {
		return conflict, cur, "it was changed on the host after the run", nil
	}
	return fits, cur, "", nil
}

// unchanged says whether the host's file is still what the set says.
func (a *applier) unchanged(parent int, name string, c *Change, cur *unix.Stat_t) (bool, error) {
	id := workspace.IdentityOf(cur)
	if id.Same(c.Host) {
		return true, nil
	}
	switch c.Was {
	case Dir:
		// A folder's times change with what is in it. Whether it holds
		// anything new shows when it is removed.
		return id.Mode == c.Host.Mode, nil
	case Symlink:
		target, err := os.Readlink(procPath(parent, name))
		return err == nil && target == c.OldTarget, err
	case File:
		if a.touched[[2]uint64{id.Dev, id.Ino}] {
			id.Ctime = c.Host.Ctime
			if id.Same(c.Host) {
				return true, nil
			}
		}
		if !c.Host.HasContent || id.Size != c.Host.Size || id.Mode != c.Host.Mode || id.UID != c.Host.UID || id.GID != c.Host.GID {
			return false, nil
		}
		f, _, err := openFile(parent, name, true)
		if err != nil {
			return false, err
		}
		defer f.Close()
		h, err := sumFile(f)
		return h == c.Host.Sum, err
	}
	return false, nil
}

// asLayer says whether the host's file is what the change would make it.
func (a *applier) asLayer(parent int, name string, c *Change, cur *unix.Stat_t) (bool, error) {
	switch c.Is {
	case Dir:
		return c.Op == Added || c.TypeChanged(), nil
	case FIFO:
		return cur.Mode == c.Layer.Mode, nil
	case Symlink:
		target, err := os.Readlink(procPath(parent, name))
		return err == nil && target == c.Target, err
	case File:
		if cur.Mode != c.Layer.Mode || cur.Size != c.Layer.Size || c.Xattr {
			return false, nil
		}
		layer, err := a.layer(c.Root)
		if err != nil {
			return false, err
		}
		x, _, done, err := openLayerFile(layer, c.Path)
		if err != nil {
			return false, err
		}
		defer done()
		defer x.Close()
		y, _, err := openFile(parent, name, true)
		if err != nil {
			return false, err
		}
		defer y.Close()
		if a.buf == nil {
			a.buf = make([]byte, 64<<10)
		}
		return sameContent(x, y, a.buf)
	}
	return false, nil
}

// merge merges the sandbox's text with the host's, from the base that Seal
// kept. It gives nil when that cannot be done without a person.
func (a *applier) merge(parent int, name string, c *Change, cur *unix.Stat_t) ([]byte, error) {
	if c.Was != File || c.Is != File || c.Binary || cur == nil || kindOf(cur.Mode) != File || c.Base == 0 ||
		cur.Size > maxBase || c.Layer.Size > maxBase {
		return nil, nil
	}
	base, err := readBase(a.run, c)
	if err != nil {
		return nil, err
	}
	read := func(f *os.File) ([]byte, error) {
		defer f.Close()
		return io.ReadAll(io.LimitReader(f, maxBase+1))
	}
	layer, err := a.layer(c.Root)
	if err != nil {
		return nil, err
	}
	on, _, err := openFile(parent, name, true)
	if err != nil {
		return nil, err
	}
	ours, err := read(on)
	if err != nil {
		return nil, err
	}
	in, _, done, err := openLayerFile(layer, c.Path)
	if err != nil {
		return nil, err
	}
	defer done()
	theirs, err := read(in)
	if err != nil {
		return nil, err
	}
	if isBinary(ours) || len(ours) > maxBase || len(theirs) > maxBase {
		return nil, nil
	}
	return mergeText(string(base), string(ours), string(theirs)), nil
}

// mergeText merges two changes of a text; nil when they touch.
func mergeText(base, ours, theirs string) []byte {
	x, y := udiff.Lines(base, ours), udiff.Lines(base, theirs)
	// Changes of neighbouring lines may mean each other, as in git's merge.
	for _, e := range x {
		for _, f := range y {
			if e != f && e.Start <= f.End && f.Start <= e.End {
				return nil
			}
		}
	}
	edits, ok := udiff.Merge(x, y)
	if !ok {
		return nil
	}
	text, err := udiff.Apply(base, edits)
	if err != nil {
		return nil
	}
	return []byte(text)
}
