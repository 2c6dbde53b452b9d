package terminal

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// adoptOrphans makes this process the parent of whatever a shell of a test
// leaves behind.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// endOrphans ends what a test's shell has left behind: jobs in the background
// get no SIGHUP when a terminal goes.
func endOrphans(t *testing.T) {
	t.Helper()
	for {
		var found bool
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Error(err)
			return
		}
		for _, thread := range threads {
			b, _ := os.ReadFile("/proc/self/task/" + thread.Name() + "/children")
			for _, f := range strings.Fields(string(b)) {
				pid, err := strconv.Atoi(f)
				if err != nil {
					continue
				}
				found = true
				_ = syscall.Kill(pid, syscall.SIGKILL)
				var ws syscall.WaitStatus
				for {
					if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
						break
					}
				}
			}
		}
		if !found {
			return
		}
	}
}
