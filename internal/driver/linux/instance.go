package linux

import (
	"context"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/pid1"
)

// instance is one sandbox.
type instance struct {
	spec     driver.Spec
	state    string // the driver's folder
	id       *identity
	group    *group
	first    *first
	started  uint64   // when, as startOf tells
	hostrw   bool     // its programs may be shown folders of the host writable
	control  *os.File // the lease of a one-shot sandbox; closing it ends the sandbox
	agent    *os.File // the stream of a staying one, its lease as well
	terminal *os.File
	outlet   *outlet        // how the way out was made; nil without one
	out      *driver.Outlet // its listeners until they are taken
	stopped  chan syscall.Signal
	timer    *time.Timer

	mu     sync.Mutex
	reaped bool
	left   chan struct{} // closed by Release
	reason bailey.Reason // why Kill was called; the first reason counts
	done   chan struct{}
	end    bailey.End
	victim string // and peak: what watchMemory saw
	// counted, when Destroy has made it, is closed when stats are what the group
	// had used when it was about to end.
	counted chan struct{}
	stats   cgroup.Stats
	peak    int64

	once sync.Once // release
	late sync.Once // it is waited for in the background
}

func (d *Driver) newInstance(spec driver.Spec, id *identity, g *group) *instance {
	return &instance{spec: spec, state: d.opt.State, id: id, group: g, done: make(chan struct{}), left: make(chan struct{}), stopped: make(chan syscall.Signal, 1)}
}

func (in *instance) Terminal() *os.File             { return in.terminal }
func (in *instance) Agent() *os.File                { return in.agent }
func (in *instance) Stopped() <-chan syscall.Signal { return in.stopped }
func (in *instance) Done() <-chan struct{}          { return in.done }

// Outlet gives the listeners away.
func (in *instance) Outlet() *driver.Outlet {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := in.out
	in.out = nil
	return out
}

func (in *instance) Pid() int { return in.first.pid }

// End is meaningful once Done is closed.
func (in *instance) End() bailey.End {
	select {
	case <-in.done:
		return in.end
	default:
		return bailey.End{}
	}
}

// Signal reaches the command's process group through pid 1.
func (in *instance) Signal(sig syscall.Signal) error {
	if in.control == nil {
		return bailey.Errorf(bailey.CodeNotAvailable, "signal the command", "signal the exec instead", "this sandbox runs an agent")
	}
	_, err := in.control.Write([]byte{byte(sig)})
	return err
}

// Kill ends pid 1; the kernel ends everything else in the PID namespace.
func (in *instance) Kill(reason bailey.Reason) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.reason == "" {
		in.reason = reason
	}
	in.slay()
}

// slay sends SIGKILL to pid 1 unless it has been reaped. in.mu is held.
func (in *instance) slay() {
	if in.reaped || in.released() {
		return
	}
	in.first.signal(unix.SIGKILL)
	in.group.LetDie()
}

func (in *instance) startTimer(d time.Duration) {
	in.timer = time.AfterFunc(d, func() { in.Kill(bailey.EndTimeout) })
}

// watch follows the sandbox to its end.
func (in *instance) watch() {
	var last pid1.Report
	if in.control != nil {
		last = in.follow()
	}
	in.first.await()
	if in.released() {
		return
	}
	ws, werr := in.first.status()
	in.mu.Lock()
	if in.released() {
		in.mu.Unlock()
		return
	}
	in.reaped = true
	reason, victim, peak, counted := in.reason, in.victim, in.peak, in.counted
	in.mu.Unlock()
	if in.timer != nil {
		in.timer.Stop()
	}
	if counted != nil {
		<-counted
	} else {
		in.stats = in.group.Stats()
	}
	end := verdict(last, ws, reason, in.group.limits)
	if werr != nil && reason == "" {
		end = bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "the sandbox's first process ended while nobody watched it"}
	}
	in.end = in.group.judge(end, in.stats)
	if victim != "" {
		in.end.Victim, in.end.Peak = victim, peak
	}
	close(in.done)
}

// follow reads pid 1's reports until there are no more, and gives the one that
// says how the command ended.
func (in *instance) follow() (last pid1.Report) {
	buf := make([]byte, pid1.ReportSize+1)
	for {
		n, err := in.control.Read(buf)
		if err != nil || n == 0 {
			return last
		}
		r, err := pid1.ParseReport(buf[:n])
		if err != nil {
			return last
		}
		switch r.Kind {
		case pid1.Stopped:
			select {
			case in.stopped <- syscall.WaitStatus(r.Value).StopSignal():
			default:
			}
		case pid1.NotStarted:
			last = r
		case pid1.Ended:
			if last.Kind != pid1.NotStarted {
				last = r
			}
		}
	}
}

