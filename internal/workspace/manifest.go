package workspace

import (
	"errors"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/store/records"
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

// Write appends the identity to a record.
func (a Identity) Write(w *records.Writer) {
	w.Uint(a.Dev)
	w.Uint(a.Ino)
	w.Uint(uint64(a.Mode))
	w.Uint(uint64(a.UID))
	w.Uint(uint64(a.GID))
	w.Uint(a.Nlink)
	w.Int(a.Size)
	w.Int(a.Mtime)
	w.Int(a.Ctime)
	w.Uint(a.Rdev)
	w.Bool(a.HasContent)
	w.Raw(a.Sum[:])
}

// ReadIdentity takes an identity from a record.
func ReadIdentity(r *records.Reader) Identity {
	a := Identity{
		Dev: r.Uint(), Ino: r.Uint(), Mode: uint32(r.Uint()), UID: uint32(r.Uint()), GID: uint32(r.Uint()), Nlink: r.Uint(),
		Size: r.Int(), Mtime: r.Int(), Ctime: r.Int(), Rdev: r.Uint(), HasContent: r.Bool(),
	}
	copy(a.Sum[:], r.Raw(uint64(len(a.Sum))))
	return a
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

// manifestVersion is the first field of a manifest.
const manifestVersion = 1

type manifestWriter struct {
	f *os.File
	w *records.Writer
}

func newManifest(path string) (*manifestWriter, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	m := &manifestWriter{f, records.NewWriter(f)}
	m.w.Uint(manifestVersion)
	return m, m.w.End()
}

func (m *manifestWriter) add(e *Entry) error {
	m.w.String(e.Path)
	e.Host.Write(m.w)
	e.Copy.Write(m.w)
	m.w.String(e.Target)
	m.w.Uint(e.Xattrs)
	return m.w.End()
}

func (m *manifestWriter) close() error {
	// The end is marked, so that a manifest that was cut short is not
	// taken for one of a smaller tree.
	err := m.add(&Entry{})
	if ferr := m.w.Flush(); err == nil {
		err = ferr
	}
	if cerr := m.f.Close(); err == nil {
		err = cerr
	}
	return err
}

// Manifest reads a manifest entry by entry.
type Manifest struct {
	f     *os.File
	r     *records.Reader
	begun bool
}

// OpenManifest opens the manifest of the layer folder.
func OpenManifest(layer string) (*Manifest, error) {
	f, err := os.Open(filepath.Join(layer, ManifestName))
	if err != nil {
		return nil, err
	}
	return &Manifest{f: f, r: records.NewReader(f)}, nil
}

func (m *Manifest) begin() error {
	m.begun = true
	if err := m.next(); err != nil {
		return err
	}
	if v := m.r.Uint(); m.r.End() != nil || v != manifestVersion {
		return errors.New("the manifest is of another version of Bailey")
	}
	return nil
}

func (m *Manifest) next() error {
	err := m.r.Next()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// Next gives the next entry, io.EOF after the last, and
// io.ErrUnexpectedEOF when the manifest was not finished.
func (m *Manifest) Next() (Entry, error) {
	if !m.begun {
		if err := m.begin(); err != nil {
			return Entry{}, err
		}
	}
	if err := m.next(); err != nil {
		return Entry{}, err
	}
	e := Entry{Path: m.r.String(), Host: ReadIdentity(m.r), Copy: ReadIdentity(m.r), Target: m.r.String(), Xattrs: m.r.Uint()}
	if err := m.r.End(); err != nil {
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
