//go:build linux

package fault

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// parts are programs that a sandbox of the level gvisor is made of, as they call
// themselves: gVisor's kernel, its file server and the cell's own.
var parts = []string{"runsc-sandbox", "runsc-gofer", "bailey-cell"}

// part gives the first process of this test's that calls itself so, 0 for none.
func part(name string) int {
	for _, pid := range rig.Descendants() {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if word, _, _ := bytes.Cut(line, []byte{0}); filepath.Base(string(word)) == name {
			return pid
		}
	}
	return 0
}

// killPart kills a part of the one sandbox there is.
func killPart(t *testing.T, name string) {
	t.Helper()
	pid := part(name)
	if pid == 0 {
		t.Fatalf("nothing calls itself %s", name)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestPartOfGVisorKilled: whatever of a sandbox with a kernel of its own is killed, its
// command has not ended well, nothing of it is left, and the changes are kept. That the
// sandbox was lost is told where it can be known: runsc exits the same way when the
// command was killed as when its kernel was.
func TestPartOfGVisorKilled(t *testing.T) {
	s := newSite(t, rig.Self())
	s.WithLevels()
	for _, name := range []string{"bailey", "runsc-sandbox", "bailey-cell"} {
		r := s.launch("gvisor", "linger.sh")
		namespaces := rig.Namespaces(rig.Descendants())
		what, state := name+" was killed", "kept"
		if name == "bailey" {
			s.kill(r.Cmd)
			state = "interrupted"
		} else {
			killPart(t, name)
			code, said := r.finish(t)
			lost := code == bailey.ExitBailey && strings.Contains(said, "["+string(bailey.EndHostLost)+"]")
			killed := code == 128+int(syscall.SIGKILL) && name == "runsc-sandbox"
			if !lost && !killed {
				t.Errorf("%s: code %d: %s", what, code, said)
			}
		}
		s.aftermath(what, namespaces)
		s.took = nil // the second that is promised is not this level's
		if diff := s.Must("changes"); !strings.Contains(diff, "content 20") {
			t.Errorf("%s: the changes are not whole: %s", what, diff)
		}
		s.settle(what, state)
	}
}

// TestPartOfAStayingGVisorKilled: whoever waits for a command is told that the sandbox is
// lost; what the command had written, a checkpoint and the files are there, and the
// sandbox goes on with them.
func TestPartOfAStayingGVisorKilled(t *testing.T) {
	y := rig.New(t, rig.Self()).WithLevels()
	y.Serve()
	y.Must("create", "--name", "box", "--isolation", "gvisor")
	y.Must("exec", "box", "--", "sh", "-c", "echo one >/root/f")
	y.Must("checkpoint", "--name", "point", "box")
	for i, name := range parts {
		id := fmt.Sprintf("x%d", i)
		waits := y.Bailey("exec", "--generation", strconv.Itoa(i+1), "--id", id, "box", "--", "sh", "-c", "echo "+id+" >>/root/f; echo said; exec sleep 1000")
		var errs bytes.Buffer
		waits.Stderr = &errs
		pipe, err := waits.StdoutPipe()
		if err == nil {
			err = waits.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(2*rig.Patience, func() { waits.Process.Kill() })
		said := make([]byte, len("said\n"))
		if n, err := io.ReadFull(pipe, said); string(said[:n]) != "said\n" {
			t.Fatalf("%q, %v", said[:n], err)
		}
		killPart(t, name)
		waits.Wait() // the code says it
		if !late.Stop() {
			t.Fatalf("%s: it was not told", name)
		}
		if waits.ProcessState.ExitCode() != bailey.ExitBailey || !strings.Contains(errs.String(), "[sandbox_lost]") {
			t.Errorf("%s: code %d: %s", name, waits.ProcessState.ExitCode(), &errs)
		}
		if r := y.Run("logs", "box", id); !strings.Contains(r.Stdout, "said\n") {
			t.Errorf("%s: what the command wrote is %q: %s", name, r.Stdout, r.Stderr)
		}
		for end := time.Now().Add(2 * rig.Patience); !strings.Contains(y.Must("show", "--json", "box"), `"state": "lost"`); {
			if time.Now().After(end) {
				t.Fatalf("%s: the sandbox is not lost", name)
			}
		}
		y.Must("resume", "box")
		if out := y.Must("show", "--json", "box"); !strings.Contains(out, fmt.Sprintf(`"generation": %d,`, i+2)) {
			t.Errorf("%s: %s", name, out)
		}
		if out := y.Must("exec", "--generation", strconv.Itoa(i+2), "box", "--", "cat", "/root/f"); !strings.HasSuffix(out, id+"\n") {
			t.Errorf("%s: its file is %q", name, out)
		}
	}
	y.Must("undo", "--to", "point", "--kill", "box")
	if out := y.Must("exec", "--generation", strconv.Itoa(len(parts)+1), "box", "--", "cat", "/root/f"); out != "one\n" {
		t.Errorf("at the checkpoint its file was %q", out)
	}
}
