//go:build linux && (amd64 || arm64)

package guest

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxHardLinks  = 65536 // files with several names that an archive keeps as links
	maxFolders    = 65536 // folders of one archive, whose modes and times are set after their files are there
	xattrRecord   = "SCHILY.xattr."
	maxXattrBytes = 64 << 10
)

// tarOut sends the file or folder at path as an archive (POSIX pax). Names are
// relative to it; a single file has its own base name.
func (op *fileOp) tarOut() error {
	s, m := op.c.s, op.m
	info, err := s.stat(m.path, true)
	if err != nil {
		return err
	}
	w := tar.NewWriter(op)
	links := map[[2]uint64]string{}
	if info.Mode&typeMask != typeDir {
		dir, name, err := s.target(m.path)
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		var st unix.Stat_t
		if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return stepErr("stat", err)
		}
		if err := op.tarEntry(w, links, dir, name, path.Base(m.path), &st); err != nil {
			return err
		}
	} else {
		fd, err := s.open(m.path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return stepErr("open folder", err)
		}
		if err := op.walk(fd, "", MaxDepth, true, func(dir int, name, rel string, st *unix.Stat_t) error {
			return op.tarEntry(w, links, dir, name, rel, st)
		}); err != nil {
			return err
		}
	}
	return w.Close()
}

func (op *fileOp) tarEntry(w *tar.Writer, links map[[2]uint64]string, dir int, name, rel string, st *unix.Stat_t) error {
	h := &tar.Header{Name: rel, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Unix()), Format: tar.FormatPAX}
	var f *os.File
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		h.Typeflag, h.Size = tar.TypeReg, st.Size
		if st.Nlink > 1 {
			key := [2]uint64{uint64(st.Dev), st.Ino}
			if first, ok := links[key]; ok {
				h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
				break
			}
			if len(links) < maxHardLinks {
				links[key] = rel
			}
		}
		fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			return nil
		}
		if err != nil {
			return stepErr("open", err)
		}
		f = os.NewFile(uintptr(fd), "file")
		defer f.Close()
		var now unix.Stat_t
		if err := unix.Fstat(fd, &now); err != nil {
			return stepErr("stat", err)
		}
		if now.Mode&unix.S_IFMT != unix.S_IFREG { // it was replaced meanwhile
			return stepErr("open", syscall.EAGAIN)
		}
		h.Size = now.Size
		if op.m.flags&fileXattrs != 0 {
			if h.PAXRecords, err = xattrs(fd); err != nil {
				return err
			}
		}
	case unix.S_IFDIR:
		h.Typeflag, h.Name = tar.TypeDir, rel+"/"
	case unix.S_IFLNK:
		target, err := readlinkat(dir, name)
		if err != nil {
			return stepErr("readlink", err)
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, target
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR, unix.S_IFBLK:
		h.Typeflag = tar.TypeChar
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			h.Typeflag = tar.TypeBlock
		}
		h.Devmajor, h.Devminor = int64(unix.Major(uint64(st.Rdev))), int64(unix.Minor(uint64(st.Rdev)))
	default: // a socket means nothing outside
		return nil
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	if f == nil || h.Size == 0 {
		return nil
	}
	// A file that grows meanwhile is cut at the size announced; one that
	// shrinks cannot be sent as what was announced.
	n, err := io.CopyN(w, f, h.Size)
	if err == io.EOF {
		return &failure{kind: failErrno, errno: uint16(syscall.EAGAIN), step: "read", text: "a file shrank while it was read: " + rel[:min(len(rel), 256)]}
	}
	if err != nil && n < h.Size {
		return err
	}
	return nil
}

// xattrs reads a file's user.* attributes.
func xattrs(fd int) (map[string]string, error) {
	b := make([]byte, maxXattrBytes)
	n, err := unix.Flistxattr(fd, b)
	if err == unix.ENOTSUP {
		return nil, nil
	}
	if err != nil {
		return nil, stepErr("listxattr", err)
	}
	var m map[string]string
	total := 0
	v := make([]byte, maxXattrBytes)
	for name := range strings.SplitSeq(string(b[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") {
			continue
		}
		n, err := unix.Fgetxattr(fd, name, v)
		if err == unix.ENODATA {
			continue
		}
		if total += n; err != nil || total > maxXattrBytes {
			return nil, stepErr("getxattr", errors.Join(err, syscall.E2BIG))
		}
		if m == nil {
			m = map[string]string{}
		}
		m[xattrRecord+name] = string(v[:n])
	}
	return m, nil
}

// tarIn unpacks an archive into the folder at path, which it makes if it is
// not there. Every name is resolved below the server's root.
func (op *fileOp) tarIn() error {
	s, m := op.c.s, op.m
	base := strings.TrimRight(m.path, "/")
	if err := s.mkdirAll(base, 0o755); err != nil {
		return err
	}
	r := tar.NewReader(op)
	type folder struct {
		path string
		mode uint32
		at   time.Time
	}
	var folders []folder
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return tarError(err)
		}
		if h.Typeflag == tar.TypeXGlobalHeader {
			continue // says something about the archive, as git does; it is no file
		}
		rel, err := entryName(h.Name)
		if err != nil {
			return err
		}
		p := base + "/" + rel
		if h.Typeflag == tar.TypeDir {
			if rel != "" {
				if err := op.tarFolder(p, h); err != nil {
					return err
				}
				if len(folders) == maxFolders {
					return &failure{kind: failUsage, text: "the archive has more than " + strconv.Itoa(maxFolders) + " folders"}
				}
				folders = append(folders, folder{p, uint32(h.Mode & 0o7777), h.ModTime})
			}
			continue
		}
		if rel == "" {
			return &failure{kind: failUsage, text: "an entry of the archive has no name"}
		}
		if err := op.untar(r, h, base, p); err != nil {
			return err
		}
	}
	// Last, and deepest first: making files changes the times of their folder,
	// and its mode may forbid making them.
	for i := len(folders) - 1; i >= 0; i-- {
		fd, err := s.open(folders[i].path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if err != nil {
			continue // the archive itself replaced it by something else
		}
		unix.Fchmod(fd, folders[i].mode)
		setTimes(fd, "", folders[i].at)
		unix.Close(fd)
	}
	_, err := io.Copy(io.Discard, op) // what follows the end mark
	return err
}

