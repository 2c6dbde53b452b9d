//go:build linux

package engine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestAdopted is T86: the daemon is killed with several sandboxes, running and
// paused, and the next one has all of them: same processes, same memory.
func TestAdopted(t *testing.T) {
	d := startDaemon(t)
	var ids []string
	pids := map[string]int{}
	for i := range 5 {
		spec := process
		if i%2 == 1 {
			spec = api.SandboxSpec{}
		}
		s := d.do(order{Op: "create", Spec: spec}).Sandbox
		ids = append(ids, s.ID)
		a := d.do(order{Op: "sh", Ref: s.ID, ID: "a", Script: "cd; sleep 1000 >/dev/null 2>&1 & echo $! > pid; echo here > f"})
		pids[s.ID] = a.Pid
		switch i {
		case 3:
			d.do(order{Op: "pause", Ref: s.ID})
		case 4:
			d.do(order{Op: "pause", Ref: s.ID, ToDisk: true})
		}
	}
	want := map[string]api.State{ids[0]: api.StateRunning, ids[1]: api.StateRunning, ids[2]: api.StateRunning, ids[3]: api.StatePaused, ids[4]: api.StateStopped}
	for round := range 3 {
		old := d.enginePid()
		if round == 2 {
			unix.Kill(d.keeper.Process.Pid, unix.SIGHUP) // an upgrade
		} else {
			d.signal(old, unix.SIGKILL)
		}
		eventually(t, 10*time.Second, "another engine", func() bool { p := d.enginePid(); return p != 0 && p != old })
		for _, id := range ids {
			s := d.do(order{Op: "show", Ref: id}).Sandbox
			if s.State != want[id] || s.Generation != 1 {
				t.Fatalf("round %d: %s is %s, generation %d, and was %s (%v)", round, id, s.State, s.Generation, want[id], s.End)
			}
		}
	}
	for i, id := range ids {
		script := "cd; cat f; kill -0 $(cat pid) && echo alive"
		wantOut := "here\nalive"
		if i == 4 {
			script, wantOut = "cd; cat f", "here"
		}
		a := d.do(order{Op: "sh", Ref: id, ID: "b", Script: script})
		if a.Out != wantOut || i != 4 && a.Pid != pids[id] {
			t.Errorf("%s: %q, first process %d and was %d", id, a.Out, a.Pid, pids[id])
		}
	}
	// One that dies while nobody looks is lost with its end, and its files stay.
	old := d.enginePid()
	d.signal(old, unix.SIGSTOP)
	d.signal(pids[ids[0]], unix.SIGKILL)
	d.signal(old, unix.SIGKILL)
	eventually(t, 10*time.Second, "another engine", func() bool { p := d.enginePid(); return p != 0 && p != old })
	if s := d.do(order{Op: "show", Ref: ids[0]}).Sandbox; s.State != api.StateLost || s.End == nil || s.End.Reason != bailey.EndHostLost {
		t.Errorf("the dead one is %+v", s)
	}
	d.do(order{Op: "resume", Ref: ids[0]})
	if a := d.do(order{Op: "sh", Ref: ids[0], ID: "c", Script: "cd; cat f"}); a.Out != "here" {
		t.Errorf("its files: %q", a.Out)
	}
	for _, id := range ids {
		d.do(order{Op: "delete", Ref: id})
	}
	d.clean()
}

// TestKeeperKilled: with the keeper its sandboxes end, and what was acknowledged is
// kept.
func TestKeeperKilled(t *testing.T) {
	d := startDaemon(t)
	s := d.do(order{Op: "create", Spec: process}).Sandbox
	a := d.do(order{Op: "sh", Ref: s.ID, ID: "a", Script: "cd; echo here > f"})
	d.end(unix.SIGKILL)
	eventually(t, 10*time.Second, "the sandbox has ended", func() bool {
		d.reap()
		return unix.Kill(a.Pid, 0) == unix.ESRCH
	})
	d.start()
	got := d.do(order{Op: "show", Ref: s.ID}).Sandbox
	if got.State != api.StateLost || got.End == nil || got.End.Reason != bailey.EndHostLost {
		t.Errorf("it is %+v", got)
	}
	d.do(order{Op: "resume", Ref: s.ID})
	if a := d.do(order{Op: "sh", Ref: s.ID, ID: "b", Script: "cd; cat f"}); a.Out != "here" {
		t.Errorf("its files: %q", a.Out)
	}
	d.do(order{Op: "delete", Ref: s.ID})
	d.clean()
}

