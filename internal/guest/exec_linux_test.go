//go:build linux && (amd64 || arm64)

package guest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bailey "github.com/bailey-sandbox/bailey"
	"golang.org/x/sys/unix"
)

func TestOutputAndStatus(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		r := run(t, c, "one", "echo out; echo err >&2; exit 3")
		if string(r.Stdout) != "out\n" || string(r.Stderr) != "err\n" || r.End.ExitCode != 3 {
			t.Fatalf("%q %q %+v", r.Stdout, r.Stderr, r.End)
		}
		r = run(t, c, "killed", "kill -TERM $$")
		if e := r.End.End(); e.Reason != bailey.EndSignal || e.Signal != "SIGTERM" || e.ExitCode != 143 {
			t.Fatalf("%+v", e)
		}
		if r.End.Usage.MaxRSS < 64<<10 {
			t.Errorf("the largest size is %d bytes", r.End.Usage.MaxRSS)
		}
	})
}

func TestNotStarted(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		dir := t.TempDir()
		os.Chmod(dir, 0o755)
		plain, garbage := filepath.Join(dir, "plain"), filepath.Join(dir, "garbage")
		os.WriteFile(plain, []byte("x"), 0o644)
		os.WriteFile(garbage, []byte("x"), 0o755)
		for _, tc := range []struct {
			name  string
			spec  ExecSpec
			code  bailey.Code
			step  string
			errno syscall.Errno
		}{
			{"absent", ExecSpec{Argv: []string{"/no/such"}}, bailey.CodeCommandNotFound, "execve", syscall.ENOENT},
			{"not in PATH", ExecSpec{Argv: []string{"no-such-program"}}, bailey.CodeCommandNotFound, "execve", syscall.ENOENT},
			{"not executable", ExecSpec{Argv: []string{plain}}, bailey.CodeCommandNotExecutable, "execve", syscall.EACCES},
			{"no program", ExecSpec{Argv: []string{garbage}}, bailey.CodeCommandNotExecutable, "execve", syscall.ENOEXEC},
			{"no folder", ExecSpec{Argv: []string{"true"}, Dir: "/no/such"}, bailey.CodeSetupFailed, "chdir", syscall.ENOENT},
			{"a folder that is a descriptor", ExecSpec{Argv: []string{"true"}, Dir: "/proc/self/fd/3"}, bailey.CodeSetupFailed, "chdir", syscall.ENOENT},
			{"a limit above its hard one", ExecSpec{Argv: []string{"true"}, Rlimits: []Rlimit{{unix.RLIMIT_NOFILE, 9, 3}}}, bailey.CodeSetupFailed, "setrlimit", syscall.EINVAL},
		} {
			tc.spec.ID = tc.name
			_, err := c.Exec(testContext(t), tc.spec)
			var ns *NotStarted
			if bailey.CodeOf(err) != tc.code || !errors.As(err, &ns) || ns.Errno != tc.errno || ns.Step != tc.step {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
		if list, err := c.Execs(testContext(t)); err != nil || len(list) != 0 {
			t.Errorf("executions that never were: %v %v", list, err)
		}
	})
}

func TestWhatACommandSees(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		mask := uint32(0o027)
		spec := sh("env", `echo $A:$GOGC:$(pwd):$(umask):$(id -u):$(id -g):$(id -G):$(ulimit -n):$(ulimit -Hn); ls /proc/self/fd | tr '\n' ' '; cut -d' ' -f5,6 /proc/$$/stat; echo $$; grep -E 'Sig(Blk|Ign)' /proc/self/status | cut -f2`)
		spec.Env = append(spec.Env, "A=b c")
		spec.Dir, spec.Umask = "/usr/bin", &mask
		spec.User = &User{UID: 65534, GID: 65533, Groups: []uint32{7, 8}}
		spec.Rlimits = []Rlimit{{unix.RLIMIT_NOFILE, 77, 99}}
		r, err := c.Run(testContext(t), spec, nil, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(r.Stdout), "\n")
		if lines[0] != "b c::/usr/bin:0027:65534:65533:65533 7 8:77:99" {
			t.Errorf("%q (%s)", lines[0], r.Stderr)
		}
		if !strings.HasPrefix(lines[1], "0 1 2 3 ") || strings.Contains(lines[1], " 4 ") { // 3 is what ls reads
			t.Errorf("descriptors: %q", lines[1])
		}
		pid := lines[2]
		if f := strings.TrimPrefix(lines[1], "0 1 2 3 "); f != pid+" "+pid {
			t.Errorf("group and session are %q, the pid is %q", f, pid)
		}
		if lines[3] != "0000000000000000" || lines[4] != "0000000000000000" {
			t.Errorf("blocked or ignored signals: %q", lines[3:])
		}
	})
}

