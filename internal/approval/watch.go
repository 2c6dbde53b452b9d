package approval

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// watcher is told by the kernel of names that come and go in a folder
// (inotify(7)).
type watcher struct {
	f    *os.File
	once sync.Once
}

func watchFolder(dir string) (*watcher, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	w := &watcher{f: os.NewFile(uintptr(fd), "inotify")}
	const names = unix.IN_CREATE | unix.IN_MOVED_TO | unix.IN_DELETE | unix.IN_ONLYDIR
	if _, err := unix.InotifyAddWatch(fd, dir, names); err != nil {
		w.close()
		return nil, os.NewSyscallError("inotify_add_watch", err)
	}
	return w, nil
}

// next waits for a change. Which it was nobody asks: the folder says.
func (w *watcher) next() error {
	_, err := w.f.Read(make([]byte, 16<<10))
	return err
}

func (w *watcher) close() { w.once.Do(func() { w.f.Close() }) }
