//go:build linux

package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/execlog"
)

// shell is a command of a shell.
func shell(script string) api.ExecSpec { return api.ExecSpec{Args: []string{script}, Shell: true} }

// begin starts a command.
func begin(t testing.TB, e *Engine, ref string, spec api.ExecSpec) api.Exec {
	t.Helper()
	x, err := e.StartExec(t.Context(), me, ref, spec)
	if err != nil {
		t.Fatalf("%q: %v", spec.Args, err)
	}
	return x
}

// done waits for a command's end.
func done(t testing.TB, e *Engine, ref, id string) api.Exec {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	x, err := e.WaitExec(ctx, me, ref, id)
	if err != nil {
		t.Fatalf("wait for %s: %v", id, err)
	}
	return x
}

// printed follows a command to its end and gives all that it printed.
func printed(t testing.TB, e *Engine, ref, id string) (stdout, stderr string, x api.Exec) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out [2]bytes.Buffer
	err := e.Output(ctx, me, ref, id, nil, true, func(ev api.OutputEvent) error {
		if ev.Exec != nil {
			x = *ev.Exec
			return nil
		}
		o := &out[slices.Index(streamsOf[:], ev.Stream)]
		if ev.Dropped != 0 || ev.Offset != int64(o.Len()) {
			t.Errorf("%s: %d bytes dropped, offset %d after %d", ev.Stream, ev.Dropped, ev.Offset, o.Len())
		}
		o.Write(ev.Data)
		return nil
	})
	if err != nil {
		t.Fatalf("output of %s: %v", id, err)
	}
	return out[0].String(), out[1].String(), x
}

// runs runs a command to its end.
func runs(t testing.TB, e *Engine, ref string, spec api.ExecSpec) (stdout, stderr string, x api.Exec) {
	t.Helper()
	return printed(t, e, ref, begin(t, e, ref, spec).ID)
}

// TestExecs has one engine for all, because opening one takes longer than most.
func TestExecs(t *testing.T) {
	e := openEngine(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *Engine)
	}{
		{"Basics", execBasics},
		{"Refuses", execRefuses},
		{"SameID", execSameID},
		{"Timeout", execTimeout},
		{"Background", execBackground},
		{"Reattach", execReattach},
		{"LongOutput", execLongOutput},
		{"Lost", execLost},
		{"Session", execSession},
		{"Input", execInput},
		{"Terminal", execTerminal},
		{"Many", execMany},
		{"User", execUser},
		{"Denials", execDenials},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, e) })
	}
}

func execBasics(t *testing.T, e *Engine) {
	for name, spec := range atLevels {
		t.Run(name, func(t *testing.T) {
			spec.Env = map[string]string{"FROM": "spec", "OVER": "spec"}
			s := create(t, e, spec)
			for _, c := range []struct {
				what     string
				spec     api.ExecSpec
				out, err string
				code     int
				reason   bailey.Reason
			}{
				{"a status", shell("echo out; echo err >&2; exit 7"), "out\n", "err\n", 7, bailey.EndExit},
				{"arguments", api.ExecSpec{Args: []string{"printf", "%s|", "a b", "", "ü"}}, "a b||ü|", "", 0, bailey.EndExit},
				{"shell arguments", api.ExecSpec{Args: []string{`echo "$0 $1"`, "one"}, Shell: true}, "sh one\n", "", 0, bailey.EndExit},
				{"environment", api.ExecSpec{Args: []string{"echo $FROM $OVER $MINE"}, Shell: true, Env: map[string]string{"OVER": "exec", "MINE": "x=y"}}, "spec exec x=y\n", "", 0, bailey.EndExit},
				{"folder", api.ExecSpec{Args: []string{"pwd"}, Dir: "/usr"}, "/usr\n", "", 0, bailey.EndExit},
				{"a signal", shell("kill -9 $$"), "", "", 137, bailey.EndSignal},
				{"T27 input", api.ExecSpec{Args: []string{"cat"}}, "", "", 0, bailey.EndExit},
				{"T28 NUL", api.ExecSpec{Args: []string{"printf", `a\0b\n`}}, "a\x00b\n", "", 0, bailey.EndExit},
				{"no command", api.ExecSpec{Args: []string{"nothing-of-this-name"}}, "", "", 127, bailey.EndNotStarted},
				{"no program", api.ExecSpec{Args: []string{"/etc"}}, "", "", 126, bailey.EndNotStarted},
				{"no folder", api.ExecSpec{Args: []string{"true"}, Dir: "/nowhere"}, "", "", 126, bailey.EndNotStarted},
			} {
				out, errs, x := runs(t, e, s.ID, c.spec)
				if out != c.out || errs != c.err || x.ExitCode == nil || *x.ExitCode != c.code || x.End.Reason != c.reason || x.State != api.ExecEnded || x.Ended == nil {
					t.Errorf("%s: %q, %q, %+v, %+v", c.what, out, errs, x, x.End)
				}
			}
		})
	}
}

