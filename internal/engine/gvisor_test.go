//go:build linux

package engine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// withGVisor lets an engine find what the gVisor level needs.
func withGVisor(t testing.TB) func(*Options) {
	t.Helper()
	dir := withRunsc(t)
	return func(o *Options) { o.Init, o.Daemon = filepath.Join(dir, "bailey-init"), filepath.Join(dir, "baileyd") }
}

// withRunsc gives a folder with Bailey's own programs and runsc, which ./scripts/levels builds.
func withRunsc(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(os.Getenv(programsVariable), "levels") // of the suite, with all in it
	if os.Getenv(programsVariable) == "" {
		dir = t.TempDir()
		for _, name := range []string{"bailey-init", "bailey-cell", "baileyd", "bailey-keeper"} {
			if err := os.Link(filepath.Join(programs(t), name), filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		runsc, err := filepath.Abs("../../bin/runsc")
		if err == nil {
			err = os.Symlink(runsc, filepath.Join(dir, "runsc"))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "runsc")); err != nil {
		t.Fatalf("%v: ./scripts/levels gvisor builds it", err)
	}
	return dir
}

// TestAutoIsGVisor: where gVisor works it is what a sandbox gets that names no level,
// and one that asks for what it has not gets a container, and is told why.
func TestAutoIsGVisor(t *testing.T) {
	e := openEngine(t, withGVisor(t))
	s := create(t, e, api.SandboxSpec{})
	if s.Isolation != bailey.IsolationGVisor || s.IsolationReason == "" {
		t.Errorf("it is %s: %s", s.Isolation, s.IsolationReason)
	}
	if out := sh(t, e, s.ID, "dmesg | head -1"); out != "[   0.000000] Starting gVisor..." && out != "[    0.000000] Starting gVisor..." {
		t.Errorf("its kernel says %q", out)
	}
	info, err := e.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	there := false
	for _, l := range info.Levels {
		there = there || l.Isolation == bailey.IsolationGVisor && l.Available
	}
	if !there {
		t.Errorf("levels: %+v", info.Levels)
	}
}

// TestGVisorLife goes through what is done with a sandbox's files and processes at the
// gVisor level.
func TestGVisorLife(t *testing.T) {
	e := openEngine(t, withGVisor(t))
	s := create(t, e, api.SandboxSpec{Isolation: bailey.IsolationGVisor, Name: "g", Env: map[string]string{"FOO": "bar"}})
	if out := sh(t, e, "g", "echo $FOO; hostname; echo one > /root/f; id -u"); out != "bar\ng\n0" {
		t.Errorf("it said %q", out)
	}
	point, err := e.Checkpoint(t.Context(), me, "g", "point")
	if err != nil {
		t.Fatal(err)
	}
	sh(t, e, "g", "echo two >> /root/f; mkdir /root/d; touch /root/d/x")
	forks, err := e.Fork(t.Context(), me, "g", api.ForkRequest{Count: 2})
	if err != nil || len(forks) != 2 {
		t.Fatal(err, forks)
	}
	for _, f := range forks {
		if out := sh(t, e, f.ID, "cat /root/f; ls /root/d; echo fork > /root/f"); f.Isolation != bailey.IsolationGVisor || out != "one\ntwo\nx" {
			t.Errorf("a fork at %s has %q", f.Isolation, out)
		}
	}
	began := begin(t, e, s.ID, api.ExecSpec{Args: []string{"sh", "-c", "i=0; while :; do i=$((i+1)); echo $i > /tmp/n; done"}})
	if r, err := e.Pause(t.Context(), me, "g", api.PauseRequest{}); err != nil || len(r.Lost) > 0 {
		t.Errorf("paused: %+v %v", r, err)
	}
	if _, err := e.Resume(t.Context(), me, "g"); err != nil {
		t.Error(err)
	}
	if x, err := e.Exec(t.Context(), me, s.ID, began.ID); err != nil || x.State != api.ExecRunning {
		t.Errorf("after a pause the command is %+v %v", x, err)
	}
	if _, err := e.Undo(t.Context(), me, "g", api.UndoRequest{To: point.ID, Kill: true}); err != nil {
		t.Fatal(err)
	}
	if out := sh(t, e, "g", "cat /root/f; ls /root"); out != "one\nf" {
		t.Errorf("after the undo: %q", out)
	}
	if r, err := e.Pause(t.Context(), me, "g", api.PauseRequest{ToDisk: true}); err != nil || len(r.Kept) == 0 {
		t.Errorf("to disk: %+v %v", r, err)
	}
	if out := sh(t, e, "g", "cat /root/f"); out != "one" {
		t.Errorf("after a pause to disk: %q", out)
	}
	if err := e.Delete(t.Context(), me, "g"); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(e.dirOf(s.ID)); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
}
