package layers

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"golang.org/x/sys/unix"
)

// Bounds of what is walked: each folder on the way holds a descriptor for each
// layer that has it, and a sandbox can nest without end.
const (
	maxDepth = 512
	maxName  = 255 // NAME_MAX
	maxPath  = 64 << 10
)

// Bounds of what a sandbox can make a walk remember: the names in a folder, and the
// files that have several names. With them a walk takes less than a gigabyte, whatever
// lies there.
var (
	maxFolder = 1 << 20
	maxLinked = 1 << 20
)

// beneath is how a name in a layer is opened: no link is followed, nothing leads
// out, and no mount is crossed.
const beneath = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV

func openAt(dir int, name string, flags int) (int, error) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: beneath}
	for {
		// EAGAIN: something was renamed while the kernel looked; see openat2(2).
		fd, err := unix.Openat2(dir, name, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return fd, err
	}
}

const (
	readFile = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	readDir  = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW
)

// openOwn opens what a layer holds for reading. A sandbox of an ordinary user may
// have closed its files to their owner, who is the caller: what is closed so is
// opened for the moment that it takes. Nothing that runs sees it: a layer is
// sealed, or its sandbox frozen.
func openOwn(dir int, name string, flags int, st *unix.Stat_t) (int, error) {
	fd, err := openAt(dir, name, flags)
	rights := uint32(0o400)
	if flags&unix.O_DIRECTORY != 0 {
		rights = 0o500
	}
	if !errors.Is(err, unix.EACCES) || os.Geteuid() == 0 || int(st.Uid) != os.Geteuid() || st.Mode&rights == rights {
		return fd, err
	}
	at, perr := openAt(dir, name, unix.O_PATH|unix.O_NOFOLLOW)
	if perr != nil {
		return -1, err
	}
	defer unix.Close(at)
	self := fdPath(at)
	mode := st.Mode & 0o7777
	if unix.Chmod(self, mode|rights) != nil {
		return -1, err
	}
	fd, err = openAt(dir, name, flags)
	if flags&unix.O_DIRECTORY != 0 && mode&0o100 == 0 {
		return fd, err // looking into it takes the right to search it; see shut
	}
	if cerr := unix.Chmod(self, mode); cerr != nil && err == nil {
		unix.Close(fd)
		return -1, cerr
	}
	return fd, err
}

// shut ends what openOwn has done to a folder that its owner may not search.
func shut(fd int, st *unix.Stat_t) error {
	if mode := st.Mode & 0o7777; mode&0o100 == 0 && os.Geteuid() != 0 && int(st.Uid) == os.Geteuid() {
		return unix.Fchmod(fd, mode)
	}
	return nil
}

// openTree opens a layer's folder.
func openTree(path string) (int, error) {
	fd, err := unix.Open(path, readDir|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EACCES) && os.Geteuid() != 0 {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == os.Geteuid() && unix.Chmod(path, st.Mode&0o7777|0o700) == nil {
			fd, err = unix.Open(path, readDir|unix.O_CLOEXEC, 0)
			unix.Chmod(path, st.Mode&0o7777)
		}
	}
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return fd, nil
}

// fdPath names what is open at fd, for calls that take no descriptor.
func fdPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// entryPath names an entry of an open folder. Its last part is not followed by
// the calls whose names begin with l.
func entryPath(fd int, name string) string { return fdPath(fd) + "/" + name }

// names reads the names in an open folder, sorted.
func names(fd int) ([]string, error) {
	// No second opening: the folder may be closed to its owner by now.
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(own), ".")
	defer d.Close()
	if _, err := d.Seek(0, 0); err != nil {
		return nil, err
	}
	var list []string
	for {
		some, err := d.Readdirnames(4096)
		if list = append(list, some...); len(list) > maxFolder {
			return nil, fmt.Errorf("a folder has more than %d entries", maxFolder)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	sort.Strings(list)
	return list, nil
}

func lstatAt(dir int, name string, st *unix.Stat_t) error {
	return unix.Fstatat(dir, name, st, unix.AT_SYMLINK_NOFOLLOW)
}
