//go:build linux

package engine

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

func init() {
	ops["promote"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		a.Sandbox, err = e.Promote(ctx, me, o.Ref, api.PromoteRequest{Isolation: o.Spec.Isolation})
		return a, err
	}
}

var (
	asContainer = api.SandboxSpec{Isolation: bailey.IsolationContainer}
	asGVisor    = api.SandboxSpec{Isolation: bailey.IsolationGVisor}
)

// TestPromote: behind the same id everything is as it was but the kernel and the processes.
func TestPromote(t *testing.T) {
	e := openEngine(t, withGVisor(t))
	to := api.PromoteRequest{Isolation: bailey.IsolationGVisor}
	spec := asContainer
	spec.Name, spec.Env, spec.Labels, spec.Workdir = "p", map[string]string{"FOO": "bar"}, map[string]string{"k": "v"}, "/root"
	s := create(t, e, spec)
	look := "cd /root; stat -c '%n %a %u:%g' f link; cat f; readlink link; echo $FOO; hostname; pwd"
	was := sh(t, e, "p", "cd /root; echo one > f; chmod 640 f; ln -s f link;"+look)
	running := begin(t, e, s.ID, api.ExecSpec{Args: []string{"sleep", "1000"}})
	got, err := e.Promote(t.Context(), me, "p", to)
	if err != nil {
		t.Fatal(err)
	}
	if got.ID != s.ID || got.Isolation != bailey.IsolationGVisor || got.State != api.StateRunning || got.Generation != s.Generation+1 || got.Labels["k"] != "v" ||
		got.Receipt == nil || got.Receipt.Act != "promote" || !slices.Contains(got.Receipt.Kept, "files") {
		t.Errorf("it is %+v, receipt %+v", got, got.Receipt)
	}
	if x, err := e.Exec(t.Context(), me, s.ID, running.ID); err != nil || x.End == nil || x.End.Reason != bailey.EndPromoted {
		t.Errorf("what ran is %+v, %v", x, err)
	}
	if out := sh(t, e, "p", look); out != was {
		t.Errorf("it has %q, and had %q", out, was)
	}
	if out := sh(t, e, "p", "dmesg | head -1"); !strings.Contains(out, "Starting gVisor") {
		t.Errorf("its kernel says %q", out)
	}
	// Again is the state, and files go on from there.
	sh(t, e, "p", "echo two >> /root/f")
	if again, err := e.Promote(t.Context(), me, "p", to); err != nil || again.Generation != got.Generation {
		t.Errorf("again: %+v %v", again, err)
	}
	if out := sh(t, e, "p", "cat /root/f"); out != "one\ntwo" {
		t.Errorf("its file has %q", out)
	}

	// A stopped one starts there when it is used, and a paused one runs there.
	for _, disk := range []bool{true, false} {
		s := create(t, e, asContainer)
		sh(t, e, s.ID, "echo here > /root/f")
		if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: disk}); err != nil {
			t.Fatal(err)
		}
		got, err := e.Promote(t.Context(), me, s.ID, to)
		if want := map[bool]api.State{true: api.StateStopped, false: api.StateRunning}[disk]; err != nil || got.State != want || got.Isolation != bailey.IsolationGVisor {
			t.Errorf("paused, to disk %v, and promoted it is %+v: %v", disk, got, err)
		}
		if out := sh(t, e, s.ID, "cat /root/f; dmesg | head -1"); !strings.HasPrefix(out, "here\n") || !strings.Contains(out, "gVisor") {
			t.Errorf("used: %q", out)
		}
	}
}

