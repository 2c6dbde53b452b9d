//go:build linux && (amd64 || arm64)

package guest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	bailey "github.com/bailey-sandbox/bailey"
)

// readUntil reads a terminal until want has come, and gives all that came.
func readUntil(t *testing.T, o *Output, want string) string {
	t.Helper()
	var got strings.Builder
	buf := make([]byte, 4096)
	for !strings.Contains(got.String(), want) {
		n, err := o.Read(buf)
		got.Write(buf[:n])
		if err != nil {
			t.Fatalf("%v after %q, waiting for %q", err, got.String(), want)
		}
	}
	return got.String()
}

func TestTerminal(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		ctx := testContext(t)
		p, err := c.Exec(ctx, ExecSpec{ID: "tty", Argv: []string{"bash", "--norc", "--noprofile", "-i"}, Env: []string{"PS1=READY ", "PATH=/usr/bin:/bin", "TERM=dumb"},
			Terminal: &Window{Rows: 33, Cols: 77}})
		if err != nil {
			t.Fatal(err)
		}
		if p.Stderr() != nil || p.Stdin() == nil {
			t.Fatal("a terminal has one stream each way")
		}
		typed := func(s, want string) string {
			t.Helper()
			if _, err := io.WriteString(p.Stdin(), s); err != nil {
				t.Fatal(err)
			}
			return readUntil(t, p.Stdout(), want)
		}
		readUntil(t, p.Stdout(), "READY ")
		// Each step waits for the prompt: what is typed before it is read by the
		// terminal in another mode.
		if out := typed("stty size; tty\n", "READY "); !strings.Contains(out, "33 77\r\n") || !strings.Contains(out, "/dev/pts/0\r\n") {
			t.Errorf("%q", out)
		}
		if err := p.Resize(ctx, Window{Rows: 44, Cols: 88}); err != nil {
			t.Fatal(err)
		}
		typed("x=\"`stty size`\"; echo [$x]\n", "[44 88]\r\nREADY ")
		// Job control: stop the foreground job, bring it back, interrupt it. It is
		// in the foreground once it has answered.
		typed("sed -u s/h/J/\nhello\n", "Jello\r\n")
		typed("\x1a", "READY ")
		typed("jobs\n", "READY ")
		typed("fg\nhi\n", "Ji\r\n")
		typed("\x03", "READY ")
		typed("echo code=$?\n", "code=130\r\nREADY ")
		if err := p.Stdin().Close(); err != nil { // the end of input
			t.Fatal(err)
		}
		if end, err := p.Wait(ctx); err != nil || end.ExitCode != 0 {
			t.Fatal(end, err)
		}
		if _, err := io.ReadAll(p.Stdout()); err != nil {
			t.Fatal(err)
		}
	})
}

// A caller's own descriptors reach the command itself.
func TestPassedFiles(t *testing.T) {
	s := startSandbox(t, "--lease")
	c := s.client(false)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec := sh("f", "echo out; readlink /proc/self/fd/0; echo err >&2")
	spec.Files = &[3]*os.File{nil, w, w}
	p, err := c.Exec(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	all, err := io.ReadAll(r)
	if err != nil || string(all) != "out\n/dev/null\nerr\n" {
		t.Fatalf("%q %v", all, err)
	}
	if p.Stdout() != nil && p.Stdout().File() != nil {
		t.Error("the caller's file became a stream")
	}
	if end, err := p.Wait(testContext(t)); err != nil || end.Output != [2]int64{-1, -1} {
		t.Fatal(end, err)
	}
	framed := startSandbox(t, "--lease").client(true)
	if _, err := framed.Exec(testContext(t), spec); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Fatal(err)
	}
}

func TestLeaseEndKillsEverything(t *testing.T) {
	s := startSandbox(t, "--lease")
	c := s.client(false)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec := sh("s", "trap '' TERM HUP INT; (setsid sleep 300 &) ; while :; do sleep 300; done")
	spec.Files = &[3]*os.File{nil, w, w}
	if _, err := c.Exec(testContext(t), spec); err != nil {
		t.Fatal(err)
	}
	w.Close()
	c.Close() // closes the owner's end
	<-s.done
	// Every process that held the pipe is gone.
	if _, err := io.ReadAll(r); err != nil {
		t.Fatal(err)
	}
}

