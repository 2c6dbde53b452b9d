package terminal

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// handleSignals runs until Finish ends it.
func (r *Relay) handleSignals() {
	defer close(r.sigEnd)
	for {
		var s os.Signal
		select {
		case s = <-r.signals:
		case <-r.done:
			return
		}
		switch s {
		case syscall.SIGWINCH:
			_ = SetSize(r.inside.Pty, r.term.Size())
		case syscall.SIGCONT:
			if r.halting.Load() {
				select {
				case r.resumed <- struct{}{}:
				default:
				}
				continue
			}
			r.reclaim()
		case syscall.SIGTSTP:
			r.stopJob()
		default:
			if s == syscall.SIGHUP {
				r.hungUp.Store(true)
			}
			if r.opts.OnSignal != nil {
				r.opts.OnSignal(s)
				continue
			}
			// Nobody else will deal with it.
			r.Abandon()
			r.gate.Lock()
			r.leave(true)
			signal.Reset(s)
			_ = unix.Kill(unix.Getpid(), s.(syscall.Signal))
		}
	}
}

// reclaim follows a stop and continue that nobody announced (kill -STOP): the
// shell may have changed the terminal meanwhile.
func (r *Relay) reclaim() {
	if r.term == nil {
		return
	}
	if !r.asking.Load() { // a question has the gate, and needs the terminal too
		r.gate.Lock()
		defer r.gate.Unlock()
	}
	r.term.mu.Lock()
	raw := r.term.raw
	r.term.mu.Unlock()
	if raw && r.term.Raw() == nil {
		_ = SetSize(r.inside.Pty, r.term.Size())
	}
}

// stopJob follows ^Z at a terminal that is not in raw mode.
func (r *Relay) stopJob() {
	r.opts.OnStop()
	// Whoever holds the gate waits for a reader that pauses; it will wait on.
	locked := r.gate.TryLock()
	if locked {
		r.leave(false)
	}
	// This goroutine is the one that would see SIGCONT, so it looks itself.
	// The rest of the job got the signal from the terminal, too.
	restore := stopSelf()
	r.awaitContinue()
	restore()
	if locked {
		for _, f := range r.filters {
			_ = f.Reenter()
		}
		r.gate.Unlock()
	}
	if r.opts.OnContinue != nil {
		r.opts.OnContinue()
	}
}

// stopWait is how long a stop of this process may take to happen. It never
// happens where no shell could continue us (an orphaned process group, or
// SIGTSTP ignored): then the command goes on at once, as every job does there.
const stopWait = time.Second

func (r *Relay) awaitContinue() {
	timer := time.NewTimer(stopWait)
	defer timer.Stop()
	for {
		select {
		case s := <-r.signals:
			if s == syscall.SIGCONT {
				return
			}
			if s == syscall.SIGTERM || s == syscall.SIGHUP {
				r.requeue(s)
				return
			}
		case <-r.done:
			return
		case <-timer.C:
			return
		}
	}
}

func (r *Relay) requeue(s os.Signal) {
	select {
	case r.signals <- s:
	default:
	}
}

// Suspend is to be called when the command's main process has stopped, as it
// does when the person types ^Z. It shows what is left of the output, gives
// the terminal back and stops this process with its whole process group, so
// that the person's shell shows a stopped job. When the job is continued in
// the foreground, Suspend takes the terminal again, sends the window's size,
// calls OnContinue and returns. It calls OnContinue, too, when the terminal
// cannot be had any more, and then returns the error.
//
// Without a pseudo-terminal there is nothing to do: ^Z has stopped this
// process already. Suspend and Finish must not be called at the same time.
func (r *Relay) Suspend() error {
	if r.term == nil {
		return nil
	}
	r.gate.Lock()
	r.flushOutput()
	r.leave(false)
	if !ignored(unix.SIGTSTP) {
		select {
		case <-r.resumed: // of an earlier time
		default:
		}
		r.halting.Store(true)
		_ = unix.Kill(0, unix.SIGTSTP)
		timer := time.NewTimer(stopWait)
		select {
		case <-r.resumed:
		case <-timer.C:
		}
		timer.Stop()
		r.halting.Store(false)
	}
	err := r.term.Raw()
	if err == nil {
		for _, f := range r.filters {
			_ = f.Reenter()
		}
		_ = SetSize(r.inside.Pty, r.term.Size())
	}
	r.gate.Unlock()
	// A command that nobody continues would hang; one without the terminal ends
	// by itself or by the caller, who has the error.
	if r.opts.OnContinue != nil {
		r.opts.OnContinue()
	}
	return err
}

// flushOutput shows what the command wrote before it stopped, such as the end
// of its full-screen display. The kernel moves output from a slave to its
// master in the background, hence the pause before it counts as all.
func (r *Relay) flushOutput() {
	const quiet = 20 * time.Millisecond
	fd := descriptor(r.inside.Pty)
	buf := make([]byte, 32<<10)
	for range 64 {
		got, err := wait(fd, false, -1, quiet)
		if err != nil || !got.ready {
			return
		}
		n, err := r.budget.read(fd, buf)
		if n == 0 || err != nil {
			return
		}
		if _, err := r.screen.Write(buf[:n]); err != nil {
			return
		}
	}
}
