package changes

import (
	"errors"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// A layer is this user's own, and so is what a sandbox of an ordinary user has
// made in it; the sandbox may have closed it to its owner all the same. What is
// closed so is opened for as long as it is read, and then closed again, so that
// one chmod inside does not hide all that a run has done.

// closed says whether this user owns the file and lacks one of the rights.
func closed(st *unix.Stat_t, rights uint32) bool {
	return st.Mode&rights != rights && kindOf(st.Mode) != Symlink && os.Geteuid() != 0 && int(st.Uid) == os.Geteuid()
}

// readable makes one name in a folder of a layer readable, if it is closed,
// until restore. st is what lstat gives for it.
func readable(fd int, name string, st *unix.Stat_t) (restore func(), err error) {
	rights := uint32(0o400)
	switch kindOf(st.Mode) {
	case File:
	case Dir:
		rights = 0o700
	default:
		return func() {}, nil
	}
	if !closed(st, rights) {
		return func() {}, nil
	}
	at, err := openBeneath(fd, name, unix.O_PATH|unix.O_NOFOLLOW, true)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	mode := st.Mode & metaModes
	if err := unix.Chmod(selfPath(at), mode|rights); err != nil {
		unix.Close(at)
		return nil, &os.PathError{Op: "chmod", Path: name, Err: err}
	}
	return func() {
		unix.Chmod(selfPath(at), mode)
		unix.Close(at)
	}, nil
}

// openLayerFile is openFile for the file rel of a layer, closed or not. Its
// path can be used until done.
func openLayerFile(layer int, rel string) (f *os.File, st *unix.Stat_t, done func(), err error) {
	f, st, err = openFile(layer, rel, true)
	if !errors.Is(err, unix.EACCES) {
		return f, st, func() {}, err
	}
	fail := func() (*os.File, *unix.Stat_t, func(), error) { return nil, nil, func() {}, err }
	dir, release, cerr := openClosed(layer, path.Dir(rel))
	if cerr != nil {
		release()
		return fail()
	}
	own, cerr := lstatAt(dir, path.Base(rel))
	if cerr != nil || own == nil {
		release()
		return fail()
	}
	restore, cerr := readable(dir, path.Base(rel), own)
	if cerr != nil {
		release()
		return fail()
	}
	done = func() {
		restore()
		release()
	}
	if f, st, err = openFile(layer, rel, true); err != nil {
		done()
		return fail()
	}
	st.Mode = own.Mode
	return f, st, done, nil
}

// sameLayer says whether a layer's file is what it was when the set was made.
// Opening a closed file changes its change time.
func sameLayer(now, then workspace.Identity) bool {
	if then.Mode&0o400 == 0 {
		now.Ctime = then.Ctime
	}
	return now.Same(then)
}
