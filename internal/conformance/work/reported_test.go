//go:build linux

package work

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// told is what `bailey run --json` prints.
type told struct {
	Run            string
	End            bailey.End
	Error          *bailey.Error
	Stdout, Stderr struct{ Encoding, Data string }
	Fate           string `json:"changes_are"`
}

// json runs a command with --json.
func runJSON(t *testing.T, y *rig.Yard, args ...string) (told, int) {
	t.Helper()
	r := y.Run(append([]string{"run", "--json"}, args...)...)
	var out told
	if err := json.Unmarshal([]byte(r.Stdout), &out); err != nil {
		t.Fatalf("%v: %v", err, r)
	}
	return out, r.Code
}

// wantCode wants a command line that Bailey refuses with a code.
func wantCode(t *testing.T, y *rig.Yard, code bailey.Code, args ...string) rig.Result {
	t.Helper()
	r := y.Run(args...)
	if r.Code != bailey.ExitBailey || !strings.Contains(r.Stderr, "["+string(code)+"]") {
		t.Errorf("bailey %q: %v, want code %s", args, r, code)
	}
	return r
}

// TestT19Timeout: a timeout ends the command and all it started, and says so.
func TestT19Timeout(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		out, code := runJSON(t, y, append(l.flags, "--timeout", "1s", "--", "sh", "-c", "trap '' TERM; setsid sleep 30 & sleep 30")...)
		if code != bailey.ExitTimeout || out.End.Reason != bailey.EndTimeout || out.End.Limit != 1e9 {
			t.Errorf("code %d, %+v", code, out.End)
		}
		if left := rig.Descendants(); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	})
}

// TestT20BackgroundChild: a child that holds the pipe does not keep the run
// from its end, and what was written before is there.
func TestT20BackgroundChild(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		r := y.Run(l.run(nil, "sh", "-c", "echo before; sleep 100000 & (setsid sleep 100000 &) ; exit 4")...)
		if r.Code != 4 || r.Stdout != "before\n" {
			t.Error(r)
		}
	})
}

// TestT24StatusWhileItRuns: nothing is said about an end that has not come.
func TestT24StatusWhileItRuns(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		cmd := y.Bailey(l.run([]string{"--keep"}, "sh", "-c", "echo x >file; echo up; read line; exit 3")...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		outPipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		if line, err := bufio.NewReader(outPipe).ReadString('\n'); line != "up\n" {
			t.Fatal(line, err)
		}
		list := y.Must("changes", "--list", "--json")
		if !strings.Contains(list, `"state":"running"`) || strings.Contains(list, `"end"`) {
			t.Error(list)
		}
		wantCode(t, y, bailey.CodeBusy, "changes", "latest")
		wantCode(t, y, bailey.CodeBusy, "apply", "latest")
		wantCode(t, y, bailey.CodeBusy, "discard", "latest")
		in.Close()
		cmd.Wait()
		list = y.Must("changes", "--list", "--json")
		if code := cmd.ProcessState.ExitCode(); code != 3 || !strings.Contains(list, `"state":"kept"`) || !strings.Contains(list, `"exit_code":3`) {
			t.Error(code, list)
		}
	})
}

// TestT25StuckOnInput and T27: a command that reads input which nobody will
// give gets the end of file at once.
func TestT25T27Input(t *testing.T) {
	testneeds.Tool(t, "python3")
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		if r := y.Run(l.run(nil, "cat")...); r.Code != 0 || r.Stdout != "" {
			t.Error(r)
		}
		// With --json nobody is there to type, though the caller's input is open.
		cmd := y.Bailey(append(append([]string{"run", "--json"}, l.flags...), "--", "python3", "-c", "input()")...)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		r := y.Finish(cmd)
		if r.Code != 1 || !strings.Contains(r.Stdout, "EOFError") {
			t.Error(r)
		}
		cmd = y.Bailey(l.run(nil, "tr", "a-z", "A-Z")...)
		cmd.Stdin = strings.NewReader("given\n")
		if r := y.Finish(cmd); r.Stdout != "GIVEN\n" {
			t.Error(r)
		}
	})
}

