package share

import (
	"bytes"

	"golang.org/x/sys/unix"
)

func (s *Server) attrOut(n *node, st *unix.Stat_t, a *answer) {
	a.u64(n.valid())
	a.u64(0)
	a.attr(st)
}

func (s *Server) getattr(n *node, q *request, a *answer) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var st unix.Stat_t
	fd, err := s.statNode(n, &st)
	if err != nil {
		return err
	}
	unix.Close(fd)
	s.attrOut(n, &st, a)
	return nil
}

// The bits of setattr's valid.
const (
	setMode = 1 << iota
	setUID
	setGID
	setSize
	setAtime
	setMtime
	_
	setAtimeNow
	setMtimeNow
)

func (s *Server) setattr(n *node, q *request, a *answer) error {
	valid := q.u32()
	q.u32()
	q.u64() // a handle: the node is enough
	size := q.u64()
	q.u64()
	atime, mtime := q.u64(), q.u64()
	q.u64()
	atimeNs, mtimeNs := q.u32(), q.u32()
	q.u32()
	mode := q.u32()
	q.u32()
	uid, gid := q.u32(), q.u32()
	if q.bad {
		return unix.EINVAL
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var st unix.Stat_t
	fd, err := s.statNode(n, &st)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if valid&setSize != 0 {
		if st.Mode&unix.S_IFMT != unix.S_IFREG {
			return unix.EINVAL
		}
		if size > 1<<62 {
			return unix.EFBIG
		}
		if err := s.truncate(n, fd, int64(size)); err != nil {
			return err
		}
	}
	if valid&(setUID|setGID) != 0 {
		u, g := -1, -1
		if valid&setUID != 0 {
			u = int(uid)
		}
		if valid&setGID != 0 {
			g = int(gid)
		}
		if err := unix.Fchownat(fd, "", u, g, unix.AT_EMPTY_PATH); err != nil {
			return err
		}
	}
	if valid&setMode != 0 {
		if st.Mode&unix.S_IFMT == unix.S_IFLNK {
			return unix.EOPNOTSUPP
		}
		if err := unix.Chmod(fdPath(fd), mode&0o7777); err != nil {
			return err
		}
	}
	if valid&(setAtime|setMtime) != 0 {
		ts := [2]unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Nsec: unix.UTIME_OMIT}}
		for i, t := range [2]struct {
			set, now uint32
			sec      uint64
			ns       uint32
		}{{setAtime, setAtimeNow, atime, atimeNs}, {setMtime, setMtimeNow, mtime, mtimeNs}} {
			if valid&t.set == 0 {
				continue
			}
			if ts[i] = (unix.Timespec{Sec: int64(t.sec), Nsec: int64(t.ns % 1e9)}); valid&t.now != 0 {
				ts[i] = unix.Timespec{Nsec: unix.UTIME_NOW}
			}
		}
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, fdPath(fd), ts[:], 0); err != nil {
			return err
		}
	}
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	s.attrOut(n, &st, a)
	return nil
}

// truncate uses a handle that may write, if there is one, for a file whose mode has
// changed since.
func (s *Server) truncate(n *node, fd int, size int64) error {
	for h := range n.open {
		if h.writes {
			return unix.Ftruncate(h.fd, size)
		}
	}
	return unix.Truncate(fdPath(fd), size)
}

func (s *Server) statfs(n *node, a *answer) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fd, err := s.at(n, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return err
	}
	for _, v := range [...]uint64{st.Blocks, st.Bfree, st.Bavail, st.Files, st.Ffree} {
		a.u64(v)
	}
	for _, v := range [...]uint32{uint32(st.Bsize), uint32(st.Namelen), uint32(st.Frsize), 0} {
		a.u32(v)
	}
	a.bytes(make([]byte, 24))
	return nil
}

// maxXattr is the kernel's own bound of a value and of a list.
const maxXattr = 64 << 10

// hiddenXattr are attributes by which the host keeps its layers: they are not the other
// kernel's to see or to set.
func hiddenXattr(name string) bool {
	return len(name) == 0 || len(name) > maxName || bytes.HasPrefix([]byte(name), []byte("trusted.")) || bytes.HasPrefix([]byte(name), []byte("user.overlay."))
}

func (s *Server) xattr(n *node, q *request, a *answer) error {
	var size, flags uint32
	switch q.op {
	case opSetxattr:
		size, flags = q.u32(), q.u32()
	case opGetxattr, opListxattr:
		size = q.u32()
		q.u32()
	}
	name := ""
	if q.op != opListxattr {
		if name = q.text(); hiddenXattr(name) {
			return unix.EOPNOTSUPP
		}
	}
	if q.bad || size > maxXattr {
		return unix.EINVAL
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	var st unix.Stat_t
	fd, err := s.statNode(n, &st)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return unix.EOPNOTSUPP
	}
	at := fdPath(fd)
	buf := make([]byte, maxXattr)
	switch q.op {
	case opSetxattr:
		if int(size) > len(q.body) {
			return unix.EINVAL
		}
		return unix.Setxattr(at, name, q.body[:size], int(flags&(unix.XATTR_CREATE|unix.XATTR_REPLACE)))
	case opRemovexattr:
		return unix.Removexattr(at, name)
	case opGetxattr:
		k, err := unix.Getxattr(at, name, buf)
		if err != nil {
			return err
		}
		buf = buf[:k]
	case opListxattr:
		k, err := unix.Listxattr(at, buf)
		if err != nil {
			return err
		}
		var shown []byte
		for _, name := range bytes.SplitAfter(buf[:k], []byte{0}) {
			if len(name) > 1 && !hiddenXattr(string(name[:len(name)-1])) {
				shown = append(shown, name...)
			}
		}
		buf = shown
	}
	if size == 0 {
		a.u32(uint32(len(buf)))
		a.u32(0)
		return nil
	}
	if len(buf) > int(size) {
		return unix.ERANGE
	}
	a.bytes(buf)
	return nil
}
