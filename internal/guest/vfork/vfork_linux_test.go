//go:build linux && (amd64 || arm64)

package vfork

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

func build(paths ...string) *Script {
	s := &Script{}
	s.Reset()
	s.Do("setsid", syscall.SYS_SETSID)
	s.Unblock()
	argv, env := s.Strs([]string{"true"}), s.Strs(nil)
	for _, p := range paths {
		s.Exec(p, argv, env)
	}
	return s
}

func reap(t *testing.T, pid int) syscall.WaitStatus {
	t.Helper()
	var ws syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &ws, 0, nil); err != syscall.EINTR {
			if err != nil {
				t.Fatal(err)
			}
			return ws
		}
	}
}

func TestStart(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	garbage := filepath.Join(dir, "garbage")
	if err := os.WriteFile(garbage, []byte("not a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		paths []string
		errno syscall.Errno
	}{
		{"there", []string{"/bin/true"}, 0},
		{"second", []string{dir + "/none", "/bin/true"}, 0},
		{"none", []string{dir + "/none", dir + "/plain/x"}, syscall.ENOENT},
		{"not executable", []string{dir + "/none", plain, dir + "/none"}, syscall.EACCES},
		{"not a program", []string{garbage, "/bin/true"}, syscall.ENOEXEC},
	} {
		t.Run(c.name, func(t *testing.T) {
			pid, err := build(c.paths...).Start()
			ws := reap(t, pid)
			var e *Error
			if c.errno == 0 {
				if err != nil || !ws.Exited() || ws.ExitStatus() != 0 {
					t.Fatalf("error %v, status %v", err, ws)
				}
			} else if !errors.As(err, &e) || e.Errno != c.errno || e.Step != "execve" || ws.ExitStatus() != 127 {
				t.Fatalf("got %v, status %v, want %v", err, ws, c.errno)
			}
		})
	}
}

func TestFailingStepIsNamed(t *testing.T) {
	s := &Script{}
	s.Reset()
	s.Do("chdir", syscall.SYS_CHDIR, s.Str("/nowhere/at/all"))
	s.Unblock()
	s.Exec("/bin/true", s.Strs([]string{"true"}), s.Strs(nil))
	pid, err := s.Start()
	reap(t, pid)
	var e *Error
	if !errors.As(err, &e) || e.Step != "chdir" || e.Errno != syscall.ENOENT {
		t.Fatalf("got %v", err)
	}
}

// Children started while the garbage collector and other goroutines run.
func TestStartUnderLoad(t *testing.T) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 50 {
				_ = make([]byte, 1<<20)
				pid, err := build("/nonexistent", "/bin/true").Start()
				if err != nil {
					t.Error(err)
					return
				}
				if ws := reap(t, pid); ws.ExitStatus() != 0 {
					t.Errorf("status %v", ws)
				}
			}
		}()
	}
	wg.Wait()
}
