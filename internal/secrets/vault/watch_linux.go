package vault

import (
	"encoding/binary"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher is told by the kernel of what changes in a folder (inotify(7)).
type watcher struct {
	f    *os.File
	once sync.Once
}

func watchFolder(dir string) (*watcher, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &watcher{f: os.NewFile(uintptr(fd), "inotify")}
	const changes = unix.IN_MODIFY | unix.IN_CLOSE_WRITE | unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_MOVED_FROM | unix.IN_DELETE |
		unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, dir, changes); err != nil {
		w.close()
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	return w, nil
}

// next waits for a change; an error is that nobody tells any more.
func (w *watcher) next() error {
	buf := make([]byte, 16<<10)
	n, err := w.f.Read(buf)
	// struct inotify_event: wd, mask, cookie, len, name
	for at := 0; err == nil && at+unix.SizeofInotifyEvent <= n; {
		mask, size := binary.NativeEndian.Uint32(buf[at+4:]), binary.NativeEndian.Uint32(buf[at+12:])
		if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_IGNORED|unix.IN_UNMOUNT) != 0 {
			w.close()
			return os.ErrClosed
		}
		at += unix.SizeofInotifyEvent + int(size)
	}
	return err
}

func (w *watcher) close() { w.once.Do(func() { w.f.Close() }) }
