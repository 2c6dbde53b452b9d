package share

import (
	"io"
	"path"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Options say what is served.
type Options struct {
	// Dir is the folder.
	Dir string
	// Live are paths below it, absolute as the other kernel sees them, that others may
	// change as well.
	Live []string
}

// Server serves one folder to one kernel.
type Server struct {
	root int
	live map[string]bool

	mu      sync.RWMutex // the names; held for writing while one changes
	nodes   map[uint64]*node
	next    uint64
	handles map[uint64]*handle
	nextFH  uint64

	in   []byte // what has arrived and is not begun; Serve's
	gate sync.Mutex
	held bool           // nothing more is begun
	work sync.WaitGroup // what is being done

	out sync.Mutex
	w   io.Writer
	err error
}

// atOnce is how many requests are worked on at once.
const atOnce = 16

// New opens the folder.
func New(o Options) (*Server, error) {
	fd, err := unix.Open(o.Dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &Server{root: fd, live: map[string]bool{}, nodes: map[uint64]*node{}, next: rootID, handles: map[uint64]*handle{}}
	s.nodes[rootID] = &node{id: rootID}
	for _, p := range o.Live {
		s.live[strings.TrimPrefix(path.Clean(p), "/")] = true
	}
	return s, nil
}

// Close lets go of the folder, after Serve.
func (s *Server) Close() {
	for _, h := range s.handles {
		unix.Close(h.fd)
	}
	unix.Close(s.root)
}

// maxHeld bounds the requests that wait while nothing is done, in bytes.
const maxHeld = 64 << 20

// Serve works until the stream ends or something on it makes no sense.
func (s *Server) Serve(rw io.ReadWriter) error {
	s.w = rw
	defer s.work.Wait()
	slots := make(chan struct{}, atOnce)
	chunk := make([]byte, 64<<10)
	for {
		if err := s.dispatch(slots); err != nil {
			return err
		}
		n, err := rw.Read(chunk)
		if n > 0 {
			if s.in = append(s.in, chunk[:n]...); len(s.in) > maxHeld {
				return errMessage
			}
			continue
		}
		if err != nil {
			return err
		}
	}
}

// dispatch begins the requests that have arrived whole.
func (s *Server) dispatch(slots chan struct{}) error {
	for {
		q, n, err := nextRequest(s.in)
		if err != nil || q == nil {
			return err
		}
		slots <- struct{}{}
		s.gate.Lock()
		if s.held {
			s.gate.Unlock()
			<-slots
			return nil
		}
		s.work.Add(1)
		s.gate.Unlock()
		if s.in = s.in[n:]; len(s.in) == 0 {
			s.in = nil
		}
		switch q.op {
		case opForget, opBatchForget:
			err = s.forgets(q)
		case opInterrupt, opDestroy: // no request waits for anything
		default:
			go func() {
				defer func() { <-slots; s.work.Done() }()
				a := newAnswer(q.unique)
				err := s.do(q, a)
				if err == nil && q.bad {
					err = unix.EINVAL
				}
				s.send(a.finish(err))
			}()
			if err := s.failure(); err != nil {
				return err
			}
			continue
		}
		<-slots
		s.work.Done()
		if err != nil {
			return err
		}
	}
}

func (s *Server) send(b []byte) {
	s.out.Lock()
	defer s.out.Unlock()
	if s.err == nil {
		_, s.err = s.w.Write(b)
	}
}

func (s *Server) failure() error {
	s.out.Lock()
	defer s.out.Unlock()
	return s.err
}

func (s *Server) forgets(q *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.op == opForget {
		n := q.u64()
		s.forget(q.node, n)
	} else {
		count := q.u32()
		q.u32()
		if int(count) > len(q.body)/16 {
			return errMessage
		}
		for range count {
			id := q.u64()
			s.forget(id, q.u64())
		}
	}
	if q.bad {
		return errMessage
	}
	return nil
}

// do does a request.
func (s *Server) do(q *request, a *answer) error {
	if q.op == opInit {
		return initialize(q, a)
	}
	s.mu.RLock()
	n := s.nodes[q.node]
	s.mu.RUnlock()
	if n == nil {
		return unix.ESTALE
	}
	switch q.op {
	case opLookup:
		return s.lookup(n, q, a)
	case opGetattr:
		return s.getattr(n, q, a)
	case opSetattr:
		return s.setattr(n, q, a)
	case opReadlink:
		return s.readlink(n, a)
	case opSymlink, opMknod, opMkdir, opLink:
		return s.make(n, q, a)
	case opUnlink, opRmdir:
		return s.remove(n, q)
	case opRename, opRename2:
		return s.rename(n, q)
	case opOpen:
		return s.openFile(n, q, a)
	case opCreate:
		return s.create(n, q, a)
	case opRead, opWrite, opRelease, opReleasedir, opFsync, opFsyncdir, opFlush, opFallocate, opLseek:
		return s.handleOp(n, q, a)
	case opOpendir:
		return s.openDir(n, a)
	case opReaddir, opReaddirplus:
		return s.readDir(n, q, a)
	case opStatfs:
		return s.statfs(n, a)
	case opGetxattr, opListxattr, opSetxattr, opRemovexattr:
		return s.xattr(n, q, a)
	}
	return unix.ENOSYS
}

// What is wanted of the protocol's features.
const (
	featAsyncRead       = 1 << 0
	featBigWrites       = 1 << 5
	featAutoInval       = 1 << 12
	featReaddirplus     = 1 << 13
	featReaddirplusAuto = 1 << 14
	featParallelDirops  = 1 << 18
	featMaxPages        = 1 << 22
)

func initialize(q *request, a *answer) error {
	major, minor := q.u32(), q.u32()
	ahead, has := q.u32(), q.u32()
	if q.bad || major != 7 || minor < 31 {
		return unix.EPROTO
	}
	for _, v := range [...]uint32{7, 31, min(ahead, MaxWrite), has & (featAsyncRead | featBigWrites | featAutoInval | featReaddirplus | featReaddirplusAuto | featParallelDirops | featMaxPages)} {
		a.u32(v)
	}
	a.u16(atOnce)
	a.u16(atOnce)
	a.u32(MaxWrite)
	a.u32(1)
	a.u16(MaxWrite / 4096)
	a.u16(0)
	a.bytes(make([]byte, 32))
	return nil
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
