package workspace

import (
	"bufio"
	"encoding/gob"
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// ManifestName is the file beside layer/tree that says what was copied.
const ManifestName = "manifest"

// Entry is one line of a manifest: a host file as it was copied, and enough
// of the copy to see later that nobody touched it. The order is that of a
// walk that goes into each folder as it meets it, names in byte order; see
// ComparePaths.
type Entry struct {
	Path   string // relative to the root; "." is the root
	Host   Identity
	Copy   Identity
	Target string // of a symbolic link
	Xattrs uint64 // HashXattrs of its attributes
}

// Identity is what tells one state of a file from another.
type Identity struct {
	Dev, Ino   uint64
	Mode       uint32 // st_mode: type and permissions
	UID, GID   uint32
	Nlink      uint64
	Size       int64
	Mtime      int64 // nanoseconds since 1970
	Ctime      int64 // nanoseconds since 1970
	Rdev       uint64
	HasContent bool     // Sum is set
	Sum        [32]byte // SHA-256 of the content, where it was read anyway
}

// IdentityOf takes the identity from a stat.
func IdentityOf(st *unix.Stat_t) Identity {
	return Identity{
		Dev: st.Dev, Ino: st.Ino, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Nlink: uint64(st.Nlink),
		Size: st.Size, Mtime: st.Mtim.Nano(), Ctime: st.Ctim.Nano(), Rdev: st.Rdev,
	}
}

// Same says whether nothing that the kernel tells has changed between the
// two. The number of links is left out: a new link changes no content.
func (a Identity) Same(b Identity) bool {
	return a.Dev == b.Dev && a.Ino == b.Ino && a.Mode == b.Mode && a.UID == b.UID && a.GID == b.GID &&
		a.Size == b.Size && a.Mtime == b.Mtime && a.Ctime == b.Ctime && a.Rdev == b.Rdev
}

// HashXattrs gives a hash of attributes that does not depend on their order;
// 0 for none. What the system labels files with by itself does not count. It
// tells changes apart, not enemies.
func HashXattrs(list []Xattr) uint64 {
	var sorted []Xattr
	for _, x := range list {
		switch {
		case x.Name == "security.selinux", x.Name == "security.ima", x.Name == "security.evm", strings.HasPrefix(x.Name, "trusted."):
		default:
			sorted = append(sorted, x)
		}
	}
	if len(sorted) == 0 {
		return 0
	}
	sort.Slice(sorted, func(i, j int) bool { return sorted[i].Name < sorted[j].Name })
	h := fnv.New64a()
	for _, x := range sorted {
		io.WriteString(h, x.Name)
		h.Write([]byte{0, byte(len(x.Value)), byte(len(x.Value) >> 8), byte(len(x.Value) >> 16)})
		h.Write(x.Value)
	}
	return h.Sum64() | 1
}

// ComparePaths orders relative paths as a walk meets them: "a/z" comes before
// "a-b", because the walk is still in a. "." comes first.
func ComparePaths(a, b string) int {
	if a == b {
		return 0
	}
	if a == "." {
		return -1
	}
	if b == "." {
		return 1
	}
	// A slash ends a name, and so sorts before all bytes that continue one.
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			if a[i] == '/' {
				return -1
			}
			if b[i] == '/' {
				return 1
			}
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}

type manifestWriter struct {
	f   *os.File
	buf *bufio.Writer
	enc *gob.Encoder
}

func newManifest(path string) (*manifestWriter, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	m := &manifestWriter{f: f, buf: bufio.NewWriterSize(f, 1<<16)}
	m.enc = gob.NewEncoder(m.buf)
	return m, nil
}

func (m *manifestWriter) close() error {
	// The end is marked, so that a manifest that was cut short is not
	// taken for one of a smaller tree.
	err := m.enc.Encode(&Entry{})
	if ferr := m.buf.Flush(); err == nil {
		err = ferr
	}
	if cerr := m.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Manifest reads a manifest entry by entry.
type Manifest struct {
	f   *os.File
	dec *gob.Decoder
}

// OpenManifest opens the manifest of the layer folder.
func OpenManifest(layer string) (*Manifest, error) {
	f, err := os.Open(filepath.Join(layer, ManifestName))
	if err != nil {
		return nil, err
	}
	return &Manifest{f, gob.NewDecoder(bufio.NewReaderSize(f, 1<<16))}, nil
}

// Next gives the next entry, io.EOF after the last, and
// io.ErrUnexpectedEOF when the manifest was not finished.
func (m *Manifest) Next() (Entry, error) {
	var e Entry
	if err := m.dec.Decode(&e); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return Entry{}, err
	}
	if e.Path == "" {
		return Entry{}, io.EOF
	}
	if !filepath.IsLocal(e.Path) || strings.Contains(e.Path, "//") {
		return Entry{}, errors.New("the manifest names a path outside its root")
	}
	return e, nil
}

// Close closes the manifest.
func (m *Manifest) Close() error { return m.f.Close() }
