package pid1

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// box is a pid 1 in a user and PID namespace of its own.
type box struct {
	t       *testing.T
	proc    *spawn.Process
	control int
	out     *os.File
}

func start(t *testing.T, stdin int, candidates, command []string) *box {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	high, err := unix.FcntlInt(uintptr(pair[1]), unix.F_DUPFD_CLOEXEC, 32)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(pair[1])
	image, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &spawn.Script{}
	if stdin >= 0 {
		s.Do("stdin", unix.SYS_DUP3, spawn.Int(stdin), spawn.Int(0), spawn.Int(0))
	}
	s.Do("stdout", unix.SYS_DUP3, spawn.Uint(w.Fd()), spawn.Int(1), spawn.Int(0))
	s.Do("control", unix.SYS_DUP3, spawn.Int(high), spawn.Int(Control), spawn.Int(0))
	s.Do("close the rest", unix.SYS_CLOSE_RANGE, spawn.Int(4), spawn.Uint(uintptr(^uint32(0))), spawn.Int(unix.CLOSE_RANGE_CLOEXEC))
	s.Do("unblock", unix.SYS_RT_SIGPROCMASK, spawn.Int(2), s.Bytes(make([]byte, 8)), spawn.Int(0), spawn.Int(8))
	s.Do("execute", unix.SYS_EXECVEAT, spawn.Int(image), s.Str(""), s.Strings(Argv(candidates, command)),
		s.Strings([]string{"A=1", "PATH=/usr/bin:/bin"}), spawn.Int(unix.AT_EMPTY_PATH))
	p, err := s.Start(spawn.Options{Flags: unix.CLONE_NEWUSER | unix.CLONE_NEWPID, Cgroup: -1})
	unix.Close(high)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	b := &box{t, p, pair[0], r}
	t.Cleanup(func() {
		unix.Close(b.control)
		b.proc.Reap()
		r.Close()
	})
	return b
}

// next reads one report; pid 1 that is gone is reported as io.EOF.
func (b *box) next() (Report, error) {
	buf := make([]byte, 512)
	tv := unix.Timeval{Sec: 20}
	unix.SetsockoptTimeval(b.control, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	n, err := unix.Read(b.control, buf)
	for err == unix.EINTR {
		n, err = unix.Read(b.control, buf)
	}
	if err != nil {
		return Report{}, err
	}
	if n == 0 {
		return Report{}, io.EOF
	}
	return ParseReport(buf[:n])
}

func (b *box) want(kind Kind) Report {
	b.t.Helper()
	r, err := b.next()
	if err != nil || r.Kind != kind {
		b.t.Fatalf("report %+v, %v; want kind %d", r, err, kind)
	}
	return r
}

func TestRunsAndReports(t *testing.T) {
	b := start(t, -1, []string{"/nowhere/sh", "/bin/sh"}, []string{"sh", "-c", `echo "$0 $1 $A $$"; exit 7`, "zero", ""})
	b.want(Started)
	end := b.want(Ended)
	ws := syscall.WaitStatus(end.Value)
	if !ws.Exited() || ws.ExitStatus() != 7 {
		t.Errorf("status %v", ws)
	}
	if end.Usage.Maxrss == 0 {
		t.Error("no resource usage")
	}
	out, _ := io.ReadAll(b.out)
	if got := string(out); got != "zero  1 2\n" {
		t.Errorf("output %q", got)
	}
}

func TestNotStarted(t *testing.T) {
	noexec := t.TempDir() + "/plain"
	os.WriteFile(noexec, []byte("not a program"), 0o644)
	garbage := t.TempDir() + "/garbage"
	os.WriteFile(garbage, []byte("\x00\x01\x02\x03"), 0o755)
	for _, tc := range []struct {
		paths []string
		errno syscall.Errno
	}{
		{[]string{"/no/such"}, syscall.ENOENT},
		{nil, syscall.ENOENT},
		{[]string{"/no/such", noexec, "/none"}, syscall.EACCES},
		{[]string{garbage}, syscall.ENOEXEC},
	} {
		b := start(t, -1, tc.paths, []string{"x"})
		var got Report
		for got.Kind != NotStarted {
			var err error
			if got, err = b.next(); err != nil {
				t.Fatal(tc.paths, err)
			}
		}
		if syscall.Errno(got.Value) != tc.errno {
			t.Errorf("%v: %v, want %v", tc.paths, syscall.Errno(got.Value), tc.errno)
		}
	}
}

func TestSignalsReachTheGroup(t *testing.T) {
	b := start(t, -1, []string{"/bin/sh"}, []string{"sh", "-c", `trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 100 & wait; done`})
	b.want(Started)
	buf := make([]byte, 6)
	io.ReadFull(b.out, buf)
	unix.Write(b.control, []byte{byte(syscall.SIGTERM)})
	end := b.want(Ended)
	if ws := syscall.WaitStatus(end.Value); ws.ExitStatus() != 3 {
		t.Errorf("status %v", ws)
	}
	rest, _ := io.ReadAll(b.out)
	if string(rest) != "caught\n" {
		t.Errorf("output %q", rest)
	}
}

func TestStopAndContinue(t *testing.T) {
	b := start(t, -1, []string{"/bin/cat"}, []string{"cat", "/dev/zero"})
	b.want(Started)
	unix.Write(b.control, []byte{byte(syscall.SIGSTOP)})
	if r := b.want(Stopped); syscall.WaitStatus(r.Value).StopSignal() != syscall.SIGSTOP {
		t.Errorf("stopped by %v", syscall.WaitStatus(r.Value).StopSignal())
	}
	unix.Write(b.control, []byte{byte(syscall.SIGCONT)})
	b.want(Continued)
	unix.Write(b.control, []byte{byte(syscall.SIGKILL)})
	if r := b.want(Ended); syscall.WaitStatus(r.Value).Signal() != syscall.SIGKILL {
		t.Errorf("ended by %v", syscall.WaitStatus(r.Value))
	}
}

// The lease: when the owner's end closes, everything inside ends, also what
// has left the command's group and session.
func TestLeaseEndsEverything(t *testing.T) {
	b := start(t, -1, []string{"/bin/sh"}, []string{"sh", "-c", `setsid sh -c 'trap "" HUP TERM INT; echo up; sleep 1000' & wait`})
	b.want(Started)
	io.ReadFull(b.out, make([]byte, 3))
	unix.Close(b.control)
	done := make(chan struct{})
	go func() { io.ReadAll(b.out); close(done) }() // ends when no process holds the pipe any more
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("something inside is still alive")
	}
	b.control = -1
}