// The same id is the same execution, never a second process.
func TestSameID(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		file := filepath.Join(t.TempDir(), "ran")
		ctx := testContext(t)
		spec := sh("once", "echo ran >>"+file+"; read x; exit 5")
		spec.Stdin = true
		p, err := c.Exec(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		again, err := c.Exec(ctx, spec)
		if err != nil || !again.Existing() || again.Pid() != p.Pid() {
			t.Fatalf("%v %+v", err, again)
		}
		p.Stdin().Close()
		if end, err := again.Wait(ctx); err != nil || end.ExitCode != 5 {
			t.Fatal(end, err)
		}
		p.Close()
		// After its end too, and from another caller.
		third, err := c.Exec(ctx, spec)
		if err != nil || !third.Existing() {
			t.Fatal(err)
		}
		if end, err := third.Wait(ctx); err != nil || end.ExitCode != 5 {
			t.Fatal(end, err)
		}
		if b, _ := os.ReadFile(file); string(b) != "ran\n" {
			t.Fatalf("it ran as %q", b)
		}
		if err := c.Forget(ctx, "once"); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Status(ctx, "once"); bailey.CodeOf(err) != bailey.CodeNotFound {
			t.Fatal(err)
		}
	})
}

// waitLeft waits until an execution has this many processes left.
func waitLeft(t *testing.T, c *Client, id string, want int) {
	t.Helper()
	ctx := testContext(t)
	for {
		st, err := c.Status(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if st.Left == want {
			return
		}
	}
}

func TestT19TimeoutEndsEverything(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		for i, script := range []string{
			"sleep 300",
			"sleep 300 & sleep 300 & wait",
			"(setsid sh -c 'sleep 300 & setsid sleep 300 & wait' &) ; (sleep 300 &); trap '' TERM; while :; do sleep 300; done",
		} {
			spec := sh(fmt.Sprint("t", i), script)
			spec.Timeout = time.Second
			start := time.Now()
			p, err := c.Exec(testContext(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			end, err := p.Wait(testContext(t))
			if err != nil || !end.TimedOut || end.End().Reason != bailey.EndTimeout {
				t.Fatalf("%+v %v", end, err)
			}
			if d := time.Since(start); d < time.Second {
				t.Errorf("it ended after %s", d)
			}
			list, err := c.Processes(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				if p.Pid != 1 && p.State != 'Z' {
					t.Errorf("%q left %+v", script, p)
				}
			}
		}
	})
}

func TestTimeoutGrace(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		spec := sh("grace", "trap 'echo bye; exit 7' TERM; sleep 300 & wait")
		spec.Timeout, spec.Grace = 300*time.Millisecond, 30*time.Second
		r, err := c.Run(testContext(t), spec, nil, 1<<10)
		if err != nil || !r.End.TimedOut || r.End.ExitCode != 7 || string(r.Stdout) != "bye\n" {
			t.Fatalf("%+v %v", r, err)
		}
	})
}

func TestT20BackgroundChildDoesNotHold(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		ctx := testContext(t)
		gate := filepath.Join(t.TempDir(), "gate")
		if err := unix.Mkfifo(gate, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := c.Exec(ctx, sh("bg", "echo before; (read x <"+gate+"; echo later) & exit 4"))
		if err != nil {
			t.Fatal(err)
		}
		end, err := p.Wait(ctx) // would not return if the child held it: nothing has opened the gate
		if err != nil || end.ExitCode != 4 {
			t.Fatal(end, err)
		}
		if end.Output[0] != 7 {
			t.Errorf("the command's own output ends at %d", end.Output[0])
		}
		st, err := c.Status(ctx, "bg")
		if err != nil || st.Left != 1 || st.State != StateEnded || *st.ExitCode != 4 {
			t.Fatalf("%+v %v", st, err)
		}
		g, err := os.OpenFile(gate, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		g.WriteString("x\n")
		g.Close()
		all, err := io.ReadAll(p.Stdout())
		if err != nil || string(all) != "before\nlater\n" || p.Stdout().Offset() != 13 {
			t.Fatalf("%q %v", all, err)
		}
		waitLeft(t, c, "bg", 0)
		// Run, which collects, does not wait for it either.
		r := run(t, c, "run", "echo mine; sleep 300 &")
		if string(r.Stdout) != "mine\n" {
			t.Fatalf("%q", r.Stdout)
		}
		if err := c.Signal(ctx, "run", syscall.SIGKILL, ScopeAll); err != nil {
			t.Fatal(err)
		}
		waitLeft(t, c, "run", 0)
	})
}

