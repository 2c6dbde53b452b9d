//go:build linux

package fault

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

// running is a bailey whose command lingers.
type running struct {
	*exec.Cmd
	stderr *os.File
	out    *bufio.Reader
}

// launch starts the command and returns when it has done its mischief.
func (s *site) launch(level, script string) *running {
	s.t.Helper()
	stderr, err := os.CreateTemp(s.Base, "stderr-")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { stderr.Close() })
	r := &running{Cmd: s.Bailey(s.command(level, nil, script)...), stderr: stderr}
	r.Stderr = stderr
	out, err := r.StdoutPipe()
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		if r.ProcessState == nil {
			r.Process.Kill()
			r.Wait()
		}
	})
	r.out = bufio.NewReader(out)
	if line, err := r.out.ReadString('\n'); line != "ready\n" {
		s.t.Fatalf("%q, %v", line, err)
	}
	return r
}

// finish waits for bailey's end and gives its exit code and what it said.
func (r *running) finish(t *testing.T) (int, string) {
	t.Helper()
	r.Wait()
	b, err := os.ReadFile(r.stderr.Name())
	if err != nil {
		t.Fatal(err)
	}
	return r.ProcessState.ExitCode(), string(b)
}

// each runs f at every level as every person.
func each(t *testing.T, f func(s *site, level string)) {
	t.Helper()
	for _, who := range rig.People() {
		for level := range levels {
			t.Run(who.Name+"/"+level, func(t *testing.T) { f(newSite(t, who), level) })
		}
	}
}

// first gives the sandbox's first process: bailey's only child.
func (s *site) first(parent int) int {
	s.t.Helper()
	var found []int
	for _, pid := range rig.Descendants() {
		if rig.Parent(pid) == parent {
			found = append(found, pid)
		}
	}
	if len(found) != 1 {
		s.t.Fatalf("bailey has the children %v", found)
	}
	return found[0]
}

// TestFirstProcessKilledFromOutside: the end says that the sandbox was lost, and
// the changes are kept.
func TestFirstProcessKilledFromOutside(t *testing.T) {
	each(t, func(s *site, level string) {
		r := s.launch(level, "linger.sh")
		namespaces := rig.Namespaces(rig.Descendants())
		if err := syscall.Kill(s.first(r.Process.Pid), syscall.SIGKILL); err != nil {
			s.t.Fatal(err)
		}
		code, said := r.finish(s.t)
		if code != bailey.ExitBailey || !strings.Contains(said, "["+string(bailey.EndHostLost)+"]") {
			s.t.Errorf("code %d: %s", code, said)
		}
		s.aftermath("the first process was killed", namespaces)
		if list := s.List(); len(list) != 1 || list[0].State != "kept" {
			s.t.Errorf("%+v", list)
		}
		if diff := s.Must("changes"); !strings.Contains(diff, "content 20") {
			s.t.Error("the changes are not whole: " + diff)
		}
		s.settle("the first process was killed", "kept")
	})
}

// TestSignals: a signal to bailey is the command's to deal with; a command that
// ignores it is ended by the third. Nothing is left, and the changes are kept.
func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		t.Run(unix.SignalName(sig), func(t *testing.T) {
			s := newSite(t, rig.Self())
			s.Write("obeys.sh", "echo x > file; echo ready; exec sleep 1000\n", 0o644)
			s.Write("ignores.sh", "trap 'echo got' TERM INT HUP; echo x > file; echo ready; while :; do sleep 0.05; done\n", 0o644)
			s.host = s.Host()
			r := s.launch("process", "obeys.sh")
			r.Process.Signal(sig)
			if code, said := r.finish(t); code != 128+int(sig) || !strings.Contains(said, "kept as") {
				t.Errorf("code %d: %s", code, said)
			}
			s.aftermath("obeyed", nil)
			s.settle("obeyed", "kept")

			r = s.launch("process", "ignores.sh")
			for i := range 3 {
				r.Process.Signal(sig)
				if i == 2 {
					break
				}
				if line, err := r.out.ReadString('\n'); line != "got\n" {
					t.Fatalf("%q, %v", line, err)
				}
			}
			if code, said := r.finish(t); code != bailey.ExitLimit || !strings.Contains(said, "["+string(bailey.EndUser)+"]") {
				t.Errorf("code %d: %s", code, said)
			}
			s.aftermath("ignored", nil)
			s.settle("ignored", "kept")
		})
	}
}

