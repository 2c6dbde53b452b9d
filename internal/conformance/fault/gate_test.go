//go:build linux

package fault

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/embedded"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// outside is a server on this host that a sandbox reaches through its gate.
type outside struct {
	net.Listener
	conns chan net.Conn
}

func listen(t *testing.T) *outside {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := &outside{l, make(chan net.Conn, 16)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			o.conns <- c
		}
	}()
	t.Cleanup(func() { l.Close() })
	return o
}

// allow is the flag that lets a sandbox reach the server.
func (o *outside) allow() string { return "--allow=tcp://" + o.Addr().String() }

// accept waits for a connection of the sandbox.
func (o *outside) accept(t *testing.T) net.Conn {
	t.Helper()
	select {
	case c := <-o.conns:
		t.Cleanup(func() { c.Close() })
		return c
	case <-time.After(rig.Patience):
		t.Fatal("nobody came through the gate")
		return nil
	}
}

// client is a bash script that opens a connection through the gate's proxy,
// says so, waits until it ends, tries again, and ends with 7.
func (o *outside) client() string {
	const open = `exec 3<>/dev/tcp/198.18.0.1/3128 && printf 'CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\n\r\n' >&3 && read -r line <&3 && [[ $line == *' 200 '* ]]`
	return fmt.Sprintf(`
		`+open+` || { echo "cannot connect: $line"; exit 9; }
		while read -r line <&3 && [[ $line != $'\r' ]]; do :; done
		echo ready >&3
		cat <&3 >/dev/null; echo cut
		exec 3>&-
		if (`+open+`) 2>/dev/null; then echo again; else echo "no way"; fi
		exit 7`, o.Addr())
}

// ready waits until the sandbox's end of the connection has spoken.
func ready(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetDeadline(time.Now().Add(rig.Patience))
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// gatePid finds the gate among the processes that this one has started.
func gatePid(t *testing.T) int { return child(t, "gate") }

func kill(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// spoken is what a program has said so far.
type spoken struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *spoken) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *spoken) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// background starts a bailey whose output is gathered.
func background(t *testing.T, y *rig.Yard, args ...string) (cmd *exec.Cmd, out, errs *spoken) {
	t.Helper()
	cmd = y.Bailey(args...)
	out, errs = new(spoken), new(spoken)
	cmd.Stdout, cmd.Stderr = out, errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, out, errs
}

// TestGateKilled kills the gate under an open connection: the connection dies,
// no other comes about, the person is told, and the command goes on to its own
// end.
func TestGateKilled(t *testing.T) {
	for _, who := range rig.People() {
		for _, level := range []string{"process", "container"} {
			t.Run(who.Name+"/"+level, func(t *testing.T) {
				o := listen(t)
				y := rig.New(t, who)
				cmd, out, errs := background(t, y, "run", "--discard", "--isolation="+level, o.allow(), "--", "bash", "-c", o.client())
				c := o.accept(t)
				ready(t, c)
				kill(t, gatePid(t), syscall.SIGKILL)
				if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
					t.Errorf("the connection did not end: %v", err)
				}
				cmd.Wait() // its code is looked at
				if code := cmd.ProcessState.ExitCode(); code != 7 || out.String() != "cut\nno way\n" || !strings.Contains(errs.String(), "the gate has ended") {
					t.Errorf("exit code %d, %q, %q", code, out, errs)
				}
				select {
				case <-o.conns:
					t.Error("there was a second connection")
				default:
				}
			})
		}
	}
}

// TestBaileyKilledUnderGate kills bailey: its gate ends at once, and with it all
// connections.
func TestBaileyKilledUnderGate(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			o := listen(t)
			y := rig.New(t, who)
			cmd, _, _ := background(t, y, "run", o.allow(), "--", "bash", "-c", o.client())
			c := o.accept(t)
			ready(t, c)
			gate := gatePid(t)
			kill(t, cmd.Process.Pid, syscall.SIGKILL)
			cmd.Wait() // it was killed
			if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Errorf("the connection did not end: %v", err)
			}
			begin := time.Now()
			rig.Await(gate)
			if took := time.Since(begin); took > rig.Patience/2 {
				t.Errorf("the gate lived on for %v", took)
			}
		})
	}
}