func TestT24StatusWhileRunning(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		ctx := testContext(t)
		spec := sh("s", "read x; exit 0")
		spec.Stdin = true
		p, err := c.Exec(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		st, err := c.Status(ctx, "s")
		if err != nil || st.State != StateRunning || st.State.String() != "running" || st.ExitCode != nil || st.End != nil || st.Pid != p.Pid() {
			t.Fatalf("%+v %v", st, err)
		}
		p.Stdin().Close()
		if _, err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		st, err = c.Status(ctx, "s")
		if err != nil || st.State != StateEnded || st.ExitCode == nil || *st.ExitCode != 0 {
			t.Fatalf("%+v %v", st, err)
		}
	})
}

func TestT25StuckCommandHoldsNothing(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		ctx := testContext(t)
		if r := run(t, c, "cat", "cat"); r.End.ExitCode != 0 || len(r.Stdout) != 0 {
			t.Fatalf("%+v", r)
		}
		spec := sh("stuck", "exec cat")
		spec.Stdin = true // and never fed
		p, err := c.Exec(ctx, spec)
		if err != nil {
			t.Fatal(err)
		}
		if r := run(t, c, "second", "echo ok"); string(r.Stdout) != "ok\n" {
			t.Fatalf("%q", r.Stdout)
		}
		if err := p.Signal(ctx, syscall.SIGKILL, ScopeGroup); err != nil {
			t.Fatal(err)
		}
		if end, err := p.Wait(ctx); err != nil || end.Signal != syscall.SIGKILL {
			t.Fatal(end, err)
		}
		if r := run(t, c, "third", "echo ok"); string(r.Stdout) != "ok\n" {
			t.Fatalf("%q", r.Stdout)
		}
	})
}

func TestT27ReadingWithoutInputEndsAtOnce(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		if r := run(t, c, "read", "read x"); r.End.ExitCode == 0 {
			t.Fatal("read found input")
		}
		if _, err := os.Stat("/usr/bin/python3"); err != nil {
			t.Skip("needs tool python3")
		}
		r, err := c.Run(testContext(t), ExecSpec{ID: "py", Argv: []string{"python3", "-c", "input()"}}, nil, 1<<16)
		if err != nil || r.End.ExitCode == 0 || !bytes.Contains(r.Stderr, []byte("EOFError")) {
			t.Fatalf("%v %+v %s", err, r.End, r.Stderr)
		}
	})
}

func TestT28BytesAreIntact(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		if r := run(t, c, "nul", `printf 'a\0b\n'`); string(r.Stdout) != "a\x00b\n" {
			t.Fatalf("%q", r.Stdout)
		}
		if r := run(t, c, "z", `cd /etc && grep -lZ root passwd group`); string(r.Stdout) != "passwd\x00group\x00" {
			t.Fatalf("%q", r.Stdout)
		}
		// Every byte, and what the protocol itself uses as marks, both ways.
		var in []byte
		for i := range 256 {
			in = append(in, byte(i))
		}
		in = append(in, mark[:]...)
		in = append(in, mark[:]...)
		in = append(append(in, markReset), mark[:5]...)
		r, err := c.Run(testContext(t), sh("cat", "cat; cat /dev/null"), bytes.NewReader(in), 1<<20)
		if err != nil || !bytes.Equal(r.Stdout, in) {
			t.Fatalf("%v %q", err, r.Stdout)
		}
	})
}

func TestTenMegabytes(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		var in bytes.Buffer
		for i := 0; in.Len() < 10<<20; i++ {
			fmt.Fprintf(&in, "%d %x\n", i, i*i)
		}
		want := sha256.Sum256(in.Bytes())
		r, err := c.Run(testContext(t), sh("cat", "cat | tee /dev/stderr"), bytes.NewReader(in.Bytes()), 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256(r.Stdout) != want || sha256.Sum256(r.Stderr) != want {
			t.Fatalf("of %d bytes %d and %d came back", in.Len(), len(r.Stdout), len(r.Stderr))
		}
	})
}

