package peer

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// Sample is one measurement: the time until the first byte of output (0 where there
// is none), and until everything was over and given back.
type Sample struct{ First, Total time.Duration }

// Program is a program of others that is measured, and how it is started: by
// a vfork child of this process that does what a wrapper would have to do, so
// that nobody pays for a shell or a fork of this process.
type Program struct {
	Argv, Env []string
	Dir       string                // "": where this process is
	Flags     uint64                // namespaces of its own, for Before
	Before    func(s *spawn.Script) // steps that come first
	Extra     *os.File              // becomes descriptor 3
	// Group, when given, holds Limits that the program cannot set itself.
	Group  *cgroup.Host
	Limits bailey.Limits
}

// groupSerial numbers the control groups of this process.
var groupSerial atomic.Int64

// Run starts the program, reads its output to the end and waits for it. The
// output has to be want. Several may run at once.
func (p *Program) Run(want string) (v Sample, err error) {
	begin := time.Now()
	opt := spawn.Options{Flags: p.Flags, Cgroup: -1}
	s := &spawn.Script{}
	if p.Group != nil {
		g, err := cgroup.New(p.Group, fmt.Sprintf("bench-%d-%d", os.Getpid(), groupSerial.Add(1)), p.Limits)
		if err != nil {
			return v, err
		}
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			if rerr := g.Remove(ctx); err == nil {
				err = rerr
			}
			v.Total = time.Since(begin)
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

	if p.Before != nil {
		p.Before(s)
	}
	for i, f := range []*os.File{null, w, errs, p.Extra} {
		if f != nil {
			s.Do("descriptors", unix.SYS_DUP3, spawn.Uint(f.Fd()), spawn.Int(i), spawn.Int(0)).Ignore(unix.EINVAL)
		}
	}
	if p.Dir != "" {
		s.Do("enter "+p.Dir, unix.SYS_CHDIR, s.Str(p.Dir))
	}
	const sigSetmask = 2
	s.Do("unblock signals", unix.SYS_RT_SIGPROCMASK, spawn.Int(sigSetmask), s.Bytes(make([]byte, 8)), spawn.Int(0), spawn.Int(8))
	s.Do("execute "+p.Argv[0], unix.SYS_EXECVE, s.Str(p.Argv[0]), s.Strings(p.Argv), s.Strings(p.Env))
	proc, err := s.Start(opt)
	if err != nil {
		return v, err
	}
	w.Close()
	out, first, rerr := ReadOutput(r, begin)
	ws, werr := proc.Reap()
	v = Sample{first, time.Since(begin)}
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

// ReadOutput reads to the end and says how long after begin the first byte
// came: 0 when there was none.
func ReadOutput(r io.Reader, begin time.Time) (out string, first time.Duration, err error) {
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