func TestWithoutLeaseItStays(t *testing.T) {
	s := startSandbox(t)
	c := s.client(false)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, inw, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	spec := sh("s", "read x; echo still here")
	spec.Files = &[3]*os.File{in, w, w}
	if _, err := c.Exec(testContext(t), spec); err != nil {
		t.Fatal(err)
	}
	w.Close()
	c.Close()
	inw.WriteString("go\n")
	inw.Close()
	all, err := io.ReadAll(r)
	if err != nil || string(all) != "still here\n" {
		t.Fatalf("%q %v", all, err)
	}
	select {
	case <-s.done:
		t.Fatal("bailey-init has gone")
	default:
	}
}

func TestShutdown(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		ctx := testContext(t)
		p, err := c.Exec(ctx, sh("kind", "trap 'echo bye; exit 0' TERM; echo up; sleep 300 & wait"))
		if err != nil {
			t.Fatal(err)
		}
		stubborn, err := c.Exec(ctx, sh("stubborn", "trap '' TERM; echo up; while :; do sleep 1; done"))
		if err != nil {
			t.Fatal(err)
		}
		line := bufio.NewReader(p.Stdout())
		line.ReadString('\n')
		bufio.NewReader(stubborn.Stdout()).ReadString('\n')
		if err := c.Shutdown(ctx, 300*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if end, err := p.Wait(ctx); err != nil || end.ExitCode != 0 || end.Signal != 0 {
			t.Fatal(end, err)
		}
		if end, err := stubborn.Wait(ctx); err != nil || end.Signal != syscall.SIGKILL {
			t.Fatal(end, err)
		}
		<-c.Done()
		if _, err := c.Exec(ctx, sh("late", "true")); bailey.CodeOf(err) != bailey.CodeSandboxLost {
			t.Fatal(err)
		}
	})
}

// Nothing that a process inside can do as root of the sandbox ends or opens
// the first process.
func TestFirstProcessStands(t *testing.T) {
	s := startSandbox(t, "--lease")
	c := s.client(false)
	r := run(t, c, "signals", `i=1; while [ $i -le 64 ]; do kill -$i 1 2>/dev/null; i=$((i+1)); done; echo sent`)
	if string(r.Stdout) != "sent\n" {
		t.Fatalf("%+v", r)
	}
	r = run(t, c, "again", "echo alive; kill -CONT 1")
	if string(r.Stdout) != "alive\n" {
		t.Fatalf("%+v", r)
	}
	// As another user, whom only the process's own closure keeps out of it.
	spec := sh("peek", "cat /proc/1/environ; ls /proc/1/fd; readlink /proc/1/exe; head -c1 /proc/1/mem")
	spec.User = &User{UID: 65534, GID: 65534}
	res, err := c.Run(testContext(t), spec, nil, 1<<16)
	if err != nil || len(res.Stdout) != 0 {
		t.Fatalf("%v %q", err, res.Stdout)
	}
	// A zombie that came to the first process is reaped.
	r = run(t, c, "orphan", `(sh -c 'sh -c "exit 0" & exec sleep 0.01' &); while ps -eo stat 2>/dev/null | grep -q ^Z; do :; done; echo none`)
	if !strings.Contains(string(r.Stdout), "none") {
		t.Fatalf("%+v", r)
	}
}

func TestClockAndEntropy(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		// Root of these namespaces is root of the machine, so a command drops the
		// right; the request itself is only checked where it must fail: before it
		// would change the machine's clock.
		if err := c.AddEntropy(testContext(t), nil); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Fatal(err)
		}
		err := c.AddEntropy(testContext(t), []byte("some bytes that nobody knows"))
		if err != nil && bailey.CodeOf(err) != bailey.CodeNotAvailable {
			t.Fatal(err)
		}
		// 1970 lies before the machine's boot, which the kernel refuses.
		err = c.SetClock(testContext(t), time.Unix(0, -1))
		if err == nil || !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EPERM) {
			t.Fatal(err)
		}
	})
}

func TestPing(t *testing.T) {
	both(t, func(t *testing.T, c *Client) {
		for i := range 100 {
			if err := c.Ping(testContext(t)); err != nil {
				t.Fatal(fmt.Errorf("%d: %w", i, err))
			}
		}
		if v, f := c.PeerVersion(); v != Version || f&FeatureUsers == 0 {
			t.Errorf("version %d, features %b", v, f)
		}
	})
}
