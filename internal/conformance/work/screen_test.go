//go:build linux

package work

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// screen is a terminal with a program in it; the test is the person.
type screen struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	slave  *os.File

	mu    sync.Mutex
	cond  *sync.Cond
	shown []byte
	seen  int
	done  bool
	ended chan struct{}
}

// open starts a command in a terminal of 24 lines of 80.
func openScreen(t *testing.T, y *rig.Yard, cmd *exec.Cmd) *screen {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &screen{t: t, cmd: cmd, master: master, slave: slave, ended: make(chan struct{})}
	s.cond = sync.NewCond(&s.mu)
	s.resize(24, 80)
	if err := os.Chown(slave.Name(), y.Who.UID, y.Who.GID); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		buf := make([]byte, 32<<10)
		for {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.shown = append(s.shown, buf[:n]...)
			s.done = err != nil
			s.cond.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
		slave.Close()
		<-s.ended
		master.Close()
	})
	return s
}

func (s *screen) resize(rows, cols uint16) {
	if err := pty.Setsize(s.master, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		s.t.Fatal(err)
	}
}

// send types.
func (s *screen) send(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits until the text is shown, after what was expected before.
func (s *screen) expect(text string) {
	s.t.Helper()
	late := time.AfterFunc(rig.Patience, func() {
		s.mu.Lock()
		s.done = true
		s.cond.Broadcast()
		s.mu.Unlock()
	})
	defer late.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if i := bytes.Index(s.shown[s.seen:], []byte(text)); i >= 0 {
			s.seen += i + len(text)
			return
		}
		if s.done {
			s.t.Fatalf("%q was not shown; after what was expected there is %q", text, s.shown[s.seen:])
		}
		s.cond.Wait()
	}
}

// wait returns when the program has ended, with its exit code, and checks that
// the terminal is as it was.
func (s *screen) wait(before *unix.Termios) int {
	s.t.Helper()
	late := time.AfterFunc(rig.Patience, func() { s.cmd.Process.Kill() })
	defer late.Stop()
	s.cmd.Wait()
	if after := s.modes(); *after != *before {
		s.t.Errorf("the terminal is left as %+v, it was %+v", after, before)
	}
	return s.cmd.ProcessState.ExitCode()
}

func (s *screen) modes() *unix.Termios {
	s.t.Helper()
	m, err := unix.IoctlGetTermios(int(s.slave.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}