func tarError(err error) error {
	var f *failure
	if errors.As(err, &f) {
		return err
	}
	text := "the archive cannot be read: " + err.Error()
	return &failure{kind: failUsage, text: text[:min(len(text), maxText)]}
}

// entryName takes the name of an entry: relative, without "..", NUL or an
// element that is too long.
func entryName(name string) (string, error) {
	bad := &failure{kind: failUsage, text: "the archive has a name that leads outside: " + strings.ToValidUTF8(strings.ReplaceAll(name[:min(len(name), 256)], "\x00", "?"), "?")}
	if strings.HasPrefix(name, "/") || strings.IndexByte(name, 0) >= 0 || len(name) > MaxPath {
		return "", bad
	}
	for e := range strings.SplitSeq(name, "/") {
		if e == ".." {
			return "", bad
		}
	}
	if name = path.Clean(name); name == "." {
		name = ""
	}
	return name, nil
}

func (op *fileOp) tarFolder(p string, h *tar.Header) error {
	s := op.c.s
	if err := s.mkdirAll(p, 0o755); err != nil {
		return err
	}
	dir, name, err := s.parent(p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return op.own(dir, name, h)
}

// own gives an entry its owner when the request acts as the sandbox's own
// first user; any other user can only make files of its own.
func (op *fileOp) own(dir int, name string, h *tar.Header) error {
	if op.m.user != nil || unix.Geteuid() != 0 {
		return nil
	}
	return stepErr("chown", unix.Fchownat(dir, name, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW))
}

func setTimes(dir int, name string, at time.Time) {
	ts := []unix.Timespec{{Nsec: unix.UTIME_NOW}, unix.NsecToTimespec(at.UnixNano())}
	if name == "" {
		unix.UtimesNanoAt(dir, ".", ts, 0)
		return
	}
	unix.UtimesNanoAt(dir, name, ts, unix.AT_SYMLINK_NOFOLLOW)
}

// untar makes one entry that is not a folder, in place of what has its name.
func (op *fileOp) untar(r *tar.Reader, h *tar.Header, base, p string) error {
	s := op.c.s
	dir, name, err := s.parent(p)
	if errors.Is(asErrno(err), syscall.ENOENT) {
		if err := s.mkdirAll(path.Dir(p), 0o755); err != nil {
			return err
		}
		dir, name, err = s.parent(p)
	}
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	if err := unix.Unlinkat(dir, name, 0); err != nil && err != unix.ENOENT {
		return stepErr("replace", err)
	}
	mode := uint32(h.Mode & 0o7777)
	switch h.Typeflag {
	case tar.TypeReg:
		fd, err := unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return stepErr("create", err)
		}
		f := os.NewFile(uintptr(fd), "file")
		defer f.Close()
		if _, err := copyFile(f, r); err != nil {
			return tarErrorUnlessErrno(err)
		}
		if err := op.own(dir, name, h); err != nil {
			return err
		}
		if op.m.flags&fileXattrs != 0 {
			for k, v := range h.PAXRecords {
				if a, ok := strings.CutPrefix(k, xattrRecord); ok && strings.HasPrefix(a, "user.") {
					if err := unix.Fsetxattr(fd, a, []byte(v), 0); err != nil {
						return stepErr("setxattr", err)
					}
				}
			}
		}
		if err := unix.Fchmod(fd, mode); err != nil {
			return stepErr("chmod", err)
		}
		setTimes(dir, name, h.ModTime)
		return nil
	case tar.TypeLink:
		target, err := entryName(h.Linkname)
		if err != nil {
			return err
		}
		from, fname, err := s.parent(base + "/" + target)
		if err != nil {
			return err
		}
		defer unix.Close(from)
		return stepErr("link", unix.Linkat(from, fname, dir, name, 0))
	case tar.TypeSymlink:
		err = unix.Symlinkat(h.Linkname, dir, name)
	case tar.TypeFifo:
		err = unix.Mknodat(dir, name, unix.S_IFIFO|mode&0o777, 0)
	case tar.TypeChar:
		err = unix.Mknodat(dir, name, unix.S_IFCHR|mode&0o777, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	case tar.TypeBlock:
		err = unix.Mknodat(dir, name, unix.S_IFBLK|mode&0o777, int(unix.Mkdev(uint32(h.Devmajor), uint32(h.Devminor))))
	default:
		return &failure{kind: failUsage, text: "the archive has an entry of a kind that is not supported"}
	}
	if err != nil {
		return stepErr("create", err)
	}
	if err := op.own(dir, name, h); err != nil {
		return err
	}
	setTimes(dir, name, h.ModTime)
	return nil
}

func tarErrorUnlessErrno(err error) error {
	if asErrno(err) != nil {
		return err
	}
	return tarError(err)
}

// asErrno gives the errno inside err, or nil.
func asErrno(err error) error {
	var f *failure
	if errors.As(err, &f) && f.kind == failErrno {
		return syscall.Errno(f.errno)
	}
	return nil
}
