package folder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
)

// Remove removes the run's folder with all that the sandbox left in it. The
// caller holds the lock; it is given up. The run is out of every list from
// the first moment, and a removal that death interrupts is ended by Sweep.
func (r *Run) Remove() error {
	gone, err := r.Leave()
	if err != nil {
		return err
	}
	return RemoveTree(gone)
}

// Leave is Remove but for the work: the run is out of every list, and the
// caller removes the folder that Leave gives, by RemoveTree, when it likes.
func (r *Run) Leave() (gone string, err error) {
	if r.lock == nil {
		return "", bailey.Errorf(bailey.CodeInternal, "remove the run", "", "the run's lock is not held")
	}
	gone = filepath.Join(filepath.Dir(r.dir), gonePrefix+r.ID())
	if err := os.Rename(r.dir, gone); err != nil {
		return "", bailey.Errorf(bailey.CodeStorage, "remove the run", "", "%w", err)
	}
	r.dir = gone
	r.Close()
	return gone, nil
}

// Shed takes path, which lies below the run's folder and is of no more use, out
// of it. The caller removes the folder that Shed gives, by RemoveTree, when it
// likes; if death comes first, Sweep does. It gives path itself where it cannot be
// moved, as from a disk of the run's own, and then the caller must not wait.
func (r *Run) Shed(path string) (gone string, moved bool) {
	gone = filepath.Join(filepath.Dir(r.dir), gonePrefix+newID())
	if os.Rename(path, gone) != nil {
		return path, false
	}
	return gone, true
}

// maxDepth is how many folders RemoveTree has open at once. A sandbox can
// nest folders far deeper than a process may have descriptors; what lies
// deeper is first moved up.
const maxDepth = 64

// RemoveTree removes path and everything below it. It follows no symbolic
// link, enters no other mount (that is an error: something is still mounted
// there), opens folders without permissions by granting them first, and needs
// a bounded number of descriptors whatever the depth.
func RemoveTree(path string) error {
	parent, err := unix.Open(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return removeError(path, err)
	}
	defer unix.Close(parent)
	t := &remover{top: -1, root: os.Geteuid() == 0}
	err = t.remove(parent, filepath.Base(path), 0)
	if err != nil && Foreign.Remove != nil && os.Geteuid() != 0 && (errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)) {
		return Foreign.Remove(path)
	}
	if err != nil {
		return removeError(path, err)
	}
	return nil
}

func removeError(path string, err error) error {
	fix := ""
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EBUSY):
		fix = "unmount what is still mounted below it"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		fix = "remove it as root, or in a user namespace that maps the ids of its files"
	}
	return bailey.Errorf(bailey.CodeStorage, "remove a folder", fix, "%s: %w", path, err)
}

type remover struct {
	top   int // descriptor of the folder being removed
	moved int // folders moved up into it so far
	root  bool
}

// remove removes one name below the folder dir. A name that is not there is
// fine.
func (t *remover) remove(dir int, name string, depth int) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	// Linux says EISDIR for a folder, POSIX EPERM; EACCES means that dir is
	// not writable, which its caller has already dealt with.
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return &os.PathError{Op: "unlink", Path: name, Err: err}
	}
	first := err
	err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	switch {
	case err == nil, errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOTDIR):
		return &os.PathError{Op: "unlink", Path: name, Err: first}
	case !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST):
		return &os.PathError{Op: "rmdir", Path: name, Err: err}
	}
	fd, err := openDir(dir, name, t.root)
	if errors.Is(err, unix.ENOENT) {
		return nil // somebody else removes it, too
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: name, Err: err}
	}
	if depth == 0 {
		t.top = fd
	} else if depth >= maxDepth {
		unix.Close(fd)
		for {
			t.moved++
			err := unix.Renameat2(dir, name, t.top, ".bailey-deep-"+strconv.Itoa(t.moved), unix.RENAME_NOREPLACE)
			if errors.Is(err, unix.EEXIST) {
				continue
			}
			if err != nil && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "rename", Path: name, Err: err}
			}
			return nil
		}
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	for again := false; ; again = true {
		// Entries come and go under us (moved-up folders among them), so
		// read again until a whole pass finds nothing.
		if again {
			if _, err := f.Seek(0, 0); err != nil {
				return err
			}
		}
		found := false
		for {
			names, err := f.Readdirnames(1024)
			for _, n := range names {
				found = true
				if err := t.remove(fd, n, depth+1); err != nil {
					return err
				}
			}
			if err != nil || len(names) == 0 {
				break
			}
		}
		err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
		if err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		if !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EEXIST) || !found {
			return &os.PathError{Op: "rmdir", Path: name, Err: err}
		}
	}
}

// openDir opens the folder name below dir for reading and writing entries,
// never through a link or onto another mount. Permissions are nothing to root.
func openDir(dir int, name string, root bool) (int, error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	if root {
		how.Flags &^= unix.O_PATH
	}
	var p int
	err := retry(func() (err error) { p, err = unix.Openat2(dir, name, &how); return })
	if err != nil {
		return -1, err
	}
	if root {
		return p, nil
	}
	defer unix.Close(p)
	var st unix.Stat_t
	if err := unix.Fstat(p, &st); err != nil {
		return -1, err
	}
	proc := fmt.Sprintf("/proc/self/fd/%d", p)
	if st.Mode&0o700 != 0o700 {
		// fchmod does not take an O_PATH descriptor, its magic link does.
		if err := unix.Chmod(proc, st.Mode&0o7777|0o700); err != nil {
			return -1, err
		}
	}
	return unix.Openat(p, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}
