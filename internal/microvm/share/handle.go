package share

import (
	"encoding/binary"
	"path"

	"golang.org/x/sys/unix"
)

// handle is an open file or folder.
type handle struct {
	fd     int
	node   *node
	writes bool
	list   []dirent // of a folder whose reading has begun
}

type dirent struct {
	ino  uint64
	typ  uint8
	name string
}

// maxHandles bounds open files.
const maxHandles = 16 << 10

const keepCache = 1 << 1 // what is remembered of a file's content stays good

// keep registers a handle. s.mu is held for writing.
func (s *Server) keep(h *handle) uint64 {
	s.nextFH++
	s.handles[s.nextFH] = h
	if h.node.open == nil {
		h.node.open = map[*handle]bool{}
	}
	h.node.open[h] = true
	return s.nextFH
}

func (s *Server) opened(n *node, fh uint64, a *answer) {
	a.u64(fh)
	if n.live {
		a.u32(0)
	} else {
		a.u32(keepCache)
	}
	a.u32(0)
}

// openFlags leaves of a file's flags what matters here: where data goes is said with
// each write, and the kernel asks for everything else on its own.
func openFlags(flags uint32) int {
	return int(flags)&unix.O_ACCMODE | unix.O_NONBLOCK
}

func (s *Server) openFile(n *node, q *request, a *answer) error {
	flags := q.u32()
	if q.bad {
		return unix.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.handles) >= maxHandles {
		return unix.ENFILE
	}
	fd, err := s.regular(n, openFlags(flags))
	if err != nil {
		return err
	}
	s.opened(n, s.keep(&handle{fd: fd, node: n, writes: flags&unix.O_ACCMODE != unix.O_RDONLY}), a)
	return nil
}

// regular opens a node that is a regular file.
func (s *Server) regular(n *node, flags int) (int, error) {
	var st unix.Stat_t
	fd, err := s.statNode(n, &st)
	if err != nil {
		return -1, err
	}
	unix.Close(fd)
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return -1, unix.EINVAL
	}
	if fd, err = s.at(n, flags); err != nil {
		return -1, err
	}
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return -1, unix.EINVAL
	}
	return fd, nil
}

func (s *Server) create(dir *node, q *request, a *answer) error {
	flags, mode := q.u32(), q.u32()
	q.u32()
	q.u32()
	name := q.name()
	if q.bad {
		return unix.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.handles) >= maxHandles {
		return unix.ENFILE
	}
	p, ok := dir.path()
	if !ok {
		return unix.ESTALE
	}
	at := path.Join(p, name)
	fd, err := s.open(at, openFlags(flags)|unix.O_CREAT|unix.O_EXCL, mode&0o1777)
	made := err == nil
	if err == unix.EEXIST && flags&unix.O_EXCL == 0 {
		var st unix.Stat_t
		if err = s.statChild(dir, name, &st); err == nil {
			if st.Mode&unix.S_IFMT != unix.S_IFREG {
				return unix.EEXIST
			}
			fd, err = s.open(at, openFlags(flags), 0)
		}
	}
	if err != nil {
		return err
	}
	if made {
		d, err := s.place(dir)
		if err == nil {
			err = s.own(d, name, mode|unix.S_IFREG, q)
			unix.Close(d)
		}
		if err != nil {
			unix.Close(fd)
			return err
		}
		s.detach(dir, name)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	n := s.child(dir, name)
	n.lookups++
	a.entry(n, &st)
	s.opened(n, s.keep(&handle{fd: fd, node: n, writes: flags&unix.O_ACCMODE != unix.O_RDONLY}), a)
	return nil
}

// handleOp does what is done by a handle alone.
func (s *Server) handleOp(n *node, q *request, a *answer) error {
	fh := q.u64()
	s.mu.RLock()
	h := s.handles[fh]
	s.mu.RUnlock()
	if h == nil {
		return unix.EBADF
	}
	switch q.op {
	case opRead:
		return h.read(q, a)
	case opWrite:
		return h.write(q, a)
	case opFlush:
		return nil
	case opRelease, opReleasedir:
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.handles[fh] == h {
			delete(s.handles, fh)
			delete(h.node.open, h)
			unix.Close(h.fd)
			s.prune(h.node)
		}
		return nil
	case opFsync, opFsyncdir:
		if q.u32()&1 != 0 {
			return unix.Fdatasync(h.fd)
		}
		return unix.Fsync(h.fd)
	case opFallocate:
		off, size, mode := q.u64(), q.u64(), q.u32()
		if q.bad || mode&^(unix.FALLOC_FL_KEEP_SIZE|unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) != 0 {
			return unix.EOPNOTSUPP
		}
		return unix.Fallocate(h.fd, mode, int64(off), int64(size))
	case opLseek:
		off, whence := q.u64(), q.u32()
		if q.bad || whence != unix.SEEK_DATA && whence != unix.SEEK_HOLE {
			return unix.EINVAL
		}
		at, err := unix.Seek(h.fd, int64(off), int(whence))
		a.u64(uint64(at))
		return err
	}
	return unix.ENOSYS
}

func (h *handle) read(q *request, a *answer) error {
	off, size := q.u64(), q.u32()
	if q.bad || size > MaxWrite || off > 1<<62 {
		return unix.EINVAL
	}
	b := make([]byte, headerOut+int(size))
	copy(b, a.b)
	total := 0
	for total < int(size) {
		k, err := unix.Pread(h.fd, b[headerOut+total:], int64(off)+int64(total))
		if err == unix.EINTR {
			continue
		}
		if err != nil && total == 0 {
			return err
		}
		if k <= 0 {
			break
		}
		total += k
	}
	a.b = b[:headerOut+total]
	return nil
}

func (h *handle) write(q *request, a *answer) error {
	off, size := q.u64(), q.u32()
	q.u32()
	q.u64()
	q.u64()
	if q.bad || int(size) > len(q.body) || off > 1<<62 {
		return unix.EINVAL
	}
	total := 0
	for total < int(size) {
		k, err := unix.Pwrite(h.fd, q.body[total:size], int64(off)+int64(total))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			if total == 0 {
				return err
			}
			break
		}
		total += k
	}
	a.u32(uint32(total))
	a.u32(0)
	return nil
}

