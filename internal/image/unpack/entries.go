package unpack

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"golang.org/x/sys/unix"
)

// The ids a sandbox has; a file of anybody else belongs to nobody.
const (
	maxID  = 65535
	nobody = 65534
)

// make creates one entry that is no deletion.
func (u *unpacker) make(p place, base string, h *tar.Header) error {
	real := p.child(base)
	delete(u.dropped, real)
	switch h.Typeflag {
	case tar.TypeDir:
		return u.makeDir(p, base, h)
	case tar.TypeReg, tar.TypeCont, tar.TypeGNUSparse:
		return u.makeFile(p, base, h)
	case tar.TypeSymlink:
		return u.makeSymlink(p, base, h)
	case tar.TypeLink:
		return u.makeLink(p, base, h)
	case tar.TypeFifo:
		err := u.create(p, base, func() error { return unix.Mkfifoat(p.fd, base, 0o600) })
		if err != nil {
			return broken("make the pipe %q: %w", real, err)
		}
		if err := u.attributes(p, base, h); err != nil {
			return err
		}
		return u.mode(p, base, h)
	case tar.TypeChar, tar.TypeBlock:
		u.dropped[real] = struct{}{}
		u.note("left out the device %.200q: a sandbox has a /dev of its own", real)
		var st unix.Stat_t
		if unix.Fstatat(p.fd, base, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			_, err := u.clear(p, base, false)
			return err
		}
		return nil
	}
	return invalid("%.200q is an entry of the unknown type %q", h.Name, h.Typeflag)
}

// create calls mk, and once more after removing what was in the way.
func (u *unpacker) create(p place, base string, mk func() error) error {
	err := mk()
	if err != unix.EEXIST {
		return err
	}
	if _, err := u.clear(p, base, false); err != nil {
		return err
	}
	return mk()
}

func (u *unpacker) makeDir(p place, base string, h *tar.Header) error {
	err := unix.Mkdirat(p.fd, base, 0o700)
	if err == unix.EEXIST {
		kept, cerr := u.clear(p, base, true)
		if cerr != nil {
			return cerr
		}
		if kept {
			err = nil
		} else {
			err = unix.Mkdirat(p.fd, base, 0o700)
		}
	}
	if err != nil {
		return broken("make the folder %q: %w", p.child(base), err)
	}
	return u.describe(p.child(base), h)
}

// describe notes what the tar says about a folder, for finish.
func (u *unpacker) describe(real string, h *tar.Header) error {
	xattrs, err := u.xattrs(real, h)
	if err != nil {
		return err
	}
	uid, gid, err := u.owner(real, h)
	if err != nil {
		return err
	}
	u.seq++
	u.dirs[real] = dirAttr{seq: u.seq, mode: uint32(h.Mode) & 0o7777, uid: uid, gid: gid, mtime: h.ModTime, xattrs: xattrs}
	return nil
}

