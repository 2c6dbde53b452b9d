package unpack

import (
	"errors"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// inRoot is how a name from the tar is looked up: links in it are followed as
// a program inside the root would, and can lead nowhere else.
const inRoot = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// exactly is how a place that is already known is opened again: without links.
const exactly = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

// A place is an open folder inside the root.
type place struct {
	fd   int
	real string // its path without links, "." for the root
}

func (p place) child(base string) string {
	if p.real == "." {
		return base
	}
	return p.real + "/" + base
}

func openat2(dir int, name string, flags int, resolve uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: uint64(flags) | unix.O_CLOEXEC, Resolve: resolve})
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// folder opens the folder with the clean name dir, making what is missing of
// it. The result stays valid until the next call of folder or forget.
func (u *unpacker) folder(dir string) (place, error) {
	if u.last.fd >= 0 && u.lastName == dir {
		return u.last, nil
	}
	p, err := u.open(dir)
	if err != nil {
		return place{}, err
	}
	u.forget()
	u.last, u.lastName = p, dir
	return p, nil
}

// forget drops the folder kept open: it may have been replaced.
func (u *unpacker) forget() {
	if u.last.fd >= 0 {
		unix.Close(u.last.fd)
	}
	u.last, u.lastName = place{fd: -1}, ""
}

func (u *unpacker) open(dir string) (place, error) {
	fd, err := openat2(u.root, dir, unix.O_PATH|unix.O_DIRECTORY, inRoot)
	if err == unix.ENOENT && dir != "." {
		up, name := path.Split(dir)
		parent, perr := u.open(path.Clean(up + "."))
		if perr != nil {
			return place{}, perr
		}
		err = unix.Mkdirat(parent.fd, name, 0o700)
		if err == nil {
			u.seq++
			u.dirs[parent.child(name)] = dirAttr{seq: u.seq, mode: 0o755, implied: true}
		}
		unix.Close(parent.fd)
		if err == nil {
			fd, err = openat2(u.root, dir, unix.O_PATH|unix.O_DIRECTORY, inRoot)
		} else if err == unix.EEXIST {
			return place{}, invalid("the folder of an entry, %q, is a link that leads nowhere", dir)
		}
	}
	switch err {
	case nil:
	case unix.ENOTDIR, unix.ELOOP, unix.EXDEV:
		return place{}, invalid("an entry lies below %q, which is no folder (%w)", dir, err)
	default:
		return place{}, broken("open the folder %q: %w", dir, err)
	}
	real, err := u.realName(fd, dir)
	if err != nil {
		unix.Close(fd)
		return place{}, err
	}
	if strings.Count(real, "/") >= u.opt.Limits.Depth {
		unix.Close(fd)
		return place{}, tooMuch("depth", u.opt.Limits.Depth, "links make the folder %.60q… too deep", real)
	}
	return place{fd, real}, nil
}

// realName gives the link-free path of the folder that dir led to. Only a name
// that passes a link made by this layer can differ from its real path.
func (u *unpacker) realName(fd int, dir string) (string, error) {
	if !u.passesLink(dir) {
		return dir, nil
	}
	at, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return "", broken("find the place of %q: %w", dir, err)
	}
	if at == u.rootPath {
		return ".", nil
	}
	real, ok := strings.CutPrefix(at, u.rootPath+"/")
	if !ok {
		return "", invalid("the name %q leads out of the root", dir)
	}
	return real, nil
}

func (u *unpacker) passesLink(dir string) bool {
	if len(u.links) == 0 {
		return false
	}
	for i := 0; i < len(dir); i++ {
		if dir[i] == '/' {
			if _, ok := u.links[dir[:i]]; ok {
				return true
			}
		}
	}
	_, ok := u.links[dir]
	return ok
}

// clear removes what is at base in p, so that something new can be made there.
// keepDir leaves a folder alone and says so.
func (u *unpacker) clear(p place, base string, keepDir bool) (kept bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(p.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, broken("look at %q: %w", p.child(base), err)
	}
	isDir := st.Mode&unix.S_IFMT == unix.S_IFDIR
	if isDir && keepDir {
		return true, nil
	}
	real := p.child(base)
	if isDir {
		err = removeTree(p.fd, base)
	} else {
		err = unix.Unlinkat(p.fd, base, 0)
	}
	if err != nil {
		return false, broken("replace %q: %w", real, err)
	}
	u.seq++
	if isDir {
		u.removed[real] = u.seq
	}
	delete(u.links, real)
	u.lastName = "\x00" // p stays open for the caller, but its name may lead elsewhere now
	return false, nil
}

// gone says whether the folder real, made at seq, has been removed since.
func (u *unpacker) gone(real string, seq int64) bool {
	if len(u.removed) == 0 {
		return false
	}
	for p := real; p != "."; p = path.Dir(p) {
		if u.removed[p] > seq {
			return true
		}
	}
	return false
}

// RemoveAll removes the folder name in the folder dir with all that is in it.
// It follows no link and opens folders whatever their mode is. Something that
// is not there is no error.
func RemoveAll(dir *os.File, name string) error {
	err := removeTree(int(dir.Fd()), name)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}

func removeTree(at int, name string) error {
	err := unix.Unlinkat(at, name, 0)
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	fd, err := openat2(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV)
	if err == unix.EACCES { // our own folder, with the mode of an image
		if err = unix.Fchmodat(at, name, 0o700, 0); err == nil {
			fd, err = openat2(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, unix.RESOLVE_BENEATH|unix.RESOLVE_NO_XDEV)
		}
	}
	if err != nil {
		return err
	}
	d := os.NewFile(uintptr(fd), name)
	defer d.Close()
	for {
		names, err := d.Readdirnames(1024)
		for _, n := range names {
			if err := removeTree(fd, n); err == unix.EACCES {
				if err = unix.Fchmod(fd, 0o700); err == nil {
					err = removeTree(fd, n)
				}
				if err != nil {
					return err
				}
			} else if err != nil && err != unix.ENOENT {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			break
		}
		// What is left may have moved under the cursor.
		if _, err := d.Seek(0, 0); err != nil {
			return err
		}
	}
	return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
}
