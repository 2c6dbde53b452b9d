package terminal

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	chunk     = 64 << 10
	lastBytes = 1 << 20 // read at most so much when told to stop
)

// budget counts what both output streams carry, and ends at a limit.
type budget struct {
	mu    sync.Mutex
	limit int64 // 0: none
	count int64
	hit   bool
}

func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.count
}

func (b *budget) reached() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.hit
}

// errLimit says that there was more to read than the limit allows.
const errLimit = unix.EDQUOT

// take runs move, which moves at most n bytes and returns how many, and
// charges them. move must not block: the lock is what keeps two streams from
// sharing the same rest. When nothing is left, more is asked whether there is
// more to come; if so the answer is errLimit.
func (b *budget) take(n int, move func(n int) (int, error), more func() (bool, error)) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit > 0 {
		left := b.limit - b.count
		if left <= 0 {
			yes, err := more()
			if yes {
				b.hit = true
				err = errLimit
			}
			return 0, err
		}
		n = int(min(int64(n), left))
	}
	got, err := move(n)
	b.count += int64(max(got, 0))
	return got, err
}

// read reads from the non-blocking fd, within the budget. 0 and no error is
// the end of the stream.
func (b *budget) read(fd int, buf []byte) (int, error) {
	return b.take(len(buf), func(n int) (int, error) { return read(fd, buf[:n]) }, probe(fd))
}

// probe reads one byte that is beyond the limit, if there is one.
func probe(fd int) func() (bool, error) {
	return func() (bool, error) {
		var one [1]byte
		n, err := read(fd, one[:])
		return n > 0, err
	}
}

// copyOutput copies one stream to the person until its end, until told to
// stop, or until the limit.
func (r *Relay) copyOutput(from, to *os.File, f *Filter) {
	in, stop := descriptor(from), descriptor(r.stop.read)
	move := r.mover(in, descriptor(to), f)
	rest := lastBytes
	for {
		got, err := wait(in, false, stop, -1)
		if err != nil || got.woken && (!got.ready || rest <= 0) {
			return
		}
		n, err := move()
		if got.woken {
			rest -= max(n, 1)
		}
		switch err {
		case nil:
			if n == 0 {
				return
			}
		case unix.EAGAIN, unix.EINTR:
		case errLimit:
			if r.opts.OnLimit != nil {
				r.limited.Do(r.opts.OnLimit)
			}
			return
		case unix.EPIPE:
			// The next write inside meets a closed pipe, as it would without us.
			r.gone.Store(true)
			_ = from.Close()
			return
		default: // EIO: the last slave of a pseudo-terminal has closed
			return
		}
	}
}

// mover returns the function that moves the next piece of a stream.
func (r *Relay) mover(in, out int, f *Filter) func() (int, error) {
	buf := make([]byte, chunk)
	buffered := func() (int, error) {
		r.gate.RLock()
		defer r.gate.RUnlock()
		n, err := r.budget.read(in, buf)
		if n == 0 || err != nil {
			return n, err
		}
		if f != nil {
			_, err = f.Write(buf[:n])
		} else {
			err = writeAll(out, buf[:n], descriptor(r.cut.read))
		}
		return n, err
	}
	if f != nil {
		return buffered
	}
	return r.splicing(in, out, buffered)
}

// copyKeys copies what the person types to the pseudo-terminal.
func (r *Relay) copyKeys() {
	defer close(r.inputEnd)
	in, master, stop := descriptor(r.person.In), descriptor(r.inside.Pty), descriptor(r.stop.read)
	buf := make([]byte, 4096)
	for empty := 0; empty < 16; {
		got, err := wait(in, false, stop, -1)
		if err != nil || got.woken {
			return
		}
		n, err := r.readKeys(in, buf)
		switch {
		case err == unix.EAGAIN:
		case err != nil, n == 0 && got.hangup:
			r.hungUp.Store(true)
			return
		case n == 0 && r.asked.Swap(false): // a question read it
		case n == 0: // somebody else read it, or, where hangups do not show, the end
			empty++
		default:
			empty = 0
			r.screen.Attended()
			if writeAll(master, buf[:n], stop) != nil {
				return
			}
		}
	}
	r.hungUp.Store(true)
}

// readKeys reads only while the terminal is ours. What it read is written
// without the gate, so that a stopped command that reads nothing does not
// hold up Suspend.
func (r *Relay) readKeys(in int, buf []byte) (int, error) {
	r.gate.RLock()
	defer r.gate.RUnlock()
	return read(in, buf)
}

// copyInput copies the person's input to the command's pipe, and closes the
// pipe at its end.
func (r *Relay) copyInput() {
	defer close(r.inputEnd)
	if r.inside.In == nil {
		return
	}
	if r.person.In == nil {
		_ = r.inside.In.Close()
		return
	}
	defer func() { _ = r.inside.In.Close() }()
	in, to, stop := descriptor(r.person.In), descriptor(r.inside.In), descriptor(r.stop.read)
	tty := Is(r.person.In)
	move := inputMover(in, to, stop)
	for {
		got, err := wait(in, false, stop, -1)
		if err != nil || got.woken {
			return
		}
		if tty && !ourLine(in) {
			if got, err := wait(-1, false, stop, lineWait); err != nil || got.woken {
				return
			}
			continue
		}
		n, err := move()
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if n == 0 || err != nil {
			return
		}
	}
}

// lineWait is how often to look whether a terminal that another program uses
// has become ours.
const lineWait = 100 * time.Millisecond

// ourLine tells whether a line typed at the terminal fd is meant for us. In
// the background it is not: reading would stop the job, though the command may
// not want any input. And when the terminal is not in line mode, a full-screen
// program beside us is at work, as in "bailey run -- ls | less"; its keys are
// not ours to take.
func ourLine(fd int) bool {
	t, err := unix.IoctlGetTermios(fd, getTermios)
	return err == nil && t.Lflag&unix.ICANON != 0 && foreground(fd)
}

// readMover moves input through a buffer.
func readMover(in, to, stop int) func() (int, error) {
	buf := make([]byte, chunk)
	return func() (int, error) {
		n, err := read(in, buf)
		if n > 0 {
			err = writeAll(to, buf[:n], stop)
		}
		return n, err
	}
}
