package linux

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// A sandbox that lives is entered by a child of this process for a moment, to
// make a socket there or to mount something. Nothing of the sandbox sees the
// child, which is in no PID namespace of its; it executes nothing and ends when
// its script has.

// visit runs a script in a child, with id's rights. pidfd is the first process's,
// which the script's steps may name by its number.
func (in *instance) visit(id *identity, write func(b *builder, pidfd int)) error {
	if in.first.ended() {
		return errEnded
	}
	b := newBuilder(id, nil, Stop{})
	var err error
	// The child has copies of this process's descriptors, so the number must stay
	// the process's until it is cloned.
	e := in.first.raw.Control(func(fd uintptr) {
		write(b, int(fd))
		b.Do("leave", unix.SYS_EXIT_GROUP, zero)
		var p *spawn.Process
		if p, err = id.startVisit(b); err == nil {
			p.Reap()
		}
		runtime.KeepAlive(b)
	})
	if e != nil {
		return errEnded
	}
	return err
}

var errEnded = os.ErrProcessDone

// startVisit is startShared for a child that may enter a user namespace, as one
// of an ordinary user does, whoever made the ids.
func (id *identity) startVisit(b *builder) (*spawn.Process, error) {
	opt := spawn.Options{Cgroup: -1}
	if id.rooted() {
		return b.Start(opt)
	}
	sharing.Lock()
	defer sharing.Unlock()
	defer dumpable()
	return b.Start(opt)
}
