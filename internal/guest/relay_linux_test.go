//go:build linux && (amd64 || arm64)

package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bailey "github.com/bailey-sandbox/bailey"
	"golang.org/x/sys/unix"
)

// inside gives a client of a server in this process, by bytes alone.
func inside(t testing.TB, s *Server) *Client {
	t.Helper()
	host, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- s.Serve(theirs) }()
	c, err := NewClient(testContext(t), host, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		<-served
	})
	return c
}

func newTestServer(t testing.TB) (*Server, string) {
	t.Helper()
	root := t.TempDir()
	s, err := NewServer(ServerOptions{Root: root})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.killEverything(syscall.SIGKILL)
		s.waitIdle(10 * time.Second)
		s.Close()
	})
	return s, root
}

// owners is a relay whose owners follow one another on one socket.
type owners struct {
	t      testing.TB
	kept   *os.File // another descriptor of the owner's end, as a keeper has it
	served chan error
	last   *Client
}

func newOwners(t testing.TB, in *Client) *owners {
	t.Helper()
	owner, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	o := &owners{t: t, served: make(chan error, 1)}
	if o.kept, err = owner.File(); err != nil {
		t.Fatal(err)
	}
	owner.Close()
	socket, err := NewSocket(theirs)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRelay(in)
	go func() { o.served <- r.Serve(socket) }()
	t.Cleanup(func() {
		o.kept.Close()
		<-o.served
		r.Close()
	})
	return o
}

// next gives the next owner's client, once the one before is gone.
func (o *owners) next() *Client {
	o.t.Helper()
	if o.last != nil {
		o.last.Close()
	}
	fd, err := dup(o.kept)
	if err != nil {
		o.t.Fatal(err)
	}
	s, err := NewSocket(os.NewFile(uintptr(fd), "owner"))
	if err != nil {
		o.t.Fatal(err)
	}
	c, err := NewClient(testContext(o.t), s, ClientOptions{})
	if err != nil {
		o.t.Fatal(err)
	}
	o.t.Cleanup(func() { c.Close() })
	o.last = c
	return c
}

