package keeper

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// Options are what a keeper is started with.
type Options struct {
	Home    string    // the data folder, which must exist
	Command []string  // the daemon's program and its arguments
	Log     io.Writer // what happens, a line each
}

const (
	// A daemon that dies is started again at once when it has lived for a while,
	// and otherwise after a pause that doubles.
	livedLong = time.Second
	minPause  = 50 * time.Millisecond
	maxPause  = 5 * time.Second
	// upgradeWithin is how long a daemon may take to leave for another. Killing it
	// then loses nothing, as at any other time.
	upgradeWithin = 30 * time.Second
	// drainWithin bounds the wait for the end of a dead daemon's requests.
	drainWithin = time.Second

	socketNumber   = 3 // the daemon's end of the socket
	socketVariable = "BAILEY_KEEPER_FD"
	wantFiles      = 1 << 20 // RLIMIT_NOFILE, where it can be had
)

// server is a keeper.
type server struct {
	opt    Options
	shelf  *shelf
	spoken atomic.Bool   // some daemon has asked for something: it came up
	asked  chan struct{} // the daemon wants to be upgraded

	daemon    int // its pid; 0 while there is none
	since     time.Time
	served    chan struct{} // closed when all it asked for is done
	socket    int
	pause     time.Duration
	stopping  bool
	upgrading bool
}

// Run keeps until there is nothing to keep, and gives the exit status: 0 when the
// daemon left and nothing lives, what the daemon ended with when it was told to
// leave (SIGTERM, SIGINT, which are passed on) or never came up.
//
// SIGHUP, or Client.Upgrade, starts the daemon anew from the program that is on
// disk by then; it is told by SIGHUP to leave everything as it is. Whatever else
// ends it, it is started again.
//
// A data folder that has a keeper is an error with code busy.
func Run(opt Options) (status int, err error) {
	const what = "start the keeper"
	if len(opt.Command) == 0 {
		return 0, bailey.Errorf(bailey.CodeUsage, what, "give it after --", "there is no daemon to start")
	}
	// As a path, so that what is found does not change with the folder.
	program, err := exec.LookPath(opt.Command[0])
	if err == nil {
		program, err = filepath.Abs(program)
	}
	if err != nil {
		return 0, bailey.Errorf(bailey.CodeUsage, what, "", "%w", err)
	}
	opt.Command = append([]string{program}, opt.Command[1:]...)
	lock, err := takeLock(filepath.Join(opt.Home, "keeper"))
	if err != nil {
		return 0, err
	}
	defer lock.Close()
	s := &server{opt: opt, asked: make(chan struct{}, 1)}
	if s.shelf, err = openShelf(filepath.Join(opt.Home, "keeper", "ended")); err != nil {
		return 0, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, bailey.Errorf(bailey.CodeSetupFailed, what, "", "become the parent of orphans: %w", err)
	}
	debug.SetGCPercent(20)
	moreFiles()
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, unix.SIGCHLD, unix.SIGTERM, unix.SIGINT, unix.SIGHUP)
	defer signal.Stop(signals)
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // who reads the log may go
	os.Unsetenv(socketVariable)
	return s.run(signals)
}

// takeLock makes the keeper's folder and locks it.
func takeLock(dir string) (*os.File, error) {
	const what = "start the keeper"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	// The file stays: removing it would race with another who has just opened it.
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, bailey.Errorf(bailey.CodeBusy, what, "use the daemon that runs, or another data folder", "%s has a keeper", filepath.Dir(dir))
	}
	return f, nil
}

// moreFiles raises the limit on open files as far as it goes: each sandbox has
// several. Without the right to raise the hard limit, that is it.
func moreFiles() {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return
	}
	if l.Max < wantFiles && unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: wantFiles, Max: wantFiles}) == nil {
		return
	}
	l.Cur = min(l.Max, wantFiles)
	unix.Setrlimit(unix.RLIMIT_NOFILE, &l)
}

// run is the keeper's life.
func (s *server) run(signals <-chan os.Signal) (int, error) {
	if err := s.start(); err != nil {
		return 0, bailey.Errorf(bailey.CodeSetupFailed, "start the daemon", "", "%w", err)
	}
	var again, late <-chan time.Time
	upgrade := func() {
		if s.daemon != 0 && !s.upgrading && !s.stopping {
			s.upgrading, late = true, time.After(upgradeWithin)
			unix.Kill(s.daemon, unix.SIGHUP)
		}
	}
	for {
		select {
		case sig := <-signals:
			switch sig {
			case unix.SIGCHLD:
				ws, ended := s.reap()
				if !ended {
					continue
				}
				late = nil
				pause, leave, status := s.next(ws)
				if leave {
					return status, nil
				}
				again = time.After(pause)
			case unix.SIGHUP:
				upgrade()
			default:
				s.stopping = true
				if s.daemon == 0 {
					return 0, nil
				}
				unix.Kill(s.daemon, sig.(syscall.Signal))
			}
		case <-s.asked:
			upgrade()
		case <-late:
			s.log("the daemon does not leave, and is killed")
			unix.Kill(s.daemon, unix.SIGKILL)
		case <-again:
			again = nil
			if err := s.start(); err != nil {
				s.log("the daemon cannot be started: %v", err)
				s.since = time.Now()
				pause, leave, status := s.next(127 << 8)
				if leave {
					return status, nil
				}
				again = time.After(pause)
			}
		}
	}
}

