package layers

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/faults"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Capture copies upper into a layer while the sandbox is frozen: sharing blocks
// where the file system can, else the parts that are data. upper goes on being
// used. The layer is Reflinked if every file that has content was cloned.
func (s *Store) Capture(ctx context.Context, id, parent, upper string, ids IDs) (Layer, error) {
	if err := s.reserve(id, parent); err != nil {
		return Layer{}, err
	}
	l := &Layer{ID: id, Dir: filepath.Join(s.path(id), treeName), Parent: parent, IDs: ids}
	if err := s.capture(ctx, l, upper); err != nil {
		s.settle(id, parent, nil)
		return Layer{}, storage("capture the sandbox's files", err)
	}
	s.settle(id, parent, l)
	return *l, nil
}

func (s *Store) capture(ctx context.Context, l *Layer, upper string) error {
	from, err := openTree(upper)
	if err != nil {
		return err
	}
	defer unix.Close(from)
	return s.build(l, func(m *maker) error {
		c := &copying{ctx: ctx, clones: true}
		err := walk(ctx, s.marks, []int{from}, func(e *entry) error { return m.make(e, c.content(e)) })
		l.Method = Copied
		if c.cloned && !c.copied {
			l.Method = Reflinked
		}
		return err
	})
}

// build makes the layer l of a tree that fill makes.
func (s *Store) build(l *Layer, fill func(*maker) error) error {
	tmp, err := s.staging(l.ID)
	if err != nil {
		return err
	}
	faults.Trace("layers.build.begun")
	err = func() error {
		dir := filepath.Join(tmp, treeName)
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		m, err := newMaker(dir, s.marks)
		if err != nil {
			return err
		}
		defer m.close()
		if err := fill(m); err != nil {
			return err
		}
		if err := m.finish(); err != nil {
			return err
		}
		l.Files, l.Bytes = m.files, m.bytes
		return s.place(l, tmp)
	}()
	if err != nil {
		return errors.Join(err, folder.RemoveTree(tmp))
	}
	return nil
}

// smallFile is the size, in bytes, up to which a file that is no hole is copied in
// one piece: most have less, and asking for holes and ranges takes longer.
const smallFile = 128 << 10

// small copies a small file.
func (c *copying) small(src, dst *os.File, size int) error {
	if c.buf == nil {
		c.buf = make([]byte, smallFile)
	}
	if _, err := io.ReadFull(src, c.buf[:size]); err != nil {
		return err
	}
	_, err := dst.Write(c.buf[:size])
	return err
}

// copying copies contents, by clones for as long as they work.
type copying struct {
	ctx    context.Context
	clones bool
	cloned bool // a file was
	copied bool // a file was not
	buf    []byte
}

func (c *copying) content(e *entry) func(*os.File) error {
	return func(dst *os.File) error {
		if e.st.Size == 0 {
			return nil
		}
		src, err := e.open()
		if err != nil {
			return err
		}
		defer src.Close()
		if c.clones {
			err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
			if err == nil {
				c.cloned = true
				return nil
			}
			// EINVAL can be one file's; anything else but a full disk means that the
			// next one will not do either. What is wrong shows when it is copied.
			c.clones = errors.Is(err, unix.EINVAL)
		}
		c.copied = true
		if e.st.Size <= smallFile && e.st.Blocks > 0 {
			return c.small(src, dst, int(e.st.Size))
		}
		return workspace.CopyContent(c.ctx, src, dst, e.st.Size)
	}
}
