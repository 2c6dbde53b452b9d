//go:build linux

package engine

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Orders about commands.
func init() {
	ops["exec-start"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		a.Exec, err = e.StartExec(ctx, me, o.Ref, o.Exec)
		return a, err
	}
	ops["exec-show"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		a.Exec, err = e.Exec(ctx, me, o.Ref, o.ID)
		return a, err
	}
	ops["exec-wait"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		a.Exec, err = e.WaitExec(ctx, me, o.Ref, o.ID)
		return a, err
	}
	ops["exec-stdin"] = func(ctx context.Context, e *Engine, o order) (answer, error) {
		return answer{}, e.WriteStdin(ctx, me, o.Ref, o.ID, o.Data, len(o.Data) == 0)
	}
	ops["exec-read"] = func(ctx context.Context, e *Engine, o order) (a answer, err error) {
		err = e.Output(ctx, me, o.Ref, o.ID, map[api.Stream]int64{api.Stdout: o.From, api.Stderr: math.MaxInt64}, false, func(ev api.OutputEvent) error {
			a.Data = append(a.Data, ev.Data...)
			return nil
		})
		return a, err
	}
}

// again gives an order until an engine answers it that does not die over it.
func (d *daemon) again(o order) answer {
	d.t.Helper()
	for range 20 {
		a, err := d.tell(o)
		if err == nil && (a.Code == bailey.CodeDaemonUnavailable || strings.Contains(a.Err, "context canceled")) {
			continue
		}
		if err == nil {
			return a
		}
	}
	d.t.Fatalf("%+v: no answer", o)
	return answer{}
}

// kill kills the engine and waits until there is another.
func (d *daemon) kill() {
	d.t.Helper()
	old := d.enginePid()
	d.signal(old, unix.SIGKILL)
	eventually(d.t, 15*time.Second, "another engine", func() bool { p := d.enginePid(); return p != 0 && p != old })
}