func TestOrphansAreReaped(t *testing.T) {
	b := start(t, -1, []string{"/bin/sh"}, []string{"sh", "-c", `for i in 1 2 3 4 5; do (sh -c 'exit 0' &) ; done; echo done; read x`})
	b.want(Started)
	io.ReadFull(b.out, make([]byte, 5))
	// pid 1's children that have ended must go away without its owner's help.
	children := "/proc/" + strconv.Itoa(b.proc.Pid) + "/task/" + strconv.Itoa(b.proc.Pid) + "/children"
	for deadline := time.Now().Add(20 * time.Second); ; {
		data, err := os.ReadFile(children)
		if err != nil {
			break // pid 1 itself has ended: its command read EOF from stdin
		}
		if len(strings.Fields(string(data))) <= 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("children left: %s", data)
		}
	}
}

// Nothing inside may take the lease or look into pid 1.
func TestPid1IsClosed(t *testing.T) {
	b := start(t, -1, []string{"/bin/sh"}, []string{"sh", "-c", `ls /proc/self/fd | tr '\n' ' '; echo; read x`})
	b.want(Started)
	out, _ := io.ReadAll(b.out)
	fields := strings.Fields(string(out))
	for _, f := range fields {
		if n, _ := strconv.Atoi(f); n > 3 { // ls itself has the folder open as 3
			t.Errorf("descriptor %d reached the command: %q", n, out)
		}
	}
}

func TestRefusesForeignArguments(t *testing.T) {
	image, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	s := &spawn.Script{}
	s.Do("execute", unix.SYS_EXECVEAT, spawn.Int(image), s.Str(""), s.Strings([]string{"x", "y"}), s.Strings(nil), spawn.Int(unix.AT_EMPTY_PATH))
	p, err := s.Start(spawn.Options{Cgroup: -1})
	if err != nil {
		t.Fatal(err)
	}
	if ws, _ := p.Reap(); ws.ExitStatus() != 137 {
		t.Errorf("status %v", ws)
	}
}

func TestImageIsSealed(t *testing.T) {
	fd, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, []byte{0}, 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("write: %v", err)
	}
	if n := len(Image()); n > 2048 {
		t.Errorf("image of %d bytes", n)
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add(make([]byte, ReportSize))
	f.Add([]byte{5, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := ParseReport(b)
		if err == nil && (len(b) != ReportSize || r.Kind < Started || r.Kind > Ended) {
			t.Errorf("accepted %v", r)
		}
	})
}
