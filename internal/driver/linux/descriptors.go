package linux

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/pid1"
)

// parentFDs is where the parent's descriptors begin that a child uses by
// number, so that they are never one of those the child puts in place.
const parentFDs = 64

// descriptors are what a child inherits.
type descriptors struct {
	stdio  [3]int
	child  int // the child's end of the control socket or the agent's stream
	image  int // the program of pid 1
	opened []int
}

// close closes the child's ends in the parent.
func (f *descriptors) close() {
	for _, fd := range f.opened {
		unix.Close(fd)
	}
	f.opened = nil
}

// high gives a copy of fd with a number that collides with nothing.
func (f *descriptors) high(fd uintptr) (int, error) {
	n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, parentFDs)
	if err == nil {
		f.opened = append(f.opened, n)
	}
	return n, err
}

// descriptors makes the channels between owner and sandbox. The owner's end
// becomes in.control, or in.agent.
func (in *instance) descriptors() (f *descriptors, err error) {
	f = &descriptors{}
	defer func() {
		if err != nil {
			f.close()
			err = fmt.Errorf("prepare descriptors: %w", err)
		}
	}()
	entry := in.spec.Entry
	kind := unix.SOCK_SEQPACKET
	if entry.Agent != "" {
		kind = unix.SOCK_STREAM
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return f, err
	}
	f.child, err = f.high(uintptr(pair[1]))
	unix.Close(pair[1])
	if entry.Agent != "" {
		in.agent = os.NewFile(uintptr(pair[0]), "agent")
	} else {
		in.control = os.NewFile(uintptr(pair[0]), "control")
	}
	if err != nil {
		return f, err
	}
	null := -1
	for i, file := range entry.Stdio {
		if file != nil {
			f.stdio[i], err = f.high(file.Fd())
		} else if null < 0 {
			if null, err = unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
				return f, err
			}
			defer unix.Close(null)
			f.stdio[i], err = f.high(uintptr(null))
		} else {
			f.stdio[i], err = f.high(uintptr(null))
		}
		if err != nil {
			return f, err
		}
	}
	if entry.Agent != "" {
		if f.image, err = agents.open(entry.Agent); err == nil {
			f.opened = append(f.opened, f.image)
		}
	} else {
		f.image, err = pid1.Open()
	}
	return f, err
}

// programs holds sealed copies of bailey-init, by the path they came from.
// Executing a copy in memory means that no file of the host is the image of a
// process inside, which could be opened through /proc and written to
// (CVE-2019-5736).
type programs struct {
	mu  sync.Mutex
	fds map[string]program
}

type program struct {
	fd   int
	stat os.FileInfo
}

var agents = programs{fds: map[string]program{}}

// open gives a descriptor of the copy, for the caller to close: the copy itself
// goes when the file has changed.
func (p *programs) open(path string) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fi, err := os.Stat(path)
	if err != nil {
		return -1, err
	}
	if have, ok := p.fds[path]; ok && os.SameFile(have.stat, fi) && have.stat.ModTime().Equal(fi.ModTime()) && have.stat.Size() == fi.Size() {
		return unix.FcntlInt(uintptr(have.fd), unix.F_DUPFD_CLOEXEC, parentFDs)
	}
	src, err := os.Open(path)
	if err != nil {
		return -1, err
	}
	defer src.Close()
	fd, err := pid1.Seal("bailey-init", func(w io.Writer) error {
		_, err := io.Copy(w, src)
		return err
	})
	if err != nil {
		return -1, err
	}
	if have, ok := p.fds[path]; ok {
		unix.Close(have.fd)
	}
	p.fds[path] = program{fd, fi}
	return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, parentFDs)
}
