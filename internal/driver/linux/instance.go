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
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// instance is one sandbox.
type instance struct {
	spec     driver.Spec
	id       *identity
	group    *group
	proc     *spawn.Process
	control  *os.File // the lease of a one-shot sandbox; closing it ends the sandbox
	agent    *os.File // the stream of a staying one, its lease as well
	terminal *os.File
	stopped  chan syscall.Signal
	timer    *time.Timer

	mu     sync.Mutex
	reaped bool
	reason bailey.Reason // why Kill was called; the first reason counts
	done   chan struct{}
	end    bailey.End
	victim string // and peak: what watchMemory saw
	// counted, when Destroy has made it, is closed when stats are what the group
	// had used when it was about to end.
	counted chan struct{}
	stats   cgroup.Stats
	peak    int64

	once sync.Once
}

func (in *instance) Terminal() *os.File             { return in.terminal }
func (in *instance) Agent() *os.File                { return in.agent }
func (in *instance) Stopped() <-chan syscall.Signal { return in.stopped }
func (in *instance) Done() <-chan struct{}          { return in.done }

func (in *instance) Pid() int { return in.proc.Pid }

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
	if !in.reaped {
		unix.PidfdSendSignal(in.proc.Pidfd, unix.SIGKILL, nil, 0)
	}
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
	// The pidfd, not wait4 alone: Kill must not signal a pid that has been
	// reaped and given to somebody else.
	in.await()
	in.mu.Lock()
	ws, _ := in.proc.Reap()
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
	in.end = in.group.judge(verdict(last, ws, reason, in.group.limits), in.stats)
	if victim != "" {
		in.end.Victim, in.end.Peak = victim, peak
	}
	close(in.done)
}

// await returns when pid 1 has ended.
func (in *instance) await() {
	fds := []unix.PollFd{{Fd: int32(in.proc.Pidfd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return
		}
	}
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

func (in *instance) Pause(ctx context.Context) error  { return in.group.freeze(ctx, true) }
func (in *instance) Resume(ctx context.Context) error { return in.group.freeze(ctx, false) }

func (in *instance) Stats(context.Context) (driver.Stats, error) { return in.group.stats(), nil }

// Destroy ends the sandbox and gives back what the driver holds for it.
func (in *instance) Destroy(context.Context) error {
	in.mu.Lock()
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
	<-in.done
	var err error
	in.once.Do(func() { err = in.release() })
	return err
}

// release closes everything, also of a sandbox that was never started.
func (in *instance) release() error {
	if in.timer != nil {
		in.timer.Stop()
	}
	for _, f := range []*os.File{in.control, in.agent} {
		if f != nil {
			f.Close()
		}
	}
	if in.proc != nil {
		in.mu.Lock()
		if !in.reaped {
			unix.PidfdSendSignal(in.proc.Pidfd, unix.SIGKILL, nil, 0)
			in.proc.Reap()
			in.reaped = true
		}
		in.mu.Unlock()
	}
	err := in.group.remove()
	in.id.close()
	return err
}