// TestPromotionsRefused: what cannot be leaves a sandbox as it is, with its processes where that
// shows beforehand.
func TestPromotionsRefused(t *testing.T) {
	e := openEngine(t) // without what other kernels need
	c := create(t, e, asContainer)
	h := create(t, e, process)
	for name, x := range map[string]struct {
		of   api.Sandbox
		to   bailey.Isolation
		code bailey.Code
	}{
		"weaker":         {c, bailey.IsolationProcess, bailey.CodeUsage},
		"auto":           {c, bailey.IsolationAuto, bailey.CodeUsage},
		"not there":      {c, bailey.IsolationGVisor, bailey.CodeIsolationUnavailable},
		"not built":      {c, bailey.IsolationMachine, bailey.CodeIsolationUnavailable},
		"the host's own": {h, bailey.IsolationContainer, bailey.CodeNotAvailable},
	} {
		running := begin(t, e, x.of.ID, api.ExecSpec{Args: []string{"sleep", "1000"}})
		if got, err := e.Promote(t.Context(), me, x.of.ID, api.PromoteRequest{Isolation: x.to}); bailey.CodeOf(err) != x.code {
			t.Errorf("%s: %+v %v", name, got, err)
		}
		now, err := e.Sandbox(t.Context(), me, x.of.ID)
		if err != nil || now.State != api.StateRunning || now.Isolation != x.of.Isolation || now.Generation != x.of.Generation {
			t.Errorf("%s: it is %+v now, %v", name, now, err)
		}
		if r, err := e.Exec(t.Context(), me, x.of.ID, running.ID); err != nil || r.State != api.ExecRunning {
			t.Errorf("%s: what ran is %+v, %v", name, r, err)
		}
	}
	if err := e.Delete(t.Context(), me, h.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Promote(t.Context(), me, h.ID, api.PromoteRequest{Isolation: bailey.IsolationGVisor}); bailey.CodeOf(err) != bailey.CodeSandboxEnded {
		t.Errorf("of one that is gone: %v", err)
	}
}

// TestPromotionFails: one that does not start at its new level goes on at the old one.
func TestPromotionFails(t *testing.T) {
	from, dir := withRunsc(t), t.TempDir()
	list, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if err := os.Symlink(filepath.Join(from, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			t.Fatal(err)
		}
	}
	e := openEngine(t, func(o *Options) {
		o.Init = filepath.Join(dir, "bailey-init")
		o.Trace = func(step string) {
			if step == "promote" { // it was there when it was looked for
				os.Remove(filepath.Join(dir, "bailey-cell"))
			}
		}
	})
	s := create(t, e, asContainer)
	sh(t, e, s.ID, "echo here > /root/f")
	_, err = e.Promote(t.Context(), me, s.ID, api.PromoteRequest{Isolation: bailey.IsolationGVisor})
	if err == nil || !strings.Contains(err.Error(), "at the level container still") || !strings.Contains(err.Error(), "bailey-cell") {
		t.Errorf("it says %v", err)
	}
	now, err := e.Sandbox(t.Context(), me, s.ID)
	if err != nil || now.State != api.StateRunning || now.Isolation != bailey.IsolationContainer || now.IsolationReason != s.IsolationReason {
		t.Errorf("it is %+v, %v", now, err)
	}
	if out := sh(t, e, s.ID, "cat /root/f"); out != "here" {
		t.Errorf("its file has %q", out)
	}
}

// TestPromoteKilled: killed at any moment it is at one of the levels, and its files are there.
func TestPromoteKilled(t *testing.T) {
	d := startDaemonOf(t, withRunsc(t))
	life := func(n int) (level bailey.Isolation, steps []string) {
		s := d.do(order{Op: "create", Spec: asContainer}).Sandbox
		d.do(order{Op: "sh", Ref: s.ID, ID: "a", Script: "cd; echo here > f"})
		d.killAt(n)
		a, err := d.tell(order{Op: "promote", Ref: s.ID, Spec: asGVisor})
		steps = d.steps()
		if n == 0 && (err != nil || a.Err != "") || n > 0 && err == nil {
			t.Fatalf("killed before step %d: %v %+v", n, err, a)
		}
		now := d.do(order{Op: "show", Ref: s.ID}).Sandbox
		if !isStable(now.State) || now.State == api.StateLost {
			t.Errorf("killed before step %d it is %s", n, now.State)
		}
		if a := d.do(order{Op: "sh", Ref: s.ID, ID: "b", Script: "cd; cat f"}); a.Out != "here" {
			t.Errorf("killed before step %d its file has %q", n, a.Out)
		}
		d.do(order{Op: "delete", Ref: s.ID})
		return now.Isolation, steps
	}
	level, steps := life(0)
	promoted := slices.Index(steps, "promote")
	if level != bailey.IsolationGVisor || promoted < 0 {
		t.Fatalf("it is at %s after %q", level, steps)
	}
	// What follows the start may come after the answer.
	for _, n := range []int{1, slices.Index(steps, "dispose") + 1, promoted + 1, promoted + 2, promoted + 3, slices.Index(steps, "start") + 1, slices.Index(steps, "started") + 1} {
		// The row comes after the step promote.
		if level, _ := life(n); (level == bailey.IsolationGVisor) != (n > promoted+2) {
			t.Errorf("killed before step %d, %s, it is at %s", n, steps[n-1], level)
		}
	}
	d.clean()
}
