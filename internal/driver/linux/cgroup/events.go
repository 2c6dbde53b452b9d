//go:build linux

package cgroup

import (
	"context"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// waitFor reads the control file name of dir, again whenever the kernel says
// that it has changed, until ok likes its text. It ends with ctx's error, or
// with the one of reading. The kernel tells about changes of cgroup.events,
// memory.events and the like by POLLPRI.
func waitFor(ctx context.Context, dir, name string, ok func(text string) bool) error {
	path := filepath.Join(dir, name)
	fd, err := open(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// The event count comes first: a change between reading and waiting is
	// then seen by poll, which compares with the last read.
	text, err := readFD(fd, path)
	if err != nil || ok(text) {
		return err
	}

	cancel, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return err
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		unix.Write(cancel, []byte{1, 0, 0, 0, 0, 0, 0, 0})
		close(stopped)
	})
	defer func() {
		if !stop() {
			<-stopped // the descriptor is in use until then
		}
		unix.Close(cancel)
	}()
	for {
		set := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}, {Fd: int32(cancel), Events: unix.POLLIN}}
		if _, err := unix.Poll(set, -1); err != nil && err != unix.EINTR {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		text, err := readFD(fd, path)
		if err != nil || ok(text) {
			return err
		}
	}
}

// WaitEmpty waits until no process is left in the group and the groups below
// it. A group that is gone is empty.
func (g *Group) WaitEmpty(ctx context.Context) error {
	if g.v2 != "" {
		return gone(waitFor(ctx, g.v2, "cgroup.events", func(s string) bool { return field(s, "populated") == 0 }))
	}
	return g.retry(ctx, func() (bool, error) {
		for _, dir := range g.folders() {
			procs, err := pids(dir)
			if gone(err) != nil {
				return false, err
			}
			if len(procs) > 0 {
				return false, nil
			}
		}
		return true, nil
	})
}