func (u *unpacker) makeFile(p place, base string, h *tar.Header) error {
	real := p.child(base)
	xattrs, err := u.xattrs(real, h)
	if err != nil {
		return err
	}
	uid, gid, err := u.owner(real, h)
	if err != nil {
		return err
	}
	fd := -1
	err = u.create(p, base, func() (err error) {
		fd, err = unix.Openat(p.fd, base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		return err
	})
	if err != nil {
		return broken("make the file %q: %w", real, err)
	}
	f := os.NewFile(uintptr(fd), real)
	defer f.Close()
	if err := u.content(f, h.Size); err != nil {
		return err
	}
	if u.opt.IDs == rootfs.IDsHost {
		if err := unix.Fchown(fd, uid, gid); err != nil {
			return broken("give %q its owner: %w", real, err)
		}
	}
	// After the owner: changing that takes set-id bits and capabilities away.
	if err := unix.Fchmod(fd, uint32(h.Mode)&0o7777); err != nil {
		return broken("give %q its mode: %w", real, err)
	}
	for name, value := range xattrs {
		if err := unix.Fsetxattr(fd, name, []byte(value), 0); err != nil {
			return broken("set %s of %q: %w", name, real, err)
		}
	}
	if err := setTimes(fd, "", h.ModTime, unix.AT_EMPTY_PATH); err != nil {
		return broken("give %q its time: %w", real, err)
	}
	return nil
}

// content writes size bytes of the current entry. Stretches of zeros become
// holes.
func (u *unpacker) content(f *os.File, size int64) error {
	var at int64
	for {
		n, err := io.ReadFull(u.tr, u.buf)
		if n > 0 && !allZero(u.buf[:n]) {
			if _, werr := f.WriteAt(u.buf[:n], at); werr != nil {
				return broken("write %q: %w", f.Name(), werr)
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || err == io.ErrUnexpectedEOF && at == size {
			break
		}
		if err != nil {
			return readFailed(err)
		}
	}
	if at != size {
		return invalid("%.200q ends after %d of %d bytes", f.Name(), at, size)
	}
	if size > 0 {
		if err := f.Truncate(size); err != nil {
			return broken("write %q: %w", f.Name(), err)
		}
	}
	return nil
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

func (u *unpacker) makeSymlink(p place, base string, h *tar.Header) error {
	real := p.child(base)
	if h.Linkname == "" || len(h.Linkname) > u.opt.Limits.Path || strings.IndexByte(h.Linkname, 0) >= 0 {
		return invalid("the link %.200q has a target that no link can have", h.Name)
	}
	err := u.create(p, base, func() error { return unix.Symlinkat(h.Linkname, p.fd, base) })
	if err != nil {
		return broken("make the link %q: %w", real, err)
	}
	u.links[real] = struct{}{}
	return u.attributes(p, base, h)
}

func (u *unpacker) makeLink(p place, base string, h *tar.Header) error {
	real := p.child(base)
	target, err := cleanName(h.Linkname, u.opt.Limits)
	if err != nil {
		return err
	}
	if target == "." || hasWhiteoutPart(target) {
		return invalid("%.200q is a hard link to %.200q, which is no file", h.Name, h.Linkname)
	}
	dir, tbase := path.Split(target)
	fd, err := openat2(u.root, path.Clean(dir+"."), unix.O_PATH|unix.O_DIRECTORY, inRoot)
	if err != nil {
		return invalid("%.200q is a hard link to %.200q, which this layer does not have (%w)", h.Name, h.Linkname, err)
	}
	defer unix.Close(fd)
	treal, err := u.realName(fd, path.Clean(dir+"."))
	if err != nil {
		return err
	}
	treal = place{real: treal}.child(tbase)
	if _, ok := u.dropped[treal]; ok {
		u.dropped[real] = struct{}{}
		u.note("left out %.200q, another name of a device", real)
		return nil
	}
	var st unix.Stat_t
	if err := unix.Fstatat(fd, tbase, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return invalid("%.200q is a hard link to %.200q, which this layer does not have", h.Name, h.Linkname)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return invalid("%.200q is a hard link to the folder %.200q", h.Name, h.Linkname)
	}
	if treal == real {
		return nil // a link to itself changes nothing
	}
	var was unix.Stat_t
	if unix.Fstatat(p.fd, base, &was, unix.AT_SYMLINK_NOFOLLOW) == nil && was.Mode&unix.S_IFMT == unix.S_IFDIR &&
		strings.HasPrefix(treal, real+"/") {
		return invalid("%.200q is a hard link to a file below itself", h.Name)
	}
	err = u.create(p, base, func() error { return unix.Linkat(fd, tbase, p.fd, base, 0) })
	if err == unix.EMLINK {
		return invalid("%.200q is one hard link more than the file system allows", h.Linkname)
	}
	if err != nil {
		return broken("link %q to %q: %w", real, treal, err)
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		u.links[real] = struct{}{}
	}
	return nil
}

// attributes gives owner and time to what cannot be opened.
func (u *unpacker) attributes(p place, base string, h *tar.Header) error {
	real := p.child(base)
	uid, gid, err := u.owner(real, h)
	if err != nil {
		return err
	}
	if u.opt.IDs == rootfs.IDsHost {
		if err := unix.Fchownat(p.fd, base, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return broken("give %q its owner: %w", real, err)
		}
	}
	if err := setTimes(p.fd, base, h.ModTime, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return broken("give %q its time: %w", real, err)
	}
	return nil
}

// mode is for pipes: fchmodat without following needs a new kernel, and the
// pipe is ours and new.
func (u *unpacker) mode(p place, base string, h *tar.Header) error {
	if err := unix.Fchmodat(p.fd, base, uint32(h.Mode)&0o7777, 0); err != nil {
		return broken("give %q its mode: %w", p.child(base), err)
	}
	return nil
}

// owner gives the ids an entry gets, and records them where they are not
// stored.
func (u *unpacker) owner(real string, h *tar.Header) (uid, gid int, err error) {
	uid, gid = h.Uid, h.Gid
	if uid > maxID || gid > maxID {
		u.note("%.200q belongs to nobody here: its owner %d:%d is above %d", real, uid, gid, maxID)
		if uid > maxID {
			uid = nobody
		}
		if gid > maxID {
			gid = nobody
		}
	}
	if u.opt.IDs == rootfs.IDsSingle && u.opt.Owners != nil && (uid != 0 || gid != 0) {
		if _, err := fmt.Fprintf(u.opt.Owners, "%d %d %q\n", uid, gid, real); err != nil {
			return 0, 0, broken("record the owner of %q: %w", real, err)
		}
	}
	return uid, gid, nil
}

func setTimes(dir int, name string, t time.Time, flags int) error {
	if t.IsZero() {
		t = time.Unix(0, 0)
	}
	ts := unix.Timespec{Sec: t.Unix(), Nsec: int64(t.Nanosecond())}
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{ts, ts}, flags)
}
