package terminal

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// answered waits for what came of a question.
func (s *shell) answered(n, want string) {
	s.t.Helper()
	s.send("until [ -s answer" + n + " ]; do :; done; cat answer" + n + "; rm answer" + n + "\n")
	s.expect(want)
	s.expect(prompt)
}

// asking runs a shell script inside, which is to make the relay ask.
func (s *shell) asking(script string) {
	s.t.Helper()
	s.send(s.relay + "sh -c '" + script + "'\n")
}

// A question comes between the command and the person, and neither hears of the
// other meanwhile.
func TestAsk(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		s.asking("kill -USR1 $RELAY; exec cat > got")
		s.expect("question 1\r\n")
		s.expect("yes or no? ")
		s.send("maybx\x7fe\r")
		s.expect("heard <maybe>\r\n")
		s.expect("yes or no? ")
		s.send("no, all of it\x15yes\rbehind it")
		s.expect("heard <yes>\r\n")
		s.send("hello\n")
		s.expect("hello\r\n")
		s.send("\x04")
		s.expect(prompt)
		if got := s.line("cat got; rm got"); got != "hello\r\n" {
			t.Errorf("the command was told %q", got)
		}
		s.answered("1", "yes <nil>")
	})
	s.check(func() { // ^C is no answer, and not for the command
		s.asking("kill -USR1 $RELAY; exec cat")
		s.expect("yes or no? ")
		s.send("ye\x03")
		s.expect("^C\r\n")
		s.send("hello\n")
		s.expect("hello\r\nhello\r\n")
		s.send("\x04")
		s.expect(prompt)
		s.answered("1", "nothing the question was interrupted")
	})
	s.check(func() { // somebody else has answered
		s.asking("kill -USR1 $RELAY; exec cat")
		s.expect("yes or no? ")
		s.send("leave\r")
		s.expect("yes or no? \r\n") // only now is the question gone
		s.send("hello\n")
		s.expect("hello\r\nhello\r\n")
		s.send("\x04")
		s.expect(prompt)
		s.answered("1", "leave context canceled")
	})
}

func TestQuestionsQueue(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		s.asking("kill -USR1 $RELAY; until [ -e go ]; do :; done; kill -USR1 $RELAY; exec cat")
		s.expect("yes or no? ")
		if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.send("yes\r")
		s.expect("heard <yes>\r\n")
		s.expect("question 2\r\n")
		s.expect("yes or no? ")
		s.send("no\r")
		s.expect("heard <no>\r\n")
		s.send("\x04")
		s.expect(prompt)
		s.answered("1", "yes <nil>")
		s.answered("2", "no <nil>")
	})
}

// The command ends while its question is on the screen.
func TestEndWhileAsking(t *testing.T) {
	s := newShell(t)
	s.check(func() {
		s.asking("kill -USR1 $RELAY; until [ -e go ]; do :; done; exit 3")
		s.expect("yes or no? ")
		if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.expect(prompt)
		s.status("3")
	})
}

// A full-screen program is hidden by the question, and draws itself again.
func TestAskInEditor(t *testing.T) {
	needs(t, "vim.tiny")
	s := newShell(t)
	s.answer = answers()
	s.check(func() {
		s.send(s.relay + `sh -c 'echo hello, world > file; until [ -e go ]; do :; done && kill -USR1 $RELAY & exec vim.tiny -u NONE file'` + "\n")
		s.expect("\x1b[?1049h")
		s.expect("hello, world")
		if err := os.WriteFile(filepath.Join(s.dir, "go"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		s.expect("\x1b[?1049l")
		s.expect("question 1\r\n")
		s.expect("yes or no? ")
		s.send("yes\r")
		s.expect("heard <yes>\r\n")
		s.expect("\x1b[?1049h")
		s.expect("hello, world")
		s.send("ATHEN\x1b:wq\r")
		s.expect("\x1b[?1049l")
		s.expect(prompt)
		s.answered("1", "yes <nil>")
		if got := s.line("cat file"); got != "hello, worldTHEN\r\n" {
			t.Errorf("the file has %q", got)
		}
	})
}

func TestAskWithoutTerminal(t *testing.T) {
	r := &Relay{}
	if err := r.Ask(t.Context(), "", "", nil); err != ErrNoTerminal {
		t.Error(err)
	}
}

// What was typed before a person can have read the question is no answer.
func TestTypedBeforeTheQuestion(t *testing.T) {
	in, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	screen, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{in, keys, screen, out} {
		defer f.Close()
	}
	wake, err := newFlag()
	if err != nil {
		t.Fatal(err)
	}
	defer wake.close()
	keys.WriteString("yes\ryes\r")
	q := dialogue{in: descriptor(in), out: descriptor(out), cut: descriptor(wake.read), wake: descriptor(wake.read)}
	got := make(chan string, 1)
	go func() {
		err := q.hold("text\n", "prompt? ", func(line string) (string, bool) { got <- line; return "", true })
		if err != nil {
			got <- err.Error()
		}
	}()
	shown := ""
	for buf := make([]byte, 256); !strings.Contains(shown, "prompt? "); {
		n, err := screen.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		shown += string(buf[:n])
	}
	if shown != "\a\r\ntext\r\nprompt? " {
		t.Errorf("shown: %q", shown)
	}
	keys.WriteString("no\r")
	select {
	case line := <-got:
		if line != "no" {
			t.Errorf("the answer was %q", line)
		}
	case <-time.After(patience):
		t.Fatal("there was no answer")
	}
}

func TestEdit(t *testing.T) {
	for keys, want := range map[string]string{
		"no\r": "no", "nx\bo\n": "no", "\x7f\x7fno\r": "no", "zzz\x15no\r": "no", "n\x1b[Ao": "n",
		"n\x00\x1ao\x80\xff\r": "no", strings.Repeat("x", 100) + "\r": strings.Repeat("x", maxAnswer),
	} {
		if line, _, _, err := edit(nil, []byte(keys)); string(line) != want || err != nil {
			t.Errorf("%q: %q, %v", keys, line, err)
		}
	}
	for _, keys := range []string{"\x03", "no\x03", "\x04"} {
		if _, _, _, err := edit(nil, []byte(keys)); err != ErrInterrupted {
			t.Errorf("%q: %v", keys, err)
		}
	}
}