func execRefuses(t *testing.T, e *Engine) {
	s := create(t, e, process)
	for what, spec := range map[string]api.ExecSpec{
		"no arguments":     {},
		"an empty one":     {Args: []string{""}},
		"NUL":              {Args: []string{"a\x00b"}},
		"a variable":       {Args: []string{"true"}, Env: map[string]string{"A=B": "c"}},
		"a value":          {Args: []string{"true"}, Env: map[string]string{"A": "\x00"}},
		"an id":            {Args: []string{"true"}, ID: "../../etc"},
		"a long id":        {Args: []string{"true"}, ID: strings.Repeat("a", 129)},
		"timeout":          {Args: []string{"true"}, Timeout: -1},
		"a long timeout":   {Args: []string{"true"}, Timeout: math.MaxInt64},
		"grace":            {Args: []string{"true"}, Grace: api.Duration(2 * time.Hour)},
		"output":           {Args: []string{"true"}, Output: 1},
		"a user":           {Args: []string{"true"}, User: "root"},
		"a generation":     {Args: []string{"true"}, Generation: -1},
		"a folder":         {Args: []string{"true"}, Dir: "/\x00"},
		"another who came": {Args: []string{"true"}, Generation: 5},
	} {
		_, err := e.StartExec(t.Context(), me, s.ID, spec)
		switch code := bailey.CodeOf(err); {
		case what == "a user" && code == bailey.CodeNotAvailable, what == "another who came" && code == bailey.CodeSandboxRestarted, code == bailey.CodeUsage:
		default:
			t.Errorf("%s: %v", what, err)
		}
	}
	other := Caller{Name: "key:other"}
	if _, err := e.StartExec(t.Context(), other, s.ID, shell("true")); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("somebody else: %v", err)
	}
	begin(t, e, s.ID, api.ExecSpec{Args: []string{"true"}, ID: "mine"})
	if _, err := e.Exec(t.Context(), other, s.ID, "mine"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("somebody else's look: %v", err)
	}
	if list, err := e.Execs(t.Context(), me, s.ID); err != nil || len(list) != 1 {
		t.Errorf("what was refused is there: %v, %v", list, err)
	}
}

// execSameID: one command, however often it is asked for, at once or later.
func execSameID(t *testing.T, e *Engine) {
	s := create(t, e, process)
	spec := api.ExecSpec{ID: "one.of:many_1-x", Args: []string{"echo x >> f; sleep 0.1; wc -l < f"}, Shell: true, Dir: "/tmp"}
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			ctx := t.Context()
			if i%3 == 0 { // the answer is lost
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Duration(i)*100*time.Microsecond)
				defer cancel()
			}
			if _, err := e.StartExec(ctx, me, s.ID, spec); err != nil && !errors.Is(err, context.DeadlineExceeded) && bailey.CodeOf(err) != bailey.CodeBusy {
				t.Error(err)
			}
		})
	}
	all.Wait()
	begin(t, e, s.ID, spec)
	if out, _, _ := printed(t, e, s.ID, spec.ID); out != "1\n" {
		t.Errorf("it ran %q times", out)
	}
	if out, _, x := runs(t, e, s.ID, spec); out != "1\n" || x.ExitCode == nil {
		t.Errorf("asked for after its end: %q, %+v", out, x)
	}
	spec.Args[0] += " "
	if _, err := e.StartExec(t.Context(), me, s.ID, spec); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("another command of the same id: %v", err)
	}
}

