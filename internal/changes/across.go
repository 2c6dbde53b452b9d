package changes

import (
	"context"
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// copyAcross copies one file that is no folder to another file system, with
// all that a user can see of it. What is at the target is replaced.
func copyAcross(ctx context.Context, from int, name string, to int, target string) error {
	st, err := lstatAt(from, name)
	if err != nil {
		return err
	}
	if st == nil {
		return &os.PathError{Op: "copy", Path: name, Err: unix.ENOENT}
	}
	if err := unix.Unlinkat(to, target, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	switch kindOf(st.Mode) {
	case Symlink:
		link, err := os.Readlink(procPath(from, name))
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(link, to, target); err != nil {
			return err
		}
	case File:
		src, _, err := openFile(from, name, true)
		if err != nil {
			return err
		}
		defer src.Close()
		fd, err := unix.Openat(to, target, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return err
		}
		dst := os.NewFile(uintptr(fd), target)
		defer dst.Close()
		if err := workspace.CopyContent(ctx, src, dst, st.Size); err != nil {
			return err
		}
	default:
		if err := unix.Mknodat(to, target, st.Mode, int(st.Rdev)); err != nil {
			return err
		}
	}
	err = unix.Fchownat(to, target, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
	if err != nil && !(errors.Is(err, unix.EPERM) && os.Geteuid() != 0) {
		return err
	}
	xattrs, err := workspace.Xattrs(procPath(from, name))
	if err != nil {
		return err
	}
	for _, x := range xattrs {
		err := unix.Lsetxattr(procPath(to, target), x.Name, x.Value, 0)
		if err != nil && !errors.Is(err, unix.EPERM) && !(errors.Is(err, unix.ENOTSUP) && !strings.HasPrefix(x.Name, "security.capability")) {
			return err
		}
	}
	if kindOf(st.Mode) != Symlink {
		if err := unix.Fchmodat(to, target, st.Mode&metaModes, 0); err != nil {
			return err
		}
	}
	return unix.UtimesNanoAt(to, target, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
}
