package layers

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Verify compares the files of a chain with what they were when they were hashed.
// Owners, modes, times, sizes, attributes and targets are always compared; the
// content of a file is, when the kernel says that the file was touched since, and
// with full in any case. The error has code restore_incomplete and names the first
// path that is not as it was. verified is false if some layer has no hash yet.
func (s *Store) Verify(ctx context.Context, id string, full bool) (verified bool, err error) {
	chain, err := s.Chain(id)
	if err != nil {
		return false, err
	}
	verified = true
	for _, l := range chain {
		if l.Hash == "" {
			verified = false
			continue
		}
		if err := s.verify(ctx, l, full); err != nil {
			return false, storage("verify the layer "+l.ID, err)
		}
	}
	return verified, nil
}

func (s *Store) verify(ctx context.Context, l Layer, full bool) error {
	list := filepath.Join(s.path(l.ID), manifestName)
	f, err := os.Open(list)
	if err != nil {
		return incomplete(list, "the list of the layer's files cannot be read")
	}
	defer f.Close()
	m, err := openManifest(f)
	if err != nil {
		return incomplete(list, "the list of the layer's files is damaged")
	}
	roots, done, err := openChain([]Layer{l})
	defer done()
	if err != nil {
		return err
	}
	late := ""
	err = walk(ctx, s.marks, roots, func(e *entry) error {
		was, err := m.next()
		if errors.Is(err, io.EOF) {
			return incomplete(filepath.Join(l.Dir, e.path), "it was not there")
		}
		if err != nil {
			return incomplete(list, "the list of the layer's files is damaged")
		}
		if was.path != e.path {
			var st unix.Stat_t
			missing := filepath.Join(l.Dir, was.path)
			if unix.Lstat(missing, &st) != nil {
				return incomplete(missing, "it is gone")
			}
			return incomplete(filepath.Join(l.Dir, e.path), "it was not there")
		}
		if e.kind == isDir && was.kind == isDir && e.st.Mtim != was.mtime {
			if late == "" { // because of something in it, which is the better name
				late = filepath.Join(l.Dir, e.path)
			}
			was.mtime = e.st.Mtim
		}
		return compare(l.Dir, e, was, full)
	})
	if err != nil {
		return err
	}
	was, err := m.next()
	if err == nil {
		return incomplete(filepath.Join(l.Dir, was.path), "it is gone")
	}
	if !errors.Is(err, io.EOF) {
		return incomplete(list, "the list of the layer's files is damaged")
	}
	if late != "" {
		return incomplete(late, "its time has changed")
	}
	return nil
}

// compare says what of an entry is not as it was.
func compare(dir string, e *entry, was line, full bool) error {
	path := filepath.Join(dir, e.path)
	now := lineOf(e, sha256.New())
	now.sum = was.sum
	now.ino, now.ctime = was.ino, was.ctime
	if now != was {
		why := "its owner, mode, time or attributes have changed"
		switch {
		case now.kind != was.kind:
			why = "it is something else now"
		case now.size != was.size:
			why = "its size has changed"
		}
		return incomplete(path, why)
	}
	if e.kind != isFile || e.link != "" || !full && e.st.Ino == was.ino && e.st.Ctim == was.ctime {
		return nil
	}
	f, err := e.open()
	if err != nil {
		return incomplete(path, "it cannot be read: "+err.Error())
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return incomplete(path, "it cannot be read: "+err.Error())
	}
	if digestOf(h) != was.sum {
		return incomplete(path, "its content has changed")
	}
	return nil
}
