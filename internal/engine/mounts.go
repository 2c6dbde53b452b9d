package engine

import (
	"context"
	"errors"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepMounts keeps the file systems of a generation's writable places from being
// taken down by the last of its processes: the kernel lets go of every file that
// was looked at, which takes the longer the more there were, and whoever waits for
// the end of the processes would wait for that. letGo has it done in the background.
// What cannot be kept is taken down as ever.
func (e *Engine) keepMounts(g *generation, r *record) (letGo func()) {
	root, err := unix.Open("/proc/"+strconv.Itoa(g.instance.Pid())+"/root", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	held := []int{}
	for _, place := range r.Roots {
		// What the sandbox has there leads nowhere else, and only its mount is kept.
		fd, err := openInside(root, place.Target)
		if err == nil {
			held = append(held, fd)
		}
	}
	unix.Close(root)
	return func() {
		e.spawn(func(context.Context) {
			for _, fd := range held {
				unix.Close(fd)
			}
		})
	}
}

func openInside(root int, path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_SYMLINKS}
	for {
		fd, err := unix.Openat2(root, path, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		return fd, err
	}
}
