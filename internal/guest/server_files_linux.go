//go:build linux && (amd64 || arm64)

package guest

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func infoOf(name string, st *unix.Stat_t) FileInfo {
	return FileInfo{Name: name, Mode: st.Mode, UID: st.Uid, GID: st.Gid, Size: st.Size, ModTime: time.Unix(st.Mtim.Unix()),
		Inode: st.Ino, Links: uint64(st.Nlink)}
}

// openRegular opens a file for reading and refuses what is not a plain file:
// a FIFO or a device would hold the request, or do something.
func (s *Server) openRegular(p string) (*os.File, *unix.Stat_t, error) {
	fd, err := s.open(p, unix.O_RDONLY, 0)
	if err != nil {
		return nil, nil, stepErr("open", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, nil, stepErr("stat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		e := syscall.EINVAL
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			e = syscall.EISDIR
		}
		return nil, nil, &failure{kind: failErrno, errno: uint16(e), step: "open", text: "it is not a regular file"}
	}
	return os.NewFile(uintptr(fd), "file"), &st, nil
}

func (op *fileOp) readFile() error {
	f, st, err := op.c.s.openRegular(op.m.path)
	if err != nil {
		return err
	}
	defer f.Close()
	info := infoOf(op.m.path, st)
	if err := op.record(func(b []byte) []byte { return putInfo(b, &info) }); err != nil {
		return err
	}
	left := op.m.length
	if left == 0 {
		left = 1<<63 - 1
	}
	at := op.m.offset
	buf := make([]byte, maxChunk)
	for left > 0 {
		n, err := f.ReadAt(buf[:min(left, int64(len(buf)))], at)
		if n > 0 {
			if _, err := op.Write(buf[:n]); err != nil {
				return err
			}
			at, left = at+int64(n), left-int64(n)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return stepErr("read", err)
		}
	}
	return nil
}

// tempName is a name that nobody chose before.
func tempName() string {
	var b [12]byte
	rand.Read(b[:])
	return ".bailey-" + hex.EncodeToString(b[:])
}

// writeFile writes a new file beside the one it then replaces, so that nobody
// ever sees a part of it.
func (op *fileOp) writeFile() (w Written, err error) {
	s, m := op.c.s, op.m
	if m.flags&fileParents != 0 {
		if err := s.mkdirAll(path.Dir(m.path), 0o755); err != nil {
			return w, err
		}
	}
	dir, name, err := s.target(m.path)
	if err != nil {
		return w, err
	}
	defer unix.Close(dir)
	mode := m.mode
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR:
		return w, stepErr("open", syscall.EISDIR)
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG:
		return w, &failure{kind: failErrno, errno: uint16(syscall.EINVAL), step: "open", text: "it is not a regular file"}
	case err == nil && mode == 0:
		mode = st.Mode & 0o777
	case mode == 0:
		mode = 0o644
	}
	temp := tempName()
	fd, err := unix.Openat(dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return w, stepErr("create", err)
	}
	f := os.NewFile(uintptr(fd), "file")
	defer func() {
		f.Close()
		if err != nil {
			unix.Unlinkat(dir, temp, 0)
		}
	}()
	sum := sha256.New()
	if w.Size, err = copyFile(f, io.TeeReader(op, sum)); err != nil {
		return w, err
	}
	sum.Sum(w.SHA256[:0])
	if m.owner != nil {
		if err = unix.Fchown(fd, int(m.owner.UID), int(m.owner.GID)); err != nil {
			return w, stepErr("chown", err)
		}
	}
	if err = unix.Fchmod(fd, mode); err != nil {
		return w, stepErr("chmod", err)
	}
	if err = f.Close(); err != nil {
		return w, stepErr("close", err)
	}
	if err = unix.Renameat(dir, temp, dir, name); err != nil {
		return w, stepErr("rename", err)
	}
	return w, nil
}

// copyFile copies until EOF. Failures to write come as errnos, such as ENOSPC.
func copyFile(f *os.File, r io.Reader) (int64, error) {
	buf := make([]byte, maxChunk)
	var total int64
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := f.Write(buf[:n]); werr != nil {
				return total, stepErr("write", werr)
			}
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}

func (s *Server) stat(p string, follow bool) (FileInfo, error) {
	flags := unix.O_PATH
	if !follow {
		flags |= unix.O_NOFOLLOW
	}
	fd, err := s.open(p, flags, 0)
	if err != nil {
		return FileInfo{}, stepErr("stat", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return FileInfo{}, stepErr("stat", err)
	}
	i := infoOf(p, &st)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		i.Target, _ = readlinkat(fd, "")
	}
	return i, nil
}

