package changes

import (
	"encoding/base64"
	"encoding/json"
	"path/filepath"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Op is what happened to a path.
type Op string

// The operations.
const (
	Added    Op = "added"
	Modified Op = "modified"
	Deleted  Op = "deleted"
)

// Kind is what a path is.
type Kind string

// The kinds of files.
const (
	None    Kind = ""
	File    Kind = "file"
	Dir     Kind = "folder"
	Symlink Kind = "symlink"
	FIFO    Kind = "fifo"
	Socket  Kind = "socket"
	Device  Kind = "device"
)

func kindOf(mode uint32) Kind {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return File
	case unix.S_IFDIR:
		return Dir
	case unix.S_IFLNK:
		return Symlink
	case unix.S_IFIFO:
		return FIFO
	case unix.S_IFSOCK:
		return Socket
	}
	return Device
}

// Change is one path that a run added, modified or deleted. A folder that
// went is one change, and so is every file that was in it.
type Change struct {
	Root int    // index into Set.Roots
	Path string // relative to the root; any bytes but NUL
	Op   Op
	Was  Kind // None when added
	Is   Kind // None when deleted

	// What differs, for a modification.
	Content, Mode, Owner, Xattr bool

	OldTarget, Target string // of symbolic links
	Binary            bool   // either side has a NUL byte near its start
	Marks             []Mark // why it would execute, or lead outside, on the host

	// Host is the host's file when the set was made; zero when added.
	Host workspace.Identity
	// Layer is the layer's file; zero when deleted.
	Layer workspace.Identity
	// Stale says that the host's file was changed while the run went on, so
	// that what the sandbox started from is unknown.
	Stale bool
	// Base is where in the run's file of bases Seal kept the host's content,
	// plus one; 0 when it kept none. It has Host.Size bytes.
	Base int64
}

// TypeChanged says whether one kind of file took another's place.
func (c *Change) TypeChanged() bool { return c.Op == Modified && c.Was != c.Is }

// Mark says that a change matters to the host beyond its content.
type Mark struct {
	Class string `json:"class"` // stable, such as git_hook; see ExecutesOnHost
	Why   string `json:"why"`   // one sentence for people
}

// Set is all that a run did, ordered by root and then as a walk meets the
// paths (see workspace.ComparePaths).
type Set struct {
	Run     string // the run's id
	Roots   []folder.Root
	Changes []Change
}

// Display gives a change's path for people, escaped: relative for the
// workspace, absolute for other roots.
func (s *Set) Display(c *Change) string {
	if c.Root == 0 {
		return Printable(c.Path)
	}
	return Printable(filepath.Join(s.Roots[c.Root].Path, c.Path))
}

// MarshalJSON writes the change as the command line's --json shows it. JSON
// strings hold no arbitrary bytes: a path that is not UTF-8 is in
// path_base64 as well.
func (c Change) MarshalJSON() ([]byte, error) {
	type sizes struct {
		Root       int    `json:"root"`
		Path       string `json:"path"`
		PathBase64 string `json:"path_base64,omitempty"`
		Op         Op     `json:"op"`
		Was        Kind   `json:"was,omitempty"`
		Is         Kind   `json:"is,omitempty"`
		Content    bool   `json:"content_changed,omitempty"`
		Mode       bool   `json:"mode_changed,omitempty"`
		Owner      bool   `json:"owner_changed,omitempty"`
		Xattr      bool   `json:"xattr_changed,omitempty"`
		OldMode    uint32 `json:"old_mode,omitempty"`
		NewMode    uint32 `json:"new_mode,omitempty"`
		OldSize    int64  `json:"old_size"`
		NewSize    int64  `json:"new_size"`
		OldTarget  string `json:"old_target,omitempty"`
		Target     string `json:"target,omitempty"`
		Binary     bool   `json:"binary,omitempty"`
		Stale      bool   `json:"host_changed_meanwhile,omitempty"`
		Marks      []Mark `json:"marks,omitempty"`
	}
	v := sizes{Root: c.Root, Path: c.Path, Op: c.Op, Was: c.Was, Is: c.Is, Content: c.Content, Mode: c.Mode, Owner: c.Owner, Xattr: c.Xattr,
		OldMode: c.Host.Mode & 0o7777, NewMode: c.Layer.Mode & 0o7777, OldTarget: c.OldTarget, Target: c.Target,
		Binary: c.Binary, Stale: c.Stale, Marks: c.Marks}
	if c.Was == File {
		v.OldSize = c.Host.Size
	}
	if c.Is == File {
		v.NewSize = c.Layer.Size
	}
	if !utf8.ValidString(c.Path) {
		v.PathBase64 = base64.StdEncoding.EncodeToString([]byte(c.Path))
	}
	return json.Marshal(v)
}
