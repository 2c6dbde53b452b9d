//go:build linux

package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/layers"
)

// TestFilesOutlivePauses is T01 and T04: what was written before each of several
// pauses is there after each, with memory or without.
func TestFilesOutlivePauses(t *testing.T) {
	e := openEngine(t)
	for name, spec := range atLevels {
		for _, toDisk := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/disk=%v", name, toDisk), func(t *testing.T) {
				s := create(t, e, spec)
				want := ""
				for i := range 5 {
					sh(t, e, s.ID, fmt.Sprintf("cd; echo %d >> kept; echo %d > /tmp/%d; mkdir -p d%d", i, i, i, i))
					want += fmt.Sprintf("%d\n", i)
					receipt, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: toDisk})
					if err != nil {
						t.Fatal(err)
					}
					wantState := api.StatePaused
					if toDisk {
						wantState = api.StateStopped
					}
					got, err := e.Sandbox(t.Context(), me, s.ID)
					if err != nil || got.State != wantState || got.Receipt == nil || got.Receipt.Act != receipt.Act || len(receipt.Kept) == 0 || toDisk != (len(receipt.Lost) > 0) {
						t.Fatalf("paused: %+v %+v %v", got, receipt, err)
					}
					if frozen := receipt.Method == "frozen" || receipt.Method == "stopped by signals"; frozen == toDisk {
						t.Errorf("the method is %q", receipt.Method)
					}
					if i%2 == 0 {
						if got, err = e.Resume(t.Context(), me, s.ID); err != nil || got.State != api.StateRunning {
							t.Fatalf("resumed: %+v %v", got, err)
						}
					} // else the next use wakes it
					if have := sh(t, e, s.ID, fmt.Sprintf("cd; cat kept; cat /tmp/%d; ls -d d*|wc -l", i)); have != fmt.Sprintf("%s%d\n%d", want, i, i+1) {
						t.Fatalf("round %d: %q", i, have)
					}
				}
				got, _ := e.Sandbox(t.Context(), me, s.ID)
				if toDisk != (got.Generation == 6) {
					t.Errorf("generation %d", got.Generation)
				}
			})
		}
	}
}

// TestFrozenProcessesGoOn: a pause keeps memory, and a frozen process does nothing.
func TestFrozenProcessesGoOn(t *testing.T) {
	e := openEngine(t)
	s := create(t, e, process)
	sh(t, e, s.ID, "cd; (while :; do echo x >> ticks; sleep 0.01; done) >/dev/null 2>&1 &")
	count := func() int {
		b, _ := e.find(t.Context(), me, s.ID)
		for _, r := range b.record().Roots {
			if text, err := os.ReadFile(b.upper(r.N) + "/ticks"); err == nil {
				return len(text)
			}
		}
		return 0
	}
	eventually(t, 5*time.Second, "ticks", func() bool { return count() > 4 })
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	before := count()
	time.Sleep(60 * time.Millisecond) // nothing is to happen in it
	if after := count(); after != before {
		t.Errorf("%d ticks while it was frozen", after-before)
	}
	if _, err := e.Resume(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "more ticks", func() bool { return count() > before })
}

// TestFailedResume is T03: a resume that fails leaves the sandbox as it was, and
// the next one works.
func TestFailedResume(t *testing.T) {
	fail := false
	e := openEngine(t)
	e.hooks.started = append(e.hooks.started, func(context.Context, *generation) error {
		if fail {
			return errors.New("it was to fail")
		}
		return nil
	})
	s := create(t, e, process)
	sh(t, e, s.ID, "cd; echo kept > f")
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	fail = true
	if _, err := e.Resume(t.Context(), me, s.ID); err == nil {
		t.Fatal("it did not fail")
	}
	if got, _ := e.Sandbox(t.Context(), me, s.ID); got.State != api.StateStopped || got.Generation != 1 {
		t.Fatalf("it is %+v", got)
	}
	fail = false
	if out := sh(t, e, s.ID, "cd; cat f"); out != "kept" {
		t.Errorf("it has %q", out)
	}
}

// TestMissingFiles is T18: what cannot be resumed says what is missing.
func TestMissingFiles(t *testing.T) {
	e := openEngine(t)
	s := create(t, e, process)
	sh(t, e, s.ID, "cd; echo x > f")
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	b, _ := e.find(t.Context(), me, s.ID)
	for _, r := range b.record().Roots {
		if r.Fresh {
			continue // it was sealed
		}
		os.RemoveAll(b.upper(r.N))
	}
	for _, l := range e.layers.All() {
		os.RemoveAll(l.Dir)
	}
	_, err := e.Resume(t.Context(), me, s.ID)
	if bailey.CodeOf(err) != bailey.CodeRestoreIncomplete || !strings.Contains(err.Error(), e.home) {
		t.Errorf("it said %v", err)
	}
	if got, _ := e.Sandbox(t.Context(), me, s.ID); got.State != api.StateStopped {
		t.Errorf("it is %s", got.State)
	}
}

