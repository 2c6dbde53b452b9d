package layers

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// recover reads what layers there are, and ends what a death has interrupted. A
// layer in the making that has both its files and its description is ready: the
// last of the two is written when nothing else is left to do. Any other one is
// removed: nobody was told of it.
func (s *Store) recover() error {
	const what = "read the layers"
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return storage(what, err)
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(s.dir, name)
		id, making := strings.CutPrefix(name, newPrefix)
		switch {
		case strings.HasPrefix(name, gonePrefix):
			if err := folder.RemoveTree(path); err != nil {
				return err
			}
			continue
		case making:
			done, err := s.finish(id, path)
			if err != nil {
				return err
			}
			if !done {
				continue
			}
			name, path = id, filepath.Join(s.dir, id)
		case !validID(name):
			continue // not ours
		}
		m, err := readMeta(path)
		if err != nil || m.ID != name {
			continue // Get says that it is damaged; gc may remove it
		}
		s.learn(m.layer(path))
	}
	return nil
}

// finish puts a layer in the making into its place if it is ready.
func (s *Store) finish(id, path string) (done bool, err error) {
	m, merr := readMeta(path)
	fi, ferr := os.Lstat(filepath.Join(path, treeName))
	if merr == nil && m.ID == id && ferr == nil && fi.IsDir() {
		err := os.Rename(path, filepath.Join(s.dir, id))
		if err == nil {
			return true, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return false, storage("finish the layer "+id, err)
		}
	}
	return false, folder.RemoveTree(path)
}