// TestExecsAdopted is T21 and T22 under a daemon that is killed again and again: no
// byte of any kind of command is lost or doubled, inputs stay open, ends are found.
func TestExecsAdopted(t *testing.T) {
	d := startDaemon(t)
	rounds := 6
	if raced {
		rounds = 3
	}
	for _, spec := range []api.SandboxSpec{process, {Isolation: bailey.IsolationContainer}} {
		s := d.do(order{Op: "create", Spec: spec}).Sandbox
		start := func(x api.ExecSpec) { d.do(order{Op: "exec-start", Ref: s.ID, Exec: x}) }
		start(api.ExecSpec{ID: "count", Args: []string{"seq 1 1500000; echo end"}, Shell: true})
		start(api.ExecSpec{ID: "slow", Args: []string{"i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; sleep 0.003; done; exit 5"}, Shell: true})
		start(api.ExecSpec{ID: "input", Args: []string{"cat"}, Stdin: true})
		start(api.ExecSpec{ID: "terminal", Args: []string{"stty -onlcr; i=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); echo $i; sleep 0.003; done; exit 6"}, Shell: true, Pty: &api.Window{Rows: 24, Cols: 80}})
		start(api.ExecSpec{ID: "background", Args: []string{"(until [ -e /tmp/stop ]; do sleep 0.01; done; echo late) & exit 4"}, Shell: true})
		input := ""
		for i := range rounds {
			input += fmt.Sprintln("line", i)
			if a := d.again(order{Op: "exec-stdin", Ref: s.ID, ID: "input", Data: []byte(fmt.Sprintln("line", i))}); a.Err != "" {
				t.Fatal(a.Err)
			}
			for _, id := range []string{"slow", "terminal"} {
				from := d.again(order{Op: "exec-show", Ref: s.ID, ID: id}).Exec.Stdout.To
				eventually(t, 15*time.Second, id+" to go on", func() bool {
					return d.again(order{Op: "exec-show", Ref: s.ID, ID: id}).Exec.Stdout.To > from+20
				})
			}
			// One that has ended is known at once, though its child may still print.
			if a := d.again(order{Op: "exec-wait", Ref: s.ID, ID: "background"}); a.Err != "" || a.Exec.State != api.ExecEnded || *a.Exec.ExitCode != 4 || a.Exec.Stdout.Closed {
				t.Fatalf("it is %+v, %s", a.Exec, a.Err)
			}
			if a := d.again(order{Op: "exec-show", Ref: s.ID, ID: "slow"}); a.Exec.State != api.ExecRunning || a.Exec.ExitCode != nil {
				t.Fatalf("it is %+v, %s", a.Exec, a.Err)
			}
			time.Sleep(time.Duration(rand.Intn(30)) * time.Millisecond) // the moment is random: that is what is tested
			if i == rounds/2 {
				old := d.enginePid()
				unix.Kill(d.keeper.Process.Pid, unix.SIGHUP) // an upgrade
				eventually(t, 15*time.Second, "another engine", func() bool { p := d.enginePid(); return p != 0 && p != old })
				continue
			}
			d.kill()
		}
		if a := d.again(order{Op: "exec-start", Ref: s.ID, Exec: api.ExecSpec{ID: "stop", Args: []string{"touch", "/tmp/stop"}}}); a.Err != "" {
			t.Fatal(a.Err)
		}
		if a := d.again(order{Op: "exec-stdin", Ref: s.ID, ID: "input"}); a.Err != "" {
			t.Fatal(a.Err)
		}
		for id, code := range map[string]int{"count": 0, "slow": 5, "input": 0, "terminal": 6, "background": 4, "stop": 0} {
			if a := d.again(order{Op: "exec-wait", Ref: s.ID, ID: id}); a.Err != "" || a.Exec.ExitCode == nil || *a.Exec.ExitCode != code {
				t.Errorf("%s ended as %+v, %s", id, a.Exec, a.Err)
			}
		}
		eventually(t, 10*time.Second, "what a child prints late", func() bool {
			return string(d.again(order{Op: "exec-read", Ref: s.ID, ID: "background"}).Data) == "late\n"
		})
		var want bytes.Buffer
		for i := 1; i <= 1500000; i++ {
			fmt.Fprintln(&want, i)
		}
		want.WriteString("end\n")
		if got := d.again(order{Op: "exec-read", Ref: s.ID, ID: "count"}).Data; !bytes.Equal(got, want.Bytes()) {
			t.Errorf("%d bytes of %d arrived, or others", len(got), want.Len())
		}
		for _, id := range []string{"slow", "terminal"} {
			got := string(d.again(order{Op: "exec-read", Ref: s.ID, ID: id}).Data)
			inOrder(t, id, strings.ReplaceAll(got, "\r", ""))
		}
		if got := string(d.again(order{Op: "exec-read", Ref: s.ID, ID: "input"}).Data); got != input {
			t.Errorf("the input was %q", got)
		}
		// The keeper holds nothing of them any more: what it has was dropped, or
		// would be the next engine's.
		d.kill()
		if a := d.again(order{Op: "exec-wait", Ref: s.ID, ID: "slow"}); a.Err != "" || *a.Exec.ExitCode != 5 {
			t.Errorf("after another death: %+v, %s", a.Exec, a.Err)
		}
		d.again(order{Op: "delete", Ref: s.ID})
		if a := d.again(order{Op: "exec-show", Ref: s.ID, ID: "slow"}); a.Err != "" || *a.Exec.ExitCode != 5 {
			t.Errorf("after the sandbox: %+v, %s", a.Exec, a.Err)
		}
	}
	d.clean()
}

// inOrder checks that the lines are 1, 2, 3 …
func inOrder(t *testing.T, what, text string) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if line != fmt.Sprint(i+1) {
			t.Errorf("%s: line %d is %q", what, i+1, line)
			return
		}
	}
}

