package cell

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// inner is the program with the kernel.
type inner struct {
	pid    int
	ended  <-chan syscall.WaitStatus
	stream io.ReadWriteCloser // to bailey-init in it
	log    *boundedLog
}

// pipes are two pipes as one stream.
type pipes struct{ in, out *os.File }

func (p pipes) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p pipes) Write(b []byte) (int, error) { return p.out.Write(b) }
func (p pipes) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }

// startInner starts it.
func startInner(c *children, cfg *Config) (in *inner, err error) {
	fail := func(err error) error {
		return bailey.Errorf(bailey.CodeSetupFailed, "start the program of the cell's kernel", "", "%w", err)
	}
	var ours, theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range ours {
				f.Close()
			}
		}
	}()
	pipe := func(weRead bool) error {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if !weRead {
			r, w = w, r
		}
		ours, theirs = append(ours, r), append(theirs, w)
		return nil
	}
	in = &inner{}
	files := make([]uintptr, 0, 4)
	if cfg.Stream == StreamSocket {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, fail(err)
		}
		unix.SetNonblock(pair[0], true)
		ours, theirs = append(ours, os.NewFile(uintptr(pair[0]), "inside")), append(theirs, os.NewFile(uintptr(pair[1]), "inside"))
		null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
		if err != nil {
			return nil, fail(err)
		}
		theirs = append(theirs, null)
		if err := pipe(true); err != nil {
			return nil, fail(err)
		}
		in.stream = ours[0]
		files = append(files, null.Fd(), theirs[2].Fd(), theirs[2].Fd(), theirs[0].Fd())
	} else {
		for _, weRead := range []bool{false, true, true} {
			if err := pipe(weRead); err != nil {
				return nil, fail(err)
			}
		}
		in.stream = pipes{in: ours[1], out: ours[0]}
		files = append(files, theirs[0].Fd(), theirs[1].Fd(), theirs[2].Fd())
	}
	log := ours[len(ours)-1]
	if in.pid, in.ended, err = c.start(cfg.Inner, cfg.Env, cfg.Dir, files); err != nil {
		return nil, fail(err)
	}
	if in.log, err = newLog(cfg.Log, log); err != nil {
		unix.Kill(in.pid, syscall.SIGKILL)
		return nil, fail(err)
	}
	return in, nil
}
