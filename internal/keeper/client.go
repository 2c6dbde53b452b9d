package keeper

import (
	"context"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Client is the daemon's side. Its methods may be called by any number of
// goroutines at once. An error of theirs has the keeper's code, or code internal
// when there is no keeper any more (Done).
type Client struct {
	f   *os.File
	raw syscall.RawConn

	mu    sync.Mutex
	n     uint64
	calls map[uint64]*call
	done  chan struct{}
}

// call is a request that has not been answered.
type call struct {
	each func(a answer, files []*os.File) // for each packet; it takes files over
	done chan error
}

// Kept is what the keeper holds for one sandbox.
type Kept struct {
	ID    string   `json:"id"`
	Pid   int      `json:"pid"`   // of its first process
	Names []string `json:"names"` // of the descriptors
	// Ended is set once the keeper has reaped the first process.
	Ended  bool   `json:"ended,omitempty"`
	Status uint32 `json:"status,omitempty"` // as wait4 gives it
}

// parts splits it so that each part fits into a message.
func (k Kept) parts() (list []Kept) {
	for names := range slices.Chunk(k.Names, maxFiles) {
		part := k
		part.Names = names
		list = append(list, part)
	}
	if list == nil {
		list = []Kept{k}
	}
	return list
}

var errGone = bailey.Errorf(bailey.CodeInternal, "ask the keeper", "", "there is no keeper any more")

// Inherited gives the Client over the socket that the keeper left this process,
// nil when no keeper started it. It is to be called once, early: the socket would
// be inherited by programs that are started before.
func Inherited() (*Client, error) {
	text, ok := os.LookupEnv(socketVariable)
	if !ok {
		return nil, nil
	}
	os.Unsetenv(socketVariable)
	fd, err := strconv.Atoi(text)
	if err == nil {
		_, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeUsage, "find the keeper", "unset "+socketVariable, "%s is %q: %w", socketVariable, text, err)
	}
	return NewClient(os.NewFile(uintptr(fd), "keeper"))
}

// NewClient takes conn over, the socket that the keeper left the daemon.
func NewClient(conn *os.File) (*Client, error) {
	// The poller takes only what did not block when it became a File.
	fd, err := duplicate(conn)
	conn.Close()
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeSetupFailed, "reach the keeper", "", "%w", err)
	}
	c := &Client{f: os.NewFile(uintptr(fd), "keeper"), calls: map[uint64]*call{}, done: make(chan struct{})}
	if c.raw, err = c.f.SyscallConn(); err != nil {
		return nil, bailey.Errorf(bailey.CodeSetupFailed, "reach the keeper", "", "%w", err)
	}
	go c.read()
	return c, nil
}

// duplicate gives another descriptor of f's file, close-on-exec.
func duplicate(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	if e := raw.Control(func(have uintptr) { fd, err = unix.FcntlInt(have, unix.F_DUPFD_CLOEXEC, 3) }); e != nil {
		return -1, e
	}
	return fd, os.NewSyscallError("fcntl", err)
}

// Put gives the keeper duplicates of files, by name, for the sandbox; files of
// earlier Puts stay, one of the same name is replaced. pid is the sandbox's first
// process, 0 to leave it as it was; another pid is another generation, of which no
// end is known. Names are 1 to 200 printable characters without spaces, ids 1 to
// 64 letters, digits, '.', '_' and '-'.
func (c *Client) Put(ctx context.Context, id string, pid int, files map[string]*os.File) error {
	names := slices.Sorted(maps.Keys(files))
	for first := true; first || len(names) > 0; first = false {
		some := names[:min(len(names), maxFiles)]
		names = names[len(some):]
		var fds []int
		for _, name := range some {
			fd, err := duplicate(files[name])
			if err != nil {
				closeAll(fds)
				return bailey.Errorf(bailey.CodeUsage, "have descriptors kept", "", "%s: %w", name, err)
			}
			fds = append(fds, fd)
		}
		err := c.ask(ctx, request{Op: opPut, ID: id, Pid: pid, Names: some}, fds, nil)
		closeAll(fds)
		if err != nil {
			return err
		}
	}
	return nil
}

// Get gives duplicates of what is held for the sandbox; names select, none is all.
// Those that are not held are not in the result. A sandbox of which nothing is
// known is not_found.
func (c *Client) Get(ctx context.Context, id string, names ...string) (map[string]*os.File, error) {
	got := map[string]*os.File{}
	all := len(names) == 0
	for first := true; first || len(names) > 0; first = false {
		some := names[:min(len(names), maxFiles)]
		names = names[len(some):]
		err := c.ask(ctx, request{Op: opGet, ID: id, Names: some}, nil, func(a answer, files []*os.File) {
			for i, name := range a.Names {
				got[name] = files[i]
			}
		})
		if err != nil {
			for _, f := range got {
				f.Close()
			}
			return nil, err
		}
		if all {
			break
		}
	}
	return got, nil
}

