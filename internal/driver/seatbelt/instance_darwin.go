package seatbelt

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

type instance struct {
	terminal *os.File
	cmd      *exec.Cmd
	done     chan struct{}
	stopped  chan syscall.Signal // nothing ever comes, see the package's page

	mu     sync.Mutex
	reason bailey.Reason // of Kill
	end    bailey.End
}

var _ driver.Instance = (*instance)(nil)

func (in *instance) Terminal() *os.File             { return in.terminal }
func (in *instance) Agent() *os.File                { return nil }
func (in *instance) Outlet() *driver.Outlet         { return nil } // Translate refuses to ask for one
func (in *instance) Stopped() <-chan syscall.Signal { return in.stopped }
func (in *instance) Pid() int                       { return in.cmd.Process.Pid }
func (in *instance) Done() <-chan struct{}          { return in.done }

// wait ends what the command left behind, reaps the command and notes how it
// ended. The order matters: until it is reaped no other process can have its
// id, nor a group or session of that id.
func (in *instance) wait() {
	if awaitExit(in.Pid()) {
		_ = in.signalTree(unix.SIGKILL)
	}
	_ = in.cmd.Wait()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.end = endOf(in.cmd.ProcessState.Sys().(syscall.WaitStatus))
	if in.reason != "" {
		in.end.Reason = in.reason
	}
	close(in.done)
}

// awaitExit waits until a child has exited, without reaping it. It reports
// false, at once, where it cannot tell.
func awaitExit(pid int) bool {
	queue, err := unix.Kqueue()
	if err != nil {
		return false
	}
	defer unix.Close(queue)
	watch := []unix.Kevent_t{{Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT}}
	got := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(queue, watch, got, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err == unix.ESRCH // it exited before we asked
		case n == 1 && got[0].Flags&unix.EV_ERROR != 0:
			return syscall.Errno(got[0].Data) == unix.ESRCH
		case n == 1:
			return true
		}
	}
}

func endOf(ws syscall.WaitStatus) bailey.End {
	if ws.Signaled() {
		return bailey.End{Reason: bailey.EndSignal, ExitCode: 128 + int(ws.Signal()), Signal: unix.SignalName(ws.Signal())}
	}
	return bailey.End{Reason: bailey.EndExit, ExitCode: ws.ExitStatus()}
}

func (in *instance) End() bailey.End {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.end
}

func (in *instance) ended() bool {
	select {
	case <-in.done:
		return true
	default:
		return false
	}
}

// Signal sends a signal to the command's process group, which is its session's
// first.
func (in *instance) Signal(sig syscall.Signal) error {
	if in.ended() {
		return nil
	}
	if err := unix.Kill(-in.Pid(), sig); err != nil && !errors.Is(err, unix.ESRCH) {
		return failed(err, "signal the command")
	}
	return nil
}

// Pause stops the command and all its descendants, Resume lets them go on.
func (in *instance) Pause(context.Context) error  { return in.signalTree(unix.SIGSTOP) }
func (in *instance) Resume(context.Context) error { return in.signalTree(unix.SIGCONT) }

func (in *instance) Stats(context.Context) (driver.Stats, error) {
	return driver.Stats{}, bailey.Errorf(bailey.CodeNotAvailable, "measure the sandbox", "", "macOS does not account for a command and all that it starts")
}

func (in *instance) Kill(reason bailey.Reason) {
	in.mu.Lock()
	if in.reason == "" && !in.ended() {
		in.reason = reason
	}
	in.mu.Unlock()
	_ = in.signalTree(unix.SIGKILL)
}

func (in *instance) Destroy(ctx context.Context) error {
	if !in.ended() {
		in.Kill(bailey.EndUser)
	}
	select {
	case <-in.done:
		return nil
	case <-ctx.Done():
		return bailey.Errorf(bailey.CodeBusy, "end the sandbox", "", "%w", ctx.Err())
	}
}

// signalTree signals the command's process group and every process that
// descends from the command, until a look finds no new one: a process may fork
// while it is being looked for.
func (in *instance) signalTree(sig syscall.Signal) error {
	root := in.Pid()
	_ = unix.Kill(-root, sig)
	seen := map[int]bool{}
	for {
		all, err := unix.SysctlKinfoProcSlice("kern.proc.all")
		if err != nil {
			return failed(err, "list the sandbox's processes")
		}
		ours := descendants(root, all)
		fresh := false
		for _, pid := range ours {
			if !seen[pid] {
				seen[pid], fresh = true, true
				_ = unix.Kill(pid, sig)
			}
		}
		if !fresh {
			return nil
		}
	}
}

// descendants gives the processes below root, and those of root's session,
// whose parents may be gone: a shell's jobs in the background.
func descendants(root int, all []unix.KinfoProc) (out []int) {
	in := map[int]bool{root: true}
	for again := true; again; {
		again = false
		for i := range all {
			pid, parent := int(all[i].Proc.P_pid), int(all[i].Eproc.Ppid)
			if in[pid] || pid <= 1 {
				continue
			}
			session, err := unix.Getsid(pid)
			if in[parent] || err == nil && session == root {
				in[pid], again = true, true
				out = append(out, pid)
			}
		}
	}
	return out
}
