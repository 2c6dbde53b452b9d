package view

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// View is a stack of layers.
type View struct {
	layers []*layer // highest first
	opaque string   // the attribute that marks folders as such
}

type layer struct {
	dir    string
	owners func() map[string][2]int // nil: files carry their owners
}

// New looks at layers, folders of the image store, lowest first.
func New(dirs []string, ids rootfs.IDs) *View {
	v := &View{opaque: "trusted.overlay.opaque"}
	if ids == rootfs.IDsSingle {
		v.opaque = "user.overlay.opaque"
	}
	for _, d := range slices.Backward(dirs) {
		l := &layer{dir: d}
		if ids == rootfs.IDsSingle {
			l.owners = sync.OnceValue(func() map[string][2]int { return readOwners(filepath.Join(filepath.Dir(d), "owners")) })
		}
		v.layers = append(v.layers, l)
	}
	return v
}

// readOwners reads what package unpack has written about owners.
func readOwners(name string) map[string][2]int {
	all := map[string][2]int{}
	f, err := os.Open(name)
	if err != nil {
		return all
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 64<<10)
	for lines.Scan() {
		var uid, gid int
		a, rest, _ := strings.Cut(lines.Text(), " ")
		b, quoted, _ := strings.Cut(rest, " ")
		name, err := strconv.Unquote(quoted)
		if err != nil {
			continue
		}
		if uid, err = strconv.Atoi(a); err == nil {
			if gid, err = strconv.Atoi(b); err == nil {
				all[name] = [2]int{uid, gid}
			}
		}
	}
	return all
}

// Entry is a file of the stack.
type Entry struct {
	Path     string // inside, absolute and clean
	Mode     fs.FileMode
	UID, GID int
	Size     int64
	Link     string // text of a symbolic link
	ModTime  time.Time

	host string   // where it lies
	dirs []merged // of a folder: those that are merged, highest first
}

type merged struct {
	l    *layer
	host string
}

// Lstat looks at a path; no link in it is followed: a component that is no folder
// is fs.ErrNotExist.
func (v *View) Lstat(name string) (Entry, error) {
	e, err := v.top()
	if err != nil {
		return e, err
	}
	at := "/"
	for part := range strings.SplitSeq(strings.Trim(path.Clean("/"+name), "/"), "/") {
		if part == "" {
			break
		}
		at = path.Join(at, part)
		if e, err = v.child(e, part, at); err != nil {
			return e, err
		}
	}
	return e, nil
}

func (v *View) top() (Entry, error) {
	if len(v.layers) == 0 {
		return Entry{Path: "/", Mode: fs.ModeDir | 0o755, ModTime: time.Unix(0, 0)}, nil
	}
	e, _, err := v.entry(v.layers[0], v.layers[0].dir, "/")
	for _, l := range v.layers {
		e.dirs = append(e.dirs, merged{l, l.dir})
	}
	return e, err
}

// child finds a name in a folder of the stack.
func (v *View) child(dir Entry, name, at string) (Entry, error) {
	var found Entry
	for _, d := range dir.dirs {
		e, kind, err := v.entry(d.l, filepath.Join(d.host, name), at)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return e, err
		}
		if kind == whiteout || found.Path != "" && !e.Mode.IsDir() {
			break
		}
		if found.Path == "" {
			found = e
		}
		if !e.Mode.IsDir() {
			break
		}
		found.dirs = append(found.dirs, merged{d.l, e.host})
		if kind == opaque {
			break
		}
	}
	if found.Path == "" {
		return found, &fs.PathError{Op: "lstat", Path: at, Err: fs.ErrNotExist}
	}
	return found, nil
}

type kind int

const (
	plain kind = iota
	whiteout
	opaque
)