// TestNotTakenOver: a sandbox that the next daemon cannot take over is lost, with the
// reason, and none of its processes goes on unseen; once it can be it is resumed as
// another generation.
func TestNotTakenOver(t *testing.T) {
	d := startDaemon(t)
	s := d.do(order{Op: "create", Spec: process}).Sandbox
	a := d.do(order{Op: "sh", Ref: s.ID, ID: "a", Script: "cd; echo here > f"})
	lock, err := os.Open(filepath.Join(d.home, sandboxesDir, s.ID, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	locked := make(chan error, 1)
	go func() { locked <- unix.Flock(int(lock.Fd()), unix.LOCK_EX) }() // the engine has it until it dies
	eventually(t, time.Second, "the test waits for the lock", func() bool {
		text, _ := os.ReadFile("/proc/locks")
		return strings.Contains(string(text), "-> FLOCK")
	})
	old := d.enginePid()
	d.signal(old, unix.SIGKILL)
	if err := <-locked; err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "another engine", func() bool { p := d.enginePid(); return p != 0 && p != old })
	got := d.do(order{Op: "show", Ref: s.ID}).Sandbox
	if got.State != api.StateLost || got.End == nil || got.End.Reason != bailey.EndHostLost || !strings.Contains(got.End.Detail, "taken over") {
		t.Errorf("it is %s, %+v", got.State, got.End)
	}
	eventually(t, 10*time.Second, "its processes have ended", func() bool {
		d.reap()
		return unix.Kill(a.Pid, 0) == unix.ESRCH
	})
	if a, err := d.tell(order{Op: "resume", Ref: s.ID}); err != nil || a.Err == "" {
		t.Errorf("resumed while another holds its folder: %+v %v", a, err)
	}
	lock.Close()
	if a := d.do(order{Op: "resume", Ref: s.ID}); a.Sandbox.Generation != 2 {
		t.Errorf("resumed it is generation %d", a.Sandbox.Generation)
	}
	d.do(order{Op: "delete", Ref: s.ID})
	d.clean()
}

// course is what the crash test does to a sandbox, step by step. Each step is
// repeated after a crash until it is answered, as a client would.
var course = []order{
	{Op: "create", Spec: api.SandboxSpec{Isolation: bailey.IsolationProcess, IdempotencyKey: "k", Name: "s"}},
	{Op: "sh", ID: "1", Script: "cd; echo 1 >> f"},
	{Op: "pause"},
	{Op: "resume"},
	{Op: "sh", ID: "2", Script: "cd; echo 2 >> f"},
	{Op: "pause", ToDisk: true},
	{Op: "resume"},
	{Op: "sh", ID: "3", Script: "cd; echo 3 >> f"},
	{Op: "delete"},
}

// TestCrashAtEachStep kills the engine before each of its steps, and looks that
// the next one comes up with everything in a state in which nothing is being done,
// that what was answered is so, and that the same life goes on to its end.
func TestCrashAtEachStep(t *testing.T) {
	d := startDaemon(t)
	d.killAt(0)
	for _, o := range course {
		o.Ref = "s"
		d.do(o)
	}
	d.clean()
	steps := d.steps()
	t.Logf("%d steps: %s", len(steps), strings.Join(steps, ", "))
	for n := 1; n <= len(steps); n++ {
		if (raced || testing.Short()) && n%4 != 1 { // the other passes take each
			continue
		}
		t.Run(strings.ReplaceAll(fmt.Sprintf("%d %s", n, steps[n-1]), " ", "-"), func(t *testing.T) { crashBefore(t, n) })
	}
}

// crashBefore lives the course with the engine killed before its step n.
func crashBefore(t *testing.T, n int) {
	d := startDaemon(t)
	d.killAt(n)
	want, died := "", 0
	for i, o := range course {
		o.Ref = "s"
		for {
			a, err := d.tell(o)
			if err == nil && a.Err == "" || o.Op == "delete" && a.Code == bailey.CodeNotFound {
				break
			}
			if err == nil {
				t.Fatalf("%s: %s", o.Op, a.Err)
			}
			if died++; died > 1 {
				t.Fatalf("it died again at %s", o.Op)
			}
			for _, s := range d.do(order{Op: "list"}).Sandboxes {
				if !isStable(s.State) || s.State == api.StateLost {
					t.Fatalf("killed in %s, and it is %s: %v", o.Op, s.State, s.End)
				}
			}
		}
		if o.Op != "sh" {
			continue
		}
		want += o.ID + "\n"
		a := d.do(order{Op: "sh", Ref: "s", ID: fmt.Sprintf("look-%d", i), Script: "cd; sort -u f"})
		if a.Out != strings.TrimSuffix(want, "\n") {
			t.Fatalf("after %d: the file has %q", i, a.Out)
		}
	}
	// What is done in the background may be done after the end, or with what comes next:
	// then this life has fewer steps, and its last one is not there to die before.
	if steps := len(d.steps()); died != 1 && steps >= n {
		t.Errorf("it died %d times in %d steps", died, steps)
	}
	d.clean()
}
