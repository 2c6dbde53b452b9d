package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

var servedDir string // "" until it is made; TestMain removes it

// servedPrograms builds what a daemon needs beside it, once.
var servedPrograms = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("BAILEY_TEST_PROGRAMS"); dir != "" {
		return dir, nil // built already
	}
	dir, err := os.MkdirTemp("", "bailey-serve-")
	if err != nil {
		return "", err
	}
	servedDir = dir
	os.Chmod(dir, 0o755) // a sandbox's own user runs bailey-init
	build := exec.Command("go", "build", "-o", dir+"/", "./cmd/bailey-init", "./cmd/baileyd", "./cmd/bailey-keeper")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		return dir, errors.New(string(out))
	}
	return dir, nil
})

// service is a keeper with its daemon.
type service struct {
	t    *testing.T
	dir  string
	home string
	cmd  *exec.Cmd
	log  bytes.Buffer
	c    *client.Client
}

func startService(t *testing.T) *service {
	t.Helper()
	testneeds.Host(t, testneeds.UserNS)
	dir, err := servedPrograms()
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, dir: dir, home: t.TempDir()}
	if s.c, err = client.New(client.Options{URL: "unix://" + s.home + "/bailey.sock", Patience: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.c.Close)
	s.start()
	t.Cleanup(func() {
		if s.cmd != nil {
			ctx := context.Background() // the test's has ended
			for b, err := range s.c.AllSandboxes(ctx, api.SandboxQuery{}) {
				if err == nil {
					err = s.c.Sandbox(b.ID).Delete(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}
			s.end()
		}
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	return s
}

// start gives once the socket is there.
func (s *service) start() {
	s.t.Helper()
	s.cmd = exec.Command(filepath.Join(s.dir, "bailey-keeper"), "--home", s.home, "--", filepath.Join(s.dir, "baileyd"), "serve", "--home", s.home)
	s.cmd.Stderr = &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.until("the socket is there", func() bool {
		_, err := os.Lstat(filepath.Join(s.home, "bailey.sock"))
		return err == nil
	})
}

// end tells the keeper to leave, and waits until it has.
func (s *service) end() {
	s.t.Helper()
	s.cmd.Process.Signal(unix.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the keeper: %v", err)
	}
	s.cmd = nil
}

func (s *service) until(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("it does not come to: %s\n%s", what, s.log.String())
		}
	}
}

// daemon gives the pid of the keeper's child, 0 while there is none.
func (s *service) daemon() int {
	p := strconv.Itoa(s.cmd.Process.Pid)
	tasks, _ := filepath.Glob("/proc/" + p + "/task/*/children")
	for _, name := range tasks {
		b, _ := os.ReadFile(name)
		for _, child := range strings.Fields(string(b)) {
			if exe, _ := os.Readlink("/proc/" + child + "/exe"); filepath.Base(exe) == "baileyd" {
				pid, _ := strconv.Atoi(child)
				return pid
			}
		}
	}
	return 0
}

// echoes starts a command that answers what it is told.
func (s *service) echoes() (*client.Sandbox, *client.Exec) {
	s.t.Helper()
	b, err := s.c.Create(s.t.Context(), api.SandboxSpec{Isolation: bailey.IsolationProcess})
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.log.String())
	}
	x, err := b.Start(s.t.Context(), api.ExecSpec{ID: "e", Args: []string{"sh", "-c", "while read l; do echo got $l; echo $l >>$HOME/heard; done"}, Stdin: true})
	if err != nil {
		s.t.Fatal(err)
	}
	return b, x
}

func (s *service) says(x *client.Exec, line, all string) {
	s.t.Helper()
	if err := x.Write(s.t.Context(), strings.NewReader(line+"\n"), false); err != nil {
		s.t.Fatal(err)
	}
	done := errors.New("seen")
	var got []byte
	_, err := x.Output(s.t.Context(), nil, func(ev api.OutputEvent) error {
		if got = append(got, ev.Data...); string(got) == all {
			return done
		}
		return nil
	})
	if err != done {
		s.t.Fatalf("it says %q, and then: %v", got, err)
	}
}

// TestServeUpgrade: the daemon is replaced, and then killed, and a command in a
// sandbox notices nothing of either.
func TestServeUpgrade(t *testing.T) {
	s := startService(t)
	b, x := s.echoes()
	s.says(x, "one", "got one\n")
	first := s.daemon()
	s.cmd.Process.Signal(unix.SIGHUP)
	s.until("another daemon", func() bool { d := s.daemon(); return d != 0 && d != first })
	s.says(x, "two", "got one\ngot two\n")
	second := s.daemon()
	if second == first {
		t.Fatal("it is the same daemon")
	}
	end, err := unix.PidfdOpen(second, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(end)
	unix.Kill(second, unix.SIGKILL)
	// Input that a dying daemon takes would be told lost. It is dead once its last
	// thread is: what /proc says of the first comes before that.
	s.until("its end", func() bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(end), Events: unix.POLLIN}}, 1000)
		return err == nil && n == 1
	})
	s.says(x, "three", "got one\ngot two\ngot three\n")
	if i, err := b.Info(t.Context()); err != nil || i.State != api.StateRunning || i.Generation != 1 {
		t.Errorf("%v: %s, generation %d", err, i.State, i.Generation)
	}
}

// TestServeStopsToDisk: told to end, it stops sandboxes; they go on at their next use.
func TestServeStopsToDisk(t *testing.T) {
	s := startService(t)
	b, x := s.echoes()
	s.says(x, "one", "got one\n")
	s.end()
	if _, err := os.Lstat(filepath.Join(s.home, "bailey.sock")); !os.IsNotExist(err) {
		t.Errorf("the socket stays: %v", err)
	}
	s.start()
	if i, err := b.Info(t.Context()); err != nil || i.State != api.StateStopped || i.Receipt == nil {
		t.Fatalf("%v: %s, receipt %+v", err, i.State, i.Receipt)
	}
	if e, err := x.Info(t.Context()); err != nil || e.State != api.ExecEnded {
		t.Errorf("%v: the command is %s", err, e.State)
	}
	r, err := b.Run(t.Context(), api.ExecSpec{Args: []string{"sh", "-c", "cat $HOME/heard"}})
	if err != nil || string(r.Out) != "one\n" {
		t.Errorf("%v: what is left is %q %q", err, r.Out, r.Err)
	}
}

func TestServeRefuses(t *testing.T) {
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, "config.yaml"), []byte("lisen: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--home", "relative"}, {"--home", home}, {"more"}, {"--nothing"}, {"--home", home, "--config", "/none"}, {"--home", t.TempDir(), "--listen", "0.0.0.0:1"}} {
		var stdout, stderr bytes.Buffer
		if status := serveCommand(t.Context(), args, &stdout, &stderr); status != bailey.ExitBailey || !strings.Contains(stderr.String(), "[usage]") {
			t.Errorf("%v: status %d, %s", args, status, stderr.String())
		}
	}
}

func TestServeInstall(t *testing.T) {
	var out, stderr bytes.Buffer
	if status := serveCommand(t.Context(), []string{"--install", "--home", "/srv/a b", "--listen=127.0.0.1:7777", "--auto"}, &out, &stderr); status != 0 {
		t.Fatal(stderr.String())
	}
	for _, line := range []string{`bailey-keeper --home "/srv/a b" -- `, ` serve --home "/srv/a b" --listen=127.0.0.1:7777` + "\n", "KillMode=mixed\n", "Delegate=yes\n"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("it does not say %q:\n%s", line, out.String())
		}
	}
}
