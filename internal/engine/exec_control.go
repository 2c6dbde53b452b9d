package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// openRunning gives a command that has not ended, in a sandbox that is awake. The
// caller releases the use.
func (e *Engine) openRunning(ctx context.Context, who Caller, ref, id, what string) (*execution, *use, error) {
	x, doc, b, err := e.findExec(ctx, who, ref, id)
	if err != nil {
		return nil, nil, err
	}
	over := func(doc execDoc) error {
		return bailey.Errorf(bailey.CodeConflict, what, "", "the command has ended: %s", doc.Exec.End)
	}
	if x == nil || doc.Exec.End != nil {
		return nil, nil, over(doc)
	}
	u, err := e.awaken(ctx, b)
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-x.whenAttached():
		return x, u, nil
	case <-x.ended:
		u.release()
		return nil, nil, over(x.known())
	case <-ctx.Done():
		u.release()
		return nil, nil, ctx.Err()
	}
}

// WriteStdin writes to a command's input and returns when the command's pipe has
// taken it; eof closes it, or at a terminal types the end of input. A command that
// does not read holds it until ctx ends. Nobody reads any more: code conflict.
func (e *Engine) WriteStdin(ctx context.Context, who Caller, ref, id string, p []byte, eof bool) error {
	const what = "write to the command's input"
	x, u, err := e.openRunning(ctx, who, ref, id, what)
	if err != nil {
		return err
	}
	u.release() // a command that does not read must not hold a pause
	select {
	case x.input <- struct{}{}:
		defer func() { <-x.input }()
	case <-ctx.Done():
		return ctx.Err()
	}
	e.busyNow(x.b)
	if x.doc.Exec.Pty {
		return x.typeIn(ctx, what, p, eof)
	}
	x.mu.Lock()
	stdin := x.stdin
	x.mu.Unlock()
	if stdin == nil {
		if x.doc.Stdin {
			return bailey.Errorf(bailey.CodeConflict, what, "", "it was closed before")
		}
		return bailey.Errorf(bailey.CodeUsage, what, "start it with an open input", "its input is /dev/null")
	}
	if err := writeWithin(ctx, stdin, p); err != nil {
		return inputError(ctx, what, err)
	}
	if !eof {
		return nil
	}
	x.mu.Lock()
	x.stdin = nil
	x.mu.Unlock()
	stdin.Close()
	if e.keeper != nil {
		return e.keeper.Drop(ctx, x.b.id, keptName(x.doc.Exec.ID, keptStdin))
	}
	return nil
}

// typeIn writes to a terminal.
func (x *execution) typeIn(ctx context.Context, what string, p []byte, eof bool) error {
	in := x.proc.Stdin()
	if in == nil {
		return bailey.Errorf(bailey.CodeConflict, what, "", "its terminal is gone")
	}
	if o := x.proc.Stdout(); o != nil && o.File() != nil {
		if err := writeWithin(ctx, o.File(), p); err != nil {
			return inputError(ctx, what, err)
		}
	} else if _, err := in.Write(p); err != nil {
		return inputError(ctx, what, err)
	}
	if eof {
		return inputError(ctx, what, in.Close()) // types the character
	}
	return nil
}

// writeWithin writes all of p, or gives up when ctx ends.
func writeWithin(ctx context.Context, f *os.File, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		f.SetWriteDeadline(time.Unix(1, 0))
		close(set)
	})
	defer func() {
		if !stop() {
			<-set // or the next write would have the deadline of this one
			f.SetWriteDeadline(time.Time{})
		}
	}()
	n, err := f.Write(p)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	return err
}

func inputError(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO), errors.Is(err, os.ErrClosed):
		return bailey.Errorf(bailey.CodeConflict, what, "", "nobody reads it any more")
	}
	return bailey.Errorf(bailey.CodeInternal, what, "", "%w", err)
}

// SignalExec sends a signal, by name such as SIGTERM or TERM or by number, to all
// processes of an exec, those too that its main process has left behind.
func (e *Engine) SignalExec(ctx context.Context, who Caller, ref, id, signal string) error {
	what := "signal the command " + id
	sig, ok := signalOf(signal)
	if !ok {
		return bailey.Errorf(bailey.CodeUsage, what, "use a name such as SIGTERM", "%q is no signal", signal)
	}
	_, doc, b, err := e.findExec(ctx, who, ref, id)
	if err != nil {
		return err
	}
	gone := bailey.Errorf(bailey.CodeConflict, what, "", "none of its processes lives")
	if b == nil {
		return gone
	}
	if g := b.generation(); g == nil || g.n != doc.Run {
		return gone // nothing is woken for what ended before it slept
	}
	u, err := e.awaken(ctx, b)
	if err != nil {
		return err
	}
	defer u.release()
	if u.gen.n != doc.Run {
		return gone
	}
	err = u.client.Signal(ctx, doc.Guest, sig, guest.ScopeAll)
	if errors.Is(err, syscall.ESRCH) || bailey.CodeOf(err) == bailey.CodeNotFound {
		return gone
	}
	return err
}

// signalOf reads a signal.
func signalOf(s string) (syscall.Signal, bool) {
	if n, err := strconv.Atoi(s); err == nil {
		return syscall.Signal(n), n > 0 && n <= 64
	}
	s = strings.ToUpper(s)
	if !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	sig := unix.SignalNum(s)
	return sig, sig != 0
}

// ResizeExec changes a terminal's size.
func (e *Engine) ResizeExec(ctx context.Context, who Caller, ref, id string, w api.Window) error {
	const what = "resize the command's terminal"
	if w.Rows == 0 || w.Cols == 0 {
		return bailey.Errorf(bailey.CodeUsage, what, "use 1 to 65535", "%d rows and %d columns are no size", w.Rows, w.Cols)
	}
	x, u, err := e.openRunning(ctx, who, ref, id, what)
	if err != nil {
		return err
	}
	defer u.release()
	if !x.doc.Exec.Pty {
		return bailey.Errorf(bailey.CodeUsage, what, "start it with a terminal", "it has none")
	}
	return x.proc.Resize(ctx, guest.Window{Rows: w.Rows, Cols: w.Cols})
}
