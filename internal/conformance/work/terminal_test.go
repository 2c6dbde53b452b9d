//go:build linux

package work

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// TestShell: an interactive shell with job control works inside as outside.
func TestShell(t *testing.T) {
	testneeds.Tool(t, "bash")
	each(t, func(t *testing.T, y *rig.Yard, l level) {
		s := openScreen(t, y, y.Bailey(l.run([]string{"--env", "PS1=in> ", "--keep"}, "bash", "--norc", "--noprofile", "-i")...))
		before := s.modes()
		s.expect("in> ")
		s.send("stty size\r")
		s.expect("24 80")
		s.expect("in> ")
		s.resize(40, 132) // the news of it comes when it comes
		s.send("until [ \"$(stty size)\" = '40 132' ]; do :; done; echo resi\"\"zed\r")
		s.expect("resized")
		s.expect("in> ")
		// The job itself says when it is in the foreground: what is typed before
		// that would reach the shell. It starts no programs: one that is stopped
		// between vfork and exec holds its parent, which then does not stop.
		s.send("sh -c 'trap \"echo cont\"inued CONT; echo st\"\"art; while :; do :; done'\r")
		s.expect("start")
		s.send("\x1a")
		s.expect("Stopped")
		s.expect("in> ")
		s.send("fg\r")
		s.expect("continued")
		s.send("\x1a")
		s.expect("Stopped")
		s.expect("in> ")
		s.send("bg\r")
		s.expect("continued")
		s.send("jobs\r")
		s.expect("Running")
		s.send("kill %1; sh -c 'echo rea\"\"dy; exec cat'\r") // until ^C
		s.expect("ready\r\n")
		s.send("got\r")
		s.expect("got\r\ngot")
		s.send("\x03")
		s.expect("in> ")
		s.send("tty; exit 3\r")
		s.expect("/dev/pts/")
		if code := s.wait(before); code != 3 {
			t.Errorf("exit code %d", code)
		}
	})
}

// TestFullScreen: programs that draw the whole screen.
func TestFullScreen(t *testing.T) {
	cases := map[string]struct {
		command []string
		play    func(s *screen)
	}{
		"vim.tiny": {[]string{"vim.tiny", "-u", "NONE", "written"}, func(s *screen) {
			s.expect("written")
			s.send("ihello from vim\x1b:wq\r")
		}},
		"less": {[]string{"less", "long"}, func(s *screen) {
			s.expect("line 1\r\n")
			s.send("G")
			s.expect("line 500")
			s.send("q")
		}},
		"tmux": {[]string{"tmux", "-f", "/dev/null", "-L", "inside", "new-session", "sh"}, func(s *screen) {
			s.expect("[0] 0:sh")
			s.send("echo in-tm''ux > written; echo wri''tten\r")
			s.expect("written")
			s.send("exit\r")
		}},
	}
	for tool, c := range cases {
		t.Run(tool, func(t *testing.T) {
			testneeds.Tool(t, tool)
			each(t, func(t *testing.T, y *rig.Yard, l level) {
				y.Write("long", strings.Repeat("line 1\n", 499)+"line 500\n", 0o644)
				s := openScreen(t, y, y.Bailey(l.run([]string{"--keep"}, c.command...)...))
				before := s.modes()
				c.play(s)
				if code := s.wait(before); code != 0 {
					t.Errorf("exit code %d: %q", code, s.shown)
				}
			})
		})
	}
}

// TestQuestion: on a terminal the person is asked, and what is answered happens.
func TestQuestion(t *testing.T) {
	for answer, check := range map[string]func(t *testing.T, y *rig.Yard, content string){
		"apply\r": func(t *testing.T, y *rig.Yard, content string) {
			if content != "new\n" {
				t.Errorf("the file has %q", content)
			}
		},
		"d\r": func(t *testing.T, y *rig.Yard, content string) {
			if list := y.List(); content != "old\n" || len(list) != 0 {
				t.Errorf("the file has %q; %v", content, list)
			}
		},
		"k\r": func(t *testing.T, y *rig.Yard, content string) {
			if list := y.List(); content != "old\n" || len(list) != 1 || list[0].State != "kept" {
				t.Errorf("the file has %q; %v", content, list)
			}
		},
		"\x04": func(t *testing.T, y *rig.Yard, content string) { // end of file: no answer
			if list := y.List(); content != "old\n" || len(list) != 1 || list[0].State != "kept" {
				t.Errorf("the file has %q; %v", content, list)
			}
		},
	} {
		t.Run(strings.TrimSpace(strings.ReplaceAll(answer, "\x04", "end")), func(t *testing.T) {
			y := rig.New(t, rig.Self())
			y.Write("file", "old\n", 0o644)
			s := openScreen(t, y, y.Bailey("run", "--", "sh", "-c", "echo new > file"))
			before := s.modes()
			s.expect("[a]pply, [d]iscard, [k]eep or [s]how? ")
			s.send("s\r")
			s.expect("+new")
			s.expect("[a]pply, [d]iscard, [k]eep or [s]how? ")
			s.send(answer)
			if code := s.wait(before); code != 0 {
				t.Errorf("exit code %d", code)
			}
			b, err := os.ReadFile(filepath.Join(y.Work, "file"))
			if err != nil {
				t.Fatal(err)
			}
			check(t, y, string(b))
		})
	}
}