// execTimeout is T19.
func execTimeout(t *testing.T, e *Engine) {
	s := create(t, e, process)
	for _, c := range []struct {
		what  string
		spec  api.ExecSpec
		least time.Duration
		out   string
	}{
		{"killed", api.ExecSpec{Args: []string{"sleep", "1000"}, Timeout: api.Duration(time.Second)}, time.Second, ""},
		{"with all that it started", api.ExecSpec{Args: []string{"sleep 1001 & setsid sleep 1002 & sleep 1003"}, Shell: true, Timeout: api.Duration(300 * time.Millisecond)}, 300 * time.Millisecond, ""},
		{"grace", api.ExecSpec{Args: []string{"trap 'echo bye; exit 3' TERM; while :; do sleep 0.05; done"}, Shell: true, Timeout: api.Duration(300 * time.Millisecond), Grace: api.Duration(10 * time.Second)}, 300 * time.Millisecond, "bye\n"},
		{"grace that is not used", api.ExecSpec{Args: []string{"trap '' TERM; sleep 1000; sleep 1000"}, Shell: true, Timeout: api.Duration(200 * time.Millisecond), Grace: api.Duration(300 * time.Millisecond)}, 500 * time.Millisecond, ""},
	} {
		began := time.Now()
		out, _, x := runs(t, e, s.ID, c.spec)
		took := time.Since(began)
		if x.End.Reason != bailey.EndTimeout || *x.ExitCode != bailey.ExitTimeout || out != c.out {
			t.Errorf("%s: %q, %+v", c.what, out, x.End)
		}
		if took < c.least || took > c.least+patience {
			t.Errorf("%s: it took %s and not %s", c.what, took, c.least)
		}
		// A busy machine may take one down still after the end was told.
		eventually(t, patience, c.what+": processes are left", func() bool { return len(living(t, e, s.ID)) == 0 })
	}
}

// living gives the names of the processes in a sandbox, but for bailey-init.
func living(t testing.TB, e *Engine, ref string) (list []string) {
	t.Helper()
	u, err := e.awake(t.Context(), me, ref)
	if err != nil {
		t.Fatal(err)
	}
	defer u.release()
	procs, err := u.client.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		if p.Pid != 1 && p.State != 'Z' {
			list = append(list, p.Command)
		}
	}
	return list
}

// execBackground is T20: a child never holds the call, and what it prints
// later is there.
func execBackground(t *testing.T, e *Engine) {
	s := create(t, e, process)
	spec := shell(`(until [ -e /tmp/go ]; do sleep 0.01; done; echo later; exec sleep 1000) & echo now`)
	spec.ID = "parent"
	x := begin(t, e, s.ID, spec)
	out, _, x := printed(t, e, s.ID, x.ID)
	if out != "now\n" || x.ExitCode == nil || *x.ExitCode != 0 || x.Left < 1 || x.Stdout.Closed {
		t.Fatalf("%q, %+v", out, x)
	}
	if x = done(t, e, s.ID, x.ID); x.End.Reason != bailey.EndExit {
		t.Errorf("%+v", x.End)
	}
	runs(t, e, s.ID, shell("touch /tmp/go"))
	eventually(t, 10*time.Second, "what the child prints", func() bool {
		var later string
		if err := e.Output(t.Context(), me, s.ID, x.ID, map[api.Stream]int64{api.Stdout: x.Stdout.To}, false, func(ev api.OutputEvent) error {
			later += string(ev.Data)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return later == "later\n"
	})
	if got, err := e.Exec(t.Context(), me, s.ID, x.ID); err != nil || got.Left != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if err := e.SignalExec(t.Context(), me, s.ID, x.ID, "KILL"); err != nil {
		t.Error(err)
	}
	eventually(t, 10*time.Second, "the child's end", func() bool {
		got, err := e.Exec(t.Context(), me, s.ID, x.ID)
		return err == nil && got.Left == 0 && got.Stdout.Closed
	})
	if err := e.SignalExec(t.Context(), me, s.ID, x.ID, "KILL"); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("a signal to nobody: %v", err)
	}
	eventually(t, 10*time.Second, "all to be let go", func() bool { return e.openExec(s.ID, x.ID) == nil })
}

// execReattach is T21: any client comes back at any offset, during and after.
func execReattach(t *testing.T, e *Engine) {
	s := create(t, e, process)
	spec := shell(`i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo $i; done`)
	want := ""
	for i := 1; i <= 3000; i++ {
		want += fmt.Sprintln(i)
	}
	x := begin(t, e, s.ID, spec)
	var all sync.WaitGroup
	for i := range 10 {
		all.Go(func() {
			got, dropped := "", errors.New("dropped")
			for { // it drops the connection again and again
				n := 0
				err := e.Output(t.Context(), me, s.ID, x.ID, map[api.Stream]int64{api.Stdout: int64(len(got)), api.Stderr: math.MaxInt64}, true, func(ev api.OutputEvent) error {
					got += string(ev.Data)
					if n++; n > i && ev.Exec == nil {
						return dropped
					}
					return nil
				})
				if err == nil {
					break
				}
				if err != dropped {
					t.Error(err)
					return
				}
			}
			if got != want {
				t.Errorf("reader %d: %d bytes of %d", i, len(got), len(want))
			}
		})
	}
	all.Wait()
	if err := e.Output(t.Context(), me, s.ID, x.ID, map[api.Stream]int64{api.Stdout: int64(len(want)) + 1}, false, nil); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("behind the end: %v", err)
	}
}

