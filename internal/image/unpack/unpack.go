package unpack

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// Options say how a layer is written.
type Options struct {
	IDs    rootfs.IDs
	Limits Limits
	// Owners, with IDsSingle, receives a line `uid gid "path"` (path quoted as
	// Go and C do) for each entry whose owner in the image is not 0:0. Of
	// several lines for a path the last counts.
	Owners io.Writer
}

// Result is what became of a layer.
type Result struct {
	DiffID  string   // sha256 of the uncompressed tar, in hex
	Bytes   int64    // of the uncompressed tar
	Entries int64    // in the tar
	Implied []string // folders that the tar needs but does not describe, sorted; made as 0755 root
	// Opaque says that the root itself hides all layers below. Overlayfs does
	// not look for its mark there, so whoever stacks layers has to.
	Opaque bool
	Notes  []string // what was left out or changed, for people
}

// maxNotes bounds Result.Notes: a layer can give cause for millions.
const maxNotes = 20

// dirAttr is what a folder gets once everything in it has been made: the mode
// could lock us out before, and each new entry touches the time.
type dirAttr struct {
	seq      int64
	mode     uint32 // 07777
	uid, gid int
	mtime    time.Time
	xattrs   map[string]string
	implied  bool // not described by the tar
}

type unpacker struct {
	opt       Options
	tr        *tar.Reader
	root      int
	rootPath  string
	last      place
	lastName  string
	seq       int64 // of changes to the tree, to tell a folder from its predecessor
	dirs      map[string]dirAttr
	removed   map[string]int64
	links     map[string]struct{} // symbolic links made, by real path
	whiteouts map[string]int64    // real path of what a layer below loses
	opaque    map[string]int64    // real path of folders that hide what is below
	marked    map[string]struct{} // folders with whiteouts in them
	dropped   map[string]struct{} // device nodes, so that a link to one can be dropped too
	bytes     int64
	names     int64
	entries   int64
	result    *Result
	moreNotes int
	buf       []byte
}

// Layer unpacks s into the empty folder dir, which nobody else may be able to
// write. On an error the folder is in pieces and must be removed. All errors
// about the layer have code image_invalid, all about the disk code storage.
//
// The result depends on the stream only: the last of several entries for a
// name wins, deletions count for the layers below wherever they stand, links
// among the parents of an entry are followed inside the root, and device nodes
// are left out, because a sandbox gets a /dev of its own. Set-id bits stay:
// they are what the image says, and no_new_privs makes them void in a sandbox;
// the owner of the store keeps other users of the host from reaching them.
func Layer(s *Stream, dir *os.File, opt Options) (Result, error) {
	if err := opt.Limits.check(); err != nil {
		return Result{}, err
	}
	u := &unpacker{
		opt: opt, root: int(dir.Fd()), last: place{fd: -1},
		dirs: map[string]dirAttr{}, removed: map[string]int64{}, links: map[string]struct{}{},
		whiteouts: map[string]int64{}, opaque: map[string]int64{}, marked: map[string]struct{}{}, dropped: map[string]struct{}{},
		result: &Result{}, buf: make([]byte, 128<<10),
	}
	defer u.forget()
	var err error
	if u.rootPath, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(u.root)); err != nil {
		return Result{}, broken("find the folder to unpack into: %w", err)
	}
	var owners *bufio.Writer
	if opt.Owners != nil {
		owners = bufio.NewWriter(opt.Owners)
		u.opt.Owners = owners
	}
	u.dirs["."] = dirAttr{mode: 0o755, implied: true}
	u.tr = tar.NewReader(s)
	for {
		h, err := u.tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, tar.ErrInsecurePath) {
			return Result{}, readFailed(err)
		}
		if err := u.entry(h); err != nil {
			return Result{}, err
		}
	}
	if err := s.Drain(); err != nil {
		return Result{}, err
	}
	if err := u.finish(); err != nil {
		return Result{}, err
	}
	if owners != nil {
		if err := owners.Flush(); err != nil {
			return Result{}, broken("record the owners of the image: %w", err)
		}
	}
	if u.moreNotes > 0 {
		u.result.Notes = append(u.result.Notes, fmt.Sprintf("and %d more", u.moreNotes))
	}
	u.result.DiffID, u.result.Bytes, u.result.Entries = s.Digest(), s.Bytes(), u.entries
	return *u.result, nil
}

func (u *unpacker) note(format string, args ...any) {
	if len(u.result.Notes) >= maxNotes {
		u.moreNotes++
		return
	}
	u.result.Notes = append(u.result.Notes, fmt.Sprintf(format, args...))
}

// account charges an entry to the limits.
func (u *unpacker) account(h *tar.Header) error {
	l := u.opt.Limits
	if u.entries++; u.entries > l.Entries {
		return tooMuch("entries", l.Entries, "it has more entries than allowed")
	}
	if u.names += int64(len(h.Name) + len(h.Linkname)); u.names > l.Names {
		return tooMuch("names", l.Names, "its names take more bytes than allowed")
	}
	if h.Size < 0 || h.Size > l.Bytes-u.bytes {
		return tooMuch("bytes", l.Bytes, "its files take more bytes than allowed")
	}
	u.bytes += h.Size
	if h.Uid < 0 || h.Gid < 0 {
		return invalid("%.100q has a negative owner", h.Name)
	}
	return nil
}

func (u *unpacker) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return u.account(h)
	}
	if err := u.account(h); err != nil {
		return err
	}
	name, err := cleanName(h.Name, u.opt.Limits)
	if err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return invalid("the root itself is an entry of type %q", h.Typeflag)
		}
		return u.describe(".", h)
	}
	dir, base := path.Split(name)
	dir = path.Clean(dir + ".")
	if hasWhiteoutPart(dir) {
		return invalid("%.200q lies below a deletion mark", h.Name)
	}
	target, opaque, ignored, err := deletion(base)
	if err != nil {
		return err
	}
	if ignored {
		u.note("left out %.200q, bookkeeping of aufs", name)
		return nil
	}
	p, err := u.folder(dir)
	if err != nil {
		return err
	}
	switch {
	case opaque:
		u.seq++
		u.opaque[p.real] = u.seq
		return nil
	case target != "":
		u.seq++
		u.whiteouts[p.child(target)] = u.seq
		return nil
	}
	return u.make(p, base, h)
}

// finish turns deletions into overlayfs's marks and gives folders what they
// could not have before.
func (u *unpacker) finish() error {
	for _, real := range sorted(u.whiteouts) {
		if err := u.whiteout(real, u.whiteouts[real]); err != nil {
			return err
		}
	}
	_, u.result.Opaque = u.isOpaque(".")
	names := sorted(u.dirs)
	for i := len(names) - 1; i >= 0; i-- { // what lies below sorts behind
		real := names[i]
		attr := u.dirs[real]
		if real != "." && u.gone(real, attr.seq) {
			continue
		}
		if err := u.finishDir(real, attr); err != nil {
			return err
		}
		if attr.implied && real != "." {
			u.result.Implied = append(u.result.Implied, real)
		}
	}
	sort.Strings(u.result.Implied)
	return nil
}

func sorted[V any](m map[string]V) []string {
	s := make([]string, 0, len(m))
	for k := range m {
		s = append(s, k)
	}
	sort.Strings(s)
	return s
}
