//go:build linux && (amd64 || arm64)

package guest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher turns inotify(7) into events with paths.
type watcher struct {
	op   *fileOp
	f    *os.File
	fd   int
	dirs map[int32]string // watch descriptor to path relative to the watched one
}

const watchMask = unix.IN_CREATE | unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB |
	unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_EXCL_UNLINK

// watch sends events until it is canceled or the watched path goes. The first
// record is watchReady.
func (op *fileOp) watch() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return stepErr("inotify_init", err)
	}
	w := &watcher{op: op, f: os.NewFile(uintptr(fd), "inotify"), fd: fd, dirs: map[int32]string{}}
	defer w.f.Close()
	stop := context.AfterFunc(op.ctx, func() { w.f.Close() })
	defer stop()
	root, err := op.c.s.open(op.m.path, unix.O_PATH, 0)
	if err != nil {
		return stepErr("open", err)
	}
	err = w.add(root, "")
	unix.Close(root)
	if err != nil {
		return err
	}
	if err := op.record(func(b []byte) []byte { return putWatch(b, WatchEvent{Op: watchReady}) }); err != nil {
		return err
	}
	buf := make([]byte, 16<<10)
	for {
		n, err := w.f.Read(buf)
		if err != nil {
			if op.ctx.Err() != nil {
				return errCanceled
			}
			return stepErr("read inotify", err)
		}
		over, err := w.events(buf[:n])
		if err != nil || over {
			return err
		}
	}
}

// add watches the file or folder that fd is, and what is below it if asked.
func (w *watcher) add(fd int, rel string) error {
	if len(w.dirs) >= MaxWatches {
		return &failure{kind: failBusy, text: "there are more folders to watch than " + strconv.Itoa(MaxWatches)}
	}
	// By descriptor, so that no name can be swapped in between.
	wd, err := unix.InotifyAddWatch(w.fd, "/proc/self/fd/"+strconv.Itoa(fd), watchMask)
	if err != nil {
		return stepErr("inotify_add_watch", err)
	}
	w.dirs[int32(wd)] = rel
	if w.op.m.flags&fileRecursive == 0 {
		return nil
	}
	sub, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err == unix.ENOTDIR {
		return nil
	}
	if err != nil {
		return stepErr("open folder", err)
	}
	return w.op.walk(sub, "", 1, false, func(dir int, name, _ string, st *unix.Stat_t) error {
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			return nil
		}
		return w.addBelow(dir, name, join(rel, name))
	})
}

func (w *watcher) addBelow(dir int, name, rel string) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return nil // gone already, or no folder any more
	default:
		return stepErr("open folder", err)
	}
	defer unix.Close(fd)
	if len(rel) > MaxPath {
		return &failure{kind: failErrno, errno: uint16(syscall.ENAMETOOLONG), step: "watch", text: "a folder's path is longer than " + strconv.Itoa(MaxPath) + " bytes"}
	}
	return w.add(fd, rel)
}

func join(dir, name string) string {
	if dir == "" || name == "" {
		return dir + name
	}
	return dir + "/" + name
}

// events sends what one read gave, and reports whether the watched path is
// gone.
func (w *watcher) events(b []byte) (over bool, err error) {
	for len(b) >= unix.SizeofInotifyEvent {
		wd := int32(binary.LittleEndian.Uint32(b))
		mask, n := binary.LittleEndian.Uint32(b[4:]), int(binary.LittleEndian.Uint32(b[12:]))
		name, _, _ := bytes.Cut(b[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+n], []byte{0})
		b = b[unix.SizeofInotifyEvent+n:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			if err := w.send(WatchEvent{Op: WatchOverflow}); err != nil {
				return false, err
			}
			continue
		}
		dir, ok := w.dirs[wd]
		if !ok {
			continue
		}
		if mask&unix.IN_IGNORED != 0 {
			delete(w.dirs, wd)
			if dir == "" {
				return true, nil
			}
			continue
		}
		var op WatchOp
		for bit, o := range map[uint32]WatchOp{unix.IN_CREATE: WatchCreate, unix.IN_MOVED_TO: WatchCreate, unix.IN_MODIFY: WatchWrite, unix.IN_CLOSE_WRITE: WatchWrite,
			unix.IN_DELETE: WatchRemove, unix.IN_MOVED_FROM: WatchRename, unix.IN_ATTRIB: WatchAttrib} {
			if mask&bit != 0 {
				op |= o
			}
		}
		if dir == "" && mask&unix.IN_DELETE_SELF != 0 {
			op |= WatchRemove
		}
		if dir == "" && mask&unix.IN_MOVE_SELF != 0 {
			op |= WatchRename
		}
		if op == 0 {
			continue
		}
		rel := join(dir, string(name))
		if err := w.send(WatchEvent{Op: op, Path: rel}); err != nil {
			return false, err
		}
		if w.op.m.flags&fileRecursive != 0 && mask&unix.IN_ISDIR != 0 && mask&(unix.IN_CREATE|unix.IN_MOVED_TO) != 0 {
			fd, err := w.op.c.s.open(w.op.m.path+"/"+dir, unix.O_PATH|unix.O_DIRECTORY, 0)
			if err != nil {
				continue
			}
			err = w.addBelow(fd, string(name), rel)
			unix.Close(fd)
			var f *failure
			if errors.As(err, &f) && err != errCanceled {
				err = w.send(WatchEvent{Op: WatchOverflow, Path: rel}) // its own events will be missed
			}
			if err != nil {
				return false, err
			}
		}
	}
	return false, nil
}

func (w *watcher) send(e WatchEvent) error {
	return w.op.record(func(b []byte) []byte { return putWatch(b, e) })
}
