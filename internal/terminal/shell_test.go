package terminal

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// patience is how long a test waits for something that has to come.
const patience = 20 * time.Second

const prompt = "PS-outer> "

// shell is an interactive bash in a terminal that the test holds: the test is
// the terminal emulator and the person in front of it.
type shell struct {
	t      *testing.T
	master *os.File
	relay  string // what to type to run the relay
	dir    string // where the shell is

	mu     sync.Mutex
	cond   *sync.Cond
	screen []byte // all that was shown
	seen   int    // how much of it expect has passed
	closed bool
	answer func(shown []byte) []byte // called for each piece that is shown
}

func needs(t *testing.T, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs tool " + tool)
		}
	}
}

func newShell(t *testing.T, env ...string) *shell {
	t.Helper()
	needs(t, "bash", "stty")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "--norc", "--noprofile", "-i")
	cmd.Dir = t.TempDir()
	if err := os.Symlink(self, filepath.Join(cmd.Dir, "relay")); err != nil {
		t.Fatal(err)
	}
	inputrc := filepath.Join(cmd.Dir, ".inputrc")
	if err := os.WriteFile(inputrc, []byte("set enable-bracketed-paste off\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append([]string{"PS1=" + prompt, "TERM=xterm", "PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "LC_ALL=C.UTF-8",
		"INPUTRC=" + inputrc, "LESSHISTFILE=-", "GORACE=atexit_sleep_ms=0", "GOCOVERDIR=" + t.TempDir()}, env...)
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := SetSize(master, Size{Rows: 30, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	// A file that the runtime polls, so that closing it ends a read.
	fd, err := unix.FcntlInt(uintptr(descriptor(master)), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	master.Close()
	if err := unix.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "master")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	s := &shell{t: t, master: master, relay: roleVariable + "=relay ./relay ", dir: cmd.Dir}
	s.cond = sync.NewCond(&s.mu)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 32<<10)
		for {
			n, err := master.Read(buf)
			s.mu.Lock()
			s.screen = append(s.screen, buf[:n]...)
			s.closed = err != nil
			answer := s.answer
			s.cond.Broadcast()
			s.mu.Unlock()
			if err != nil {
				return
			}
			if answer != nil {
				if a := answer(buf[:n]); a != nil {
					master.Write(a)
				}
			}
		}
	}()
	t.Cleanup(func() {
		master.Close() // SIGHUP to all that is in the session
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-done
		endOrphans(t)
	})
	s.expect(prompt)
	return s
}

func (s *shell) send(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits until what is shown after the last expected piece contains
// want, and returns what stands before it.
func (s *shell) expect(want string) string {
	s.t.Helper()
	return s.expectMatch(regexp.MustCompile(regexp.QuoteMeta(want)))
}

func (s *shell) expectMatch(want *regexp.Regexp) string {
	s.t.Helper()
	late := false
	timer := time.AfterFunc(patience, func() {
		s.mu.Lock()
		late = true
		s.cond.Broadcast()
		s.mu.Unlock()
	})
	defer timer.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		rest := s.screen[s.seen:]
		if m := want.FindIndex(rest); m != nil {
			s.seen += m[1]
			return string(rest[:m[0]])
		}
		if late || s.closed {
			s.t.Fatalf("%q did not come; shown since: %q", want, rest)
		}
		s.cond.Wait()
	}
}

// start runs a shell script inside, and waits until it runs.
func (s *shell) start(script string) {
	s.t.Helper()
	s.send(s.relay + `sh -c 'echo re""ady; ` + script + "'\n")
	s.expect("ready\r\n")
}

// line runs a line in the outer shell and returns its output.
func (s *shell) line(command string) string {
	s.t.Helper()
	s.send(command + "\n")
	s.expect(command + "\r\n")
	return s.expect(prompt)
}

// settings is how the terminal is while the outer shell runs a command.
func (s *shell) settings() string {
	s.t.Helper()
	return s.line("stty -g")
}

// check runs body between two looks at the terminal's settings.
func (s *shell) check(body func()) {
	s.t.Helper()
	before := s.settings()
	body()
	if after := s.settings(); after != before {
		s.t.Errorf("the terminal was %q and is %q", before, after)
	}
	if got := s.line("echo mar''ker"); got != "marker\r\n" {
		s.t.Errorf("the shell's input is not clean: %q", got)
	}
}

func (s *shell) status(want string) {
	s.t.Helper()
	if got := s.line("echo status=$?"); got != "status="+want+"\r\n" {
		s.t.Errorf("got %q, want status %s", got, want)
	}
}

