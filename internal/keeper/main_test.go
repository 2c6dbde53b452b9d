package keeper

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A test program is also the keeper and the daemon of a test.
const roleVariable = "BAILEY_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "keeper":
		os.Setenv(roleVariable, "daemon")
		status, err := Run(Options{Home: os.Args[1], Command: os.Args[2:], Log: os.Stderr})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(125)
		}
		os.Exit(status)
	case "daemon":
		os.Exit(daemon(os.Args[1], os.Args[2:]))
	}
	os.Exit(m.Run())
}

// daemon is a daemon that does what it is told through a socket in home.
func daemon(home string, args []string) int {
	if len(args) > 0 && args[0] == "fail" {
		return 3
	}
	c, err := Inherited()
	if err != nil || c == nil {
		fmt.Fprintln(os.Stderr, "no keeper", err)
		return 4
	}
	ctx := context.Background()
	if _, err := c.List(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 5
	}
	go func() {
		<-c.Done()
		os.Exit(9)
	}()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP)
	go func() {
		for sig := range signals {
			if sig == unix.SIGHUP {
				os.Exit(0)
			}
			os.Exit(7)
		}
	}()
	// The one before may just be gone, and its socket's file with it or not.
	path := filepath.Join(home, "d.sock")
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 6
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return 7
		}
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			out := json.NewEncoder(conn)
			f := strings.Fields(lines.Text())
			switch f[0] {
			case "hello":
				out.Encode(os.Getpid())
			case "version":
				out.Encode(args[0])
			case "open":
				list, _ := os.ReadDir("/proc/self/fd")
				out.Encode(len(list))
			case "make": // a sandbox: a process that ends with 7 when its lease does
				r, w, _ := os.Pipe()
				cmd := exec.Command("/bin/sh", "-c", "read x; exit 7")
				cmd.Stdin = r
				cmd.Start()
				r.Close()
				err := c.Put(ctx, f[1], cmd.Process.Pid, map[string]*os.File{"lease": w})
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
				w.Close()
				out.Encode(cmd.Process.Pid)
			case "orphan": // a child that ends when this process has
				r, w, _ := os.Pipe()
				cmd := exec.Command("/bin/sh", "-c", "read x; exit 1")
				cmd.Stdin = r
				cmd.Start()
				_ = w
				out.Encode(cmd.Process.Pid)
			case "list":
				list, _ := c.List(ctx)
				out.Encode(list)
			case "end":
				c.Drop(ctx, f[1], "lease")
				ws, err := c.Wait(ctx, f[1])
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
				out.Encode(ws.ExitStatus())
			case "drop":
				c.Drop(ctx, f[1])
				out.Encode(0)
			case "upgrade":
				c.Upgrade(ctx)
				out.Encode(0)
			case "exit":
				return 0
			}
		}
		conn.Close()
	}
}

// stand is a keeper with its daemon.
type stand struct {
	t    *testing.T
	home string
	cmd  *exec.Cmd
	err  chan error // how the keeper ended
	log  *os.File

	conn net.Conn
	in   *json.Decoder
}

// command gives the command of a program that is this test program in a role.
func self(t *testing.T) string {
	p, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newHome(t *testing.T) string {
	// Short, as the path of a socket has 108 bytes.
	home, err := os.MkdirTemp("", "keeper")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	return home
}

// start starts a keeper of home. program is the daemon.
func start(t *testing.T, home, program string, args ...string) *stand {
	t.Helper()
	s := &stand{t: t, home: home, err: make(chan error, 1)}
	s.cmd = exec.Command(self(t), append([]string{home, program, home}, args...)...)
	s.cmd.Env = append(os.Environ(), roleVariable+"=keeper")
	var err error
	if s.log, err = os.Create(filepath.Join(home, "log")); err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.err <- s.cmd.Wait() }()
	t.Cleanup(func() {
		if s.conn != nil {
			s.conn.Close()
		}
		s.cmd.Process.Kill()
		if s.err != nil {
			<-s.err
		}
		if t.Failed() {
			b, _ := os.ReadFile(filepath.Join(home, "log"))
			t.Logf("the log:\n%s", b)
		}
		s.log.Close()
	})
	return s
}

// reach connects to a daemon other than the one with the pid not, and gives its pid.
func (s *stand) reach(not int) int {
	s.t.Helper()
	if s.conn != nil {
		s.conn.Close()
	}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("unix", filepath.Join(s.home, "d.sock"))
		if err != nil {
			continue
		}
		s.conn, s.in = conn, json.NewDecoder(conn)
		var pid int
		if _, err := io.WriteString(conn, "hello\n"); err == nil && s.in.Decode(&pid) == nil && pid != not {
			return pid
		}
		conn.Close()
	}
	s.t.Fatal("there is no daemon")
	return 0
}

func (s *stand) tell(line string) {
	s.t.Helper()
	if _, err := io.WriteString(s.conn, line+"\n"); err != nil {
		s.t.Fatal(err)
	}
}

func ask[T any](s *stand, line string) (v T) {
	s.t.Helper()
	s.tell(line)
	if err := s.in.Decode(&v); err != nil {
		s.t.Fatalf("%s: %v", line, err)
	}
	return v
}

// left waits for the keeper's end and gives its status.
func (s *stand) left() int {
	s.t.Helper()
	select {
	case <-s.err:
		s.err = nil
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(20 * time.Second):
		s.t.Fatal("the keeper does not leave")
		return -1
	}
}

// gone waits until a process has been reaped.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if syscall.Kill(pid, 0) == syscall.ESRCH {
			return
		}
	}
	t.Fatalf("process %d is there", pid)
}
