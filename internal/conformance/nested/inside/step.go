//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// reaper collects every process of the machine that ends, its own children and
// those that lost their parents.
type reaper struct {
	mu   sync.Mutex
	wait map[int]chan syscall.WaitStatus
}

func newReaper() *reaper {
	r := &reaper{wait: map[int]chan syscall.WaitStatus{}}
	go r.run()
	return r
}

func (r *reaper) run() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.ECHILD {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		if err != nil || pid <= 0 {
			continue
		}
		r.mu.Lock()
		c := r.wait[pid]
		delete(r.wait, pid)
		r.mu.Unlock()
		if c != nil {
			c <- ws
		}
	}
}

// start starts a process; its end comes through the channel.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (int, <-chan syscall.WaitStatus, error) {
	r.mu.Lock() // so that its end is not seen before its channel is there
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return 0, nil, err
	}
	c := make(chan syscall.WaitStatus, 1)
	r.wait[pid] = c
	return pid, c, nil
}

// usual is what every step has in its environment.
var usual = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "BAILEY_TEST_PROGRAMS=" + plan.Plain + "cmd",
	testneeds.SlowerVariable + "=10"}

func runStep(t *teller, reap *reaper, index int, s plan.Step) (code int, err error) {
	temp := fmt.Sprintf("/tmp/s%d", index)
	env := append(append([]string(nil), usual...), "TMPDIR="+temp, "BAILEY_HOME="+temp+"/home")
	attr := &syscall.ProcAttr{Dir: s.Dir, Sys: &syscall.SysProcAttr{Setsid: true}}
	uid, home := 0, "/root"
	path, argv := s.Command[0], s.Command
	if s.User {
		uid, home = plan.UserID, plan.UserHome
		attr.Sys.Credential = &syscall.Credential{Uid: plan.UserID, Gid: plan.UserID}
		// It waits for a byte so that it begins in its own group.
		path = "/bin/sh"
		argv = append([]string{"sh", "-c", `read -r go && exec "$@" </dev/null`, "sh"}, s.Command...)
	}
	if err := os.Mkdir(temp, 0o755); err != nil {
		return 0, err
	}
	mode := os.FileMode(0o700)
	if !s.User { // some tests become other users
		mode = 0o777 | os.ModeSticky
	}
	if err := os.Chmod(temp, mode); err != nil {
		return 0, err
	}
	if err := os.Chown(temp, uid, uid); err != nil {
		return 0, err
	}
	attr.Env = append(append(env, "HOME="+home), s.Env...)

	out, in, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer out.Close()
	gate, open, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer open.Close()
	attr.Files = []uintptr{gate.Fd(), in.Fd(), in.Fd()}
	pid, ended, err := reap.start(path, argv, attr)
	in.Close()
	gate.Close()
	if err != nil {
		return 0, err
	}
	if s.User {
		if err := joinOwn(pid); err != nil {
			return 0, err
		}
		if _, err := open.Write([]byte("\n")); err != nil {
			return 0, err
		}
	}
	open.Close()
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 32<<10)
		for {
			n, err := out.Read(buf)
			if n > 0 {
				t.tell(plan.Event{Step: index, Output: buf[:n]})
			}
			if err != nil {
				return
			}
		}
	}()
	var ws syscall.WaitStatus
	select {
	case ws = <-ended:
	case <-time.After(time.Duration(s.Seconds) * time.Second):
		t.tell(plan.Event{Step: index, Output: fmt.Appendf(nil, "\nnested: not over within %d s\n", s.Seconds)})
		_ = unix.Kill(pid, unix.SIGQUIT) // tells where it stands
		select {
		case ws = <-ended:
		case <-time.After(30 * time.Second):
			_ = unix.Kill(-pid, unix.SIGKILL)
			ws = <-ended
		}
	}
	select { // what it has left behind may hold the pipe
	case <-read:
	case <-time.After(10 * time.Second):
	}
	leftBehind(t, index, temp)
	if ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return ws.ExitStatus(), nil
}

// leftBehind tells what a step has left in its temporary folder.
func leftBehind(t *teller, index int, temp string) {
	names, _ := filepath.Glob(temp + "/*")
	for _, n := range names {
		t.tell(plan.Event{Step: index, Output: []byte("nested: left behind: " + n + "\n")})
	}
}
