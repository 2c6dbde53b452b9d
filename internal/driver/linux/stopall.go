package linux

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Where the host gives no control group that can freeze, as for an ordinary user
// without delegation, every process of the sandbox is stopped by SIGSTOP, its first
// one before the others. Those that its user had stopped already are written down
// first, in a file that another process finds when it adopts the sandbox: Resume
// lets the others go on.

// stoppedDir is the folder of State with these files, by the sandbox's id.
const stoppedDir = "stopped"

func (in *instance) stoppedFile() string { return filepath.Join(in.state, stoppedDir, in.spec.ID) }

// PauseMethod says how Pause stops sandboxes here: Capabilities.Pause without a probe.
func (d *Driver) PauseMethod() string {
	if d.cgroupHost().CanFreeze() {
		return driver.PauseFreezer
	}
	return driver.PauseSignals
}

// one is a process of the sandbox, by number and start.
type one struct {
	Pid     int    `json:"pid"`
	Started uint64 `json:"started"`
}

// stopAll stops every process, and returns when all stand still.
func (in *instance) stopAll(ctx context.Context) error {
	const what = "stop the sandbox's processes"
	if _, err := os.Stat(in.stoppedFile()); err == nil {
		return in.stopRest(ctx, what, in.userStopped()) // as after a death in the middle of it
	}
	before := map[one]bool{}
	var list []one
	for p, state := range processesBelow(in.first.pid) {
		if state == 'T' {
			before[p] = true
			list = append(list, p)
		}
	}
	text, err := json.Marshal(list)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(in.stoppedFile()), 0o700)
	}
	if err == nil {
		err = os.WriteFile(in.stoppedFile(), text, 0o600)
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	return in.stopRest(ctx, what, before)
}

func (in *instance) stopRest(ctx context.Context, what string, before map[one]bool) error {
	if err := in.first.signal(syscall.SIGSTOP); err != nil {
		return bailey.Errorf(bailey.CodeSandboxLost, what, "", "%w", err)
	}
	for waiting := 0; ; {
		moving, asleep := false, false
		for p, state := range processesBelow(in.first.pid) {
			switch state {
			case 'T', 't', 'Z', 'X':
				continue
			}
			// Or made meanwhile: what is stopped makes nothing. One that waits in the
			// kernel, for a disk or in vfork for a child that is stopped, stops before it
			// does anything by itself; the kernel gets a moment to end what it does for it.
			if state == 'D' {
				asleep = true
			} else {
				moving = true
			}
			if p.Pid != in.first.pid {
				syscall.Kill(p.Pid, syscall.SIGSTOP)
			}
		}
		if waiting++; moving {
			waiting = 0
		}
		if !moving && (!asleep || waiting > asleepPasses) {
			return nil
		}
		select {
		case <-ctx.Done():
			in.goOnAll()
			return bailey.Errorf(bailey.CodeSetupFailed, what, "", "not all of them stand still: %w", ctx.Err())
		case <-in.done:
			return bailey.Errorf(bailey.CodeSandboxLost, what, "", "it has ended")
		case <-time.After(200 * time.Microsecond):
		}
	}
}

// asleepPasses is how many looks in a row have to find nothing but what waits in
// the kernel; there are some 200 µs between two.
const asleepPasses = 25

// userStopped reads which processes had been stopped before.
func (in *instance) userStopped() map[one]bool {
	list := []one{}
	if b, err := os.ReadFile(in.stoppedFile()); err == nil {
		json.Unmarshal(b, &list) // one that cannot be read lets all go on
	}
	before := map[one]bool{}
	for _, p := range list {
		before[p] = true
	}
	return before
}

// goOnAll lets the processes go on that stopAll has stopped.
func (in *instance) goOnAll() error {
	if _, err := os.Stat(in.stoppedFile()); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	before := in.userStopped()
	for p, state := range processesBelow(in.first.pid) {
		// Whatever it does: what waits in the kernel has the signal yet to come.
		if state != 'Z' && !before[p] && p.Pid != in.first.pid {
			syscall.Kill(p.Pid, syscall.SIGCONT)
		}
	}
	in.first.signal(syscall.SIGCONT) // the last, so that it does not see the others stopped
	if err := os.Remove(in.stoppedFile()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return bailey.Errorf(bailey.CodeStorage, "let the sandbox's processes go on", "", "%w", err)
	}
	return nil
}

// processesBelow gives a process and its descendants, with the state of each as
// proc(5) has it in stat.
func processesBelow(pid int) map[one]byte {
	found := map[one]byte{}
	for list := []int{pid}; len(list) > 0; {
		pid := list[len(list)-1]
		list = list[:len(list)-1]
		proc := "/proc/" + strconv.Itoa(pid)
		stat, err := os.ReadFile(proc + "/stat")
		if err != nil {
			continue
		}
		if at := bytes.LastIndexByte(stat, ')'); at > 0 && at+2 < len(stat) {
			found[one{pid, parseStart(string(stat))}] = stat[at+2]
		}
		threads, _ := os.ReadDir(proc + "/task")
		for _, t := range threads {
			children, _ := os.ReadFile(proc + "/task/" + t.Name() + "/children")
			for _, c := range strings.Fields(string(children)) {
				if n, err := strconv.Atoi(c); err == nil {
					list = append(list, n)
				}
			}
		}
	}
	return found
}
