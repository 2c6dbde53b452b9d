package share

import (
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// rootID is the folder itself.
const rootID = 1

// node is a file that the other kernel knows: by where it lies, so that it is the same one
// after the layer below has moved it. A file with two names that were both made here is one node.
type node struct {
	id      uint64
	parent  *node // nil: the root, or one whose names are gone
	name    string
	kids    map[string]*node
	lookups uint64
	live    bool
	open    map[*handle]bool
	also    []alias // its other names
}

type alias struct {
	parent *node
	name   string
}

// Seconds for which the other kernel may remember.
const (
	validLong  = 3600
	validShort = 1
)

func (n *node) valid() uint64 {
	if n.live {
		return validShort
	}
	return validLong
}

// path gives where the node lies below the folder, or false when its names are gone.
func (n *node) path() (string, bool) {
	var parts []string
	for at := n; at.id != rootID; at = at.parent {
		if at.parent == nil {
			return "", false
		}
		parts = append(parts, at.name)
		if len(parts) > 4096 {
			return "", false
		}
	}
	if len(parts) == 0 {
		return ".", true
	}
	var b strings.Builder
	for i := len(parts) - 1; i >= 0; i-- {
		b.WriteString(parts[i])
		if i > 0 {
			b.WriteByte('/')
		}
	}
	return b.String(), true
}

// child gives the node of a name, and makes one for it. s.mu is held.
func (s *Server) child(dir *node, name string) *node {
	if n := dir.kids[name]; n != nil {
		return n
	}
	s.next++
	n := &node{id: s.next, parent: dir, name: name, live: dir.live}
	if !n.live && len(s.live) > 0 {
		if p, ok := n.path(); ok && s.live[p] {
			n.live = true
		}
	}
	if dir.kids == nil {
		dir.kids = map[string]*node{}
	}
	dir.kids[name] = n
	s.nodes[n.id] = n
	return n
}

// detach takes a name away. s.mu is held.
func (s *Server) detach(dir *node, name string) {
	n := dir.kids[name]
	if n == nil {
		return
	}
	delete(dir.kids, name)
	if n.parent == dir && n.name == name {
		n.parent = nil
		if len(n.also) > 0 {
			n.parent, n.name, n.also = n.also[0].parent, n.also[0].name, n.also[1:]
		}
		return
	}
	for i, a := range n.also {
		if a.parent == dir && a.name == name {
			n.also = append(n.also[:i:i], n.also[i+1:]...)
			return
		}
	}
}

// attach gives a node a name. s.mu is held.
func (s *Server) attach(n, dir *node, name string) {
	if dir.kids == nil {
		dir.kids = map[string]*node{}
	}
	dir.kids[name] = n
	if n.parent == nil {
		n.parent, n.name = dir, name
	} else {
		n.also = append(n.also, alias{dir, name})
	}
}

// forget drops lookups; a node that the other kernel does not know any more, and whose
// children it does not know, is gone. s.mu is held.
func (s *Server) forget(id, lookups uint64) {
	n := s.nodes[id]
	if n == nil || id == rootID {
		return
	}
	n.lookups -= min(n.lookups, lookups)
	s.prune(n)
}

func (s *Server) prune(n *node) {
	for n != nil && n.id != rootID && n.lookups == 0 && len(n.kids) == 0 && len(n.open) == 0 {
		delete(s.nodes, n.id)
		parent := n.parent
		if parent != nil && parent.kids[n.name] == n {
			delete(parent.kids, n.name)
		}
		for _, a := range n.also {
			if a.parent.kids[a.name] == n {
				delete(a.parent.kids, a.name)
			}
		}
		n.parent = nil
		n = parent
	}
}

// at opens a node. s.mu is held, for reading at least.
func (s *Server) at(n *node, flags int) (int, error) {
	p, ok := n.path()
	if !ok {
		for h := range n.open { // its names are gone, but it is open
			return unix.Open(fdPath(h.fd), flags|unix.O_CLOEXEC, 0)
		}
		return -1, unix.ESTALE
	}
	return s.open(p, flags, 0)
}

// open opens a path below the folder.
func (s *Server) open(p string, flags int, mode uint32) (int, error) {
	how := &unix.OpenHow{Flags: uint64(flags | unix.O_NOFOLLOW | unix.O_CLOEXEC), Mode: uint64(mode),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(s.root, p, how)
		if err != unix.EINTR && err != unix.EAGAIN {
			return fd, err
		}
	}
}

// statNode opens a node as a place and looks at it. The caller closes it.
func (s *Server) statNode(n *node, st *unix.Stat_t) (int, error) {
	fd, err := s.at(n, unix.O_PATH)
	if err != nil {
		return -1, err
	}
	if err := unix.Fstat(fd, st); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// statChild looks at a name in a folder.
func (s *Server) statChild(dir *node, name string, st *unix.Stat_t) error {
	p, ok := dir.path()
	if !ok {
		return unix.ESTALE
	}
	fd, err := s.open(path.Join(p, name), unix.O_PATH, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Fstat(fd, st)
}
