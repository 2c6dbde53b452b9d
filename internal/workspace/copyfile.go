package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// file copies a regular file's content: as a clone where the file system can,
// else the parts that are data, leaving holes holes.
func (c *copier) file(from, to int, name, p string, st *unix.Stat_t) error {
	in, err := unix.Openat(from, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: p, Err: err}
	}
	src := os.NewFile(uintptr(in), p)
	defer src.Close()
	var now unix.Stat_t
	if err := unix.Fstat(in, &now); err != nil {
		return err
	}
	if now.Ino != st.Ino || now.Dev != st.Dev {
		return fmt.Errorf("%q was replaced while it was copied", p)
	}
	out, err := unix.Openat(to, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return &os.PathError{Op: "create", Path: p, Err: err}
	}
	dst := os.NewFile(uintptr(out), p)
	defer dst.Close()
	if err := c.content(src, dst, p, &now); err != nil {
		return err
	}
	// A file that is written to at this moment would be half old, half new.
	if err := unix.Fstat(in, st); err != nil {
		return err
	}
	if st.Size != now.Size || st.Mtim != now.Mtim {
		return fmt.Errorf("%q was changed while it was copied", p)
	}
	return nil
}

func (c *copier) content(src, dst *os.File, p string, st *unix.Stat_t) error {
	if st.Size == 0 {
		return nil
	}
	if c.clones {
		err := unix.IoctlFileClone(int(dst.Fd()), int(src.Fd()))
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EINVAL) &&
			!errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EPERM) {
			return &os.PathError{Op: "clone", Path: p, Err: err}
		}
		// EINVAL can be one file's (a swap file, say); the others mean that
		// the next file will not do either.
		c.clones = errors.Is(err, unix.EINVAL)
	}
	if err := dst.Truncate(st.Size); err != nil {
		return err
	}
	for at := int64(0); at < st.Size; {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		start, err := unix.Seek(int(src.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole from here on
		}
		end := st.Size
		if err != nil {
			start = at // the file system knows no holes
		} else if end, err = unix.Seek(int(src.Fd()), start, unix.SEEK_HOLE); err != nil || end > st.Size {
			end = st.Size
		}
		if c.left -= end - start; c.left < 0 {
			return tooLarge(c.limit-c.left, c.limit)
		}
		if err := c.extent(src, dst, start, end); err != nil {
			return &os.PathError{Op: "copy", Path: p, Err: err}
		}
		at = end
	}
	return nil
}

func (c *copier) extent(src, dst *os.File, start, end int64) error {
	r, w := start, start
	for r < end {
		n, err := unix.CopyFileRange(int(src.Fd()), &r, int(dst.Fd()), &w, int(min(end-r, 1<<30)), 0)
		if err == nil && n > 0 {
			continue
		}
		if err == nil {
			break // shorter than it said, or a file system that copies nothing so
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) {
			break
		}
		return err
	}
	if r < end && c.buf == nil {
		c.buf = make([]byte, 256<<10)
	}
	for r < end {
		n, err := src.ReadAt(c.buf[:min(int64(len(c.buf)), end-r)], r)
		if n > 0 {
			if _, err := dst.WriteAt(c.buf[:n], r); err != nil {
				return err
			}
			r += int64(n)
		}
		if errors.Is(err, io.EOF) && r < end {
			return io.ErrUnexpectedEOF
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// CopyContent copies src's size bytes to the empty file dst: as a clone where
// the file system can, else leaving holes holes.
func CopyContent(ctx context.Context, src, dst *os.File, size int64) error {
	c := &copier{ctx: ctx, limit: size, left: size, clones: true}
	return c.content(src, dst, src.Name(), &unix.Stat_t{Size: size})
}