// List says what is held, and what has ended and was not dropped.
func (c *Client) List(ctx context.Context) (list []Kept, err error) {
	err = c.ask(ctx, request{Op: opList}, nil, func(a answer, _ []*os.File) {
		for _, k := range a.Kept {
			if n := len(list); n > 0 && list[n-1].ID == k.ID {
				list[n-1].Names = append(list[n-1].Names, k.Names...)
			} else {
				list = append(list, k)
			}
		}
	})
	return list, err
}

// Drop lets go of some of a sandbox's files, or with no names of all that is known
// of it, its end too. Nothing to drop is no error.
func (c *Client) Drop(ctx context.Context, id string, names ...string) error {
	for first := true; first || len(names) > 0; first = false {
		some := names[:min(len(names), maxFiles)]
		names = names[len(some):]
		if err := c.ask(ctx, request{Op: opDrop, ID: id, Names: some}, nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// Wait gives the status of a sandbox's first process that the keeper has reaped,
// when it has. A process that is the daemon's own child is never the keeper's to
// reap: that is not_found, as is one whose status an earlier daemon took.
func (c *Client) Wait(ctx context.Context, id string) (syscall.WaitStatus, error) {
	pause := time.Millisecond
	for {
		var a answer
		if err := c.ask(ctx, request{Op: opStatus, ID: id}, nil, func(got answer, _ []*os.File) { a = got }); err != nil {
			return 0, err
		}
		if !a.Alive {
			return syscall.WaitStatus(a.Status), nil
		}
		select { // whoever asks has seen its end: this is a moment
		case <-time.After(pause):
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		pause = min(2*pause, 100*time.Millisecond)
	}
}

// Upgrade has this daemon, which is to leave when it gets SIGHUP, started anew from
// the program that is on disk then.
func (c *Client) Upgrade(ctx context.Context) error {
	return c.ask(ctx, request{Op: opUpgrade}, nil, nil)
}

// Done is closed when the keeper is gone; the daemon then ends what it has: its
// sandboxes live for as long as it holds their descriptors, and nobody would hold
// them after it.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close lets go of the keeper, which keeps what it has.
func (c *Client) Close() error { return c.f.Close() }

// ask sends a request and waits for all of its answer.
func (c *Client) ask(ctx context.Context, r request, fds []int, each func(answer, []*os.File)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	k := &call{each: each, done: make(chan error, 1)}
	c.mu.Lock()
	if c.calls == nil {
		c.mu.Unlock()
		return errGone
	}
	c.n++
	r.N = c.n
	c.calls[r.N] = k
	c.mu.Unlock()
	var err error
	if e := c.raw.Write(func(fd uintptr) bool {
		err = transmit(int(fd), r, fds)
		return !errors.Is(err, unix.EAGAIN)
	}); e != nil {
		err = e
	}
	if err != nil {
		c.take(r.N)
		if errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) || errors.Is(err, unix.ECONNRESET) {
			return errGone
		}
		return bailey.Errorf(bailey.CodeInternal, "ask the keeper", "", "%w", err)
	}
	select {
	case err := <-k.done:
		return err
	case <-ctx.Done():
		if c.take(r.N) == nil {
			return <-k.done // it is being answered
		}
		return ctx.Err()
	}
}

// take takes a call off the list: whoever has it is the only one to finish it.
func (c *Client) take(n uint64) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.calls[n]
	delete(c.calls, n)
	return k
}

// read takes answers until the keeper is gone.
func (c *Client) read() {
	buf, oob := newBuffers()
	for {
		var n int
		var fds []int
		var err error
		if e := c.raw.Read(func(fd uintptr) bool {
			for {
				if n, fds, err = receive(int(fd), buf, oob); err != unix.EINTR {
					return err != unix.EAGAIN
				}
			}
		}); e != nil {
			err = e
		}
		if err != nil && err != errTruncated {
			break
		}
		c.answered(buf[:n], fds, err)
	}
	c.f.Close()
	c.mu.Lock()
	calls := c.calls
	c.calls = nil
	c.mu.Unlock()
	for _, k := range calls {
		k.done <- errGone
	}
	close(c.done)
}

// answered gives a packet to whoever asked.
func (c *Client) answered(b []byte, fds []int, err error) {
	a := answer{}
	if err == nil {
		a, err = parseAnswer(b, len(fds))
	} else { // descriptors were lost: the answer is none
		parse(b, &a)
	}
	k := c.take(a.N)
	if k == nil {
		closeAll(fds)
		return
	}
	switch {
	case err != nil:
		closeAll(fds)
		k.done <- bailey.Errorf(bailey.CodeProtocol, "read the keeper's answer", "", "%w", err)
		return
	case a.Error != nil:
		k.done <- a.Error
		return
	}
	files := make([]*os.File, len(fds))
	for i, fd := range fds {
		files[i] = os.NewFile(uintptr(fd), a.Names[i])
	}
	if k.each != nil {
		k.each(a, files)
	}
	if !a.More {
		k.done <- nil
		return
	}
	c.mu.Lock()
	c.calls[a.N] = k
	c.mu.Unlock()
}
