package layers

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Bounds of a canonical form that is read.
const (
	maxEntries = 10_000_000
	maxBytes   = 1 << 40
)

// ReadTar makes a layer of a canonical form, as WriteTar writes it and nothing
// else: what could have been made by another program is refused, with code
// image_invalid. The layer's hash is not known by that: whoever was told one
// compares it with what Hash gives for the files that are now there.
func (s *Store) ReadTar(ctx context.Context, id, parent string, r io.Reader, ids IDs) (Layer, error) {
	if err := s.reserve(id, parent); err != nil {
		return Layer{}, err
	}
	l := &Layer{ID: id, Dir: filepath.Join(s.path(id), treeName), Parent: parent, Method: Imported, IDs: ids}
	err := s.build(l, func(m *maker) error {
		return readTar(ctx, m, ids, r)
	})
	if err != nil {
		s.settle(id, parent, nil)
		return Layer{}, storage("make the layer "+id, err)
	}
	s.settle(id, parent, l)
	return *l, nil
}

func invalid(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeImageInvalid, "read the layer", "export the snapshot again", format, args...)
}

// readTar makes m's tree of a canonical form.
func readTar(ctx context.Context, m *maker, ids IDs, r io.Reader) error {
	t := tar.NewReader(r)
	buf := make([]byte, 256<<10)
	var entries, bytes int64
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return invalid("it is no archive: %w", err)
		}
		if entries++; entries > maxEntries {
			return invalid("it has more than %d entries", maxEntries)
		}
		if h.Size < 0 || h.Size > maxBytes-bytes {
			return invalid("it has more than %d bytes", int64(maxBytes))
		}
		bytes += h.Size
		e, err := entryOf(h, ids)
		if err != nil {
			return err
		}
		if entries == 1 && e.path != "." {
			return invalid("it does not begin with its root")
		}
		if e.kind == isDeletion && e.name == opaqueName {
			if err := m.hide(e); err != nil {
				return err
			}
			continue
		}
		if e.path == "." && entries > 1 {
			return invalid("it has a second root")
		}
		if err := m.make(e, func(f *os.File) error { return fill(ctx, f, t, h.Size, buf) }); err != nil {
			if errors.Is(err, unix.EEXIST) {
				return invalid("%q comes twice", e.path)
			}
			return err
		}
	}
	if entries == 0 {
		return invalid("it is empty")
	}
	return nil
}

// hide marks the folder that e stands in, and that was just made, as opaque.
func (m *maker) hide(e *entry) error {
	d := &m.stack[len(m.stack)-1]
	if d.e.path != path.Dir(e.path) || d.e.path == "." {
		return invalid("%q stands in a folder that cannot hide anything", e.path)
	}
	d.e.opaque = true
	return nil
}

