package spawn

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// echo builds a script that runs /bin/echo with its output on a pipe.
func echo(t testing.TB, text string) (*Script, *os.File, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &Script{}
	s.Do("stdout", syscall.SYS_DUP3, Uint(w.Fd()), Int(1), Int(0))
	unblock(s)
	s.Do("exec", syscall.SYS_EXECVE, s.Str("/bin/echo"), s.Strings([]string{"echo", text}), s.Strings(nil))
	return s, r, w
}

func unblock(s *Script) {
	const sigSetmask = 2
	s.Do("unblock signals", syscall.SYS_RT_SIGPROCMASK, Int(sigSetmask), s.Bytes(make([]byte, 8)), Int(0), Int(8))
}

func TestScriptExecutes(t *testing.T) {
	s, r, w := echo(t, "hello from the script")
	p, err := s.Start(Options{Cgroup: -1})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	out, _ := io.ReadAll(r)
	if got := strings.TrimSpace(string(out)); got != "hello from the script" {
		t.Errorf("output %q", got)
	}
	if p.Pidfd < 0 {
		t.Error("no pidfd")
	}
	if ws, err := p.Reap(); err != nil || !ws.Exited() || ws.ExitStatus() != 0 {
		t.Errorf("status %v, %v", ws, err)
	}
}

func TestFailedStepIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name  string
		build func(*Script)
		step  string
		errno syscall.Errno
	}{
		{"exec", func(s *Script) {
			s.Do("exec", syscall.SYS_EXECVE, s.Str("/no/such/program"), s.Strings([]string{"x"}), s.Strings(nil))
		}, "exec", syscall.ENOENT},
		{"first of several", func(s *Script) {
			s.Do("good", syscall.SYS_GETPID)
			s.Do("bad", syscall.SYS_CLOSE, Int(-1))
			s.Do("after", syscall.SYS_GETPID)
		}, "bad", syscall.EBADF},
		{"other errno than the ignored one", func(s *Script) {
			s.Do("bad", syscall.SYS_CLOSE, Int(-1)).Ignore(syscall.ENOENT)
		}, "bad", syscall.EBADF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &Script{}
			tc.build(s)
			_, err := s.Start(Options{Cgroup: -1})
			var se *StepError
			if !errors.As(err, &se) || se.Step != tc.step || se.Errno != tc.errno {
				t.Fatalf("got %v, want %s: %v", err, tc.step, tc.errno)
			}
		})
	}
}

func TestResultsFlowIntoLaterSteps(t *testing.T) {
	s, r, w := echo(t, "unused")
	s.ops, s.names = nil, nil
	// open /dev/null, then write to the descriptor that dup made of the pipe.
	dup := s.Do("dup", syscall.SYS_DUP, Uint(w.Fd())).Result()
	s.Do("write", syscall.SYS_WRITE, From(dup), s.Bytes([]byte("slot")), Int(4))
	field := &struct{ fd, zero uint64 }{}
	s.Do("dup again", syscall.SYS_DUP, From(dup)).StoreAt(unsafe.Pointer(field))
	if _, err := s.Start(Options{Cgroup: -1}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out, _ := io.ReadAll(r)
	if string(out) != "slot" {
		t.Errorf("wrote %q", out)
	}
	if field.fd == 0 || uintptr(field.fd) <= dup.Value() {
		t.Errorf("stored %d after %d", field.fd, dup.Value())
	}
}

func TestIgnoredErrnoSkips(t *testing.T) {
	r, w, _ := os.Pipe()
	s := &Script{}
	say := func(text string) { s.Do("say", syscall.SYS_WRITE, Uint(w.Fd()), s.Bytes([]byte(text)), Int(1)) }
	s.Do("maybe", syscall.SYS_CLOSE, Int(-1)).Ignore(syscall.EBADF).ElseSkip(2)
	say("a")
	say("b")
	say("c")
	s.Do("good", syscall.SYS_GETPID).Ignore(syscall.EBADF).ElseSkip(1)
	say("d")
	s.Do("any", syscall.SYS_CLOSE, Int(-1)).IgnoreAll()
	say("e")
	if _, err := s.Start(Options{Cgroup: -1}); err != nil {
		t.Fatal(err)
	}
	w.Close()
	out, _ := io.ReadAll(r)
	if string(out) != "cde" {
		t.Errorf("got %q, want cde", out)
	}
}

func TestFlagsAreNamespacesOnly(t *testing.T) {
	s := &Script{}
	s.Do("x", syscall.SYS_GETPID)
	if _, err := s.Start(Options{Flags: syscall.CLONE_FILES, Cgroup: -1}); err == nil {
		t.Error("CLONE_FILES was accepted")
	}
	if _, err := (&Script{}).Start(Options{Cgroup: -1}); err == nil {
		t.Error("an empty script was accepted")
	}
}

// A holder child keeps a namespace while the parent goes on.
func TestNoWaitHolds(t *testing.T) {
	r, w, _ := os.Pipe()
	buf := make([]byte, 1)
	s := &Script{}
	s.Do("wait", syscall.SYS_READ, Uint(r.Fd()), s.Bytes(buf), Int(1))
	p, err := s.Start(Options{Cgroup: -1, NoWait: true})
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	w.Write([]byte("x"))
	if ws, err := p.Reap(); err != nil || !ws.Exited() || ws.ExitStatus() != 0 {
		t.Errorf("status %v, %v", ws, err)
	}
}

// Goroutines, collections and signals of the parent must not disturb children.
func TestManyAtOnce(t *testing.T) {
	stop := make(chan struct{})
	var churn, wg sync.WaitGroup
	churn.Add(1)
	go func() {
		defer churn.Done()
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
				syscall.Kill(syscall.Getpid(), syscall.SIGURG)
			}
		}
	}()
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 25 {
				s, r, w := echo(t, "many")
				p, err := s.Start(Options{Cgroup: -1})
				w.Close()
				if err != nil {
					t.Error(err)
					return
				}
				out, _ := io.ReadAll(r)
				r.Close()
				if ws, err := p.Reap(); err != nil || ws.ExitStatus() != 0 || string(out) != "many\n" {
					t.Errorf("%q %v %v", out, ws, err)
				}
			}
		}()
	}
	wg.Wait()
	close(stop)
	churn.Wait()
}

