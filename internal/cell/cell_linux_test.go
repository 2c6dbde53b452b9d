package cell

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

func TestCommandsAndFiles(t *testing.T) {
	r := start(t, nil)
	c := r.speak()
	if !c.PassesDescriptors() {
		t.Fatal("it takes no descriptors")
	}
	res, err := c.Run(testContext(t), sh("a", "cat; echo err >&2; exit 7"), strings.NewReader("in"), 1<<20)
	if err != nil || string(res.Stdout) != "in" || string(res.Stderr) != "err\n" || res.End.ExitCode != 7 {
		t.Fatalf("%+v %v", res, err)
	}
	path := filepath.Join(r.dir, "file")
	if _, err := c.WriteFile(testContext(t), path, strings.NewReader("content"), guest.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); string(b) != "content" {
		t.Fatalf("%q %v", b, err)
	}
}

// A terminal's master comes from the cell; its size is that of the command's own.
func TestTerminal(t *testing.T) {
	c := start(t, nil).speak()
	p, err := c.Exec(testContext(t), guest.ExecSpec{ID: "tty", Argv: []string{"sh", "-c", "read x; stty size; tty"}, Env: []string{"PATH=/usr/bin:/bin"},
		Terminal: &guest.Window{Rows: 20, Cols: 30}})
	if err != nil {
		t.Fatal(err)
	}
	if p.Stdout().File() == nil {
		t.Fatal("no master")
	}
	if err := p.Resize(testContext(t), guest.Window{Rows: 40, Cols: 50}); err != nil {
		t.Fatal(err)
	}
	io.WriteString(p.Stdin(), "go\n")
	all, err := io.ReadAll(p.Stdout())
	if err != nil || string(all) != "go\r\n40 50\r\n/dev/pts/0\r\n" {
		t.Fatalf("%q %v", all, err)
	}
}

func TestShutdown(t *testing.T) {
	r := start(t, nil)
	if err := r.speak().Shutdown(testContext(t), 0); err != nil {
		t.Fatal(err)
	}
	if code := r.exit(); code != ExitAsked {
		t.Fatal(code, r.errs.String())
	}
}

// The cell lives as long as somebody holds the owner's end, and not longer.
func TestLease(t *testing.T) {
	r := start(t, nil)
	c := r.speak()
	kept, err := r.owner.File()
	if err != nil {
		t.Fatal(err)
	}
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	spec := sh("s", "echo one; setsid sleep 300 & while :; do sleep 300; done")
	spec.Files = &[3]*os.File{nil, w, w}
	if _, err := c.Exec(testContext(t), spec); err != nil {
		t.Fatal(err)
	}
	w.Close()
	said := make([]byte, len("one\n"))
	if _, err := io.ReadFull(in, said); err != nil || string(said) != "one\n" {
		t.Fatalf("%q %v", said, err)
	}
	c.Close() // a daemon that dies
	next, err := guest.NewSocket(kept)
	if err != nil {
		t.Fatal(err)
	}
	c, err = guest.NewClient(testContext(t), next, guest.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.Attach(testContext(t), "s", guest.AttachOptions{})
	if err != nil || p.Pid() == 0 {
		t.Fatal(err)
	}
	c.Close()
	all, err := io.ReadAll(in) // until every process that holds it is gone
	if err != nil || len(all) != 0 {
		t.Fatalf("%q %v", all, err)
	}
	if code := r.exit(); code != ExitAsked {
		t.Fatal(code, r.errs.String())
	}
}

// How the inner program ends is how the cell does; what it said is kept.
func TestInnerEnds(t *testing.T) {
	for _, tc := range []struct {
		name, script string
		code         int
	}{
		{"before it answers", "echo broken >&2; exit 9", 9},
		{"well", "exit 0", ExitLost},
		{"by a signal", "kill -SEGV $$", 128 + int(unix.SIGSEGV)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := start(t, func(c *Config) { c.Inner = []string{"/bin/sh", "-c", tc.script} })
			if code := r.exit(); code != tc.code {
				t.Fatalf("%d: %s", code, r.errs.String())
			}
			if strings.Contains(tc.script, "broken") {
				b, err := os.ReadFile(filepath.Join(r.dir, "log"))
				if string(b) != "broken\n" || !strings.Contains(r.errs.String(), "broken") {
					t.Fatalf("%q %v %q", b, err, r.errs.String())
				}
			}
		})
	}
	t.Run("killed", func(t *testing.T) {
		r := start(t, nil)
		c := r.speak()
		if _, err := c.Exec(testContext(t), sh("x", "sleep 300")); err != nil {
			t.Fatal(err)
		}
		control := filepath.Join(r.dir, "control")
		a, _, err := Ask(testContext(t), control, Request{Act: ActState})
		if err != nil {
			t.Fatal(err)
		}
		// It may end before it answers.
		Ask(testContext(t), control, Request{Act: ActRun, Argv: []string{"/bin/sh", "-c", "kill -KILL $0", strconv.Itoa(a.State.Inner)}})
		if code := r.exit(); code != 137 {
			t.Fatal(code, r.errs.String())
		}
		<-c.Done()
		if bailey.CodeOf(c.Err()) != bailey.CodeSandboxLost {
			t.Fatal(c.Err())
		}
	})
}

