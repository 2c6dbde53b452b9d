package guest

import (
	"io/fs"
	"time"
)

// FileInfo is what is known about one file inside the sandbox.
type FileInfo struct {
	Name    string // base name in a listing, path as asked otherwise; any bytes but NUL
	Mode    uint32 // st_mode: type and permission bits as stat(2) has them
	UID     uint32
	GID     uint32
	Size    int64
	ModTime time.Time
	Inode   uint64
	Links   uint64
	Target  string // what a symbolic link says
}

// FileMode gives the mode in Go's terms.
func (i FileInfo) FileMode() fs.FileMode { return goMode(i.Mode) }

// IsDir reports whether it is a folder.
func (i FileInfo) IsDir() bool { return i.FileMode().IsDir() }

// ReadOptions say which part of a file to read and as whom.
type ReadOptions struct {
	User   *User // nil: as bailey-init itself
	Offset int64
	Length int64 // 0: to the end
}

// WriteOptions say how to write a file.
type WriteOptions struct {
	User    *User  // who writes, and who owns the file unless Owner says so; nil: bailey-init itself
	Mode    uint32 // permission bits; 0: those of the file that is replaced, or 0644
	Owner   *User  // owner and group of the file; nil: as User
	Parents bool   // make missing folders, mode 0755
}

// Written is what a write left behind.
type Written struct {
	Size   int64
	SHA256 [32]byte
}

// ListOptions bound a listing.
type ListOptions struct {
	User *User
	// Depth is how many levels are listed: 1, the default, the folder's own
	// entries; with more, names are relative paths. At MaxDepth, the most there
	// can be, a folder with more levels is an error.
	Depth int
}

// TarOptions say what an archive holds and as whom it is made or unpacked.
type TarOptions struct {
	User   *User
	Xattrs bool // user.* attributes too
}

// WatchOptions bound a watch.
type WatchOptions struct {
	User      *User
	Recursive bool // folders below too, those made later included, up to MaxWatches
}

// WatchOp is what happened to a file, as a set of bits.
type WatchOp uint8

// What a WatchEvent can report.
const (
	WatchCreate WatchOp = 1 << iota
	WatchWrite
	WatchRemove
	WatchRename
	WatchAttrib
	WatchOverflow // events were lost; list again
)

// WatchEvent is one change below a watched path.
type WatchEvent struct {
	Op   WatchOp
	Path string // relative to the watched path; "" is that path itself
}

// watchReady is the record that says that a watch is in place: a set of bits
// that no event has.
const watchReady = WatchCreate | WatchRemove | WatchOverflow
