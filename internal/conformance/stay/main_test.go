//go:build linux

package stay

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }

// each runs f as every person, with a daemon in a yard of its own.
func each(t *testing.T, f func(t *testing.T, y *rig.Yard, d *rig.Daemon)) {
	t.Helper()
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			f(t, y, y.Serve())
		})
	}
}

// eachLevel is each, and once more where sandboxes are of the level gvisor, because
// what it needs is there and nothing else is said.
func eachLevel(t *testing.T, f func(t *testing.T, y *rig.Yard, d *rig.Daemon)) {
	t.Helper()
	each(t, f)
	t.Run("gvisor", func(t *testing.T) {
		y := rig.New(t, rig.Self()).WithLevels()
		f(t, y, y.Serve())
	})
}

// says runs a command line that has to end with a code and to write a text.
func says(t *testing.T, y *rig.Yard, code int, want string, args ...string) {
	t.Helper()
	if r := y.Run(args...); r.Code != code || !strings.Contains(r.Stdout+r.Stderr, want) {
		t.Errorf("bailey %q: want code %d and %q, got %v", args, code, want, r)
	}
}

// started is a command line that goes on in the background.
type started struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  bytes.Buffer
	errs bytes.Buffer
}

func begin(t *testing.T, y *rig.Yard, args ...string) *started {
	t.Helper()
	s := &started{t: t, cmd: y.Bailey(args...)}
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.errs
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// wait gives the exit code.
func (s *started) wait() int {
	s.t.Helper()
	late := time.AfterFunc(2*rig.Patience, func() { s.cmd.Process.Signal(syscall.SIGKILL) })
	s.cmd.Wait() // the code says it
	if !late.Stop() {
		s.t.Errorf("%v hung; it said %s%s", s.cmd.Args, &s.out, &s.errs)
	}
	return s.cmd.ProcessState.ExitCode()
}

// waitUntil waits for something that has to come.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(rig.Patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s", what, rig.Patience)
		}
	}
}

// first gives the first process of the sandbox in which a program runs that this
// test has started, 0 for none.
func first(program string) int {
	for _, pid := range rig.Descendants() {
		// See proc_pid_stat(5): the name in parentheses, the state, the parent.
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		name, rest, ok := strings.Cut(string(b), ") ")
		if err != nil || !ok || !strings.HasSuffix(name, "("+program) {
			continue
		}
		if f := strings.Fields(rest); len(f) > 1 && f[0] != "Z" {
			if n, err := strconv.Atoi(f[1]); err == nil {
				return n
			}
		}
	}
	return 0
}

// running says that a program runs in some sandbox of this test's.
func running(program string) bool { return first(program) != 0 }

// command runs a program of the host.
func command(line ...string) (string, error) {
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	return string(out), err
}
