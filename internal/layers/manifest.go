package layers

import (
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/store/records"
)

const manifestVersion = 1

// line is what a manifest says about one entry of a layer.
type line struct {
	path     string
	kind     kind
	mode     uint32
	uid, gid uint32
	size     int64
	mtime    unix.Timespec
	opaque   bool
	link     string
	xattrs   [32]byte // a hash of them and of a link's target
	sum      [32]byte // of the content
	ino      uint64
	ctime    unix.Timespec
}

// lineOf describes an entry whose content has gone through sum.
func lineOf(e *entry, sum hash.Hash) line {
	l := line{path: e.path, kind: e.kind, mode: e.st.Mode, uid: e.st.Uid, gid: e.st.Gid, mtime: e.st.Mtim,
		opaque: e.opaque, link: e.link, xattrs: wordsOf(e), ino: e.st.Ino, ctime: e.st.Ctim}
	if e.kind == isFile {
		l.size = e.st.Size
		l.sum = digestOf(sum)
	}
	if e.kind == isDeletion { // nothing of it but its name means anything
		return line{path: e.path, kind: isDeletion}
	}
	return l
}

// wordsOf hashes attributes and target.
func wordsOf(e *entry) [32]byte {
	if len(e.xattrs) == 0 && e.target == "" {
		return [32]byte{}
	}
	h := sha256.New()
	w := records.NewWriter(h)
	w.String(e.target)
	for _, x := range e.xattrs {
		w.String(x.name)
		w.Raw(sumOf(x.value))
	}
	w.End()
	w.Flush()
	return digestOf(h)
}

func sumOf(s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return sum[:]
}

// manifestWriter writes a manifest: a record for its version, one for each entry
// in the order of the walk, and one with their number.
type manifestWriter struct {
	w *records.Writer
	n uint64
}

func newManifest(w io.Writer) *manifestWriter {
	m := &manifestWriter{w: records.NewWriter(w)}
	m.w.Uint(manifestVersion)
	m.w.End()
	return m
}

func (m *manifestWriter) add(l line) error {
	m.n++
	m.w.String(l.path)
	m.w.Uint(uint64(l.kind))
	m.w.Uint(uint64(l.mode))
	m.w.Uint(uint64(l.uid))
	m.w.Uint(uint64(l.gid))
	m.w.Int(l.size)
	m.w.Int(l.mtime.Sec)
	m.w.Int(l.mtime.Nsec)
	m.w.Bool(l.opaque)
	m.w.String(l.link)
	m.w.Raw(l.xattrs[:])
	m.w.Raw(l.sum[:])
	m.w.Uint(l.ino)
	m.w.Int(l.ctime.Sec)
	m.w.Int(l.ctime.Nsec)
	return m.w.End()
}

func (m *manifestWriter) end() error {
	m.w.String("")
	m.w.Uint(m.n)
	if err := m.w.End(); err != nil {
		return err
	}
	return m.w.Flush()
}

// manifestReader reads a manifest.
type manifestReader struct {
	r *records.Reader
	n uint64
}

func openManifest(r io.Reader) (*manifestReader, error) {
	m := &manifestReader{r: records.NewReader(r)}
	if err := m.r.Next(); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	if m.r.Uint() != manifestVersion {
		return nil, errors.New("it is of another version")
	}
	return m, m.r.End()
}

// next gives the next line; io.EOF after the last one of a whole manifest.
func (m *manifestReader) next() (l line, err error) {
	if err := m.r.Next(); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return line{}, err
	}
	r := m.r
	if l.path = r.String(); l.path == "" {
		n := r.Uint()
		if err := r.End(); err != nil || n != m.n {
			return line{}, records.ErrDamaged
		}
		return line{}, io.EOF
	}
	m.n++
	l.kind = kind(r.Uint())
	l.mode = uint32(r.Uint())
	l.uid = uint32(r.Uint())
	l.gid = uint32(r.Uint())
	l.size = r.Int()
	l.mtime.Sec = r.Int()
	l.mtime.Nsec = r.Int()
	l.opaque = r.Bool()
	l.link = r.String()
	copy(l.xattrs[:], r.Raw(32))
	copy(l.sum[:], r.Raw(32))
	l.ino = r.Uint()
	l.ctime.Sec = r.Int()
	l.ctime.Nsec = r.Int()
	return l, r.End()
}
