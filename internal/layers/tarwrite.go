package layers

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// The names that mean deletion in an OCI layer (image-spec, layer.md), and the
// records of extended attributes as tar and image builders write them.
const (
	deletionPrefix = ".wh."
	opaqueName     = ".wh..wh..opq"
	paxXattr       = "SCHILY.xattr."
)

// Records for what an OCI layer has no words for. Other readers pass them over.
const (
	// paxLiteral stands at a file whose name looks like a deletion and is none.
	paxLiteral = "BAILEY.literal"
	// paxType says that what looks like a pipe is a socket.
	paxType = "BAILEY.type"
)

// A canonical form holds holes as zeros. A sandbox can make a file of exabytes
// that takes no room; what is more than logicalFree bytes and more than
// logicalTimes what it takes on disk is not hashed.
const (
	logicalFree  = 64 << 30
	logicalTimes = 16
)

// canon writes the canonical form of what a walk meets: an uncompressed tar in
// the order of the walk, in the form pax, whose every byte follows from the
// layer's content.
type canon struct {
	w       *tar.Writer
	ids     IDs
	buf     []byte
	logical int64
	blocks  int64
	// content, when given, sees the bytes of each file too.
	content func(e *entry) io.Writer
}

func newCanon(w io.Writer, ids IDs) *canon {
	return &canon{w: tar.NewWriter(w), ids: ids, buf: make([]byte, 256<<10)}
}

func (c *canon) entry(e *entry) error {
	h := &tar.Header{
		Name: e.path, Mode: int64(e.st.Mode & 0o7777), Format: tar.FormatPAX,
		Uid: int(inside(c.ids.UID, e.st.Uid)), Gid: int(inside(c.ids.GID, e.st.Gid)),
		ModTime:    time.Unix(e.st.Mtim.Sec, e.st.Mtim.Nsec),
		PAXRecords: map[string]string{},
	}
	if e.kind == isDeletion {
		return c.w.WriteHeader(deletion(e.path, deletionPrefix+e.name))
	}
	if strings.HasPrefix(e.name, deletionPrefix) {
		h.PAXRecords[paxLiteral] = "1"
	}
	for _, x := range e.xattrs {
		h.PAXRecords[paxXattr+x.name] = x.value
	}
	switch e.kind {
	case isDir:
		h.Typeflag, h.Name = tar.TypeDir, e.path+"/"
	case isFile:
		h.Typeflag, h.Size = tar.TypeReg, e.st.Size
	case isSymlink:
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.target, 0o777
	case isSocket:
		h.Typeflag = tar.TypeFifo
		h.PAXRecords[paxType] = "socket"
	case isFifo:
		h.Typeflag = tar.TypeFifo
	}
	if e.link != "" {
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, e.link, 0
		for k := range h.PAXRecords {
			if k != paxLiteral {
				delete(h.PAXRecords, k) // they are the file's, which has been told
			}
		}
	}
	if err := c.w.WriteHeader(h); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeReg && h.Size > 0 {
		return c.body(e)
	}
	if e.kind == isDir && e.opaque {
		return c.w.WriteHeader(deletion(path.Join(e.path, opaqueName), opaqueName))
	}
	return nil
}

// deletion is the entry that says base in the folder of p.
func deletion(p, base string) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(path.Dir(p), base), Mode: 0o644, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
}

func (c *canon) body(e *entry) error {
	c.logical += e.st.Size
	c.blocks += e.st.Blocks * 512
	if c.logical > logicalFree && c.logical/logicalTimes > c.blocks {
		return bailey.Errorf(bailey.CodeTooLarge, "read the layer", "remove the file, and take another snapshot",
			"%q makes it %d bytes that are nearly all holes", e.path, c.logical)
	}
	f, err := e.open()
	if err != nil {
		return err
	}
	defer f.Close()
	w := io.Writer(c.w)
	if c.content != nil {
		w = io.MultiWriter(c.w, c.content(e))
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{io.LimitReader(f, e.st.Size)}, c.buf)
	if err == nil && n != e.st.Size {
		err = fmt.Errorf("it has %d bytes and not %d", n, e.st.Size)
	}
	return err
}

// WriteTar writes the canonical form of one layer: an uncompressed OCI layer.
func (s *Store) WriteTar(ctx context.Context, id string, w io.Writer) error {
	l, err := s.Get(id)
	if err != nil {
		return err
	}
	return storage("write the layer "+id, s.canonical(ctx, l, newCanon(w, l.IDs)))
}

func (s *Store) canonical(ctx context.Context, l Layer, c *canon) error {
	roots, done, err := openChain([]Layer{l})
	defer done()
	if err != nil {
		return err
	}
	if err := walk(ctx, s.marks, roots, c.entry); err != nil {
		return err
	}
	return c.w.Close()
}