// execLongOutput is T22: much output, through a pause, whole; and through a
// bound, with what was dropped told.
func execLongOutput(t *testing.T, e *Engine) {
	s := create(t, e, process)
	const size = 10 << 20
	spec := shell(fmt.Sprintf("read x; head -c %d /dev/zero | tr '\\0' 'x'", size))
	spec.Stdin = true
	x := begin(t, e, s.ID, spec)
	if runtime.GOOS == "linux" && os.Geteuid() == 0 {
		if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{}); err != nil {
			t.Fatal(err)
		}
		if got, err := e.Exec(t.Context(), me, s.ID, x.ID); err != nil || got.State != api.ExecRunning || got.ExitCode != nil {
			t.Errorf("while paused: %+v, %v", got, err)
		}
	}
	if err := e.WriteStdin(t.Context(), me, s.ID, x.ID, []byte("go\n"), true); err != nil {
		t.Fatal(err)
	}
	out, _, _ := printed(t, e, s.ID, x.ID)
	if len(out) != size || strings.Trim(out, "x") != "" {
		t.Errorf("%d bytes", len(out))
	}
	spec = shell(fmt.Sprintf("head -c %d /dev/zero", size))
	spec.Output = execlog.MinCap
	x = done(t, e, s.ID, begin(t, e, s.ID, spec).ID)
	total, dropped := int64(0), int64(0)
	if err := e.Output(t.Context(), me, s.ID, x.ID, nil, true, func(ev api.OutputEvent) error {
		total, dropped = total+int64(len(ev.Data)), dropped+ev.Dropped
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if total+dropped != size || total > spec.Output || total < spec.Output/2 || x.Stdout.To != size || x.Stdout.From != dropped {
		t.Errorf("%d bytes and %d dropped of %d; %+v", total, dropped, size, x.Stdout)
	}
}

// execLost is T23: the sandbox's death ends everything that waits, soon, with
// an error that says so; what was printed and how it ended are kept.
func execLost(t *testing.T, e *Engine) {
	for _, how := range []string{"killed", "deleted", "stopped"} {
		t.Run(how, func(t *testing.T) {
			s := create(t, e, process)
			x := begin(t, e, s.ID, shell("echo before; sleep 1000"))
			b, err := e.find(t.Context(), me, s.ID)
			if err != nil {
				t.Fatal(err)
			}
			want := bailey.CodeSandboxLost
			if how != "killed" {
				want = bailey.CodeSandboxEnded
			}
			errs := make(chan error, 2)
			saw := make(chan string, 10)
			go func() {
				_, err := e.WaitExec(t.Context(), me, s.ID, x.ID)
				errs <- err
			}()
			go func() {
				errs <- e.Output(t.Context(), me, s.ID, x.ID, nil, true, func(ev api.OutputEvent) error {
					saw <- string(ev.Data)
					return nil
				})
			}()
			if got := <-saw; got != "before\n" {
				t.Errorf("it printed %q", got)
			}
			began := time.Now()
			switch how {
			case "killed":
				unix.Kill(b.generation().instance.Pid(), unix.SIGKILL)
			case "deleted":
				err = e.Delete(t.Context(), me, s.ID)
			case "stopped":
				_, err = e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true})
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := <-errs; bailey.CodeOf(err) != want {
					t.Errorf("whoever waits gets %v", err)
				}
			}
			if took := time.Since(began); took > patience {
				t.Errorf("it took %s", took)
			}
			got, err := e.Exec(t.Context(), me, s.ID, x.ID)
			if err != nil || got.State != api.ExecEnded || got.End == nil || got.ExitCode == nil || *got.ExitCode != 137 || !got.Stdout.Closed || got.Stdout.To != 7 {
				t.Errorf("it is %+v, %+v, %v", got, got.End, err)
			}
			if _, err := e.WaitExec(t.Context(), me, s.ID, x.ID); bailey.CodeOf(err) != want {
				t.Errorf("whoever asks later gets %v", err)
			}
			out := ""
			err = e.Output(t.Context(), me, s.ID, x.ID, nil, false, func(ev api.OutputEvent) error {
				out += fmt.Sprint(string(ev.Data), ev.Dropped)
				return nil
			})
			if wantOut := map[bool]string{true: "7", false: "before\n0"}[how == "deleted"]; err != nil || out != wantOut {
				t.Errorf("later there is %q, %v", out, err)
			}
			eventually(t, 5*time.Second, "all to be let go", func() bool { return e.openExec(s.ID, x.ID) == nil })
			if how != "deleted" {
				if _, err := e.Resume(t.Context(), me, s.ID); err != nil {
					t.Fatal(err)
				}
				if out, _, _ := runs(t, e, s.ID, api.ExecSpec{Args: []string{"echo", "again"}, Generation: 2}); out != "again\n" {
					t.Errorf("afterwards: %q", out)
				}
				e.Delete(t.Context(), me, s.ID)
			}
		})
	}
}

