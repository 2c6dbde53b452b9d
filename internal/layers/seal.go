package layers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/faults"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// Seal makes the upper folder of a stack a layer, by rename, at a cost that does
// not depend on its size. Nothing may write to upper any more: no process lives
// that could. A new empty upper is the caller's to make. parent is the layer below.
// An upper folder on another file system than the layers, as on a disk of the
// sandbox's own, is copied and removed instead, and the layer's method says so.
//
// After a death in it, either the layer is there, once the store is opened again,
// or upper is.
func (s *Store) Seal(ctx context.Context, id, parent, upper string, ids IDs) (Layer, error) {
	what := "seal the layer " + id
	if err := s.reserve(id, parent); err != nil {
		return Layer{}, err
	}
	l := &Layer{ID: id, Dir: filepath.Join(s.path(id), treeName), Parent: parent, Method: Sealed, IDs: ids}
	err := s.seal(l, upper)
	if errors.Is(err, unix.EXDEV) {
		if err = s.capture(ctx, l, upper); err == nil {
			err = moveAway(upper)
		}
	}
	if err != nil {
		s.settle(id, parent, nil)
		return Layer{}, storage(what, err)
	}
	s.settle(id, parent, l)
	return *l, nil
}

// moveAway removes a folder that was copied. It has its name for as long as it is whole:
// half of it over the copy would hide what its removed half has said.
func moveAway(upper string) error {
	gone := upper + ".copied"
	if err := folder.RemoveTree(gone); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(upper, gone); err != nil {
		return err
	}
	return folder.RemoveTree(gone)
}

func (s *Store) seal(l *Layer, upper string) error {
	tmp, err := s.staging(l.ID)
	if err != nil {
		return err
	}
	if err := writeMeta(tmp, l.meta(time.Now()), false); err != nil {
		return err
	}
	faults.Trace("layers.seal.described")
	if err := os.Rename(upper, filepath.Join(tmp, treeName)); err != nil {
		folder.RemoveTree(tmp)
		return err
	}
	faults.Trace("layers.seal.moved")
	if err := os.Rename(tmp, s.path(l.ID)); err != nil {
		// Where the caller looks for it: the next attempt clears tmp.
		return errors.Join(err, os.Rename(filepath.Join(tmp, treeName), upper))
	}
	return nil
}

// staging makes the folder for a layer in the making.
func (s *Store) staging(id string) (string, error) {
	tmp := filepath.Join(s.dir, newPrefix+id)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		if !errors.Is(err, os.ErrExist) {
			return "", err
		}
		// Of an earlier attempt that failed; reserve keeps others out.
		if err := folder.RemoveTree(tmp); err != nil {
			return "", err
		}
		if err := os.Mkdir(tmp, 0o700); err != nil {
			return "", err
		}
	}
	return tmp, nil
}

// place puts a layer whose files are in tmp/fs into the store.
func (s *Store) place(l *Layer, tmp string) error {
	if err := writeMeta(tmp, l.meta(time.Now()), false); err != nil {
		return err
	}
	faults.Trace("layers.place.described")
	return os.Rename(tmp, s.path(l.ID))
}