func TestAgainGoesOnInTheChild(t *testing.T) {
	testneeds.Root(t, "makes a PID namespace without a user namespace")
	for { // what other tests have left to their parent
		if _, err := syscall.Wait4(-1, nil, 0, nil); err == syscall.ECHILD {
			break
		}
	}
	s, r, w := echo(t, "unused")
	s.ops, s.names = nil, nil
	s.Do("stdout", syscall.SYS_DUP3, Uint(w.Fd()), Int(1), Int(0))
	s.Again("clone again", syscall.CLONE_NEWPID)
	unblock(s)
	s.Do("exec", syscall.SYS_EXECVE, s.Str("/bin/sh"), s.Strings([]string{"sh", "-c", "echo $$; exit 9"}), s.Strings(nil))
	p, err := s.Start(Options{Cgroup: -1})
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	out, _ := io.ReadAll(r)
	if string(out) != "1\n" {
		t.Errorf("the child is %q in its namespace", out)
	}
	if p.Pidfd < 0 {
		t.Error("no pidfd")
	}
	if ws, err := p.Reap(); err != nil || ws.ExitStatus() != 9 {
		t.Errorf("%v %v", ws, err)
	}
	// A step that fails after the second clone is reported, and both are reaped.
	s = &Script{}
	s.Again("clone again", syscall.CLONE_NEWPID)
	s.Do("bad", syscall.SYS_CLOSE, Int(-1))
	_, err = s.Start(Options{Cgroup: -1})
	var se *StepError
	if !errors.As(err, &se) || se.Step != "bad" {
		t.Errorf("got %v", err)
	}
	if _, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != syscall.ECHILD {
		t.Errorf("children are left: %v", err)
	}
}

func TestStringWithNULPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	(&Script{}).Str("a\x00b")
}

func BenchmarkScriptEcho(b *testing.B) {
	for b.Loop() {
		s, r, w := echo(b, "x")
		p, err := s.Start(Options{Cgroup: -1})
		if err != nil {
			b.Fatal(err)
		}
		w.Close()
		io.ReadAll(r)
		r.Close()
		p.Reap()
	}
}

func BenchmarkOSExecEcho(b *testing.B) {
	for b.Loop() {
		if _, err := exec.Command("/bin/echo", "x").Output(); err != nil {
			b.Fatal(err)
		}
	}
}

// A goroutine's stack moves when it grows, here as deep in Start as can be:
// what the kernel writes to must not lie on it.
func TestEveryChildHasItsPidfd(t *testing.T) {
	var deep func(n int, start func())
	deep = func(n int, start func()) {
		var pad [64]byte
		if n > 0 {
			deep(n-1, start)
		} else {
			start()
		}
		runtime.KeepAlive(&pad)
	}
	for n := range 120 {
		done := make(chan int)
		go deep(n, func() {
			s := &Script{}
			s.Do("leave", syscall.SYS_EXIT, Int(0))
			p, err := s.Start(Options{Cgroup: -1, NoWait: true})
			if err != nil {
				t.Error(err)
				done <- 0
				return
			}
			fd := p.Pidfd
			p.Reap()
			runtime.KeepAlive(s)
			done <- fd
		})
		if fd := <-done; fd < 0 {
			t.Fatalf("%d calls deep, the child has no pidfd", n)
		}
	}
}
