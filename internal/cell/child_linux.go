package cell

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// children are the processes below this one. It reaps them all: what the inner program leaves
// behind comes to it, as to a first process.
type children struct {
	chld chan os.Signal

	mu   sync.Mutex // also held from a start until the child is known, and while reaping
	of   map[int]chan syscall.WaitStatus
	none chan struct{} // closed when there is no child left; nil while nobody waits
}

// adopt makes this process the one that reaps.
func adopt() *children {
	unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	c := &children{chld: make(chan os.Signal, 1), of: map[int]chan syscall.WaitStatus{}}
	signal.Notify(c.chld, syscall.SIGCHLD)
	go c.reaper()
	return c
}

// start starts a program. The channel gives its status once it has ended.
func (c *children) start(argv, env []string, dir string, files []uintptr) (int, <-chan syscall.WaitStatus, error) {
	return c.startIn(argv, env, dir, files, nil)
}

// startApart starts a program in a process group of its own.
func (c *children) startApart(argv, env []string, dir string, files []uintptr) (int, <-chan syscall.WaitStatus, error) {
	return c.startIn(argv, env, dir, files, &syscall.SysProcAttr{Setpgid: true})
}

func (c *children) startIn(argv, env []string, dir string, files []uintptr, sys *syscall.SysProcAttr) (int, <-chan syscall.WaitStatus, error) {
	if dir == "" {
		dir = "/"
	}
	ended := make(chan syscall.WaitStatus, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Dir: dir, Env: env, Files: files, Sys: sys})
	if err != nil {
		return 0, nil, err
	}
	c.of[pid] = ended
	return pid, ended, nil
}

func (c *children) reaper() {
	for range c.chld {
		c.reap()
	}
}

// reap empties the queue: a signal can stand for many.
func (c *children) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG|unix.WALL, nil)
		if err == syscall.EINTR {
			continue
		}
		if err == syscall.ECHILD && c.none != nil {
			close(c.none)
			c.none = nil
		}
		if err != nil || pid <= 0 {
			return
		}
		if ended := c.of[pid]; ended != nil {
			delete(c.of, pid)
			ended <- ws
		}
	}
}

// gone gives a channel that is closed once there is no child left.
func (c *children) gone() <-chan struct{} {
	c.mu.Lock()
	none := c.none
	if none == nil {
		none = make(chan struct{})
		c.none = none
	}
	c.mu.Unlock()
	c.reap()
	return none
}

// killAll kills every process below this one, once: what is born meanwhile is met by the
// next call.
func (c *children) killAll() {
	if unix.Getpid() == 1 {
		unix.Kill(-1, syscall.SIGKILL)
		return
	}
	for list := []string{"self"}; len(list) > 0; {
		proc := "/proc/" + list[0]
		list = list[1:]
		tasks, _ := os.ReadDir(proc + "/task")
		for _, t := range tasks {
			b, err := os.ReadFile(proc + "/task/" + t.Name() + "/children")
			if err != nil {
				continue
			}
			for _, s := range strings.Fields(string(b)) {
				if pid, err := strconv.Atoi(s); err == nil {
					unix.Kill(pid, syscall.SIGKILL)
					list = append(list, s)
				}
			}
		}
	}
}

// endAll ends every process below this one.
func (c *children) endAll() {
	gone := c.gone()
	for {
		c.killAll()
		select {
		case <-gone:
			return
		case <-time.After(10 * time.Millisecond): // some were born meanwhile
		}
	}
}

// exitCode is a status as a shell tells it.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