// TestBaileyStopped: a bailey that is stopped and goes on has lost nothing, and
// one that is killed while it is stopped leaves nothing.
func TestBaileyStopped(t *testing.T) {
	s := newSite(t, rig.Self())
	s.Write("echo.sh", "echo ready; while read line; do echo \"$line\"; done; echo end > file; echo end\n", 0o644)
	s.host = s.Host()
	r := s.Bailey(s.command("process", nil, "echo.sh")...)
	in, err := r.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	pipe, err := r.StdoutPipe()
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer r.Process.Kill()
	out := bufio.NewReader(pipe)
	want := func(text string) {
		t.Helper()
		if line, err := out.ReadString('\n'); line != text+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	want("ready")
	for range 3 {
		r.Process.Signal(syscall.SIGSTOP)
		if !stopped(t, r.Process.Pid) {
			t.Fatal("bailey has ended")
		}
		in.Write([]byte("meanwhile\n"))
		r.Process.Signal(syscall.SIGCONT)
		want("meanwhile")
	}
	in.Close()
	want("end")
	if err := r.Wait(); err != nil {
		t.Error(err)
	}
	s.aftermath("stopped and continued", nil)
	s.settle("stopped and continued", "kept")

	l := s.launch("process", "linger.sh")
	l.Process.Signal(syscall.SIGSTOP)
	if !stopped(t, l.Process.Pid) {
		t.Fatal("bailey has ended")
	}
	namespaces := rig.Namespaces(rig.Descendants())
	s.kill(l.Cmd)
	s.aftermath("killed while stopped", namespaces)
	s.settle("killed while stopped", "interrupted")
}

// TestKilledWhileOthersLive: what is swept is the dead one's and nobody else's.
func TestKilledWhileOthersLive(t *testing.T) {
	each(t, func(s *site, level string) {
		s.Write("wait.sh", "echo ready; read line; echo alive > file; echo $line\n", 0o644)
		s.host = s.Host()
		live := s.Bailey(s.command(level, nil, "wait.sh")...)
		in, err := live.StdinPipe()
		if err != nil {
			s.t.Fatal(err)
		}
		pipe, err := live.StdoutPipe()
		if err == nil {
			err = live.Start()
		}
		if err != nil {
			s.t.Fatal(err)
		}
		defer live.Process.Kill()
		out := bufio.NewReader(pipe)
		if line, err := out.ReadString('\n'); line != "ready\n" {
			s.t.Fatalf("%q, %v", line, err)
		}
		before := rig.Descendants()
		dead := s.launch(level, "linger.sh")
		s.kill(dead.Cmd)
		for _, pid := range rig.Descendants() {
			if !slices.Contains(before, pid) {
				rig.Await(pid)
			}
		}
		s.Must("run", "--discard", "--", "true")
		s.List()
		in.Write([]byte("still\n"))
		in.Close()
		if line, err := out.ReadString('\n'); line != "still\n" {
			s.t.Errorf("%q, %v", line, err)
		}
		if err := live.Wait(); err != nil {
			s.t.Error(err)
		}
		states := []string{}
		for _, r := range s.List() {
			states = append(states, r.State)
		}
		slices.Sort(states)
		if !slices.Equal(states, []string{"interrupted", "kept"}) {
			s.t.Error(states)
		}
		s.ids = s.RunIDs()
		s.settle("both have ended", "interrupted", "kept")
	})
}