func TestRunInShell(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		out := s.line(s.relay + `sh -c 'test -t 0 && test -t 1 && test -t 2 && stty size; tty; exit 7'`)
		if !strings.HasPrefix(out, "30 100\r\n/dev/pts/") {
			t.Errorf("got %q", out)
		}
		s.status("7")
	})
	if outer, inner := s.line("tty"), s.line(s.relay+"tty"); outer == inner {
		t.Errorf("the person's terminal %q was handed inside", outer)
	}
}

func TestKeys(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		s.start(`trap "echo got-INT" INT; trap "echo got-QUIT; exit 3" QUIT; sleep 1000 & echo trapped; while :; do wait; done`)
		s.expect("trapped")
		s.send("\x03")
		s.expect("got-INT")
		s.send("\x1c")
		s.expect("got-QUIT")
		s.expect(prompt)
		s.status("3")
	})
	s.check(func() {
		s.start("exec cat")
		s.send("one\n")
		s.expect("one\r\none\r\n")
		s.send("\x04")
		s.expect(prompt)
		s.status("0")
	})
	s.check(func() {
		s.start("exec sleep 1000")
		s.send("\x03")
		s.expect(prompt)
		s.status("130")
	})
}

// waitRaw waits until a program has put the terminal into raw mode.
func (s *shell) waitRaw() {
	s.t.Helper()
	s.waitSettings(func(t *unix.Termios) bool { return t.Lflag&unix.ISIG == 0 })
}

func (s *shell) waitSettings(ok func(*unix.Termios) bool) {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		tio, err := unix.IoctlGetTermios(descriptor(s.master), getTermios)
		if err != nil {
			s.t.Fatal(err)
		}
		if ok(tio) {
			return
		}
	}
	s.t.Fatal("the terminal's settings did not change")
}

func TestSuspend(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		before := s.settings()
		s.start("exec cat")
		for i := range 3 {
			s.send("\x1a")
			s.expect("Stopped")
			s.expect(prompt)
			if now := s.settings(); now != before {
				t.Errorf("while it is stopped the terminal is %q, was %q", now, before)
			}
			if i == 1 { // in the background it may not take the terminal
				s.line("bg")
				s.waitJob("Stopped")
				if now := s.settings(); now != before {
					t.Errorf("after bg the terminal is %q, was %q", now, before)
				}
			}
			s.send("fg\n")
			s.waitRaw()
			s.send("hello\n")
			s.expect("hello\r\nhello\r\n")
		}
		s.send("\x04")
		s.expect(prompt)
		s.status("0")
	})
}

// waitJob waits until the shell's only job has the state.
func (s *shell) waitJob(state string) {
	s.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(s.line("jobs"), state) {
			return
		}
	}
	s.t.Fatalf("the job is not %s", state)
}

func TestSuspendResizes(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		// The script forks nothing while it waits: the kernel does not report a
		// process as stopped that waits for a child which stopped in vfork.
		s.start(`trap "stty size; exit" CONT; sleep 1000 & echo trapped; while :; do wait; done`)
		s.expect("trapped")
		s.send("\x1a")
		s.expect("Stopped")
		s.expect(prompt)
		if err := SetSize(s.master, Size{Rows: 11, Cols: 44}); err != nil {
			t.Fatal(err)
		}
		s.send("fg\n")
		s.expect("11 44\r\n")
		s.expect(prompt)
	})
}

func TestBackground(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		before := s.settings()
		s.line(s.relay + "cat &")
		s.waitJob("Stopped")
		if now := s.settings(); now != before {
			t.Errorf("a job in the background changed the terminal from %q to %q", before, now)
		}
		s.send("fg\n")
		s.waitRaw()
		s.send("hello\n\x04")
		s.expect("hello\r\nhello\r\n")
		s.expect(prompt)
	})
	s.check(func() {
		s.line(s.relay + "sh -c 'echo in-the-background >done' </dev/null &")
		s.waitJob("Done")
		if got := s.line("cat done"); got != "in-the-background\r\n" {
			t.Errorf("got %q", got)
		}
	})
	s.check(func() { // a job that may not be stopped may not change the terminal either
		out := s.line("(trap '' TTOU TTIN; " + s.relay + "true) & wait")
		if !strings.Contains(out, "runs in the background") {
			t.Errorf("got %q", out)
		}
	})
}

func TestStoppedFromOutside(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		s.start("exec cat")
		if err := unix.Kill(s.foreground(), unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		s.expect("Stopped")
		s.expect(prompt)
		s.send("fg\n")
		s.waitRaw()
		s.send("hello\n")
		s.expect("hello\r\nhello\r\n")
		s.send("\x04")
		s.expect(prompt)
	})
}