func (s *Server) openDir(n *node, a *answer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.handles) >= maxHandles {
		return unix.ENFILE
	}
	fd, err := s.at(n, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	a.u64(s.keep(&handle{fd: fd, node: n}))
	a.u64(0)
	return nil
}

// readDir gives entries. A folder's names are read when its reading begins, and their place
// in that list is their offset.
func (s *Server) readDir(n *node, q *request, a *answer) error {
	fh, off, size := q.u64(), q.u64(), q.u32()
	if q.bad || size > MaxWrite {
		return unix.EINVAL
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.handles[fh]
	if h == nil || h.node != n {
		return unix.EBADF
	}
	if off == 0 || h.list == nil {
		list, err := namesIn(h.fd)
		if err != nil {
			return err
		}
		h.list = list
	}
	for i := off; i < uint64(len(h.list)); i++ {
		d := h.list[i]
		k := 24 + len(d.name)
		pad := -k & 7
		if q.op == opReaddirplus {
			k += 128
		}
		if len(a.b)-headerOut+k+pad > int(size) {
			break
		}
		if q.op == opReaddirplus {
			s.entryOf(n, d, a)
		}
		a.u64(d.ino)
		a.u64(i + 1)
		a.u32(uint32(len(d.name)))
		a.u32(uint32(d.typ))
		a.bytes([]byte(d.name))
		a.bytes(make([]byte, pad))
	}
	return nil
}

// entryOf appends what a name stands for, or nothing that the other kernel would
// remember.
func (s *Server) entryOf(dir *node, d dirent, a *answer) {
	var st unix.Stat_t
	if d.name == "." || d.name == ".." || s.statChild(dir, d.name, &st) != nil {
		a.bytes(make([]byte, 128))
		return
	}
	c := s.child(dir, d.name)
	c.lookups++
	a.entry(c, &st)
}

// namesIn reads a folder from its beginning.
func namesIn(fd int) ([]dirent, error) {
	if _, err := unix.Seek(fd, 0, unix.SEEK_SET); err != nil {
		return nil, err
	}
	list := []dirent{}
	buf := make([]byte, 64<<10)
	for {
		k, err := unix.Getdents(fd, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil || k == 0 {
			return list, err
		}
		for b := buf[:k]; len(b) >= 19; {
			n := int(binary.LittleEndian.Uint16(b[16:]))
			if n < 19 || n > len(b) {
				return nil, unix.EIO
			}
			list = append(list, dirent{binary.LittleEndian.Uint64(b), b[18], unix.ByteSliceToString(b[19:n])})
			b = b[n:]
		}
	}
}