func (v *View) entry(l *layer, host, at string) (Entry, kind, error) {
	info, err := os.Lstat(host)
	if err != nil {
		return Entry{}, plain, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Entry{}, plain, fmt.Errorf("%s: no stat", at)
	}
	e := Entry{Path: at, Mode: info.Mode(), UID: int(st.Uid), GID: int(st.Gid), Size: info.Size(), ModTime: info.ModTime(), host: host}
	if l.owners != nil {
		own := l.owners()[strings.TrimPrefix(at, "/")]
		e.UID, e.GID = own[0], own[1]
	}
	switch {
	case info.Mode()&fs.ModeCharDevice != 0 && st.Rdev == 0:
		return e, whiteout, nil
	case info.Mode()&fs.ModeSymlink != 0:
		e.Link, err = os.Readlink(host)
		return e, plain, err
	case info.IsDir():
		var b [1]byte
		if n, err := unix.Lgetxattr(host, v.opaque, b[:]); err == nil && n == 1 && b[0] == 'y' {
			return e, opaque, nil
		}
	}
	return e, plain, nil
}

// ReadDir lists a folder that Lstat has given, by name.
func (v *View) ReadDir(dir Entry) ([]Entry, error) {
	names := map[string]bool{}
	for _, d := range dir.dirs {
		list, err := os.ReadDir(d.host)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			names[e.Name()] = true
		}
	}
	sorted := make([]string, 0, len(names))
	for n := range names {
		sorted = append(sorted, n)
	}
	slices.Sort(sorted)
	var out []Entry
	for _, n := range sorted {
		e, err := v.child(dir, n, path.Join(dir.Path, n))
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted
		}
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// Open opens a regular file that Lstat or ReadDir has given.
func (v *View) Open(e Entry) (*os.File, error) {
	if !e.Mode.IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", e.Path)
	}
	return os.OpenFile(e.host, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
}

// Xattrs gives the attributes of a file that belong to what it is, not to how
// layers are kept.
func (v *View) Xattrs(e Entry) (map[string]string, error) {
	if e.host == "" || e.Mode&fs.ModeSymlink != 0 {
		return nil, nil
	}
	buf := make([]byte, 64<<10)
	n, err := unix.Llistxattr(e.host, buf)
	if err != nil || n == 0 {
		return nil, nil // a file system without has none
	}
	out := map[string]string{}
	for name := range strings.SplitSeq(strings.TrimRight(string(buf[:n]), "\x00"), "\x00") {
		if name != "security.capability" && (!strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.")) {
			continue
		}
		value := make([]byte, 64<<10)
		m, err := unix.Lgetxattr(e.host, name, value)
		if err != nil {
			return nil, &fs.PathError{Op: "getxattr", Path: e.Path, Err: err}
		}
		out[name] = string(value[:m])
	}
	return out, nil
}

// maxLinks is how many links one name may pass.
const maxLinks = 40

// Resolve follows all links of a path inside the stack, those above the root
// ending there. What is not there is kept as it is written.
func (v *View) Resolve(name string) (string, error) {
	rest := strings.Split(path.Clean("/"+name), "/")[1:]
	at, links := "/", 0
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		e, err := v.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return path.Join(append([]string{next}, rest...)...), nil
		}
		if err != nil {
			return "", err
		}
		if e.Mode&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "resolve", Path: name, Err: syscall.ELOOP}
		}
		if path.IsAbs(e.Link) {
			at = "/"
		}
		rest = append(strings.Split(e.Link, "/"), rest...)
	}
	return at, nil
}

// Stat follows links, Lstat does not.
func (v *View) Stat(name string) (Entry, error) {
	p, err := v.Resolve(name)
	if err != nil {
		return Entry{}, err
	}
	return v.Lstat(p)
}

// ReadFile reads a small file, links followed; what is longer than limit bytes is
// an error.
func (v *View) ReadFile(name string, limit int64) ([]byte, error) {
	e, err := v.Stat(name)
	if err != nil {
		return nil, err
	}
	if e.Size > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	f, err := v.Open(e)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, e.Size)
	n, err := f.ReadAt(b, 0)
	if int64(n) == e.Size {
		err = nil
	}
	return b[:n], err
}