// next decides what comes after the daemon's end.
func (s *server) next(ws syscall.WaitStatus) (pause time.Duration, leave bool, status int) {
	status = ws.ExitStatus()
	if ws.Signaled() {
		status = 128 + int(ws.Signal())
	}
	upgrading := s.upgrading
	s.upgrading = false
	alive := s.shelf.alive()
	switch {
	case s.stopping:
		return 0, true, status
	case upgrading:
		s.log("the daemon is started anew, %d sandboxes live on", alive)
		return 0, false, 0
	case alive == 0 && (status == 0 || !s.spoken.Load()):
		return 0, true, status
	}
	if time.Since(s.since) >= livedLong {
		s.pause = 0
	} else {
		s.pause = min(max(2*s.pause, minPause), maxPause)
	}
	s.log("the daemon ended with status %d; it is started again in %v, %d sandboxes live on", status, s.pause, alive)
	return s.pause, false, 0
}

// start starts the daemon, in a session of its own: no terminal is a sandbox's to
// open, and signals reach it from here only.
func (s *server) start() error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "keeper")
	defer theirs.Close()
	p, err := os.StartProcess(s.opt.Command[0], s.opt.Command, &os.ProcAttr{
		Env:   append(os.Environ(), socketVariable+"="+strconv.Itoa(socketNumber)),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, theirs},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		unix.Close(pair[0])
		return err
	}
	s.daemon, s.since, s.socket, s.served = p.Pid, time.Now(), pair[0], make(chan struct{})
	p.Release() // reap waits for it
	go s.serve(s.socket, s.served)
	return nil
}

// reap reaps what has ended. Of the daemon it gives the status.
func (s *server) reap() (ws syscall.WaitStatus, daemon bool) {
	for {
		// A look only: until it is reaped the process's number is its own.
		var info struct {
			signo, errno, code, _, pid int32
			_                          [108]byte
		}
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil || info.pid == 0 {
			return ws, daemon
		}
		pid := int(info.pid)
		status, err := s.shelf.reap(pid)
		if err != nil {
			s.log("the end of a sandbox cannot be written down: %v", err)
		}
		if pid == s.daemon {
			ws, daemon = status, true
			s.daemon = 0
			s.drain()
		}
	}
}

// drain waits until what a dead daemon has asked for is done, so that nothing of
// it comes after what the next one asks for.
func (s *server) drain() {
	select {
	case <-s.served:
	case <-time.After(drainWithin): // somebody else has the daemon's end open
		unix.Shutdown(s.socket, unix.SHUT_RDWR)
		<-s.served
	}
	unix.Close(s.socket)
}

// serve does what a daemon asks until its end of the socket is closed.
func (s *server) serve(fd int, served chan struct{}) {
	defer close(served)
	buf, oob := newBuffers()
	for {
		n, fds, err := receive(fd, buf, oob)
		if err == unix.EINTR {
			continue
		}
		if err == errTruncated {
			var r request
			json.Unmarshal(buf[:min(n, len(buf))], &r)
			err = bailey.Errorf(bailey.CodeTooLarge, "keep descriptors", "raise the limit on open files of the keeper (LimitNOFILE)", "%w", err)
			if transmit(fd, failed(r.N, err), nil) != nil {
				return
			}
			continue
		}
		if err != nil {
			return
		}
		r, err := parseRequest(buf[:n], len(fds))
		if err != nil {
			closeAll(fds)
			err = bailey.Errorf(bailey.CodeProtocol, "read the daemon's request", "", "%w", err)
			if transmit(fd, failed(r.N, err), nil) != nil {
				return
			}
			continue
		}
		s.spoken.Store(true)
		if s.answer(fd, r, fds) != nil {
			return
		}
	}
}

// answer does one thing and says so. It takes fds over.
func (s *server) answer(fd int, r request, fds []int) error {
	a := answer{N: r.N}
	var err error
	switch r.Op {
	case opPut:
		err = s.shelf.put(r.ID, r.Pid, r.Names, fds)
	case opDrop:
		s.shelf.drop(r.ID, r.Names)
	case opStatus:
		a.Status, a.Alive, err = s.shelf.status(r.ID)
	case opUpgrade:
		select {
		case s.asked <- struct{}{}:
		default: // it is under way
		}
	case opGet:
		var names []string
		if names, fds, err = s.shelf.get(r.ID, r.Names); err == nil {
			defer closeAll(fds)
		}
		for len(names) > 0 {
			n := min(len(names), maxFiles)
			if err := transmit(fd, answer{N: r.N, Names: names[:n], More: true}, fds[:n]); err != nil {
				return err
			}
			names, fds = names[n:], fds[n:]
		}
	case opList:
		for _, k := range s.shelf.list() {
			for _, part := range k.parts() {
				if err := transmit(fd, answer{N: r.N, Kept: []Kept{part}, More: true}, nil); err != nil {
					return err
				}
			}
		}
	}
	if err != nil {
		a = failed(r.N, err)
	}
	return transmit(fd, a, nil)
}

func failed(n uint64, err error) answer {
	e, ok := err.(*bailey.Error)
	if !ok {
		e = bailey.Errorf(bailey.CodeInternal, "keep sandboxes", "", "%w", err)
	}
	return answer{N: n, Error: &bailey.Error{Code: e.Code, What: e.What, Why: e.Why, Fix: e.Fix}}
}

func (s *server) log(format string, args ...any) {
	if s.opt.Log != nil {
		fmt.Fprintf(s.opt.Log, "bailey-keeper: "+format+"\n", args...)
	}
}