func pipeOf(t testing.TB) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// An owner dies: commands go on with the pipes that a keeper holds, file requests end, and the next one
// finds both the commands and their ends.
func TestRelayOwners(t *testing.T) {
	s, root := newTestServer(t)
	o := newOwners(t, inside(t, s))
	c := o.next()
	in, inw := pipeOf(t)
	out, outw := pipeOf(t)
	spec := sh("x", "echo one; read a; echo $a; exit 5")
	spec.Files = &[3]*os.File{in, outw, outw}
	if _, err := c.Exec(testContext(t), spec); err != nil {
		t.Fatal(err)
	}
	in.Close()
	outw.Close()
	reading, stop := context.WithCancel(context.Background())
	defer stop()
	started := make(chan error, 1)
	go func() {
		started <- c.Watch(reading, "/", WatchOptions{}, func() { started <- nil }, func(WatchEvent) error { return nil })
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	c.Close()
	<-started
	io.WriteString(inw, "two\n")
	inw.Close()
	all, err := io.ReadAll(out) // nobody is there, and it goes on
	if err != nil || string(all) != "one\ntwo\n" {
		t.Fatalf("%q %v", all, err)
	}
	c = o.next()
	p, err := c.Attach(testContext(t), "x", AttachOptions{})
	if err != nil || !p.Existing() || p.Stdout() != nil || p.Pid() == 0 {
		t.Fatalf("%+v %v", p, err)
	}
	end, err := p.Wait(testContext(t))
	if err != nil || end.ExitCode != 5 || end.Output != [2]int64{-1, -1} {
		t.Fatalf("%+v %v", end, err)
	}
	// The first owner's watch does not count among the requests any more.
	for i := range MaxFileOps + 1 {
		if _, err := c.WriteFile(testContext(t), "/f", strings.NewReader("x"), WriteOptions{}); err != nil {
			t.Fatal(i, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(root, "f")); string(b) != "x" {
		t.Fatal(string(b), err)
	}
	p.Close()
	if err := c.Forget(testContext(t), "x"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Attach(testContext(t), "x", AttachOptions{}); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Fatal(err)
	}
}

// A terminal's master is there for each owner, with what nobody has read.
func TestRelayTerminalAgain(t *testing.T) {
	s, _ := newTestServer(t)
	o := newOwners(t, inside(t, s))
	spec := ExecSpec{ID: "tty", Argv: []string{"sh", "-c", "echo one; read x; echo two"}, Env: []string{"PATH=/usr/bin:/bin"}, Terminal: &Window{Rows: 3, Cols: 4}}
	p, err := o.next().Exec(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	readUntil(t, p.Stdout(), "one\r\n")
	p.Close()
	c := o.next()
	if p, err = c.Attach(testContext(t), "tty", AttachOptions{}); err != nil || p.Stdout() == nil || p.Stdout().File() == nil {
		t.Fatal(p, err)
	}
	io.WriteString(p.Stdin(), "x\n")
	if end, err := p.Wait(testContext(t)); err != nil || end.ExitCode != 0 {
		t.Fatal(end, err)
	}
	// The end was told after what came before it.
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(p.Stdout().File().Fd()), Events: unix.POLLIN}}, 0); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	c.Close()
	if p, err = o.next().Attach(testContext(t), "tty", AttachOptions{}); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(p.Stdout()); err != nil || string(all) != "x\r\ntwo\r\n" {
		t.Fatalf("%q %v", all, err)
	}
}

// The ends of pipes mean through the relay what they mean without it.
func TestRelayPipes(t *testing.T) {
	s, _ := newTestServer(t)
	c := newOwners(t, inside(t, s)).next()
	exec := func(id, script string, files [3]*os.File) *Process {
		t.Helper()
		spec := sh(id, script)
		spec.Files = &files
		p, err := c.Exec(testContext(t), spec)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f != nil {
				f.Close()
			}
		}
		return p
	}
	t.Run("whoever writes what nobody reads is told", func(t *testing.T) {
		out, w := pipeOf(t)
		p := exec("deaf", "exec yes", [3]*os.File{nil, w, nil})
		out.Read(make([]byte, 1))
		out.Close()
		if end, err := p.Wait(testContext(t)); err != nil || end.Signal != syscall.SIGPIPE {
			t.Fatalf("%+v %v", end, err)
		}
	})
	t.Run("whoever feeds what nobody reads is told", func(t *testing.T) {
		in, w := pipeOf(t)
		out, outw := pipeOf(t)
		exec("fed", "exec <&-; echo shut; read x <&1; sleep 300", [3]*os.File{in, outw, nil})
		out.Read(make([]byte, 5))
		for {
			if _, err := w.Write(make([]byte, 1<<10)); err != nil {
				if !errors.Is(err, syscall.EPIPE) {
					t.Fatal(err)
				}
				break
			}
		}
		c.Signal(testContext(t), "fed", syscall.SIGKILL, ScopeAll)
	})
	t.Run("input that is not read waits, and holds nobody", func(t *testing.T) {
		in, w := pipeOf(t)
		exec("slow", "exec sleep 300", [3]*os.File{in, nil, nil})
		w.SetWriteDeadline(time.Now().Add(200 * time.Millisecond)) // it blocks: nothing else tells
		n, err := io.Copy(w, io.LimitReader(zeros{}, 16<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > 2<<20 {
			t.Fatal(n, err)
		}
		if r := run(t, c, "beside", "echo ok"); string(r.Stdout) != "ok\n" {
			t.Fatalf("%+v", r)
		}
		c.Signal(testContext(t), "slow", syscall.SIGKILL, ScopeAll)
	})
	t.Run("an output ends with whoever holds it last", func(t *testing.T) {
		out, w := pipeOf(t)
		in, inw := pipeOf(t)
		p := exec("left", "exec 3<&0; (read x <&3; echo later) & echo now", [3]*os.File{in, w, nil})
		if end, err := p.Wait(testContext(t)); err != nil || end.ExitCode != 0 {
			t.Fatal(end, err)
		}
		io.WriteString(inw, "x\n")
		if all, err := io.ReadAll(out); err != nil || string(all) != "now\nlater\n" {
			t.Fatalf("%q %v", all, err)
		}
	})
	t.Run("a file is an input too", func(t *testing.T) {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte("0123456789"), 100_000)
		f.Write(want)
		f.Seek(0, io.SeekStart)
		out, w := pipeOf(t)
		exec("file", "exec cat", [3]*os.File{f, w, nil})
		if all, err := io.ReadAll(out); err != nil || !bytes.Equal(all, want) {
			t.Fatal(len(all), err)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// What runs inside from before the relay goes on and holds nothing; new commands start.
func TestRelayOverWhatRuns(t *testing.T) {
	s, root := newTestServer(t)
	before := inside(t, s)
	flood := sh("flood", "head -c 5000000 /dev/zero; echo done >"+root+"/done; read x")
	flood.Stdin = true
	if _, err := before.Exec(testContext(t), flood); err != nil {
		t.Fatal(err)
	}
	tty := ExecSpec{ID: "tty", Argv: []string{"sh", "-c", "read x; echo got $x"}, Env: []string{"PATH=/usr/bin:/bin"}, Terminal: &Window{Rows: 3, Cols: 4}}
	if _, err := before.Exec(testContext(t), tty); err != nil {
		t.Fatal(err)
	}
	before.Close()
	<-before.Done()
	in := inside(t, s)
	owner, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := NewSocket(theirs)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRelay(in)
	if err := r.Follow(testContext(t), 0); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(socket) }()
	defer func() { owner.Close(); <-served; r.Close() }()
	c, err := NewClient(testContext(t), owner, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for {
		if _, err := c.Stat(testContext(t), "/done", nil); err == nil {
			break
		}
		if testContext(t).Err() != nil {
			t.Fatal("it stands still")
		}
	}
	p, err := c.Attach(testContext(t), "tty", AttachOptions{})
	if err != nil || p.Stdout() == nil {
		t.Fatal(p, err)
	}
	io.WriteString(p.Stdin(), "it\n")
	readUntil(t, p.Stdout(), "got it\r\n")
	if r := run(t, c, "new", "echo new"); string(r.Stdout) != "new\n" {
		t.Fatalf("%+v", r)
	}
	again := sh("flood", "echo never")
	if p, err = c.Exec(testContext(t), again); err != nil || !p.Existing() {
		t.Fatal(p, err)
	}
	if err := p.Signal(testContext(t), syscall.SIGKILL, ScopeAll); err != nil {
		t.Fatal(err)
	}
	if end, err := p.Wait(testContext(t)); err != nil || end.Signal != syscall.SIGKILL {
		t.Fatal(end, err)
	}
}

// An execution from before the relay gets descriptors again, and loses nothing that was not
// acknowledged; one that has its own keeps them.
func TestRelayPlumbs(t *testing.T) {
	s, _ := newTestServer(t)
	before := inside(t, s)
	spec := sh("x", "echo one; read a; echo got $a; echo err >&2; exit 6")
	spec.Stdin = true
	if _, err := before.Exec(testContext(t), spec); err != nil {
		t.Fatal(err)
	}
	before.Close()
	<-before.Done()
	in := inside(t, s)
	r := NewRelay(in)
	if err := r.Follow(testContext(t), time.Hour); err != nil {
		t.Fatal(err)
	}
	owner, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := NewSocket(theirs)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(socket) }()
	defer func() { owner.Close(); <-served; r.Close() }()
	c, err := NewClient(testContext(t), owner, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stdin, w := pipeOf(t)
	out, outw := pipeOf(t)
	errs, errw := pipeOf(t)
	// Two bytes came before the relay did.
	p, err := c.Attach(testContext(t), "x", AttachOptions{Plumb: &[3]*os.File{stdin, outw, errw}, Offsets: [2]int64{2, 0}})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{stdin, outw, errw} {
		f.Close()
	}
	io.WriteString(w, "it\n")
	all, err := io.ReadAll(out)
	if err != nil || string(all) != "e\ngot it\n" {
		t.Fatalf("%q %v", all, err)
	}
	if all, err = io.ReadAll(errs); err != nil || string(all) != "err\n" {
		t.Fatalf("%q %v", all, err)
	}
	if end, err := p.Wait(testContext(t)); err != nil || end.ExitCode != 6 {
		t.Fatal(end, err)
	}
	p.Close()
	_, w2 := pipeOf(t)
	if _, err := c.Attach(testContext(t), "x", AttachOptions{Plumb: &[3]*os.File{nil, w2, nil}}); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Fatal(err)
	}
	if p, err = c.Attach(testContext(t), "x", AttachOptions{}); err != nil {
		t.Fatal(err)
	}
	if end, err := p.Wait(testContext(t)); err != nil || end.ExitCode != 6 {
		t.Fatal(end, err)
	}
}

// The same id again, of one that the inside has and the relay does not know, starts
// nothing and ends nothing.
func TestRelayFindsWhatRuns(t *testing.T) {
	s, _ := newTestServer(t)
	before := inside(t, s)
	spec := sh("x", "echo one; read a; exit 6")
	spec.Stdin = true
	if _, err := before.Exec(testContext(t), spec); err != nil {
		t.Fatal(err)
	}
	before.Close()
	<-before.Done()
	c := newOwners(t, inside(t, s)).next()
	p, err := c.Exec(testContext(t), spec)
	if err != nil || !p.Existing() {
		t.Fatal(p, err)
	}
	if st, err := c.Status(testContext(t), "x"); err != nil || st.State != StateRunning {
		t.Fatalf("%+v %v", st, err)
	}
	p.Signal(testContext(t), syscall.SIGKILL, ScopeAll)
	if end, err := p.Wait(testContext(t)); err != nil || end.Signal != syscall.SIGKILL {
		t.Fatal(end, err)
	}
}

// The inside goes: everybody is told, and what had come is not lost.
func TestRelayInsideGoes(t *testing.T) {
	s, _ := newTestServer(t)
	in := inside(t, s)
	o := newOwners(t, in)
	c := o.next()
	out, w := pipeOf(t)
	spec := sh("x", "echo before; sleep 300")
	spec.Files = &[3]*os.File{nil, w, nil}
	p, err := c.Exec(testContext(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	w.Close()
	if b := make([]byte, 7); true {
		if _, err := io.ReadFull(out, b); err != nil || string(b) != "before\n" {
			t.Fatal(string(b), err)
		}
	}
	in.Close()
	if _, err := p.Wait(testContext(t)); bailey.CodeOf(err) != bailey.CodeSandboxLost {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(out); err != nil || len(all) != 0 {
		t.Fatal(all, err)
	}
	if err := <-o.served; !errors.Is(err, ErrInside) {
		t.Fatal(err)
	}
	o.served <- nil
}