// entryOf gives what a header describes.
func entryOf(h *tar.Header, ids IDs) (*entry, error) {
	e := &entry{}
	var err error
	if e.path, err = cleanPath(strings.TrimSuffix(h.Name, "/")); err != nil {
		return nil, err
	}
	if strings.HasSuffix(h.Name, "/") != (h.Typeflag == tar.TypeDir) {
		return nil, invalid("%q is named like something else than it is", h.Name)
	}
	if e.name = path.Base(e.path); len(h.Linkname) > 4096 {
		return nil, invalid("%q is a link with a target that is too long", h.Name)
	}
	literal := false
	for key, value := range h.PAXRecords {
		name, isXattr := strings.CutPrefix(key, paxXattr)
		switch {
		case isXattr:
			if !keptXattr(name) && !strings.HasPrefix(name, string(trustedMarks)) || len(value) > maxXattrValue || len(e.xattrs) >= maxXattrs {
				return nil, invalid("%q has an attribute %q, which no layer has", h.Name, name)
			}
			e.xattrs = append(e.xattrs, xattr{name, value})
		case key == paxLiteral && value == "1":
			literal = true
		case key == paxType && value == "socket" && h.Typeflag == tar.TypeFifo:
		case key == "path", key == "linkpath", key == "mtime", key == "uid", key == "gid", key == "size":
		default:
			return nil, invalid("%q has a record %q, which no layer has", h.Name, key)
		}
	}
	if strings.HasPrefix(e.name, deletionPrefix) && !literal {
		return deletionOf(e, h)
	}
	e.st.Mode = uint32(h.Mode) & 0o7777
	e.st.Mtim = unix.NsecToTimespec(h.ModTime.UnixNano())
	e.st.Size = h.Size
	if h.Uid < 0 || h.Gid < 0 || int64(h.Uid) > 1<<32-2 || int64(h.Gid) > 1<<32-2 || h.Mode&^0o7777 != 0 {
		return nil, invalid("%q has an owner or a mode that cannot be", h.Name)
	}
	if e.st.Uid, err = onDisk(ids.UID, uint32(h.Uid)); err != nil {
		return nil, err
	}
	if e.st.Gid, err = onDisk(ids.GID, uint32(h.Gid)); err != nil {
		return nil, err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		e.kind = isDir
	case tar.TypeReg:
		e.kind = isFile
	case tar.TypeSymlink:
		e.kind, e.target = isSymlink, h.Linkname
		if e.target == "" || strings.IndexByte(e.target, 0) >= 0 {
			return nil, invalid("%q is a link with a target that cannot be", h.Name)
		}
	case tar.TypeFifo:
		e.kind = isFifo
		if h.PAXRecords[paxType] != "" {
			e.kind = isSocket
		}
	case tar.TypeLink:
		e.kind = isFile
		if e.link, err = cleanPath(h.Linkname); err != nil {
			return nil, err
		}
		if e.link == "." {
			return nil, invalid("%q is a link to the root", h.Name)
		}
	default:
		return nil, invalid("%q is of the type %q, which no layer has", h.Name, h.Typeflag)
	}
	return e, nil
}

func deletionOf(e *entry, h *tar.Header) (*entry, error) {
	if h.Typeflag != tar.TypeReg || h.Size != 0 || len(e.xattrs) > 0 {
		return nil, invalid("%q is no deletion", h.Name)
	}
	e.kind = isDeletion
	if e.name == opaqueName {
		return e, nil
	}
	gone := strings.TrimPrefix(e.name, deletionPrefix)
	if gone == "" || gone == "." || gone == ".." {
		return nil, invalid("%q deletes what cannot be", h.Name)
	}
	e.path, e.name = path.Join(path.Dir(e.path), gone), gone
	return e, nil
}

// cleanPath accepts the names that WriteTar gives.
func cleanPath(p string) (string, error) {
	if p == "." {
		return p, nil
	}
	if len(p) > maxPath {
		return "", invalid("a name has %d bytes", len(p))
	}
	depth := 0
	for part := range strings.SplitSeq(p, "/") {
		if part == "" || part == "." || part == ".." || len(part) > maxName || strings.IndexByte(part, 0) >= 0 {
			return "", invalid("the name %.200q cannot be", p)
		}
		if depth++; depth > maxDepth {
			return "", invalid("folders are nested more than %d deep", maxDepth)
		}
	}
	return p, nil
}

// fill writes size bytes of r; stretches of zeros become holes.
func fill(ctx context.Context, f *os.File, r io.Reader, size int64, buf []byte) error {
	var at int64
	for at < size {
		if err := ctx.Err(); err != nil {
			return err
		}
		p := buf[:min(int64(len(buf)), size-at)]
		if _, err := io.ReadFull(r, p); err != nil {
			return invalid("it ends in the middle of a file: %w", err)
		}
		if !zeros(p) {
			if _, err := f.WriteAt(p, at); err != nil {
				return fmt.Errorf("write: %w", err)
			}
		}
		at += int64(len(p))
	}
	if size == 0 {
		return nil
	}
	return f.Truncate(size)
}

func zeros(p []byte) bool {
	for _, b := range p {
		if b != 0 {
			return false
		}
	}
	return true
}
