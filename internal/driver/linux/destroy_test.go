package linux

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// TestDestroyIsBounded: a process that the kernel cannot take down now holds Destroy no
// longer than its context, and once it ends all is given back.
func TestDestroyIsBounded(t *testing.T) {
	for _, level := range []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer} {
		t.Run(level.String(), func(t *testing.T) {
			y := newYard(t, level)
			in, c := stays(t, y)
			sh(t, c, "sleep 1000 >/dev/null 2>&1 &")
			pid := childOf(t, in.Pid())
			// One that is traced stays, ended, until its tracer has looked; so does its
			// namespace's first process, which waits for all others.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := unix.PtraceSeize(pid); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			destroyed := make(chan error, 1)
			go func() { destroyed <- in.Destroy(ctx) }()
			select {
			case err := <-destroyed:
				if bailey.CodeOf(err) != bailey.CodeBusy {
					t.Errorf("destroyed: %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Error("Destroy goes on when its context has ended")
			}
			select {
			case <-in.Done():
				t.Fatal("it has ended: nothing was tested")
			default:
			}
			var ws unix.WaitStatus
			if _, err := unix.Wait4(pid, &ws, unix.WALL, nil); err != nil {
				t.Fatal(err)
			}
			if e := await(t, in); e.Reason != bailey.EndUser {
				t.Errorf("it ended %+v", e)
			}
			if err := in.Destroy(t.Context()); err != nil {
				t.Errorf("destroyed again: %v", err)
			}
			c.Close()
			nothingLeft(t, in.Record())
		})
	}
}

// childOf gives a child of a process, once it has one.
func childOf(t *testing.T, parent int) int {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		if err != nil {
			t.Fatal(err)
		}
		if list := strings.Fields(string(text)); len(list) > 0 {
			if pid, err := strconv.Atoi(list[0]); err == nil {
				return pid
			}
		}
	}
	t.Fatal("it has no child")
	return 0
}
