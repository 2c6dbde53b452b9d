package layers

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// maker writes a tree, in the order of a walk: parents before what is in them.
// Folders get their modes and times when all that is in them has been made.
type maker struct {
	marks marks
	stack []made // the open folders, the root first
	files int64
	bytes int64
}

// made is a folder that is being filled.
type made struct {
	e        *entry
	fd       int
	deletion bool // there is one in it
}

// newMaker makes a tree in the empty folder at path.
func newMaker(path string, m marks) (*maker, error) {
	fd, err := unix.Open(path, readDir|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	root := &entry{path: ".", kind: isDir, st: unix.Stat_t{Mode: unix.S_IFDIR | 0o755, Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())}}
	return &maker{marks: m, stack: []made{{e: root, fd: fd}}}, nil
}

// close lets go of everything; finish comes before.
func (m *maker) close() {
	for _, d := range m.stack {
		unix.Close(d.fd)
	}
	m.stack = nil
}

// finish ends the tree.
func (m *maker) finish() error {
	for len(m.stack) > 0 {
		if err := m.leave(); err != nil {
			return err
		}
	}
	return nil
}

// leave ends the folder that was entered last.
func (m *maker) leave() error {
	d := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	defer unix.Close(d.fd)
	if d.e.opaque {
		if err := unix.Fsetxattr(d.fd, string(m.marks)+"opaque", []byte("y"), 0); err != nil {
			return at(d.e.path, err)
		}
	}
	if d.deletion {
		// A folder that only one layer has is shown as it is, with the marks for
		// deletions in it, unless it claims to be a copy of another one; an empty
		// origin is overlayfs's own word for a copy of what is not known.
		if err := unix.Fsetxattr(d.fd, string(m.marks)+"origin", nil, 0); err != nil {
			return at(d.e.path, err)
		}
	}
	return at(d.e.path, m.dress(d.fd, ".", d.e))
}

// parent gives the open folder in which e is to be made.
func (m *maker) parent(e *entry) (int, error) {
	up := path.Dir(e.path)
	for len(m.stack) > 1 && m.stack[len(m.stack)-1].e.path != up {
		if err := m.leave(); err != nil {
			return -1, err
		}
	}
	d := m.stack[len(m.stack)-1]
	if d.e.path != up {
		return -1, errors.New("it comes without its folder")
	}
	return d.fd, nil
}

// make makes one entry; content, for a regular file, fills it.
func (m *maker) make(e *entry, content func(*os.File) error) error {
	m.files++
	if e.path == "." {
		m.stack[0].e = e
		return nil
	}
	dir, err := m.parent(e)
	if err != nil {
		return at(e.path, err)
	}
	return at(e.path, m.put(dir, e, content))
}

func (m *maker) put(dir int, e *entry, content func(*os.File) error) error {
	name := path.Base(e.path)
	if e.link != "" {
		return m.hardLink(dir, name, e)
	}
	switch e.kind {
	case isDir:
		if err := unix.Mkdirat(dir, name, 0o700); err != nil {
			return err
		}
		fd, err := openAt(dir, name, readDir)
		if err != nil {
			return err
		}
		m.stack = append(m.stack, made{e: e, fd: fd})
		return nil
	case isDeletion:
		m.stack[len(m.stack)-1].deletion = true
		// Makes no device: 0:0 is the one number that any user may use.
		return unix.Mknodat(dir, name, unix.S_IFCHR, 0)
	case isFile:
		return m.file(dir, name, e, content)
	case isSymlink:
		if err := unix.Symlinkat(e.target, dir, name); err != nil {
			return err
		}
	case isFifo:
		if err := unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0); err != nil {
			return err
		}
	case isSocket:
		if err := unix.Mknodat(dir, name, unix.S_IFSOCK|0o600, 0); err != nil {
			return err
		}
	default:
		return errors.New("it is of a kind that no layer has")
	}
	return m.dress(dir, name, e)
}

func (m *maker) file(dir int, name string, e *entry, content func(*os.File) error) error {
	fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), e.path)
	defer f.Close()
	if err := content(f); err != nil {
		return err
	}
	m.bytes += e.st.Size
	return m.dress(dir, name, e)
}

// hardLink gives a file that was made before another name.
func (m *maker) hardLink(dir int, name string, e *entry) error {
	from, err := openAt(m.stack[0].fd, path.Dir(e.link), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("it is a link to %q: %w", e.link, err)
	}
	defer unix.Close(from)
	var st unix.Stat_t
	if err := lstatAt(from, path.Base(e.link), &st); err != nil {
		return fmt.Errorf("it is a link to %q: %w", e.link, err)
	}
	if k := kindOf(&st); k == isDir || k == isDeletion || k == isOther {
		return fmt.Errorf("it is a link to %q, which is no file", e.link)
	}
	return unix.Linkat(from, path.Base(e.link), dir, name, 0)
}

// dress gives what was made its owner, mode, attributes and time. "." is the
// folder dir itself.
func (m *maker) dress(dir int, name string, e *entry) error {
	var now unix.Stat_t
	if err := lstatAt(dir, name, &now); err != nil {
		return err
	}
	if now.Uid != e.st.Uid || now.Gid != e.st.Gid {
		if err := unix.Fchownat(dir, name, int(e.st.Uid), int(e.st.Gid), unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err
		}
	}
	// After the owner: changing that takes capabilities away.
	for _, x := range e.xattrs {
		if err := unix.Lsetxattr(entryPath(dir, name), m.marks.stored(x.name), []byte(x.value), 0); err != nil {
			return fmt.Errorf("its attribute %q: %w", x.name, err)
		}
	}
	ts := []unix.Timespec{e.st.Mtim, e.st.Mtim}
	if err := unix.UtimesNanoAt(dir, name, ts, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if e.kind == isSymlink {
		return nil
	}
	// The last step, as it can close the folder to its owner. It was made by this
	// process where nobody else sees it: there is no link that could be followed.
	return unix.Fchmodat(dir, name, e.st.Mode&0o7777, 0)
}