// TestGateThatHangs stops the gate: nothing gets through, and the run ends all
// the same, with the gate.
func TestGateThatHangs(t *testing.T) {
	o := listen(t)
	y := rig.New(t, rig.Self())
	cmd, _, errs := background(t, y, "run", "--discard", o.allow(), "--", "bash", "-c", o.client())
	c := o.accept(t)
	ready(t, c)
	kill(t, gatePid(t), syscall.SIGSTOP)
	for _, pid := range rig.Descendants() { // the client, which waits for the server
		if line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); bytes.HasPrefix(line, []byte("bash\x00")) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	cmd.Wait() // its code is looked at
	if code := cmd.ProcessState.ExitCode(); code != 137 || !strings.Contains(errs.String(), "the gate did not last") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

// TestGateThatCannotStart takes away what a gate needs. The command does not
// run, the error says why and what to do, and nothing is left.
func TestGateThatCannotStart(t *testing.T) {
	alone := filepath.Join(t.TempDir(), "bailey")
	for _, who := range rig.People() {
		for _, c := range []struct {
			name    string
			prepare func(t *testing.T, y *rig.Yard)
			args    []string
			code    bailey.Code
		}{
			{name: "no log", code: bailey.CodeAudit, args: []string{"--allow=ok.test"}, prepare: func(t *testing.T, y *rig.Yard) {
				y.Write(filepath.Join(y.Data, "audit"), "in the way", 0o600)
			}},
			{name: "no secret", code: bailey.CodeNotFound, args: []string{"--secret=TOKEN@ok.test"}},
			{name: "no policy", code: bailey.CodeNotFound, args: []string{"--policy=absent.yaml"}},
			{name: "a bad policy", code: bailey.CodePolicyInvalid, args: []string{"--policy=bad.yaml"}, prepare: func(t *testing.T, y *rig.Yard) {
				y.Write("bad.yaml", "version: 1\nallows: all\n", 0o644)
			}},
			{name: "a bad flag", code: bailey.CodePolicyInvalid, args: []string{"--allow=*"}},
		} {
			t.Run(who.Name+"/"+c.name, func(t *testing.T) {
				y := rig.New(t, who)
				if c.prepare != nil {
					c.prepare(t, y)
				}
				withoutGate(t, y, y.Bailey(append(append([]string{"run", "--json"}, c.args...), "--", "sh", "-c", "echo ran > ran")...), c.code)
			})
		}
	}
	t.Run("no baileyd", func(t *testing.T) {
		y := rig.New(t, rig.Self())
		text, err := os.ReadFile(filepath.Join(rig.Programs(t), "bailey"))
		if err == nil {
			err = os.WriteFile(alone, text, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		withoutGate(t, y, y.Native(alone, "run", "--json", "--allow=ok.test", "--", "sh", "-c", "echo ran > ran"), bailey.CodeNotAvailable)
	})
	t.Run("killed before it answers", func(t *testing.T) {
		y := rig.New(t, rig.Self())
		y.Set("BAILEY_FAULT", "gate")
		cmd, out, _ := background(t, y, "run", "--json", "--allow=ok.test", "--", "true")
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &ws, syscall.WUNTRACED, nil); err != nil || !ws.Stopped() {
			t.Fatalf("%v, %v", ws, err)
		}
		kill(t, gatePid(t), syscall.SIGKILL)
		kill(t, cmd.Process.Pid, syscall.SIGCONT)
		cmd.Wait() // its code is looked at
		if code := cmd.ProcessState.ExitCode(); code != bailey.ExitBailey && code != 0 || code == 0 && !strings.Contains(out.String(), "gate_lost") {
			t.Errorf("exit code %d, %s", code, out)
		}
	})
}

// withoutGate expects that a command line fails with a code and a fix, that the
// command did not run, and that there is no run.
func withoutGate(t *testing.T, y *rig.Yard, cmd *exec.Cmd, code bailey.Code) {
	t.Helper()
	r := y.Finish(cmd)
	if r.Code != bailey.ExitBailey || !strings.Contains(r.Stdout, `"code":"`+string(code)+`"`) || !strings.Contains(r.Stdout, `"fix":"`) {
		t.Errorf("want %s with a fix: %v", code, r)
	}
	if runs := y.Runs(); len(runs) > 0 {
		t.Errorf("runs are left: %q", runs)
	}
	if _, err := os.Stat(filepath.Join(y.Work, "ran")); err == nil {
		t.Error("the command ran")
	}
}

// TestEmbeddedGate: a sandbox of a Go program reaches what its Spec allows, each
// command's Result says what was refused to it, and a gate that dies is no way
// out.
func TestEmbeddedGate(t *testing.T) {
	o := listen(t)
	y := rig.New(t, rig.Self())
	programs := rig.Programs(t)
	c, err := embedded.Open(embedded.Options{Home: y.Data, Init: filepath.Join(programs, "bailey-init"), Baileyd: filepath.Join(programs, "baileyd")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	spec := bailey.Spec{Workspace: y.Work, Allow: []string{"tcp://" + o.Addr().String()}}
	if err := c.Prepare(t.Context(), spec, 1); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("prepared: %v", err)
	}
	s, err := c.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	go func() {
		for c := range o.conns {
			c.Write([]byte("from outside\n"))
			c.Close()
		}
	}()
	ask := func(where string) string {
		return fmt.Sprintf("exec 3<>/dev/tcp/198.18.0.1/3128 && printf 'CONNECT %[1]s HTTP/1.1\\r\\nHost: %[1]s\\r\\n\\r\\n' >&3 && cat <&3", where)
	}
	for _, step := range []struct{ where, has, denied string }{
		{o.Addr().String(), "from outside\n", ""},
		{"evil.test:443", " 403 ", "connect to evil.test:443"},
		{"evil.test:443", " 403 ", "connect to evil.test:443"},
		{o.Addr().String(), "from outside\n", ""},
	} {
		r, err := s.Run(t.Context(), bailey.Command{Args: []string{"bash", "-c", ask(step.where)}})
		if err != nil {
			t.Fatal(err)
		}
		denied := ""
		for _, d := range r.Denials {
			denied += fmt.Sprint(strings.Repeat(d.What, int(d.Count)))
		}
		if !strings.Contains(string(r.Stdout), step.has) || denied != step.denied {
			t.Errorf("%s: %q, denied %q", step.where, r.Stdout, denied)
		}
	}
	kill(t, gatePid(t), syscall.SIGKILL)
	r, err := s.Run(t.Context(), bailey.Command{Args: []string{"bash", "-c", ask(o.Addr().String())}})
	if err != nil || r.End.ExitCode == 0 || len(r.Denials) != 1 || r.Denials[0].Reason != "gate_lost" {
		t.Errorf("after the gate's death: %+v, %v", r, err)
	}
}

// TestPolicyHoldsForTheRun: what a document says beside what may be reached is
// in force, and what a flag asks for beyond it is refused.
func TestPolicyHoldsForTheRun(t *testing.T) {
	for _, who := range rig.People() {
		for level, flags := range levels {
			t.Run(who.Name+"/"+level, func(t *testing.T) {
				y := rig.New(t, who)
				y.Write("secret", "hidden\n", 0o644)
				y.Write("folder/in", "hidden\n", 0o644)
				y.Write("kept/file", "kept\n", 0o644)
				shown := filepath.Join(y.Base, "shown")
				y.Write(shown, "shown\n", 0o644)
				policy := filepath.Join(y.Base, "policy.yaml")
				y.Write(policy, fmt.Sprintf("version: 1\nmin_isolation: %s\npaths:\n  deny_read: [%[2]s/secret, %[2]s/folder]\n  deny_write: [%[2]s/kept]\n"+
					"  allow_read: [%[3]s]\nenv: {set: {GIVEN: yes it is}}\nlimits: {output: 1M}\n", level, y.Work, shown), 0o644)
				args := append(append([]string{"run", "--discard"}, flags...), "--policy="+policy)
				r := y.Run(append(args, "--", "sh", "-c", `cat secret; ls folder; cat kept/file; echo "$GIVEN"; cat "$0"; (echo x > kept/file) 2>/dev/null || echo refused; echo x > free && cat free`, shown)...)
				if r.Code != 0 || r.Stdout != "kept\nyes it is\nshown\nrefused\nx\n" {
					t.Errorf("%v", r)
				}
				r = y.Run(append(args, "--output=2M", "--", "true")...)
				if r.Code != bailey.ExitBailey || !strings.Contains(r.Stderr, "["+string(bailey.CodeUsage)+"]") {
					t.Errorf("more than the policy allows: %v", r)
				}
			})
		}
	}
}