// verdict says how a sandbox ended, before limits are looked at.
func verdict(last pid1.Report, ws syscall.WaitStatus, reason bailey.Reason, l bailey.Limits) bailey.End {
	switch {
	case reason != "":
		e := bailey.End{Reason: reason, ExitCode: 137, Signal: "SIGKILL"}
		switch reason {
		case bailey.EndTimeout:
			e.Limit = int64(l.Timeout)
		case bailey.EndOutput:
			e.Limit = l.Output
		case bailey.EndDiskFull:
			e.Limit = l.Disk
		case bailey.EndOOM:
			e.Limit = l.Memory
		}
		return e
	case last.Kind == pid1.NotStarted:
		errno := syscall.Errno(last.Value)
		e := bailey.End{Reason: bailey.EndNotStarted, ExitCode: 126, Detail: errno.Error()}
		if errno == syscall.ENOENT {
			e.ExitCode = 127
		}
		return e
	case last.Kind == pid1.Ended:
		ws = syscall.WaitStatus(last.Value)
		if ws.Signaled() {
			return bailey.End{Reason: bailey.EndSignal, ExitCode: 128 + int(ws.Signal()), Signal: unix.SignalName(ws.Signal())}
		}
		return bailey.End{Reason: bailey.EndExit, ExitCode: ws.ExitStatus()}
	case ws.Exited() && ws.ExitStatus() == 0:
		return bailey.End{Reason: bailey.EndExit} // an agent that was asked to leave
	default:
		return bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "the sandbox's first process was killed from outside"}
	}
}

// Pause stops every process, by the freezer or, without one, by signals.
func (in *instance) Pause(ctx context.Context) error {
	err := in.group.freeze(ctx, true)
	if bailey.CodeOf(err) == bailey.CodeNotAvailable {
		return in.stopAll(ctx)
	}
	return err
}

// Resume lets them go on.
func (in *instance) Resume(ctx context.Context) error {
	if err := in.group.freeze(ctx, false); err != nil {
		return err
	}
	return in.goOnAll()
}

func (in *instance) Stats(context.Context) (driver.Stats, error) { return in.group.stats(), nil }

// Destroy ends the sandbox and gives back what the driver holds for it. A process may
// be where the kernel cannot take it down now, as in a read from a server that is gone:
// when ctx ends first the error has code busy, and the rest follows when it can.
func (in *instance) Destroy(ctx context.Context) error {
	in.mu.Lock()
	if in.released() {
		in.mu.Unlock()
		return nil
	}
	var counted chan struct{}
	if !in.reaped && in.counted == nil {
		counted = make(chan struct{})
		in.counted = counted
	}
	in.mu.Unlock()
	in.Kill(bailey.EndUser)
	if counted != nil { // while the kernel takes it down
		in.stats = in.group.Stats()
		close(counted)
	}
	select {
	case <-in.done:
		return in.releaseOnce()
	case <-in.left:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-in.done:
		return in.releaseOnce()
	default:
	}
	in.late.Do(func() {
		go func() {
			select {
			case <-in.done:
				in.releaseOnce() // the group's folder, if it stays, is Sweep's
			case <-in.left:
			}
		}()
	})
	return bailey.Errorf(bailey.CodeBusy, "end the sandbox "+in.spec.ID, "look for processes in state D, and what they wait for", "the kernel has not taken its processes down: %w", context.Cause(ctx))
}

func (in *instance) releaseOnce() (err error) {
	in.once.Do(func() { err = in.release() })
	return err
}

func (in *instance) released() bool {
	select {
	case <-in.left:
		return true
	default:
		return false
	}
}

// Release lets go of the sandbox.
func (in *instance) Release() {
	in.mu.Lock()
	defer in.mu.Unlock()
	select {
	case <-in.done: // it has ended, and what is left of it is Destroy's
		return
	case <-in.left:
		return
	default:
	}
	close(in.left)
	in.close()
	in.first.close()
	if in.id.ids != nil {
		in.id.ids.release()
	}
}

// close closes the ways to and from the sandbox. in.mu is held, or nobody else
// knows of the instance.
func (in *instance) close() {
	if out := in.out; out != nil {
		in.out = nil
		out.TCP.Close()
		out.UDP.Close()
	}
	for _, f := range []*os.File{in.control, in.agent} {
		if f != nil {
			f.Close()
		}
	}
}

// release closes everything, also of a sandbox that was never started.
func (in *instance) release() error {
	if in.timer != nil {
		in.timer.Stop()
	}
	in.mu.Lock()
	in.close()
	in.mu.Unlock()
	if in.first != nil {
		in.mu.Lock()
		if !in.reaped { // it was never watched
			in.slay()
			in.first.await()
			in.first.status()
			in.reaped = true
		}
		in.mu.Unlock()
		in.first.close()
	}
	err := in.group.remove()
	os.Remove(in.stoppedFile()) // there seldom is one
	in.id.close()
	return err
}
