package changes

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/store/records"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// The two lists that this package keeps, as package records writes them: a
// header, and a record for each thing. The header says how many there are, so
// that a list that was cut short is not taken for a shorter one.

func encodeSet(f io.Writer, set *Set) error {
	w := records.NewWriter(f)
	w.Uint(setVersion)
	w.String(set.Run)
	writeRoots(w, set.Roots)
	w.Uint(uint64(len(set.Changes)))
	if err := w.End(); err != nil {
		return err
	}
	for i := range set.Changes {
		c := &set.Changes[i]
		w.Uint(uint64(c.Root))
		for _, s := range []string{c.Path, string(c.Op), string(c.Was), string(c.Is), c.OldTarget, c.Target} {
			w.String(s)
		}
		for _, b := range []bool{c.Content, c.Mode, c.Owner, c.Xattr, c.Binary, c.Stale} {
			w.Bool(b)
		}
		w.Uint(uint64(len(c.Marks)))
		for _, m := range c.Marks {
			w.String(m.Class)
			w.String(m.Why)
		}
		c.Host.Write(w)
		c.Layer.Write(w)
		w.Int(c.Base)
		if err := w.End(); err != nil {
			return err
		}
	}
	return w.Flush()
}

func decodeSet(f io.Reader) (*Set, error) {
	r := records.NewReader(f)
	if err := version(r, setVersion); err != nil {
		return nil, err
	}
	set := &Set{Run: r.String(), Roots: readRoots(r)}
	count := r.Uint()
	if err := r.End(); err != nil {
		return nil, err
	}
	for range count {
		if err := next(r); err != nil {
			return nil, err
		}
		root := r.Uint()
		c := Change{Root: int(root), Path: r.String(), Op: Op(r.String()), Was: Kind(r.String()), Is: Kind(r.String()), OldTarget: r.String(), Target: r.String()}
		for _, b := range []*bool{&c.Content, &c.Mode, &c.Owner, &c.Xattr, &c.Binary, &c.Stale} {
			*b = r.Bool()
		}
		for range r.Count() {
			c.Marks = append(c.Marks, Mark{r.String(), r.String()})
		}
		c.Host, c.Layer, c.Base = workspace.ReadIdentity(r), workspace.ReadIdentity(r), r.Int()
		if err := r.End(); err != nil {
			return nil, err
		}
		if !filepath.IsLocal(c.Path) || root >= uint64(len(set.Roots)) || c.Base < 0 || c.Host.Size < 0 {
			return nil, errors.New("it names a path outside its root")
		}
		set.Changes = append(set.Changes, c)
	}
	return set, end(r)
}

// listVersion is the version of a snapshot's list.
const listVersion = 1

func encodeList(f io.Writer, s *savedSnapshot) error {
	w := records.NewWriter(f)
	w.Uint(listVersion)
	writeRoots(w, s.Roots)
	for _, list := range [][]string{s.Hooks, s.Named} {
		w.Uint(uint64(len(list)))
		for _, t := range list {
			w.String(t)
		}
	}
	w.Uint(uint64(len(s.Files)))
	if err := w.End(); err != nil {
		return err
	}
	for _, e := range s.Files {
		w.Uint(uint64(e.Root))
		w.String(e.Path)
		e.ID.Write(w)
		w.String(e.Copy)
		if err := w.End(); err != nil {
			return err
		}
	}
	return w.Flush()
}

func decodeList(f io.Reader) (*savedSnapshot, error) {
	r := records.NewReader(f)
	if err := version(r, listVersion); err != nil {
		return nil, err
	}
	s := &savedSnapshot{Roots: readRoots(r)}
	for _, list := range []*[]string{&s.Hooks, &s.Named} {
		for range r.Count() {
			*list = append(*list, r.String())
		}
	}
	count := r.Uint()
	if err := r.End(); err != nil {
		return nil, err
	}
	if len(s.Hooks) != len(s.Roots) {
		return nil, records.ErrDamaged
	}
	for range count {
		if err := next(r); err != nil {
			return nil, err
		}
		root := r.Uint()
		e := savedExec{Root: int(root), Path: r.String(), ID: workspace.ReadIdentity(r), Copy: r.String()}
		if err := r.End(); err != nil {
			return nil, err
		}
		if root >= uint64(len(s.Roots)) || !filepath.IsLocal(e.Path) || strings.Contains(e.Copy, "/") {
			return nil, errors.New("it names a path outside its root")
		}
		s.Files = append(s.Files, e)
	}
	return s, end(r)
}

func writeRoots(w *records.Writer, roots []folder.Root) {
	w.Uint(uint64(len(roots)))
	for _, root := range roots {
		for _, s := range []string{root.Path, string(root.Mode), root.Why, root.Layer} {
			w.String(s)
		}
		w.Bool(root.UserXattr)
		w.Uint(root.Dev)
		w.Uint(root.Ino)
		since := int64(math.MinInt64) // the zero time, which has no such number
		if !root.Since.IsZero() {
			since = root.Since.UnixNano()
		}
		w.Int(since)
	}
}

func readRoots(r *records.Reader) (roots []folder.Root) {
	for range r.Count() {
		root := folder.Root{Path: r.String(), Mode: folder.RootMode(r.String()), Why: r.String(), Layer: r.String(),
			UserXattr: r.Bool(), Dev: r.Uint(), Ino: r.Uint()}
		if since := r.Int(); since != math.MinInt64 {
			root.Since = time.Unix(0, since).UTC()
		}
		roots = append(roots, root)
	}
	return roots
}

// version takes up the first record and its first field.
func version(r *records.Reader, want uint64) error {
	if err := next(r); err != nil {
		return err
	}
	if v := r.Uint(); v != want {
		return fmt.Errorf("it has version %d, this program knows %d", v, want)
	}
	return nil
}

// next takes up a record that has to be there.
func next(r *records.Reader) error {
	err := r.Next()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// end says that nothing follows.
func end(r *records.Reader) error {
	if r.Next() != io.EOF {
		return records.ErrDamaged
	}
	return nil
}
