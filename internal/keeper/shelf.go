package keeper

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Bounds on what is kept. They are far above what a daemon needs, so that a fault
// in it is an error there and not a keeper out of memory.
const (
	maxBoxes = 1 << 16
	maxHeld  = 4096 // descriptors of one sandbox
)

// shelf is what the keeper keeps, by sandbox.
type shelf struct {
	dir string // for the statuses

	mu    sync.Mutex
	boxes map[string]*box
}

// box is what is kept for one sandbox.
type box struct {
	pid     int
	started uint64 // when, as startOf tells: a number can come again
	files   map[string]int
	ended   bool
	status  uint32
}

// ended is the file of a sandbox whose first process has been reaped.
type ended struct {
	Pid    int    `json:"pid"`
	Status uint32 `json:"status"` // as wait4 gives it
}

// openShelf reads the statuses that an earlier keeper has left. What is none is
// removed.
func openShelf(dir string) (*shelf, error) {
	s := &shelf{dir: dir, boxes: map[string]*box{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		var end ended
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil || !validID(e.Name()) || len(s.boxes) == maxBoxes || parse(b, &end) != nil {
			os.Remove(filepath.Join(dir, e.Name()))
			continue
		}
		s.boxes[e.Name()] = &box{pid: end.Pid, ended: true, status: end.Status}
	}
	return s, nil
}

// put takes over fds, also when it fails.
func (s *shelf) put(id string, pid int, names []string, fds []int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b == nil {
		if len(s.boxes) == maxBoxes {
			closeAll(fds)
			return full("%d sandboxes are kept", maxBoxes)
		}
		b = &box{}
		s.boxes[id] = b
	}
	if len(b.files)+len(fds) > maxHeld {
		closeAll(fds)
		return full("%d descriptors are kept for it", len(b.files))
	}
	if pid > 0 && pid != b.pid { // another generation of it
		b.pid, b.started = pid, startOf(pid)
		s.forget(id, b)
	}
	if b.files == nil {
		b.files = make(map[string]int, len(fds))
	}
	for i, name := range names {
		if old, ok := b.files[name]; ok {
			unix.Close(old)
		}
		b.files[name] = fds[i]
	}
	return nil
}

func full(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeTooLarge, "keep descriptors", "end some sandboxes", format, args...)
}

// forget takes an end back.
func (s *shelf) forget(id string, b *box) {
	if b.ended {
		b.ended, b.status = false, 0
		os.Remove(filepath.Join(s.dir, id))
	}
}

// get gives duplicates of the descriptors that are kept under names, or of all.
func (s *shelf) get(id string, names []string) (have []string, fds []int, err error) {
	const what = "give descriptors back"
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b == nil {
		return nil, nil, bailey.Errorf(bailey.CodeNotFound, what, "", "nothing is kept for %s", id)
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(b.files))
	}
	for _, name := range names {
		kept, ok := b.files[name]
		if !ok {
			continue
		}
		fd, err := unix.FcntlInt(uintptr(kept), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			closeAll(fds)
			return nil, nil, bailey.Errorf(bailey.CodeTooLarge, what, "raise the limit on open files of the keeper (LimitNOFILE)", "%w", err)
		}
		have, fds = append(have, name), append(fds, fd)
	}
	return have, fds, nil
}

// list says what is kept.
func (s *shelf) list() []Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Kept, 0, len(s.boxes))
	for _, id := range slices.Sorted(maps.Keys(s.boxes)) {
		b := s.boxes[id]
		out = append(out, Kept{ID: id, Pid: b.pid, Names: slices.Sorted(maps.Keys(b.files)), Ended: b.ended, Status: b.status})
	}
	return out
}

// drop lets go of some descriptors, or of all that is known.
func (s *shelf) drop(id string, names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	if b == nil {
		return
	}
	if len(names) == 0 {
		for _, fd := range b.files {
			unix.Close(fd)
		}
		s.forget(id, b)
		delete(s.boxes, id)
		return
	}
	for _, name := range names {
		if fd, ok := b.files[name]; ok {
			unix.Close(fd)
			delete(b.files, name)
		}
	}
}

// status says how a sandbox's first process ended, or that it is alive. One that
// is not a child of the keeper, and that it has not reaped, is not_found: its
// status was somebody else's to take.
func (s *shelf) status(id string) (status uint32, alive bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.boxes[id]
	switch {
	case b == nil || b.pid == 0:
		return 0, false, bailey.Errorf(bailey.CodeNotFound, "tell how it ended", "", "nothing is kept for %s", id)
	case b.ended:
		return b.status, false, nil
	case unix.Waitid(unix.P_PID, b.pid, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil) == nil && startOf(b.pid) == b.started:
		return 0, true, nil
	}
	return 0, false, bailey.Errorf(bailey.CodeNotFound, "tell how it ended", "", "the keeper was not the one to reap it")
}

// reap reaps a child that has ended, and writes its status down if it was a
// sandbox's first process. Whoever asks for it meanwhile waits: between the two
// nobody would know it.
func (s *shelf) reap(pid int) (ws syscall.WaitStatus, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	started := startOf(pid)
	for err = unix.EINTR; err == unix.EINTR; {
		_, err = syscall.Wait4(pid, &ws, 0, nil)
	}
	if err != nil {
		return 0, err
	}
	return ws, s.reaped(pid, started, ws)
}

// reaped writes down how a process ended. s.mu is held.
func (s *shelf) reaped(pid int, started uint64, ws syscall.WaitStatus) error {
	for id, b := range s.boxes {
		if b.pid != pid || b.started != started || b.ended {
			continue
		}
		b.ended, b.status = true, uint32(ws)
		return s.write(id, ended{pid, uint32(ws)})
	}
	return nil
}

// write writes a status, all or nothing.
func (s *shelf) write(id string, e ended) error {
	b, err := json.Marshal(e)
	if err != nil {
		return err
	}
	temporary := filepath.Join(s.dir, ".new")
	if err := os.WriteFile(temporary, b, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(s.dir, id))
}

// alive says for how many sandboxes there is something that keeps them alive.
func (s *shelf) alive() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.boxes {
		if len(b.files) > 0 && !b.ended {
			n++
		}
	}
	return n
}

// startOf gives when a process was started, in clock ticks since the kernel was
// (field 22 of proc(5)'s stat), or 0 when there is none.
func startOf(pid int) uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	text := string(b)
	// The name stands in parentheses and may have any byte in it.
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const at = 22 - 3 // the first of them is field 3
	if len(f) <= at {
		return 0
	}
	n, _ := strconv.ParseUint(f[at], 10, 64)
	return n
}