// TestT28Bytes: what a command writes arrives as it is.
func TestT28Bytes(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		const text = "a\x00b\n\xff\x1b[31m\r\n"
		command := []string{"printf", `a\000b\n\377\033[31m\r\n`}
		if r := y.Run(l.run(nil, command...)...); r.Stdout != text {
			t.Errorf("%q", r.Stdout)
		}
		out, _ := runJSON(t, y, append(append(l.flags, "--"), command...)...)
		b, err := base64.StdEncoding.DecodeString(out.Stdout.Data)
		if out.Stdout.Encoding != "base64" || err != nil || string(b) != text {
			t.Errorf("%+v %v", out.Stdout, err)
		}
	})
}

// memory says whether this person can have a memory limit; if not, asking for
// one has to be an error.
func memory(t *testing.T, y *rig.Yard, l level) bool {
	t.Helper()
	if y.Who.Root() {
		testneeds.Host(t, testneeds.Cgroups)
		return true
	}
	r := y.Run(l.run([]string{"--memory", "256M"}, "true")...)
	if r.Code != 0 && !strings.Contains(r.Stderr, "[limit_unavailable]") {
		t.Error(r)
	}
	return r.Code == 0
}

// TestT30OutOfMemory: the end names the limit, the peak and the victim, and
// still does when the sandbox is gone.
func TestT30OutOfMemory(t *testing.T) {
	testneeds.Tool(t, "python3")
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		if !memory(t, y, l) {
			return
		}
		out, code := runJSON(t, y, append(l.flags, "--keep", "--memory", "256M", "--", "sh", "-c", "echo x >file; exec python3 -c 'b = bytearray(600 << 20)'")...)
		e := out.End
		if code != bailey.ExitLimit || e.Reason != bailey.EndOOM || e.Limit != 256<<20 || e.Peak < 200<<20 || !strings.HasPrefix(e.Victim, "python3") {
			t.Errorf("code %d, %+v", code, e)
		}
		if list := y.Must("changes", "--list", "--json"); !strings.Contains(list, `"reason":"oom"`) || !strings.Contains(list, `"victim":"python3`) {
			t.Error(list)
		}
	})
}

// TestT31OutOfMemoryInside: a limit that was reached is told also when the
// command ends by itself.
func TestT31OutOfMemoryInside(t *testing.T) {
	testneeds.Tool(t, "python3")
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		if !memory(t, y, l) {
			return
		}
		out, code := runJSON(t, y, append(l.flags, "--memory", "64M", "--", "sh", "-c", "python3 -c 'b = bytearray(2 << 30)'; exit 1")...)
		if code != 1 || out.End.Reason != bailey.EndExit || !slices.Contains(out.End.LimitHits, "memory") {
			t.Errorf("code %d, %+v", code, out.End)
		}
	})
}

// TestT32FullDisk: the program gets ENOSPC, and what comes after still works.
func TestT32FullDisk(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		args := append(l.flags, "--keep", "--disk", "100M", "--", "sh", "-c", "dd if=/dev/zero of=big bs=1M count=200; echo dd=$?; rm big; echo after > small; cat small")
		if !y.Who.Root() {
			wantCode(t, y, bailey.CodeLimitUnavailable, append([]string{"run"}, args...)...)
			return
		}
		testneeds.Host(t, testneeds.MountExt4)
		out, code := runJSON(t, y, args...)
		if code != 0 || out.Stdout.Data != "dd=1\nafter\n" || !strings.Contains(out.Stderr.Data, "No space left") {
			t.Errorf("code %d, %+v", code, out)
		}
		y.Must("apply", "latest")
		if got := read(t, filepath.Join(y.Work, "small")); got != "after\n" {
			t.Error(got)
		}
		full, _ := runJSON(t, y, append(l.flags, "--discard", "--disk", "16M", "--", "sh", "-c", "dd if=/dev/zero of=big bs=1M count=200; exit 5")...)
		if full.End.ExitCode != 5 || !slices.Contains(full.End.LimitHits, "disk") {
			t.Errorf("%+v", full.End)
		}
	})
}

