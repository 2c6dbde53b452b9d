package changes

import (
	"errors"
	"fmt"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// maxDepth is how deep folders may be nested in a layer or on the host to be
// scanned: each level holds two descriptors, and a sandbox can nest without
// end.
const maxDepth = 400

// openBeneath opens rel below the folder fd. No link on the way or at the end
// is followed, and with sameMount no mount point is crossed.
func openBeneath(fd int, rel string, flags int, sameMount bool) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	if sameMount {
		how.Resolve |= unix.RESOLVE_NO_XDEV
	}
	for {
		// EAGAIN: something was renamed while the kernel looked; see openat2(2).
		n, err := unix.Openat2(fd, rel, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return n, err
	}
}

// openFile opens the regular file rel below fd for reading.
func openFile(fd int, rel string, sameMount bool) (*os.File, *unix.Stat_t, error) {
	// O_NONBLOCK: a FIFO in the file's place must not make us wait.
	n, err := openBeneath(fd, rel, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, sameMount)
	if err != nil {
		return nil, nil, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	f := os.NewFile(uintptr(n), path.Base(rel))
	var st unix.Stat_t
	if err := unix.Fstat(n, &st); err != nil {
		f.Close()
		return nil, nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		f.Close()
		return nil, nil, fmt.Errorf("%q is no longer a regular file", rel)
	}
	return f, &st, nil
}

const dirFlags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW

// openParent opens the folder that holds rel.
func openParent(fd int, rel string, sameMount bool) (int, error) {
	return openBeneath(fd, path.Dir(rel), unix.O_PATH|unix.O_DIRECTORY, sameMount)
}

// lstatAt stats a name in a folder; nil and no error when it is not there.
func lstatAt(fd int, name string) (*unix.Stat_t, error) {
	var st unix.Stat_t
	err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	return &st, nil
}

// procPath names an entry of an open folder for calls that take no
// descriptor. Its last part is not followed by the l… calls.
func procPath(fd int, name string) string { return selfPath(fd) + "/" + name }

// selfPath names what is open at fd itself, for calls that follow links. It
// needs no right to search it.
func selfPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// names reads the names in the folder fd.
func names(fd int) ([]string, error) {
	n, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := os.NewFile(uintptr(n), ".")
	defer d.Close()
	return d.Readdirnames(-1)
}
