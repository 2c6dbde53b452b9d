package share

import (
	"fmt"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// State is what a server knows of its conversation, for the memory of a machine that goes on
// elsewhere: without it, what the machine remembers means nothing.
type State struct {
	Next    uint64        `json:"next"`
	NextFH  uint64        `json:"next_fh"`
	Nodes   []savedNode   `json:"nodes"`
	Handles []savedHandle `json:"handles"`
	// Removed are files that are open and have no name any more, by node.
	Removed map[uint64]removed `json:"removed,omitempty"`
	// Pending are requests that the machine has made and nobody has begun.
	Pending []byte `json:"pending"`
}

type savedNode struct {
	ID      uint64   `json:"id"`
	Names   []string `json:"names"` // paths; none when they are gone
	Lookups uint64   `json:"lookups"`
}

type savedHandle struct {
	FH    uint64   `json:"fh"`
	Node  uint64   `json:"node"`
	Flags int      `json:"flags"`
	List  []string `json:"list,omitempty"` // of a folder whose reading has begun
	// Removed is of a file or folder that has no name any more.
	Removed bool `json:"removed,omitempty"`
}

// Hold lets nothing more begin, and waits until what has begun is done and answered. What
// arrives from then on is kept for State.
func (s *Server) Hold() {
	s.gate.Lock()
	s.held = true
	s.gate.Unlock()
	s.work.Wait()
}

// State tells what there is, after Hold and once Serve has returned. The content of files that are
// open and have no name any more is put into the folder keep, which Resume reads; restore_incomplete when
// that cannot be.
func (s *Server) State(keep string) (State, error) {
	st := State{Next: s.next, NextFH: s.nextFH, Pending: slices.Clone(s.in), Removed: map[uint64]removed{}}
	for id, n := range s.nodes {
		saved := savedNode{ID: id, Lookups: n.lookups}
		if p, ok := n.path(); ok {
			saved.Names = append(saved.Names, p)
			for _, a := range n.also {
				if dir, ok := a.parent.path(); ok {
					saved.Names = append(saved.Names, path.Join(dir, a.name))
				}
			}
		}
		st.Nodes = append(st.Nodes, saved)
	}
	room := int64(maxRemoved)
	for fh, h := range s.handles {
		p, named := h.node.path()
		if !named {
			p = "a file that was removed and is still open"
			if _, ok := st.Removed[h.node.id]; !ok {
				r, err := keepRemoved(keep, h, room)
				if err != nil {
					return st, bailey.Errorf(bailey.CodeRestoreIncomplete, "keep the open files of the virtual machine", "close it, or keep files only", "%s: %w", p, err)
				}
				st.Removed[h.node.id] = r
				room -= r.Size
			}
		}
		flags, err := unix.FcntlInt(uintptr(h.fd), unix.F_GETFL, 0)
		if err != nil {
			return st, fmt.Errorf("%s: %w", p, err)
		}
		saved := savedHandle{FH: fh, Node: h.node.id, Flags: flags & (unix.O_ACCMODE | unix.O_DIRECTORY), Removed: !named}
		for _, d := range h.list {
			saved.List = append(saved.List, d.name)
		}
		st.Handles = append(st.Handles, saved)
	}
	// Parents first: a path names no node that does not exist yet.
	slices.SortFunc(st.Nodes, func(a, b savedNode) int { return int(int64(a.ID) - int64(b.ID)) })
	return st, nil
}

// Resume opens the folder for a machine whose memory is of another one's. What that one had open
// has to be there; keep is the folder that State was given, or a copy.
func Resume(o Options, st State, keep string) (*Server, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	fail := func(what string, err error) (*Server, error) {
		s.Close()
		return nil, bailey.Errorf(bailey.CodeRestoreIncomplete, "find the files of the virtual machine again", "restore it from a snapshot of files", "%s: %w", what, err)
	}
	s.next, s.nextFH, s.in = st.Next, st.NextFH, slices.Clone(st.Pending)
	byPath := map[string]savedNode{}
	for _, n := range st.Nodes {
		for _, p := range n.Names {
			byPath[p] = n
		}
	}
	var place func(p string) (*node, error)
	place = func(p string) (*node, error) {
		if p == "." {
			return s.nodes[rootID], nil
		}
		saved, ok := byPath[p]
		if !ok {
			return nil, unix.ENOENT
		}
		parent, err := place(path.Dir(p))
		if err != nil {
			return nil, err
		}
		n := s.nodes[saved.ID]
		if n == nil {
			n = &node{id: saved.ID, lookups: saved.Lookups, live: parent.live || s.live[p]}
			s.nodes[n.id] = n
		}
		if parent.kids[path.Base(p)] != n {
			s.attach(n, parent, path.Base(p))
		}
		return n, nil
	}
	for _, saved := range st.Nodes {
		if saved.ID == rootID {
			continue
		}
		if len(saved.Names) == 0 {
			s.nodes[saved.ID] = &node{id: saved.ID, lookups: saved.Lookups}
		}
		for _, p := range saved.Names {
			if _, err := place(p); err != nil {
				return fail(p, err)
			}
		}
	}
	again := map[uint64]int{}
	defer func() {
		for _, fd := range again {
			unix.Close(fd)
		}
	}()
	for id, r := range st.Removed {
		fd, err := r.again(keep, id)
		if err != nil {
			return fail("a file that was removed and is still open", err)
		}
		again[id] = fd
	}
	for _, saved := range st.Handles {
		n := s.nodes[saved.Node]
		if n == nil {
			return fail("an open file", unix.ENOENT)
		}
		p, _ := n.path()
		var fd int
		var err error
		if base, ok := again[n.id]; ok && saved.Removed {
			fd, err = unix.Open(fdPath(base), saved.Flags|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		} else {
			fd, err = s.at(n, saved.Flags|unix.O_NONBLOCK)
		}
		if err != nil {
			return fail(p, err)
		}
		h := &handle{fd: fd, node: n, writes: saved.Flags&unix.O_ACCMODE != unix.O_RDONLY}
		for _, name := range saved.List {
			h.list = append(h.list, dirent{ino: 1, name: name})
		}
		s.handles[saved.FH] = h
		if n.open == nil {
			n.open = map[*handle]bool{}
		}
		n.open[h] = true
	}
	return s, nil
}
