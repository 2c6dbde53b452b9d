package unpack

import (
	"path"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"golang.org/x/sys/unix"
)

// overlayXattr gives the name of one of overlayfs's attributes. The trusted
// ones take privilege; overlays that an ordinary user mounts (option
// userxattr) look at the others.
func overlayXattr(ids rootfs.IDs, name string) string {
	if ids == rootfs.IDsHost {
		return "trusted.overlay." + name
	}
	return "user.overlay." + name
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
		u.marked[parent] = struct{}{}
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
		if err := unix.Fsetxattr(fd, overlayXattr(u.opt.IDs, "opaque"), []byte("y"), 0); err != nil {
			return broken("mark %q as opaque: %w", real, err)
		}
	}
	if _, ok := u.marked[real]; ok {
		// A folder that only one layer has is shown as it is, with the marks
		// for deletions in it, unless it claims to be a copy of another one.
		// An empty origin is overlayfs's own word for "a copy, of what is not
		// known" (fs/overlayfs, ovl_path_check_origin_xattr).
		if err := unix.Fsetxattr(fd, overlayXattr(u.opt.IDs, "origin"), nil, 0); err != nil {
			return broken("mark %q as having deletions: %w", real, err)
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
