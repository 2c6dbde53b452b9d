package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// program is a program of others that is measured, and how it is started: by
// a vfork child of this process that does what a wrapper would have to do, so
// that nobody pays for a shell or a fork of this process.
type program struct {
	argv, env []string
	dir       string
	flags     uint64                // namespaces of its own, for before
	before    func(s *spawn.Script) // steps that come first
	extra     *os.File              // becomes descriptor 3
	// group, when given, holds limits that the program cannot set itself.
	group  *cgroup.Host
	limits bailey.Limits
}

// groupSerial numbers the control groups of this process.
var groupSerial int

// run starts the program, reads its output to the end and waits for it. The
// output has to be want.
func (p *program) run(_ context.Context, want string) (v sample, err error) {
	begin := time.Now()
	opt := spawn.Options{Flags: p.flags, Cgroup: -1}
	s := &spawn.Script{}
	if p.group != nil {
		groupSerial++
		g, err := cgroup.New(p.group, fmt.Sprintf("bench-%d-%d", os.Getpid(), groupSerial), p.limits)
		if err != nil {
			return v, err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if rerr := g.Remove(ctx); err == nil {
				err = rerr
			}
			v.total = time.Since(begin)
		}()
		entry, err := g.Enter()
		if err != nil {
			return v, err
		}
		defer entry.Close()
		opt.Cgroup = entry.V2
		for _, fd := range entry.V1 {
			s.Do("enter the control group", unix.SYS_WRITE, spawn.Int(fd), s.Bytes([]byte("0")), spawn.Int(1))
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		return v, err
	}
	defer r.Close()
	defer w.Close()
	errs, err := os.CreateTemp("", "bailey-bench-")
	if err != nil {
		return v, err
	}
	os.Remove(errs.Name())
	defer errs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return v, err
	}
	defer null.Close()

	if p.before != nil {
		p.before(s)
	}
	for i, f := range []*os.File{null, w, errs, p.extra} {
		if f != nil {
			s.Do("descriptors", unix.SYS_DUP3, spawn.Uint(f.Fd()), spawn.Int(i), spawn.Int(0)).Ignore(unix.EINVAL)
		}
	}
	if p.dir != "" {
		s.Do("enter "+p.dir, unix.SYS_CHDIR, s.Str(p.dir))
	}
	const sigSetmask = 2
	s.Do("unblock signals", unix.SYS_RT_SIGPROCMASK, spawn.Int(sigSetmask), s.Bytes(make([]byte, 8)), spawn.Int(0), spawn.Int(8))
	s.Do("execute "+p.argv[0], unix.SYS_EXECVE, s.Str(p.argv[0]), s.Strings(p.argv), s.Strings(p.env))
	proc, err := s.Start(opt)
	if err != nil {
		return v, err
	}
	w.Close()
	out, first, rerr := readOutput(r, begin)
	ws, werr := proc.Reap()
	v = sample{first, time.Since(begin)}
	switch {
	case rerr != nil:
		return v, rerr
	case werr != nil:
		return v, werr
	case ws != 0 || out != want:
		return v, fmt.Errorf("it ended with status %d and printed %q; on its standard error: %q", ws.ExitStatus(), out, tail(errs))
	}
	return v, nil
}

// readOutput reads to the end and says how long after begin the first byte
// came: 0 when there was none.
func readOutput(r io.Reader, begin time.Time) (out string, first time.Duration, err error) {
	buf := make([]byte, 4096)
	n, err := r.Read(buf)
	if n > 0 {
		first = time.Since(begin)
	}
	out = string(buf[:n])
	if err == io.EOF {
		return out, first, nil
	}
	if err != nil {
		return out, first, err
	}
	rest, err := io.ReadAll(r)
	return out + string(rest), first, err
}

// tail gives the end of what a program said.
func tail(f *os.File) string {
	fi, err := f.Stat()
	if err != nil {
		return ""
	}
	b := make([]byte, min(fi.Size(), 300))
	n, _ := f.ReadAt(b, max(fi.Size()-300, 0))
	return string(b[:n])
}