// TestExecCrashAtEachStep kills the engine before each step of a command's life.
// Whoever asks again with the same id gets the one command, which ran once.
func TestExecCrashAtEachStep(t *testing.T) {
	d := startDaemon(t)
	s := d.do(order{Op: "create", Spec: process}).Sandbox
	steps := func(n int) []string {
		d.killAt(0)
		d.killAt(n)
		id := fmt.Sprint("at-", n)
		o := order{Op: "exec-start", Ref: s.ID, Exec: api.ExecSpec{ID: id, Args: []string{"cd /tmp; echo x >> " + id + "; wc -l < " + id + "; exit 3"}, Shell: true}}
		a := d.again(o)
		if a.Err != "" {
			t.Fatalf("step %d: %s", n, a.Err)
		}
		for {
			a = d.again(order{Op: "exec-wait", Ref: s.ID, ID: id})
			if a.Code != bailey.CodeNotFound {
				break
			}
			d.again(o) // it was killed before it was started, after it said that it would be
		}
		if a.Err != "" || a.Exec.ExitCode == nil || *a.Exec.ExitCode != 3 {
			t.Fatalf("step %d: it ended as %+v, %s", n, a.Exec, a.Err)
		}
		if a := d.again(order{Op: "exec-read", Ref: s.ID, ID: id}); string(a.Data) != "1\n" {
			t.Errorf("step %d: it printed %q, %s", n, a.Data, a.Err)
		}
		return d.steps()
	}
	list := steps(0)
	n := 0
	for _, step := range list {
		if strings.HasPrefix(step, "exec") {
			n++
		}
	}
	if n < 6 {
		t.Fatalf("the steps are %q", list)
	}
	for i := range n {
		steps(i + 1)
		if os.Remove(filepath.Join(d.home, killAtName)) == nil {
			t.Logf("nobody was killed at %d", i+1)
		}
	}
	d.again(order{Op: "delete", Ref: s.ID})
	d.clean()
}

// TestExecDiedUnseen: a sandbox that dies while the daemon is dead, too, leaves what
// its commands had printed, and they are lost, not running.
func TestExecDiedUnseen(t *testing.T) {
	d := startDaemon(t)
	s := d.do(order{Op: "create", Spec: process}).Sandbox
	pid := d.do(order{Op: "sh", Ref: s.ID, ID: "pid", Script: "true"}).Pid
	mark := fmt.Sprintf("7%06d.5", rand.Intn(1_000_000))
	for _, x := range []api.ExecSpec{
		{ID: "pipe", Args: []string{"read x; head -c 50000 /dev/zero | tr '\\0' x; exec sleep " + mark}, Shell: true, Stdin: true},
		{ID: "terminal", Args: []string{"sleep 1000"}, Shell: true, Pty: &api.Window{}},
	} {
		d.do(order{Op: "exec-start", Ref: s.ID, Exec: x})
	}
	old := d.enginePid()
	d.do(order{Op: "exec-stdin", Ref: s.ID, ID: "pipe", Data: []byte("go\n")})
	d.signal(old, unix.SIGSTOP)
	eventually(t, 10*time.Second, "all to be printed", func() bool {
		list, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, p := range list {
			if text, _ := os.ReadFile(p); bytes.Contains(text, []byte("sleep\x00"+mark)) {
				return true
			}
		}
		return false
	})
	d.signal(pid, unix.SIGKILL)
	d.signal(old, unix.SIGKILL)
	eventually(t, 15*time.Second, "another engine", func() bool { p := d.enginePid(); return p != 0 && p != old })
	for id, size := range map[string]int{"pipe": 50000, "terminal": 0} {
		a := d.again(order{Op: "exec-wait", Ref: s.ID, ID: id})
		if a.Code != bailey.CodeSandboxLost || a.Exec.End == nil || a.Exec.End.Reason != bailey.EndHostLost {
			t.Errorf("%s: %+v, %s", id, a.Exec, a.Err)
		}
		if got := d.again(order{Op: "exec-read", Ref: s.ID, ID: id}).Data; len(got) != size {
			t.Errorf("%s: %d bytes of %d are kept", id, len(got), size)
		}
	}
	d.again(order{Op: "delete", Ref: s.ID})
	d.clean()
}
