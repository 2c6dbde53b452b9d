package terminal

import (
	"strings"
	"testing"
	"time"
)

func TestPager(t *testing.T) {
	needs(t, "less", "seq")
	s := newShell(t)
	s.check(func() {
		s.line("seq 1000 2000 >numbers")
		s.send(s.relay + "less numbers\n")
		s.expect("1028")
		s.send(" ")
		s.expect("1057")
		s.expect(":\x1b[K") // its prompt
		s.stopPager()
		s.expect("Stopped")
		s.expect(prompt)
		s.send("fg\n")
		s.expect("\x1b[?1049h")
		s.expect("1057")
		s.send("q")
		s.expect("\x1b[?1049l")
		s.expect(prompt)
		s.status("0")
	})
}

// stopPager types ^Z to less, which leaves its screen before it stops. A
// signal that reaches less after its prompt and before its read has to wait
// for the next one (in less's iread), so it may take two.
func (s *shell) stopPager() {
	s.t.Helper()
	again := time.AfterFunc(2*time.Second, func() { s.master.WriteString("\x1a") })
	defer again.Stop()
	s.send("\x1a")
	s.expect("\x1b[?1049l")
}

func TestEditor(t *testing.T) {
	needs(t, "vim.tiny")
	s := newShell(t)
	s.answer = answers()
	s.check(func() {
		s.send(s.relay + "vim.tiny -u NONE file\n")
		s.expect("\x1b[?1049h")
		s.send("ihello, world\x1b")
		s.expect("hello, world")
		s.send(":w\r")
		s.expect("written")
		s.send("\x1a")
		s.expect("Stopped")
		s.expect(prompt)
		if got := s.line("cat file"); got != "hello, world\r\n" {
			t.Errorf("the file has %q", got)
		}
		s.send("fg\n")
		s.expect("\x1b[?1049h")
		s.expect("hello, world")
		s.send("x:wq\r")
		s.expect("\x1b[?1049l")
		s.expect(prompt)
		s.status("0")
	})
	s.check(func() { // killed, it cannot clean up behind itself
		s.send(s.relay + "sh -c 'echo $$ >pid; exec vim.tiny -u NONE file'\n")
		s.expect("\x1b[?1049h")
		s.expect("hello")
		s.send("\x1b:!kill -9 $PPID\r")
		s.expect("\x1b[?1049l")
		s.expect(prompt)
		s.status("137")
	})
}

func TestTop(t *testing.T) {
	needs(t, "top")
	s := newShell(t)
	s.check(func() {
		s.send(s.relay + "top -d 60\n")
		s.expect("COMMAND")
		s.send("q")
		s.expect(prompt)
		s.status("0")
	})
}

func TestMultiplexer(t *testing.T) {
	needs(t, "tmux")
	s := newShell(t)
	s.answer = answers()
	s.check(func() {
		s.send(s.relay + "env -u TMUX PS1=INNER tmux -f /dev/null -S ./socket new-session sh\n")
		s.expect("\x1b[?1049h")
		s.send("echo in''side\n")
		s.expect("inside")
		s.send("exit\n")
		s.expect("[exited]")
		s.expect(prompt)
		s.status("0")
	})
}

func TestShellInside(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		s.send(s.relay + "env PS1='inner> ' bash --norc --noprofile -i\n")
		s.expect("inner> ")
		s.send(`sh -c 'trap "echo went-on" CONT; echo re""ady; sleep 1000 & while :; do wait; done'` + "\n")
		s.expect("ready\r\n")
		s.send("\x1a")
		s.expect("Stopped")
		s.expect("inner> ") // and not the outer prompt: only the inner job stopped
		s.send("fg\n")
		s.expect("went-on\r\n")
		s.send("\x03")
		s.expect("inner> ")
		s.send("exit 5\n")
		s.expect(prompt)
		s.status("5")
	})
}

func TestPipelines(t *testing.T) {
	needs(t, "less", "seq")
	s := newShell(t)
	s.check(func() {
		out := s.line("echo from-the-pipe | " + s.relay + `sh -c 'test -t 0 || test -t 1 || echo pipes; cat'`)
		if out != "pipes\r\nfrom-the-pipe\r\n" {
			t.Errorf("got %q", out)
		}
		if out := s.line(s.relay + `printf 'a\r\nb\033[31m' | od -c | head -1`); !strings.Contains(out, `a  \r  \n   b 033   [   3   1   m`) {
			t.Errorf("bytes changed on the way to a pipe: %q", out)
		}
		if out := s.line(s.relay + `sh -c 'test -t 1 && test ! -t 2 && echo to-log >&2' 2>log; cat log`); out != "to-log\r\n" {
			t.Errorf("got %q", out)
		}
	})
	s.check(func() { // keys go to the pager beside us, all of them
		s.send(s.relay + "seq 1000 2000 | less\n")
		s.expect("1028")
		for _, page := range []string{"1057", "1086", "1115", "1144"} {
			s.send(" ")
			s.expect(page)
		}
		s.send("q")
		s.expect(prompt)
	})
	s.check(func() { // lines that are typed go to the command
		s.send(s.relay + "sh -c 'echo re''ady >&2; exec cat' >file\n")
		s.expect("ready\r\n")
		s.send("typed\n\x04")
		s.expect(prompt)
		if got := s.line("cat file"); got != "typed\r\n" {
			t.Errorf("the file has %q", got)
		}
	})
	s.check(func() { // ^C and ^Z of the terminal in its own mode
		s.send(s.relay + `sh -c 'trap "echo went-on >&2" CONT; echo re""ady >&2; sleep 1000 & while :; do wait; done' >file` + "\n")
		s.expect("ready\r\n")
		s.send("\x1a")
		s.expect("Stopped")
		s.expect(prompt)
		s.send("fg\n")
		s.expect("went-on\r\n")
		s.send("\x03")
		s.expect(prompt)
		s.status("130")
	})
	s.check(func() {
		out := s.line("BAILEY_TERMINAL_TEST_LIMIT=10 " + s.relay + `sh -c 'printf 1234567890abc; sleep 1000' | cat`)
		if !strings.Contains(out, "1234567890") || strings.Contains(out, "abc") || !strings.Contains(out, "limit reached after 10 bytes") {
			t.Errorf("got %q", out)
		}
	})
}
