package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/microvm/monitor"
	"github.com/bailey-sandbox/bailey/internal/microvm/share"
)

// Machine is one that runs.
type Machine struct {
	cmd   *exec.Cmd
	files *os.File
	share *share.Server
	ctl   *monitor.Monitor
	ended chan struct{}
	err   error
	once  sync.Once

	served     chan error // what Serve returned, once
	suspending atomic.Bool
}

// Start starts a machine. agent is the monitor's end of the stream to bailey-init; the caller
// closes it. log gets what the monitor says. The machine ends with this process: as its
// parent is the thread that starts it, that one starts nothing else and stays.
func Start(c Config, agent *os.File, log io.Writer) (*Machine, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	s, err := share.New(share.Options{Dir: c.Root, Live: c.Live})
	if err != nil {
		return nil, fmt.Errorf("open the machine's root: %w", err)
	}
	return start(c, agent, log, s, false)
}

func start(c Config, agent *os.File, log io.Writer, s *share.Server, fork bool) (*Machine, error) {
	tsc := 0
	if !c.KVM {
		tsc = counterKHz()
	}
	m := &Machine{share: s, ended: make(chan struct{}), served: make(chan error, 1)}
	var theirs [2]*os.File
	pair := func(i int) (*os.File, error) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		theirs[i] = os.NewFile(uintptr(fds[1]), "monitor")
		if err := unix.SetNonblock(fds[0], true); err != nil {
			return nil, err
		}
		return os.NewFile(uintptr(fds[0]), "machine"), nil
	}
	var control *os.File
	var err error
	if m.files, err = pair(0); err == nil {
		control, err = pair(1)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	m.cmd = exec.Command(c.Monitor, c.args(tsc, fork)...)
	m.cmd.Stdout, m.cmd.Stderr = log, log
	m.cmd.Env = []string{"PATH=/usr/bin", "LC_ALL=C"}
	m.cmd.ExtraFiles = []*os.File{agent, theirs[0], theirs[1]}
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := m.cmd.Start()
		started <- err
		if err == nil {
			m.err = m.cmd.Wait()
		}
		close(m.ended)
		runtime.UnlockOSThread()
	}()
	err = <-started
	theirs[0].Close()
	theirs[1].Close()
	if err != nil {
		control.Close()
		m.files.Close()
		s.Close()
		return nil, fmt.Errorf("start the monitor: %w", err)
	}
	go func() {
		m.served <- s.Serve(m.files)
		if !m.suspending.Load() {
			m.cmd.Process.Kill() // without its files it is of no use
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), controlWithin)
	defer cancel()
	if m.ctl, err = monitor.New(ctx, control); err != nil {
		m.Kill()
		return nil, errors.Join(fmt.Errorf("speak to the monitor: %w", err), m.Wait())
	}
	return m, nil
}

// controlWithin bounds what the monitor takes to answer: it loads itself first.
const controlWithin = 60 * time.Second

// Pid is the monitor's.
func (m *Machine) Pid() int { return m.cmd.Process.Pid }

// Wait waits for the end of the machine, and gives why it ended if not by itself.
func (m *Machine) Wait() error {
	<-m.ended
	m.once.Do(func() {
		m.files.Close()
		err := <-m.served
		m.share.Close()
		if m.ctl != nil {
			m.ctl.Close()
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, os.ErrClosed) {
			err = nil
		}
		m.err = errors.Join(m.err, err)
	})
	return m.err
}

// Kill ends it.
func (m *Machine) Kill() { m.cmd.Process.Kill() }
