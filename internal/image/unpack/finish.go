package unpack

import (
	"path"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"golang.org/x/sys/unix"
)

// opaqueXattr is the attribute by which overlayfs knows a folder that hides
// what lies below it. The trusted one takes privilege; overlays that an
// ordinary user mounts (option userxattr) look at the other.
func opaqueXattr(ids rootfs.IDs) string {
	if ids == rootfs.IDsHost {
		return "trusted.overlay.opaque"
	}
	return "user.overlay.opaque"
}

// whiteout makes real disappear from the layers below.
func (u *unpacker) whiteout(real string, seq int64) error {
	parent, base := path.Split(real)
	parent = path.Clean(parent + ".")
	if parent != "." && u.gone(parent, seq) {
		return nil
	}
	if _, ok := u.isOpaque(parent); ok {
		return nil // hidden already; overlayfs wants no marks in an opaque folder
	}
	fd, err := openat2(u.root, parent, unix.O_PATH|unix.O_DIRECTORY, exactly)
	if err != nil {
		return broken("open the folder %q: %w", parent, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	switch err := unix.Fstatat(fd, base, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == unix.ENOENT:
		// Makes no device: 0:0 is the one number that any user may use.
		if err := unix.Mknodat(fd, base, unix.S_IFCHR, 0); err != nil {
			return broken("mark %q as deleted: %w", real, err)
		}
	case err != nil:
		return broken("look at %q: %w", real, err)
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		// Deleted below and made anew here.
		u.seq++
		u.opaque[real] = u.seq
	}
	return nil
}

func (u *unpacker) isOpaque(real string) (int64, bool) {
	seq, ok := u.opaque[real]
	return seq, ok && !(real != "." && u.gone(real, seq))
}

func (u *unpacker) finishDir(real string, a dirAttr) error {
	fd, err := openat2(u.root, real, unix.O_RDONLY|unix.O_DIRECTORY, exactly)
	if err != nil {
		return broken("open the folder %q: %w", real, err)
	}
	defer unix.Close(fd)
	if u.opt.IDs == rootfs.IDsHost {
		if err := unix.Fchown(fd, a.uid, a.gid); err != nil {
			return broken("give %q its owner: %w", real, err)
		}
	}
	if _, ok := u.isOpaque(real); ok {
		if err := unix.Fsetxattr(fd, opaqueXattr(u.opt.IDs), []byte("y"), 0); err != nil {
			return broken("mark %q as opaque: %w", real, err)
		}
	}
	for name, value := range a.xattrs {
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil {
			return broken("set %s of %q: %w", name, real, err)
		}
	}
	if err := setTimes(fd, "", a.mtime, unix.AT_EMPTY_PATH); err != nil {
		return broken("give %q its time: %w", real, err)
	}
	if err := unix.Fchmod(fd, a.mode); err != nil {
		return broken("give %q its mode: %w", real, err)
	}
	return nil
}