// foreground is the process group that has the terminal; its leader is the
// relay.
func (s *shell) foreground() int {
	s.t.Helper()
	group, err := unix.IoctlGetInt(descriptor(s.master), unix.TIOCGPGRP)
	if err != nil {
		s.t.Fatal(err)
	}
	return group
}

func TestResize(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		s.start(`trap "stty size; exit" WINCH; sleep 1000 & echo trapped; while :; do wait; done`)
		s.expect("trapped")
		if err := SetSize(s.master, Size{Rows: 17, Cols: 63}); err != nil {
			t.Fatal(err)
		}
		s.expect("17 63\r\n")
		s.expect(prompt)
	})
}

func TestSignals(t *testing.T) {
	for _, c := range []struct {
		name   string
		env    string
		signal unix.Signal
		shown  string
	}{
		{"SIGTERM", "", unix.SIGTERM, ""},
		{"SIGHUP", "", unix.SIGHUP, ""},
		{"SIGINT", "", unix.SIGINT, ""},
		{"panic", "BAILEY_TERMINAL_TEST_PANIC=1", unix.SIGQUIT, "as asked"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShell(t, c.env+"x=")
			if c.env != "" {
				s.line("export " + c.env)
			}
			s.check(func() {
				s.send(s.relay + `sh -c 'printf "\033[?1049h"; exec sleep 1000'` + "\n")
				s.expect("\x1b[?1049h")
				s.waitRaw()
				if err := unix.Kill(s.foreground(), c.signal); err != nil {
					t.Fatal(err)
				}
				if c.shown == "" {
					s.expect("\x1b[?1049l")
				} else {
					s.expect(c.shown)
				}
				s.expect(prompt)
			})
		})
	}
}

// answers is a terminal that answers queries, but only once it is asked for
// its status: as late as an answer can come.
func answers() func([]byte) []byte {
	queries := regexp.MustCompile("\x1b\\[c|\x1b\\]11;\\?\x07|\x1b\\[5n")
	replies := map[string]string{"\x1b[c": "\x1b[?62;1c", "\x1b]11;?\x07": "\x1b]11;rgb:1111/2222/3333\x07", "\x1b[5n": "\x1b[0n"}
	var shown []byte
	owed, done := "", 0
	return func(p []byte) []byte {
		shown = append(shown, p...)
		for {
			m := queries.FindIndex(shown[done:])
			if m == nil {
				return nil
			}
			query := string(shown[done+m[0] : done+m[1]])
			owed += replies[query]
			done += m[1]
			if query == "\x1b[5n" {
				a := owed
				owed = ""
				return []byte(a)
			}
		}
	}
}

func TestLateAnswers(t *testing.T) {
	s := newShell(t)
	s.answer = answers()
	s.check(func() {
		s.line(s.relay + `printf '\033[c\033]11;?\007'`)
	})
}

func TestNoAnswer(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		s.line(s.relay + `printf '\033[c'`)
	})
}

func TestTypedAhead(t *testing.T) {
	s := newShell(t)
	s.send(s.relay + "sleep 0.2; read -r later; echo \"later=$later\"\n")
	s.expect("later\"\r\n")
	s.waitRaw()
	s.waitSettings(func(t *unix.Termios) bool { return t.Lflag&unix.ISIG != 0 })
	s.send("kept\n")
	s.expect("later=kept\r\n")
}

func TestHostileOutput(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		out := s.line(s.relay + `printf '<\033]52;c;cm0gLXJm\007\033[21t\033[5i\033Ptmux;\033\033]52;c;?\007\033\134>\n'`)
		if got := strings.TrimPrefix(out, "\x1b[22;0t"); got != "<\x1b\\>\r\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestTerminalGone(t *testing.T) {
	for _, c := range []struct{ name, command, shown string }{
		{"quiet", "sh -c 'echo re''ady; exec sleep 1000'", "ready"},
		{"writing", "sh -c 'while :; do echo on-and-on; done'", "on-and-on\r\non-and-on"},
		{"full-screen", "less /etc/passwd", "root"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newShell(t)
			s.send(s.relay + c.command + "\n")
			s.expect(c.shown)
			relay := s.foreground()
			s.master.Close()
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if unix.Kill(relay, 0) != nil {
					return
				}
				if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", relay)); bytes.Contains(b, []byte(") Z")) {
					return
				}
			}
			t.Errorf("the relay (process %d) outlives its terminal", relay)
			_ = unix.Kill(relay, unix.SIGKILL)
		})
	}
}