// TestLost is T30 and T77 for a whole sandbox: its first process dies, and within
// a second it is lost, with how it ended, and whoever waits for it learns of it.
func TestLost(t *testing.T) {
	e := openEngine(t)
	s := create(t, e, process)
	u, err := e.awake(t.Context(), me, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	p, err := u.client.Exec(t.Context(), guest.ExecSpec{ID: "sleeps", Argv: []string{"sleep", "100"}, Env: u.gen.env})
	if err != nil {
		t.Fatal(err)
	}
	_ = p
	g := u.gen
	u.release()
	syscall.Kill(g.instance.Pid(), syscall.SIGKILL)
	select {
	case <-g.over:
	case <-time.After(patience):
		t.Fatal("nobody noticed")
	}
	eventually(t, time.Second, "lost", func() bool { got, _ := e.Sandbox(t.Context(), me, s.ID); return got.State == api.StateLost })
	got, _ := e.Sandbox(t.Context(), me, s.ID)
	if got.End == nil || got.End.Reason != bailey.EndHostLost {
		t.Errorf("it ended %+v", got.End)
	}
	if _, err := e.awake(t.Context(), me, s.ID); bailey.CodeOf(err) != bailey.CodeSandboxLost {
		t.Errorf("used: %v", err)
	}
	if got, err := e.Resume(t.Context(), me, s.ID); err != nil || got.State != api.StateRunning || got.Generation != 2 || got.End != nil {
		t.Errorf("resumed: %+v %v", got, err)
	}
	if err := e.Delete(t.Context(), me, s.ID); err != nil {
		t.Fatal(err)
	}
}

// TestRestart is T17: a sandbox that was lost and started anew is not used until
// the caller has accepted the new generation.
func TestRestart(t *testing.T) {
	e := openEngine(t)
	spec := process
	spec.Restart = true
	s := create(t, e, spec)
	sh(t, e, s.ID, "cd; echo x > f")
	b, _ := e.find(t.Context(), me, s.ID)
	if err := e.accept(t.Context(), b, 0); err != nil {
		t.Fatal(err)
	}
	syscall.Kill(b.generation().instance.Pid(), syscall.SIGKILL)
	eventually(t, 5*time.Second, "generation 2", func() bool { return b.record().Sandbox.Generation == 2 && b.record().Sandbox.State == api.StateRunning })
	for _, seen := range []int64{0, 1} {
		if err := e.accept(t.Context(), b, seen); bailey.CodeOf(err) != bailey.CodeSandboxRestarted || !strings.Contains(err.Error(), "generation 2") {
			t.Errorf("accepting %d: %v", seen, err)
		}
	}
	for _, seen := range []int64{2, 0, 2} {
		if err := e.accept(t.Context(), b, seen); err != nil {
			t.Errorf("accepting %d: %v", seen, err)
		}
	}
	if out := sh(t, e, s.ID, "cd; cat f"); out != "x" {
		t.Errorf("its files: %q", out)
	}
}

// TestStopIsHashed: the receipt of a stop has the hash of the files, and a resume
// compares them with it: what was changed meanwhile is named, and nothing is started.
func TestStopIsHashed(t *testing.T) {
	for name, spec := range atLevels {
		t.Run(name, func(t *testing.T) {
			e := openEngine(t)
			s := create(t, e, spec)
			sh(t, e, s.ID, "cd; mkdir d; echo kept > d/f")
			stop := func() api.Receipt {
				t.Helper()
				if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
					t.Fatal(err)
				}
				eventually(t, 10*time.Second, "a hash", func() bool { return !sandboxOf(t, e, s.ID).Receipt.HashPending })
				return *sandboxOf(t, e, s.ID).Receipt
			}
			first := stop()
			if !strings.HasPrefix(first.Hash, "sha256:") || first.Method != layers.Sealed {
				t.Fatalf("the receipt is %+v", first)
			}
			got, err := e.Resume(t.Context(), me, s.ID)
			if err != nil || !got.Receipt.Verified || got.Receipt.Hash != first.Hash {
				t.Fatalf("resumed with %+v: %v", got.Receipt, err)
			}
			if out := sh(t, e, s.ID, "cd; cat d/f; echo more >> d/f"); out != "kept" {
				t.Errorf("it has %q", out)
			}
			if second := stop(); second.Hash == first.Hash || second.Hash == "" {
				t.Errorf("with other files the hash is %q", second.Hash)
			}
			changed := ""
			for _, l := range e.layers.All() {
				for _, path := range []string{"d/f", "root/d/f"} {
					if path = filepath.Join(l.Dir, path); os.WriteFile(path, []byte("other"), 0) == nil {
						changed = path
					}
				}
			}
			if changed == "" {
				t.Skip("this user cannot write to the sandbox's files")
			}
			_, err = e.Resume(t.Context(), me, s.ID)
			if bailey.CodeOf(err) != bailey.CodeRestoreIncomplete || !strings.Contains(err.Error(), "d/f") {
				t.Errorf("it said %v", err)
			}
			if got := sandboxOf(t, e, s.ID); got.State != api.StateStopped {
				t.Errorf("it is %s", got.State)
			}
		})
	}
}

// TestManyStops: however often a sandbox is stopped, what it stands on stays short.
func TestManyStops(t *testing.T) {
	e := openEngine(t)
	s := create(t, e, process)
	want := ""
	for i := range flattenNow + 12 {
		want += fmt.Sprintf("%d\n", i)
		sh(t, e, s.ID, fmt.Sprintf("cd; echo %d >> f", i))
		if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
			t.Fatal(err)
		}
		for _, r := range boxOf(t, e, s.ID).record().Roots {
			if chain, err := e.layers.Chain(r.Chain); err != nil || len(chain) > flattenNow {
				t.Fatalf("after %d stops it stands on %d layers: %v", i+1, len(chain), err)
			}
		}
	}
	if out := sh(t, e, s.ID, "cd; cat f"); out+"\n" != want {
		t.Errorf("it has %q", out)
	}
}