// execSession is T24 and T25: one that hangs is running, has no exit code, and
// is in nobody's way.
func execSession(t *testing.T, e *Engine) {
	s := create(t, e, process)
	stuck := begin(t, e, s.ID, api.ExecSpec{Args: []string{"cat"}, Stdin: true})
	if got, err := e.Exec(t.Context(), me, s.ID, stuck.ID); err != nil || got.State != api.ExecRunning || got.ExitCode != nil || got.End != nil || got.Left != 1 || got.Pid == 0 {
		t.Errorf("while it runs: %+v, %v", got, err)
	}
	if out, _, _ := runs(t, e, s.ID, shell("echo ok")); out != "ok\n" {
		t.Errorf("beside it: %q", out)
	}
	if show, err := e.Sandbox(t.Context(), me, s.ID); err != nil || !slices.Contains(show.WhyAwake, "exec:"+stuck.ID) {
		t.Errorf("what keeps it awake: %q, %v", show.WhyAwake, err)
	}
	if err := e.SignalExec(t.Context(), me, s.ID, stuck.ID, "SIGTERM"); err != nil {
		t.Error(err)
	}
	if x := done(t, e, s.ID, stuck.ID); x.End.Reason != bailey.EndSignal || x.End.Signal != "SIGTERM" || *x.ExitCode != 143 {
		t.Errorf("its end: %+v", x.End)
	}
	if err := e.WriteStdin(t.Context(), me, s.ID, stuck.ID, []byte("x"), false); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("input after its end: %v", err)
	}
	if show, err := e.Sandbox(t.Context(), me, s.ID); err != nil || len(show.WhyAwake) != 0 {
		t.Errorf("what keeps it awake then: %q, %v", show.WhyAwake, err)
	}
	if out, _, _ := runs(t, e, s.ID, shell("echo ok")); out != "ok\n" {
		t.Errorf("after it: %q", out)
	}
}

func execInput(t *testing.T, e *Engine) {
	s := create(t, e, process)
	x := begin(t, e, s.ID, api.ExecSpec{Args: []string{"sha256sum"}, Stdin: true})
	sum := sha256.New()
	p := make([]byte, 300_000)
	for i := range 10 {
		for j := range p {
			p[j] = byte(i*j>>3 + j)
		}
		sum.Write(p)
		if err := e.WriteStdin(t.Context(), me, s.ID, x.ID, p, i == 9); err != nil {
			t.Fatal(err)
		}
	}
	if out, _, _ := printed(t, e, s.ID, x.ID); !strings.HasPrefix(out, fmt.Sprintf("%x ", sum.Sum(nil))) {
		t.Errorf("another input arrived: %q", out)
	}
	// One that does not read holds nobody for longer than that wants.
	x = begin(t, e, s.ID, api.ExecSpec{Args: []string{"sleep", "1000"}, Stdin: true})
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := e.WriteStdin(ctx, me, s.ID, x.ID, make([]byte, 1<<20), false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody reads: %v", err)
	}
	if err := e.SignalExec(t.Context(), me, s.ID, x.ID, "9"); err != nil {
		t.Error(err)
	}
	done(t, e, s.ID, x.ID)
	x = begin(t, e, s.ID, shell("sleep 0.2"))
	if err := e.WriteStdin(t.Context(), me, s.ID, x.ID, []byte("x"), false); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("one without an input: %v", err)
	}
	// An input that is a file.
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "input")
	defer f.Close()
	f.WriteString("from a file")
	f.Seek(0, 0)
	y, err := e.startExecFrom(t.Context(), me, s.ID, api.ExecSpec{Args: []string{"cat"}}, f)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, _ := printed(t, e, s.ID, y.ID); out != "from a file" {
		t.Errorf("%q", out)
	}
}

