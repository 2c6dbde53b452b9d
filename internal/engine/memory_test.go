//go:build linux

package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// counting prints one number after the other, keeps a file open and follows its input.
const counting = `exec 3>/root/open; n=0; while :; do n=$((n+1)); echo $n; echo $n >&3; echo $n >/root/n.new; mv /root/n.new /root/n; sleep 0.02; done`

// TestMemoryOnDisk: what runs in a sandbox goes on after a pause to disk, also with another
// daemon, and nothing that it prints is lost or comes twice.
func TestMemoryOnDisk(t *testing.T) {
	e, home := openEngine(t, withGVisor(t)), ""
	home = e.home
	s := create(t, e, api.SandboxSpec{Isolation: bailey.IsolationGVisor, Name: "m"})
	x := begin(t, e, "m", api.ExecSpec{ID: "count", Args: []string{counting}, Shell: true})
	cat := begin(t, e, "m", api.ExecSpec{ID: "cat", Args: []string{"cat"}, Stdin: true})
	if err := e.WriteStdin(t.Context(), me, "m", cat.ID, []byte("a\n"), false); err != nil {
		t.Fatal(err)
	}
	at := func() int {
		n := 0
		fmt.Sscan(sh(t, e, "m", "until test -s /root/n; do sleep 0.01; done; cat /root/n"), &n)
		return n
	}
	for round := range 3 {
		before := at()
		r, err := e.Pause(t.Context(), me, "m", api.PauseRequest{ToDisk: true})
		if err != nil || !slices.Equal(r.Kept, keptWithMemory) || !slices.Equal(r.Lost, lostWithMemory) || r.Bytes == 0 {
			t.Fatalf("the pause: %+v %v", r, err)
		}
		if now, err := e.Sandbox(t.Context(), me, "m"); err != nil || now.State != api.StateStopped {
			t.Fatalf("%+v %v", now, err)
		}
		if y, err := e.Exec(t.Context(), me, "m", x.ID); err != nil || y.State != api.ExecRunning {
			t.Fatalf("the command meanwhile: %+v %v", y, err)
		}
		if round == 1 { // the daemon is another one
			if err := e.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			e = openEngine(t, withGVisor(t), func(o *Options) { o.Home = home })
		}
		now, err := e.Resume(t.Context(), me, "m")
		if err != nil || now.State != api.StateRunning || now.Generation != s.Generation || !slices.Equal(now.Receipt.Kept, keptWithMemory) {
			t.Fatalf("resumed: %+v %v", now, err)
		}
		eventually(t, patience, "the command goes on", func() bool { return at() > before })
	}
	if err := e.WriteStdin(t.Context(), me, "m", cat.ID, []byte("b\n"), true); err != nil {
		t.Fatal(err)
	}
	if out, _, y := printed(t, e, "m", cat.ID); out != "a\nb\n" || y.ExitCode == nil || *y.ExitCode != 0 {
		t.Errorf("the command with an input: %q %+v", out, y)
	}
	if err := e.SignalExec(t.Context(), me, "m", x.ID, "KILL"); err != nil {
		t.Fatal(err)
	}
	out, _, _ := printed(t, e, "m", x.ID)
	for i, line := range strings.Fields(out) {
		if line != fmt.Sprint(i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if list, _ := filepath.Glob(filepath.Join(e.dirOf(s.ID), memoryPrefix+"*")); len(list) != 1 { // what it runs on
		t.Errorf("memory is left: %q", list)
	}
}

// TestMemoryDamaged: memory that is not what was written is refused, and the files are
// there for whoever drops it.
func TestMemoryDamaged(t *testing.T) {
	e := openEngine(t, withGVisor(t))
	s := create(t, e, api.SandboxSpec{Isolation: bailey.IsolationGVisor, Name: "d"})
	sh(t, e, "d", "echo kept > /root/f")
	x := begin(t, e, "d", api.ExecSpec{Args: []string{"sleep", "1000"}})
	if _, err := e.Pause(t.Context(), me, "d", api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.UpdatePolicy(t.Context(), me, "d", api.SandboxSpec{Allow: []string{"somewhere.example"}}); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("a network for one whose memory has none: %v", err)
	}
	list, err := filepath.Glob(filepath.Join(e.dirOf(s.ID), memoryPrefix+"*", "pages.img"))
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	if err := os.Chmod(list[0], 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(list[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 4096); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, 4096); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Chmod(0o444), f.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Resume(t.Context(), me, "d"); bailey.CodeOf(err) != bailey.CodeRestoreIncomplete {
		t.Fatalf("damaged memory: %v", err)
	}
	if now, err := e.Sandbox(t.Context(), me, "d"); err != nil || now.State != api.StateStopped {
		t.Fatalf("%+v %v", now, err)
	}
	if r, err := e.Pause(t.Context(), me, "d", api.PauseRequest{ToDisk: true, FilesOnly: true}); err != nil || !slices.Contains(r.Lost, "memory") {
		t.Fatalf("dropped: %+v %v", r, err)
	}
	if y, err := e.Exec(t.Context(), me, "d", x.ID); err != nil || y.End == nil {
		t.Errorf("the command: %+v %v", y, err)
	}
	if out := sh(t, e, "d", "cat /root/f"); out != "kept" {
		t.Errorf("its files: %q", out)
	}
}

// TestMemoryDropped: memory does not outlive the files that it fits, and is not kept
// where files are not sealed with it; either is told.
func TestMemoryDropped(t *testing.T) {
	e := openEngine(t, withGVisor(t))
	s := create(t, e, asGVisor)
	sh(t, e, s.ID, "echo one > /root/f")
	point, err := e.Checkpoint(t.Context(), me, s.ID, "")
	if err != nil {
		t.Fatal(err)
	}
	sh(t, e, s.ID, "echo two > /root/f")
	x := begin(t, e, s.ID, api.ExecSpec{Args: []string{"sleep", "1000"}})
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Undo(t.Context(), me, s.ID, api.UndoRequest{To: point.ID}); bailey.CodeOf(err) != bailey.CodeBusy {
		t.Errorf("an undo under processes on disk: %v", err)
	}
	if _, err := e.Undo(t.Context(), me, s.ID, api.UndoRequest{To: point.ID, Kill: true}); err != nil {
		t.Fatal(err)
	}
	if y, err := e.Exec(t.Context(), me, s.ID, x.ID); err != nil || y.End == nil {
		t.Errorf("the command: %+v %v", y, err)
	}
	if out := sh(t, e, s.ID, "cat /root/f"); out != "one" {
		t.Errorf("its file has %q", out)
	}
	if os.Geteuid() != 0 { // a disk of its own needs root
		return
	}
	spec := asGVisor
	spec.Limits.Disk = 64 << 20
	d := create(t, e, spec)
	begin(t, e, d.ID, api.ExecSpec{Args: []string{"sleep", "1000"}})
	r, err := e.Pause(t.Context(), me, d.ID, api.PauseRequest{ToDisk: true})
	if err != nil || !slices.Contains(r.Lost, "memory") || !strings.Contains(strings.Join(r.Notes, "\n"), "memory is not kept") {
		t.Errorf("with a disk of its own: %+v %v", r, err)
	}
}

// counts says whether the command counting does.
const counts = `n=$(cat /root/n); i=0; while [ $i -lt 250 ] && [ "$(cat /root/n)" = "$n" ]; do sleep 0.02; i=$((i+1)); done; [ "$(cat /root/n)" = "$n" ] && echo dead || echo alive`

// TestMemoryKilled: killed at any moment of a pause to disk or of a resume, the sandbox goes
// on with its processes or says that they are lost, and its files are there.
func TestMemoryKilled(t *testing.T) {
	d := startDaemonOf(t, withRunsc(t))
	life := func(op string, n int) (went bool, steps []string) {
		s := d.do(order{Op: "create", Spec: asGVisor}).Sandbox
		d.do(order{Op: "sh", Ref: s.ID, ID: "a", Script: "cd; echo here > f; (" + counting + ") </dev/null >/dev/null 2>&1 & until test -s /root/n; do sleep 0.01; done"})
		pause := order{Op: "pause", Ref: s.ID, ToDisk: true}
		if op == "resume" {
			d.do(pause)
		}
		d.killAt(n)
		o := pause
		if op == "resume" {
			o = order{Op: "resume", Ref: s.ID}
		}
		a, err := d.tell(o)
		steps = d.steps()
		if n == 0 && (err != nil || a.Err != "") || n > 0 && err == nil {
			t.Fatalf("%s, killed before step %d: %v %+v", op, n, err, a)
		}
		now := d.do(order{Op: "show", Ref: s.ID}).Sandbox
		if !isStable(now.State) || now.State == api.StateLost {
			t.Errorf("%s, killed before step %d it is %s", op, n, now.State)
		}
		kept := now.Receipt == nil || slices.Contains(now.Receipt.Kept, "memory")
		if a := d.do(order{Op: "sh", Ref: s.ID, ID: "b", Script: "cd; cat f; " + counts}); a.Out != "here\nalive" && (kept || a.Out != "here\ndead") {
			t.Errorf("%s, killed before step %d: it is %s, kept %v, and has %q", op, n, now.State, kept, a.Out)
		}
		d.do(order{Op: "delete", Ref: s.ID})
		return kept, steps
	}
	all := map[string][]string{}
	for _, c := range []struct {
		op, step string
		kept     bool
	}{{"pause", "suspend", true}, {"pause", "suspended", false}, {"pause", "dispose", true}, {"resume", "started", true}} {
		if raced && c.op == "pause" && c.step != "suspend" { // the other passes take each
			continue
		}
		if all[c.op] == nil {
			_, all[c.op] = life(c.op, 0)
		}
		steps := all[c.op]
		n := slices.Index(steps, c.step) + 1
		if n == 0 {
			t.Fatalf("%s has the steps %q", c.op, steps)
		}
		if kept, _ := life(c.op, n); kept != c.kept {
			t.Errorf("%s, killed before %s: kept is %v", c.op, c.step, kept)
		}
	}
	d.clean()
}
