package layers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/faults"
)

// Hash gives the content hash of a layer, the sha256 of its canonical form,
// computing it when it is not known. It is kept beside the layer, with a list of
// all paths, which Verify compares. Once it is known the layer is on the disk. A
// layer that changes meanwhile, which none does, would be an error.
func (s *Store) Hash(ctx context.Context, id string) (string, error) {
	l, err := s.Get(id)
	if err != nil || l.Hash != "" {
		return l.Hash, err
	}
	select {
	case <-s.hashing: // one at a time: it is work for the background
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { s.hashing <- struct{}{} }()
	if l, err = s.Get(id); err != nil || l.Hash != "" {
		return l.Hash, err
	}
	if err := s.compute(ctx, &l); err != nil {
		return "", storage("hash the layer "+id, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[id]; known != nil {
		known.Hash, known.Size, known.Files, known.Bytes = l.Hash, l.Size, l.Files, l.Bytes
	}
	return l.Hash, nil
}

// compute hashes a layer and writes manifest and description.
func (s *Store) compute(ctx context.Context, l *Layer) error {
	dir := s.path(l.ID)
	if err := syncFS(dir); err != nil {
		return err
	}
	sum, err := s.describe(ctx, l)
	if err != nil {
		return err
	}
	faults.Trace("layers.hash.listed")
	l.Hash = sum
	old, err := readMeta(dir)
	if err != nil {
		old.Created = time.Now()
	}
	return writeMeta(dir, l.meta(old.Created), true)
}

// describe gives the hash and writes the manifest.
func (s *Store) describe(ctx context.Context, l *Layer) (sum string, err error) {
	l.Files, l.Bytes = 0, 0
	whole := sha256.New()
	var size counter
	err = replace(filepath.Join(s.path(l.ID), manifestName), true, func(w io.Writer) error {
		m := newManifest(w)
		c := newCanon(io.MultiWriter(whole, &size), l.IDs)
		one := sha256.New()
		c.content = func(*entry) io.Writer { return one }
		roots, done, err := openChain([]Layer{*l})
		defer done()
		if err != nil {
			return err
		}
		err = walk(ctx, s.marks, roots, func(e *entry) error {
			one.Reset()
			if err := c.entry(e); err != nil {
				return err
			}
			l.Files++
			if e.kind == isFile && e.link == "" {
				l.Bytes += e.st.Size
			}
			return m.add(lineOf(e, one))
		})
		if err != nil {
			return err
		}
		if err := c.w.Close(); err != nil {
			return err
		}
		return m.end()
	})
	l.Size = int64(size)
	return "sha256:" + hex.EncodeToString(whole.Sum(nil)), err
}

// counter counts what is written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

func digestOf(h hash.Hash) (d [32]byte) {
	h.Sum(d[:0])
	return d
}

// syncFS writes what a file system has in memory to its disk.
func syncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd()))
}