func execTerminal(t *testing.T, e *Engine) {
	s := create(t, e, process)
	x := begin(t, e, s.ID, api.ExecSpec{Args: []string{`stty size; read x; stty size; echo "$x $TERM"; tty >/dev/null && echo yes; read y; echo "end $y"`}, Shell: true, Pty: &api.Window{Rows: 20, Cols: 70}})
	var seen strings.Builder
	at := func(want string) {
		t.Helper()
		eventually(t, 10*time.Second, want, func() bool {
			seen.Reset()
			if err := e.Output(t.Context(), me, s.ID, x.ID, nil, false, func(ev api.OutputEvent) error { seen.Write(ev.Data); return nil }); err != nil {
				t.Fatal(err)
			}
			return strings.Contains(seen.String(), want)
		})
	}
	at("20 70")
	if err := e.ResizeExec(t.Context(), me, s.ID, x.ID, api.Window{Rows: 33, Cols: 99}); err != nil {
		t.Fatal(err)
	}
	if err := e.ResizeExec(t.Context(), me, s.ID, x.ID, api.Window{}); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("no size: %v", err)
	}
	if err := e.WriteStdin(t.Context(), me, s.ID, x.ID, []byte("hello\n"), false); err != nil {
		t.Fatal(err)
	}
	at("33 99")
	at("hello xterm-256color\r\nyes\r\n")
	if err := e.WriteStdin(t.Context(), me, s.ID, x.ID, nil, true); err != nil {
		t.Fatal(err)
	}
	out, errs, x := printed(t, e, s.ID, x.ID)
	if !strings.HasSuffix(out, "end \r\n") || errs != "" || *x.ExitCode != 0 || !x.Pty {
		t.Errorf("%q, %q, %+v", out, errs, x)
	}
}

// TestExecKept: what has ended is forgotten after 48 hours, its output with it;
// output beyond what is kept of a sandbox is dropped before, the oldest first.
func TestExecKept(t *testing.T) {
	clock := newFakeClock()
	e := openEngine(t, func(o *Options) { o.Clock = clock })
	s := create(t, e, api.SandboxSpec{Isolation: bailey.IsolationProcess, Timeout: api.Lifetime{Never: true}})
	_, _, x := runs(t, e, s.ID, shell("echo kept"))
	b, err := e.find(t.Context(), me, s.ID)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(b.execDir(), hashOfExec(x.ID))
	eventually(t, 5*time.Second, "all to be let go", func() bool { return e.openExec(s.ID, x.ID) == nil })
	clock.advance(25*time.Hour, nil)
	if got, err := e.Exec(t.Context(), me, s.ID, x.ID); err != nil || *got.ExitCode != 0 {
		t.Errorf("after a day: %+v, %v", got, err)
	}
	if out, _, _ := printed(t, e, s.ID, x.ID); out != "kept\n" {
		t.Errorf("after a day: %q", out)
	}
	clock.advance(25*time.Hour, nil)
	eventually(t, 5*time.Second, "it to be forgotten", func() bool {
		_, err := e.Exec(t.Context(), me, s.ID, x.ID)
		_, serr := os.Stat(dir)
		return bailey.CodeOf(err) == bailey.CodeNotFound && os.IsNotExist(serr)
	})
	// The same id is another command then, here and inside.
	spec := shell("echo anew")
	spec.ID = x.ID
	if out, _, _ := runs(t, e, s.ID, spec); out != "anew\n" {
		t.Errorf("%q", out)
	}
	eventually(t, 5*time.Second, "all to be let go", func() bool { return e.openExec(s.ID, x.ID) == nil })
	e.execs.mu.Lock()
	e.execs.kept[s.ID] = maxKeptOutput
	e.execs.mu.Unlock()
	clock.advance(time.Second, nil) // so that one of the two is older
	_, _, y := runs(t, e, s.ID, shell("echo more"))
	eventually(t, 5*time.Second, "the oldest output to be dropped", func() bool {
		got, err := e.Exec(t.Context(), me, s.ID, x.ID)
		return err == nil && got.Stdout.From == 5 && got.Stdout.To == 5 && *got.ExitCode == 0
	})
	if out, _, _ := printed(t, e, s.ID, y.ID); out != "more\n" {
		t.Errorf("the newest: %q", out)
	}
}
