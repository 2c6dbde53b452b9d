package share

import (
	"golang.org/x/sys/unix"
)

func (s *Server) lookup(dir *node, q *request, a *answer) error {
	name := q.name()
	if q.bad {
		return unix.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var st unix.Stat_t
	if err := s.statChild(dir, name, &st); err != nil {
		return err
	}
	n := s.child(dir, name)
	n.lookups++
	a.entry(n, &st)
	return nil
}

// place opens a folder to work on a name in it. s.mu is held.
func (s *Server) place(dir *node) (int, error) { return s.at(dir, unix.O_PATH|unix.O_DIRECTORY) }

// make makes something that has no content: a folder, a link, a pipe, a socket, or an
// empty file.
func (s *Server) make(dir *node, q *request, a *answer) error {
	var mode, umask uint32
	var old uint64
	var target string
	switch q.op {
	case opMkdir:
		mode, umask = q.u32(), q.u32()
	case opMknod:
		mode = q.u32()
		q.u32()
		umask = q.u32()
		q.u32()
	case opLink:
		old = q.u64()
	}
	name := q.name()
	if q.op == opSymlink {
		target = q.text()
	}
	if q.bad {
		return unix.EINVAL
	}
	_ = umask // the other kernel has applied it
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.place(dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	var linked *node
	switch q.op {
	case opMkdir:
		err = unix.Mkdirat(at, name, mode&0o1777)
	case opSymlink:
		err = unix.Symlinkat(target, at, name)
	case opMknod:
		if t := mode & unix.S_IFMT; t != unix.S_IFREG && t != unix.S_IFIFO && t != unix.S_IFSOCK {
			return unix.EPERM
		}
		err = unix.Mknodat(at, name, mode&(unix.S_IFMT|0o1777), 0)
	case opLink:
		if linked = s.nodes[old]; linked == nil {
			return unix.ESTALE
		}
		var fd int
		if fd, err = s.at(linked, unix.O_PATH); err == nil {
			err = unix.Linkat(unix.AT_FDCWD, fdPath(fd), at, name, unix.AT_SYMLINK_FOLLOW)
			unix.Close(fd)
		}
	}
	if err != nil {
		return err
	}
	if linked == nil {
		if err := s.own(at, name, mode, q); err != nil {
			return err
		}
	}
	var st unix.Stat_t
	if err := s.statChild(dir, name, &st); err != nil {
		return err
	}
	s.detach(dir, name) // it may be known from before, and be gone since
	n := linked
	if n == nil {
		n = s.child(dir, name)
	} else {
		s.attach(n, dir, name)
	}
	n.lookups++
	a.entry(n, &st)
	return nil
}

// own gives what was just made to who asked for it, with its mode, which the change of owner
// may have cut. Where the ids do not exist it stays the server's.
func (s *Server) own(dir int, name string, mode uint32, q *request) error {
	var st, up unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	gid := q.gid
	if err := unix.Fstat(dir, &up); err == nil && up.Mode&unix.S_ISGID != 0 {
		gid = up.Gid // the folder says whose its files are
	}
	if st.Uid != q.uid || st.Gid != gid {
		if err := unix.Fchownat(dir, name, int(q.uid), int(gid), unix.AT_SYMLINK_NOFOLLOW); err != nil && err != unix.EPERM && err != unix.EINVAL {
			return err
		}
	}
	if special := mode & 0o6000; special != 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
		return chmodAt(dir, name, mode&0o7777)
	}
	return nil
}

func chmodAt(dir int, name string, mode uint32) error {
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Chmod(fdPath(fd), mode)
}

func (s *Server) remove(dir *node, q *request) error {
	name := q.name()
	if q.bad {
		return unix.EINVAL
	}
	flags := 0
	if q.op == opRmdir {
		flags = unix.AT_REMOVEDIR
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, err := s.place(dir)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	if err := unix.Unlinkat(at, name, flags); err != nil {
		return err
	}
	s.detach(dir, name)
	return nil
}

func (s *Server) rename(dir *node, q *request) error {
	to, flags := q.u64(), uint32(0)
	if q.op == opRename2 {
		flags = q.u32()
		q.u32()
	}
	from, name := q.name(), q.name()
	if q.bad || flags&^(unix.RENAME_NOREPLACE|unix.RENAME_EXCHANGE) != 0 { // no whiteout is made
		return unix.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	target := s.nodes[to]
	if target == nil {
		return unix.ESTALE
	}
	a, err := s.place(dir)
	if err != nil {
		return err
	}
	defer unix.Close(a)
	b, err := s.place(target)
	if err != nil {
		return err
	}
	defer unix.Close(b)
	if err := unix.Renameat2(a, from, b, name, uint(flags)); err != nil {
		return err
	}
	if dir == target && from == name {
		return nil
	}
	one, other := dir.kids[from], target.kids[name]
	if one != nil && one == other { // two names of one file: nothing happens
		return nil
	}
	s.detach(dir, from)
	s.detach(target, name)
	if one != nil {
		s.attach(one, target, name)
	}
	if flags&unix.RENAME_EXCHANGE != 0 && other != nil {
		s.attach(other, dir, from)
	}
	return nil
}

func (s *Server) readlink(n *node, a *answer) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fd, err := s.at(n, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	k, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return err
	}
	a.bytes(buf[:k])
	return nil
}
