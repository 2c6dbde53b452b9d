package cell

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

var dials atomic.Int64

// forgetWithin bounds the wait for bailey-init to let go of a dial that has ended.
const forgetWithin = 5 * time.Second

// dial connects to a port inside: bailey-init's program there does, and its input and output are
// the connection. It gives one end of a stream, and what moves the bytes from then on.
func (s *server) dial(ctx context.Context, port int) (fd int, move func(), err error) {
	what := fmt.Sprintf("connect to port %d of the sandbox", port)
	switch {
	case port < 1 || port > 65535:
		return -1, nil, bailey.Errorf(bailey.CodeUsage, "connect to a port of the sandbox", "use 1 to 65535", "%d is no port", port)
	case s.cfg.Init == "":
		return -1, nil, bailey.Errorf(bailey.CodeNotAvailable, what, "", "the cell was not told where bailey-init is inside")
	}
	c := s.relay.Inside()
	// The time makes it another one than those that memory was saved with.
	id := fmt.Sprintf("cell.dial.%x.%d", s.born.UnixNano(), dials.Add(1))
	p, err := c.Exec(ctx, guest.ExecSpec{ID: id, Argv: []string{s.cfg.Init, "dial", strconv.Itoa(port)}, Env: guest.InitEnv(), Stdin: true})
	if err != nil {
		return -1, nil, err
	}
	over := func() {
		ctx, cancel := context.WithTimeout(context.Background(), forgetWithin)
		defer cancel()
		c.Signal(ctx, id, syscall.SIGKILL, guest.ScopeAll) // most have ended
		p.Wait(ctx)
		p.Close()
		c.Forget(ctx, id)
	}
	stop := context.AfterFunc(ctx, func() { p.Signal(context.Background(), syscall.SIGKILL, guest.ScopeAll) })
	defer stop()
	said, err := io.ReadAll(io.LimitReader(p.Stderr(), int64(len(guest.DialConnected))))
	if err == nil && string(said) == guest.DialConnected {
		if !stop() { // it is being killed
			err = ctx.Err()
		}
	} else if err == nil {
		rest, _ := io.ReadAll(io.LimitReader(p.Stderr(), 512))
		end, werr := p.Wait(ctx)
		switch {
		case werr != nil:
			err = werr
		case ctx.Err() != nil:
			err = ctx.Err()
		case end.ExitCode == guest.DialRefused:
			err = syscall.ECONNREFUSED
		default:
			err = fmt.Errorf("%q, with status %d", append(said, rest...), end.ExitCode)
		}
	}
	var pair [2]int
	if err == nil {
		pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		go over()
		return -1, nil, bailey.Errorf(bailey.CodeNotAvailable, what, "", "%w", err)
	}
	unix.SetNonblock(pair[0], true)
	mine := os.NewFile(uintptr(pair[0]), "port")
	return pair[1], func() {
		join(mine, p)
		over()
	}, nil
}

// join moves bytes between a stream and a dial until both directions have ended, or the other end of
// the stream is gone.
func join(f *os.File, p *guest.Process) {
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return
	}
	var once sync.Once
	over := make(chan struct{})
	end := func() { once.Do(func() { close(over) }) }
	go func() {
		io.Copy(struct{ io.Writer }{p.Stdin()}, struct{ io.Reader }{f})
		p.Stdin().Close()
		// What may still come is for nobody once the other end is closed altogether.
		raw.Read(func(fd uintptr) bool {
			pfd := []unix.PollFd{{Fd: int32(fd)}}
			n, err := unix.Poll(pfd, 0)
			return err != unix.EINTR && n > 0 && pfd[0].Revents&unix.POLLHUP != 0
		})
		end()
	}()
	go func() {
		if _, err := io.Copy(struct{ io.Writer }{f}, struct{ io.Reader }{p.Stdout()}); err == nil {
			raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_WR) })
			// The dial ends when its own two directions have.
			p.Wait(context.Background())
		}
		end()
	}()
	<-over
	f.Close()
}