func (s *Server) mkdir(p string, mode uint32, parents bool) error {
	if mode == 0 {
		mode = 0o755
	}
	if parents {
		return s.mkdirAll(p, mode)
	}
	dir, name, err := s.parent(p)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	return stepErr("mkdir", makeDir(dir, name, mode))
}

func (s *Server) rename(from, to string) error {
	d1, n1, err := s.parent(from)
	if err != nil {
		return err
	}
	defer unix.Close(d1)
	d2, n2, err := s.parent(to)
	if err != nil {
		return err
	}
	defer unix.Close(d2)
	return stepErr("rename", unix.Renameat(d1, n1, d2, n2))
}

func (s *Server) readlink(p string) (string, error) {
	dir, name, err := s.parent(p)
	if err != nil {
		return "", err
	}
	defer unix.Close(dir)
	target, err := readlinkat(dir, name)
	return target, stepErr("readlink", err)
}

// remove removes a file, or a folder with all in it; links are removed, never
// followed.
func (op *fileOp) remove() error {
	dir, name, err := op.c.s.parent(op.m.path)
	if err != nil {
		return err
	}
	defer unix.Close(dir)
	err = unix.Unlinkat(dir, name, 0)
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return stepErr("unlink", err)
	}
	if op.m.flags&fileRecursive == 0 {
		return stepErr("rmdir", unix.Unlinkat(dir, name, unix.AT_REMOVEDIR))
	}
	return op.removeTree(dir, name, 0)
}

func (op *fileOp) removeTree(parent int, name string, depth int) error {
	if depth > MaxDepth {
		return errTooDeep
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return stepErr("open folder", err)
	}
	f := os.NewFile(uintptr(fd), "folder")
	defer f.Close()
	// Removing while reading may skip names on some file systems, so it starts
	// over until a pass finds nothing.
	for found := true; found; {
		found = false
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return stepErr("read folder", err)
		}
		for {
			if op.ctx.Err() != nil {
				return errCanceled
			}
			names, err := f.Readdirnames(256)
			for _, n := range names {
				found = true
				err := unix.Unlinkat(fd, n, 0)
				if errors.Is(err, unix.EISDIR) || errors.Is(err, unix.EPERM) {
					err = op.removeTree(fd, n, depth+1)
				}
				if err != nil && !errors.Is(err, unix.ENOENT) {
					var fail *failure
					if errors.As(err, &fail) {
						return err
					}
					return stepErr("unlink", err)
				}
			}
			if err == io.EOF || err == nil && len(names) == 0 {
				break
			}
			if err != nil {
				return stepErr("read folder", err)
			}
		}
	}
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return stepErr("rmdir", err)
}

// list sends what is in a folder.
func (op *fileOp) list() error {
	fd, err := op.c.s.open(op.m.path, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return stepErr("open folder", err)
	}
	depth := max(int(op.m.depth), 1)
	// Who asks for all there can be is told when there is more.
	return op.walk(fd, "", depth, depth == MaxDepth, func(dir int, name, rel string, st *unix.Stat_t) error {
		i := infoOf(rel, st)
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			i.Target, _ = readlinkat(dir, name)
		}
		return op.record(func(b []byte) []byte { return putInfo(b, &i) })
	})
}

// errTooDeep ends what would otherwise leave out what lies further down.
var errTooDeep = &failure{kind: failErrno, errno: uint16(syscall.ENAMETOOLONG), step: "walk",
	text: "there are more than " + strconv.Itoa(MaxDepth) + " levels of folders"}

// walk visits what is below the folder fd, which it closes, without following
// links and at most depth levels down. With whole, anything further down is
// errTooDeep. A file that vanishes meanwhile is left out.
func (op *fileOp) walk(fd int, prefix string, depth int, whole bool, visit func(dir int, name, rel string, st *unix.Stat_t) error) error {
	f := os.NewFile(uintptr(fd), "folder")
	defer f.Close()
	for {
		if op.ctx.Err() != nil {
			return errCanceled
		}
		names, err := f.Readdirnames(256)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return stepErr("read folder", err)
		}
		if depth == 0 && len(names) > 0 {
			return errTooDeep
		}
		for _, n := range names {
			var st unix.Stat_t
			if err := unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
				continue
			} else if err != nil {
				return stepErr("stat", err)
			}
			if err := visit(fd, n, prefix+n, &st); err != nil {
				return err
			}
			if st.Mode&unix.S_IFMT != unix.S_IFDIR || depth <= 1 && !whole {
				continue
			}
			sub, err := unix.Openat(fd, n, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
			if err == unix.ENOENT || err == unix.ENOTDIR || err == unix.ELOOP {
				continue
			}
			if err != nil {
				return stepErr("open folder", err)
			}
			if err := op.walk(sub, prefix+n+"/", depth-1, whole, visit); err != nil {
				return err
			}
		}
	}
}
