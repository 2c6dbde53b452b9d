package layers

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Flatten makes one layer of a chain, id flat, without changing what is seen: what
// stands on flat sees the same as on id. Contents are not copied but shared by
// hard links where the file system allows it: no layer is ever written to. The
// chain itself stays, for those that stand on it.
func (s *Store) Flatten(ctx context.Context, id, flat string) (Layer, error) {
	chain, err := s.Chain(id)
	if err != nil {
		return Layer{}, err
	}
	if len(chain) == 0 {
		return Layer{}, incomplete(s.path(id), "the layer is not there")
	}
	if err := s.reserve(flat, ""); err != nil {
		return Layer{}, err
	}
	// What is read must not be removed meanwhile: its top is stood on.
	s.mu.Lock()
	s.uses[id]++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.uses[id]--
		s.mu.Unlock()
	}()
	l := &Layer{ID: flat, Dir: filepath.Join(s.path(flat), treeName), Method: Flattened, FlatOf: id, IDs: chain[0].IDs}
	if err := s.flatten(ctx, l, chain); err != nil {
		s.settle(flat, "", nil)
		return Layer{}, storage("flatten the layers of "+id, err)
	}
	s.settle(flat, "", l)
	return *l, nil
}

// FlatOf gives the layer that Flatten has made of a chain, "" if there is none.
func (s *Store) FlatOf(id string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flats[id]
}

func (s *Store) flatten(ctx context.Context, l *Layer, chain []Layer) error {
	roots, done, err := openChain(chain)
	defer done()
	if err != nil {
		return err
	}
	return s.build(l, func(m *maker) error {
		c := &copying{ctx: ctx, clones: true}
		return walk(ctx, s.marks, roots, func(e *entry) error {
			if e.kind == isFile && e.link == "" {
				shared, err := m.share(e)
				if shared || err != nil {
					return err
				}
			}
			return m.make(e, c.content(e))
		})
	})
}

// share makes e another name of the file in the layer that it lies in.
func (m *maker) share(e *entry) (bool, error) {
	dir, err := m.parent(e)
	if err != nil {
		return false, at(e.path, err)
	}
	err = unix.Linkat(e.dir, e.name, dir, path.Base(e.path), 0)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EMLINK) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return false, nil // copied instead
	}
	if err != nil {
		return false, at(e.path, err)
	}
	m.files++
	m.bytes += e.st.Size
	return true, nil
}

// openChain opens the folders of a chain, the highest first.
func openChain(chain []Layer) (roots []int, done func(), err error) {
	done = func() {
		for _, fd := range roots {
			unix.Close(fd)
		}
	}
	for i := len(chain) - 1; i >= 0; i-- {
		fd, err := openTree(chain[i].Dir)
		if err != nil {
			if errors.Is(err, os.ErrNotExist) {
				err = incomplete(chain[i].Dir, "the layer's files are not there")
			}
			return roots, done, err
		}
		roots = append(roots, fd)
	}
	return roots, done, nil
}