// TestT38SymlinkOutOfTheWorkspace: a link is a link, in the diff and after apply;
// nothing behind it on the host is read or written.
func TestT38SymlinkOutOfTheWorkspace(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		secret := filepath.Join(y.Home, "secret")
		y.Write(secret, "the secret\n", 0o600)
		host := rig.Tree(t, y.Home)
		r := y.Run(l.run([]string{"--keep"}, "sh", "-c", `ln -s "$0" x; ln -s "$1" d; echo overwritten > x; cat x; echo y > d/more; true`, secret, y.Home)...)
		if strings.Contains(r.Stdout, "the secret") {
			t.Error(r)
		}
		if diff := y.Must("changes", "latest"); strings.Contains(diff, "the secret") {
			t.Error(diff)
		}
		y.Must("apply", "latest")
		if to, err := os.Readlink(filepath.Join(y.Work, "x")); to != secret || err != nil {
			t.Error(to, err)
		}
		rig.Same(t, "the home folder", host, rig.Tree(t, y.Home))
	})
}

// TestT41Overlaps: mounts that meet are put in order, and none is a failure.
func TestT41Overlaps(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		y.Write("sub/file", "text\n", 0o644)
		other := filepath.Join(y.Base, "other")
		y.Write(filepath.Join(other, "in", "f"), "other\n", 0o644)
		flags := []string{"--mount", y.Work + "/sub:ro", "--mount", y.Work + "/sub:ro", "--mount", other, "--mount", other + "/in:rw", "--discard"}
		r := y.Run(l.run(flags, "sh", "-c", `cat sub/file "$0/in/f"; echo new > "$0/in/g"; ! echo x > sub/file`, other)...)
		if r.Code != 0 || r.Stdout != "text\nother\n" {
			t.Fatal(r)
		}
		if got := read(t, filepath.Join(other, "in", "g")); got != "new\n" {
			t.Error(got)
		}
	})
}

// TestT43NoSandboxNoRun: where no sandbox can be made, the command does not run.
// Such a place is the inside of a sandbox.
func TestT43NoSandboxNoRun(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		bin := rig.Programs(t)
		flags := []string{"--mount", bin, "--env", "BAILEY_HOME=" + y.Work + "/inner", "--keep"}
		y.Write("ws/file", "x\n", 0o644)
		r := y.Run(l.run(flags, "sh", "-c", `cd ws; "$0/bailey" run -- sh -c "touch ran; echo ran"; echo code=$?; ls`, bin)...)
		if !strings.Contains(r.Stdout, "code=125\nfile\n") || !strings.Contains(r.Stderr, "[isolation_unavailable]") || !strings.Contains(r.Stderr, "bailey doctor") {
			t.Error(r)
		}
	})
}

// TestT44CompoundLine: there are no exempt commands, so nothing takes the rest of a line along.
func TestT44CompoundLine(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		y.Write(filepath.Join(y.Home, ".ssh/id_rsa"), "PRIVATE KEY\n", 0o600)
		r := y.Run(l.run(nil, "sh", "-c", `docker ps; cat ~/.ssh/id_rsa; cat "$0/.ssh/id_rsa"; ls -la ~`, y.Home)...)
		if strings.Contains(r.Stdout+r.Stderr, "PRIVATE KEY") {
			t.Error(r)
		}
	})
}

// TestT45SocketOfTheHost: a mount that is worth root on the host needs a word.
func TestT45SocketOfTheHost(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		socket := filepath.Join(y.Base, "docker.sock")
		listener, err := net.Listen("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		r := wantCode(t, y, bailey.CodeHostRootEquivalent, l.run([]string{"--mount", socket}, "true")...)
		if !strings.Contains(r.Stderr, "--i-understand") {
			t.Error(r)
		}
	})
}
