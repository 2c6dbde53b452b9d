//go:build linux

package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestTimeoutKeepsWhatWasNotSynced is T02: a timeout that stops a sandbox keeps what
// was written and not synced, as a stop by hand does.
func TestTimeoutKeepsWhatWasNotSynced(t *testing.T) {
	e, _, advance := timed(t)
	for name, spec := range atLevels {
		t.Run(name, func(t *testing.T) {
			spec.Timeout, spec.OnTimeout = minutes(30), api.ActionStop
			s := create(t, e, spec)
			// It is open still when the sandbox is stopped.
			begin(t, e, s.ID, shell("cd; exec 3>f; head -c 60000000 /dev/urandom >&3; sha256sum <f >sum; touch written; sleep 1000"))
			sh(t, e, s.ID, "cd; until [ -e written ]; do sleep 0.01; done")
			hash := sh(t, e, s.ID, "cd; cut -c1-64 sum")
			advance(30 * time.Minute)
			want(t, e, s.ID, api.StateStopped, "after its timeout")
			if got := sh(t, e, s.ID, "cd; sha256sum <f | cut -c1-64"); got != hash || len(got) != 64 {
				t.Errorf("after the timeout its hash is %q, and was %q", got, hash)
			}
			if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
				t.Fatal(err)
			}
			if got := sh(t, e, s.ID, "cd; sha256sum <f | cut -c1-64"); got != hash {
				t.Errorf("after a stop by hand its hash is %q, and was %q", got, hash)
			}
			if err := e.Delete(t.Context(), me, s.ID); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestKilledWhileItStarts is T75 and T76: a sandbox whose processes are killed while
// it starts can be deleted from whatever state that leaves, any number of times, and
// what was set aside for it is there for the next.
func TestKilledWhileItStarts(t *testing.T) {
	e, _ := bounded(t, api.Quota{Running: 1})
	// In the middle of a start: there are processes, and the record says starting.
	killed := 0
	e.hooks.started = append(e.hooks.started, func(_ context.Context, g *generation) error {
		killed++
		err := unix.Kill(g.instance.Pid(), unix.SIGKILL)
		if killed == 2 {
			return errors.New("a start that fails") // else it is noticed later
		}
		return err
	})
	spec := process
	spec.Name = "box"
	for i := range 3 {
		s, err := e.Create(t.Context(), me, spec)
		if err == nil {
			eventually(t, 10*time.Second, "it is lost", func() bool { return sandboxOf(t, e, s.ID).State == api.StateLost })
		}
		if killed != i+1 {
			t.Fatalf("it was killed %d times", killed)
		}
		for range 2 {
			if err := e.Delete(t.Context(), me, "box"); err != nil && bailey.CodeOf(err) != bailey.CodeNotFound {
				t.Fatalf("delete: %v", err)
			}
		}
		if err == nil {
			if err := e.Delete(t.Context(), me, s.ID); err != nil {
				t.Errorf("delete again: %v", err)
			}
		}
	}
	e.hooks.started = e.hooks.started[:len(e.hooks.started)-1]
	s := create(t, e, spec)
	if out := sh(t, e, s.ID, "echo ok"); out != "ok" {
		t.Errorf("the next one says %q", out)
	}
	if err := e.Delete(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "nothing of them to be left", func() bool {
		list, err := os.ReadDir(filepath.Join(e.home, sandboxesDir))
		return err == nil && len(list) == 0
	})
}