func TestNothingAnswers(t *testing.T) {
	r := start(t, func(c *Config) {
		c.Inner = []string{"/bin/sh", "-c", "exec sleep 300"}
		c.StartWithin = 1
	})
	if code := r.exit(); code != ExitSilent {
		t.Fatal(code, r.errs.String())
	}
}

// A stream socket in place of standard input and output.
func TestStreamSocket(t *testing.T) {
	r := start(t, func(c *Config) {
		c.Stream = StreamSocket
		c.Inner = append(c.Inner[:len(c.Inner)-3], "/bin/sh", "-c", `exec "$0" --stdio --lease <&3 >&3`, c.Init)
	})
	res, err := r.speak().Run(testContext(t), sh("a", "echo over the socket"), nil, 100)
	if err != nil || string(res.Stdout) != "over the socket\n" {
		t.Fatalf("%+v %v", res, err)
	}
}

func TestDial(t *testing.T) {
	r := start(t, nil)
	r.speak()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				b, _ := io.ReadAll(c) // until the other half is closed
				c.Write(append([]byte("got "), b...))
			}()
		}
	}()
	control := filepath.Join(r.dir, "control")
	port := l.Addr().(*net.TCPAddr).Port
	for range 3 {
		a, f, err := Ask(testContext(t), control, Request{Act: ActDial, Port: port})
		if err != nil || a.Failed != nil || f == nil {
			t.Fatalf("%+v %v", a.Failed, err)
		}
		conn, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		big := bytes.Repeat([]byte("0123456789"), 50_000)
		go func() {
			conn.Write(big)
			conn.(*net.UnixConn).CloseWrite()
		}()
		all, err := io.ReadAll(conn)
		conn.Close()
		if err != nil || !bytes.Equal(all, append([]byte("got "), big...)) {
			t.Fatalf("%d bytes, %v", len(all), err)
		}
	}
	l.Close()
	a, f, err := Ask(testContext(t), control, Request{Act: ActDial, Port: port})
	if err != nil || f != nil || a.Failed == nil || !a.Failed.Refused {
		t.Fatalf("%+v %v %v", a.Failed, f, err)
	}
	a, _, err = Ask(testContext(t), control, Request{Act: ActState})
	if err != nil || a.State == nil || a.State.Guest != guest.Version || a.State.Inner <= 1 {
		t.Fatalf("%+v %v", a, err)
	}
	a, _, err = Ask(testContext(t), control, Request{Act: ActRun, Argv: []string{"/bin/sh", "-c", "echo hi; exit 3"}, Env: nil})
	if err != nil || a.Ran == nil || *a.Ran != (Ran{3, "hi\n"}) {
		t.Fatalf("%+v %v", a, err)
	}
	a, _, err = Ask(testContext(t), control, Request{Act: "unheard of"})
	if err != nil || a.Failed == nil || a.Failed.Code != bailey.CodeNotAvailable {
		t.Fatalf("%+v %v", a, err)
	}
}
