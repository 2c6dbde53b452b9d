package run

import (
	"context"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// drain is how long output that is still in the pipes is waited for when the
// command has ended. Everything inside is dead by then, so nobody can add to
// it; it only has to be taken by whoever reads.
const drain = 10 * time.Second

// attend starts the sandbox, joins it with the person's streams and waits.
func (b *builder) attend(ctx context.Context, spec driver.Spec, out *Outcome) (err error) {
	person := b.req.Streams
	if c := b.req.Capture; c != nil {
		if err := c.open(&person); err != nil {
			return err
		}
		defer func() {
			if err != nil {
				c.close()
			}
		}()
	}
	layout := person.Layout()
	var inside terminal.Inside
	var relay *terminal.Relay // from here on inside is its
	defer func() {
		if relay == nil && err != nil {
			closeFiles(inside.In, inside.Out, inside.Err)
		}
	}()
	var theirs []*os.File // ends that only the sandbox may hold
	closeTheirs := func() {
		closeFiles(theirs...)
		theirs = nil
	}
	defer closeTheirs()
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err != nil {
			err = bailey.Errorf(bailey.CodeSetupFailed, "connect the command with its input and output", "", "%w", err)
		}
		return r, w, err
	}
	if layout.Pty {
		size := person.Size()
		spec.Entry.Terminal = &driver.WindowSize{Rows: size.Rows, Cols: size.Cols}
	} else {
		var r, w *os.File
		if person.In != nil {
			if r, w, err = pipe(); err != nil {
				return err
			}
			inside.In, spec.Entry.Stdio[0] = w, r
			theirs = append(theirs, r)
		}
		if r, w, err = pipe(); err != nil {
			return err
		}
		inside.Out, spec.Entry.Stdio[1] = r, w
		theirs = append(theirs, w)
	}
	if layout.ErrPipe {
		r, w, err := pipe()
		if err != nil {
			return err
		}
		inside.Err, spec.Entry.Stdio[2] = r, w
		theirs = append(theirs, w)
	}

	in, err := b.host.Driver.Create(ctx, spec)
	closeTheirs()
	if err != nil {
		return err
	}
	b.host.trace("running")
	if b.host.Running != nil {
		go b.host.Running()
	}
	defer func() {
		b.host.trace("destroy")
		if err := in.Destroy(context.WithoutCancel(ctx)); err != nil {
			out.Leftover = err
		}
	}()
	inside.Pty = in.Terminal()
	if g := b.req.Gate; g != nil {
		g.asks.started(in.Pid())
	}
	if err := b.attach(ctx, in); err != nil {
		closeFiles(inside.Pty)
		return err
	}
	defer func() { out.Egress = b.closeGate(b.opened) }()
	limit := b.req.Limits.Output
	if limit == 0 {
		limit = bailey.DefaultLimits.Output
	}
	var signals atomic.Int32
	started := make(chan struct{})
	relay, err = terminal.Start(person, inside, terminal.Options{
		OutputLimit: limit,
		OnLimit:     func() { in.Kill(bailey.EndOutput) },
		OnSignal: func(s os.Signal) {
			// The first one is the command's to deal with, the third ends it
			// whether it deals or not.
			if signals.Add(1) > 2 {
				in.Kill(bailey.EndUser)
				if <-started; relay != nil {
					relay.Abandon()
				}
				return
			}
			in.Signal(s.(syscall.Signal))
		},
		OnStop:     func() { in.Signal(syscall.SIGSTOP) },
		OnContinue: func() { in.Signal(syscall.SIGCONT) },
	})
	close(started)
	if err != nil {
		return err
	}
	if g := b.req.Gate; g != nil {
		g.asks.join(relay)
	}
	stopWatch := b.watchDisk(in)
	b.wait(ctx, in, relay)
	stopWatch()
	if g := b.req.Gate; g != nil {
		g.asks.close() // what is asked on the terminal leaves it
	}
	out.Result = relay.Finish(drain)
	out.End = in.End()
	if d := b.run.Disk(); d != nil && d.Full() {
		out.End.LimitHits = append(out.End.LimitHits, "disk")
	}
	return nil
}

func closeFiles(files ...*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// wait returns when the sandbox has ended.
func (b *builder) wait(ctx context.Context, in driver.Instance, relay *terminal.Relay) {
	cancelled := ctx.Done()
	for {
		select {
		case <-in.Done():
			return
		case sig := <-in.Stopped():
			if sig == syscall.SIGTSTP || sig == syscall.SIGTTIN || sig == syscall.SIGTTOU {
				relay.Suspend()
			}
		case <-cancelled:
			in.Kill(bailey.EndUser)
			cancelled = nil
		}
	}
}

// StartError gives the error for a command of req that the sandbox could not
// start, or nil.
func StartError(req Request, e bailey.End) error {
	if e.Reason != bailey.EndNotStarted {
		return nil
	}
	command := terminal.Printable(req.Command[0])
	path := strings.ContainsRune(req.Command[0], '/')
	code, why, fix := bailey.CodeCommandNotExecutable, e.Detail+" inside the sandbox", ""
	switch {
	case e.ExitCode == 127 && path:
		// execve(2) says the same of a script whose interpreter is absent.
		code, why = bailey.CodeCommandNotFound, "it does not exist inside the sandbox, or what runs it does not"
		fix = "look at the path and, if it is a script, at the interpreter in its first line"
	case e.ExitCode == 127 && req.Level.OwnRoot():
		code, why, fix = bailey.CodeCommandNotFound, "the image has no "+command+" on its PATH", "choose an image that has it, or give its whole path"
		if req.Rootfs != nil && req.Rootfs.Kind == rootfs.KindHost {
			why, fix = "the host's /usr has no "+command+" on PATH", "the template host is made of /usr alone; give its whole path, or use an image"
		}
	case e.ExitCode == 127:
		code, why = bailey.CodeCommandNotFound, "there is no "+command+" on PATH inside the sandbox"
		fix = "only what is below /usr or in a toolchain's folder on PATH exists there; show another folder with --mount and name the program in it"
	}
	return bailey.Errorf(code, "run "+command, fix, "%s", why)
}