// Output that nobody reads stops its command and nothing else.
func TestStalledOutputBlocksNothingElse(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		ctx := testContext(t)
		p, err := c.Exec(ctx, sh("flood", "exec cat /dev/zero"))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			if r := run(t, c, fmt.Sprint("ok", i), "echo ok"); string(r.Stdout) != "ok\n" {
				t.Fatalf("%q", r.Stdout)
			}
		}
		if err := p.Signal(ctx, syscall.SIGKILL, ScopeAll); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(ctx); err != nil {
			t.Fatal(err)
		}
		// What the sandbox keeps is bounded; a pipe holds at most 1 MiB itself.
		n, err := io.Copy(io.Discard, p.Stdout())
		if err != nil || n == 0 || n > MaxUnacked+1<<20 {
			t.Fatalf("%d bytes: %v", n, err)
		}
	})
}

func TestT29ManyCommandsLeakNothing(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		goroutines := func() int { return runtime.NumGoroutine() }
		countFDs := func() int {
			d, err := os.ReadDir("/proc/self/fd")
			if err != nil {
				t.Fatal(err)
			}
			return len(d)
		}
		inside := func(id string) (n int) {
			r := run(t, c, id, "ls /proc/1/fd | wc -l")
			if _, err := fmt.Sscan(string(r.Stdout), &n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		run(t, c, "warm", "true")
		in0, fd0, g0 := inside("before"), countFDs(), goroutines()
		var wg sync.WaitGroup
		for w := range 50 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for i := range 20 {
					id := fmt.Sprintf("%d-%d", w, i)
					r, err := c.Run(testContext(t), ExecSpec{ID: id, Argv: []string{"/bin/echo", id}}, nil, 100)
					if err != nil || string(r.Stdout) != id+"\n" || r.End.ExitCode != 0 {
						t.Errorf("%s: %v %+v", id, err, r)
						return
					}
				}
			}()
		}
		wg.Wait()
		list, err := c.Execs(testContext(t))
		if err != nil || len(list) < 1000 {
			t.Fatalf("%d executions, %v", len(list), err)
		}
		for _, e := range list {
			if err := c.Forget(testContext(t), e.ID); err != nil {
				t.Fatal(err)
			}
		}
		deadline := time.Now().Add(20 * time.Second)
		for countFDs() > fd0 || goroutines() > g0 {
			if time.Now().After(deadline) {
				t.Fatalf("descriptors %d then %d, goroutines %d then %d", fd0, countFDs(), g0, goroutines())
			}
			runtime.Gosched()
		}
		// The count may see the descriptors of the command that counts, which
		// bailey-init closes while it runs: a leak is what stays.
		in1 := in0 + 1
		for i := 0; i < 20 && in1 > in0; i++ {
			in1 = inside(fmt.Sprint("after", i))
			c.Forget(testContext(t), fmt.Sprint("after", i))
		}
		if in1 > in0 {
			t.Errorf("inside: %d descriptors before, %d after", in0, in1)
		}
	})
}

func TestSignalsAndJobControlEvents(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		ctx := testContext(t)
		p, err := c.Exec(ctx, sh("j", "exec sleep 300"))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Signal(ctx, syscall.SIGSTOP, ScopeProcess); err != nil {
			t.Fatal(err)
		}
		if e := <-p.Events(); e.Kind != EventStopped || e.Signal != syscall.SIGSTOP {
			t.Fatalf("%+v", e)
		}
		if st, err := c.Status(ctx, "j"); err != nil || st.State != StateStopped || st.ExitCode != nil {
			t.Fatalf("%+v %v", st, err)
		}
		p.Signal(ctx, syscall.SIGCONT, ScopeGroup)
		if e := <-p.Events(); e.Kind != EventContinued {
			t.Fatalf("%+v", e)
		}
		p.Signal(ctx, syscall.SIGINT, ScopeGroup)
		if e := <-p.Events(); e.Kind != EventEnded {
			t.Fatalf("%+v", e)
		}
		if end, err := p.Wait(ctx); err != nil || end.Signal != syscall.SIGINT {
			t.Fatal(end, err)
		}
		if err := p.Signal(ctx, syscall.SIGTERM, ScopeGroup); bailey.CodeOf(err) != bailey.CodeNotFound {
			t.Fatalf("signal after the end: %v", err)
		}
	})
}

func TestCancelledContext(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		ctx, cancel := context.WithCancel(testContext(t))
		p, err := c.Exec(ctx, sh("x", "exec sleep 300"))
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if _, err := c.Exec(ctx, sh("y", "true")); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		run(t, c, "z", "true")
	})
}
