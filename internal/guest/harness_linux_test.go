//go:build linux && (amd64 || arm64)

package guest

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// stream hides that a Socket passes descriptors: a plain byte stream.
type stream struct{ io.ReadWriteCloser }

// buildInit gives bailey-init, which it builds once for all tests unless that was done before.
var buildInit = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("BAILEY_TEST_PROGRAMS"); dir != "" {
		bin := filepath.Join(dir, "bailey-init")
		return bin, written(bin)
	}
	dir, err := os.MkdirTemp("", "bailey-init")
	if err != nil {
		return "", err
	}
	builtDir = dir
	bin := filepath.Join(dir, "bailey-init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "github.com/bailey-sandbox/bailey/cmd/bailey-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	return bin, written(bin)
})

// written puts a program on disk: pages that are not there yet would count as
// the dirty memory of the process that runs it.
func written(program string) error {
	f, err := os.Open(program)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

func TestMain(m *testing.M) {
	code := m.Run()
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	os.Exit(code)
}

// builtDir is where some test built bailey-init, "" if none did.
var builtDir string

// sandbox is a real bailey-init as the first process of new pid and mount
// namespaces.
type sandbox struct {
	t      testing.TB
	cmd    *exec.Cmd
	socket *Socket
	done   chan struct{} // closed once bailey-init has gone
}

// startSandbox starts one; args are bailey-init's.
func startSandbox(t testing.TB, args ...string) *sandbox {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: new pid and mount namespaces")
	}
	bin, err := buildInit()
	if err != nil {
		t.Fatal(err)
	}
	host, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	// The shell mounts what the sandbox sees of itself, as a driver does.
	cmd := exec.Command("/bin/sh", append([]string{"-c", `mount -t proc proc /proc && mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx && exec "$0" "$@"`, bin}, args...)...)
	cmd.Env = append(InitEnv(), "PATH="+os.Getenv("PATH"))
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	s := &sandbox{t: t, cmd: cmd, socket: host, done: make(chan struct{})}
	go func() { cmd.Wait(); close(s.done) }()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-s.done
		host.Close()
	})
	return s
}

// both runs a test against a real bailey-init, over each kind of transport.
func both(t *testing.T, test func(t *testing.T, c *Client)) {
	for _, mode := range []string{"descriptors", "stream", "relayed"} {
		t.Run(mode, func(t *testing.T) {
			s := startSandbox(t, "--lease")
			if mode == "relayed" {
				test(t, s.relayed())
				return
			}
			test(t, s.client(mode == "stream"))
		})
	}
}

// relayed gives a client that passes descriptors to a relay, which speaks with bailey-init
// by bytes alone.
func (s *sandbox) relayed() *Client {
	s.t.Helper()
	return relayTo(s.t, s.client(true))
}

// relayTo gives the client of a relay before an inside.
func relayTo(t testing.TB, inside *Client) *Client {
	t.Helper()
	owner, theirs, err := Pair()
	if err != nil {
		t.Fatal(err)
	}
	socket, err := NewSocket(theirs)
	if err != nil {
		t.Fatal(err)
	}
	r := NewRelay(inside)
	served := make(chan error, 1)
	go func() { served <- r.Serve(socket) }()
	t.Cleanup(func() {
		owner.Close()
		<-served
		r.Close()
	})
	c, err := NewClient(testContext(t), owner, ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if !c.PassesDescriptors() {
		t.Fatal("the relay takes no descriptors")
	}
	return c
}

func (s *sandbox) client(framed bool) *Client {
	s.t.Helper()
	var rw io.ReadWriteCloser = s.socket
	if framed {
		rw = stream{s.socket}
	}
	c, err := NewClient(testContext(s.t), rw, ClientOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	if c.PassesDescriptors() == framed {
		s.t.Fatalf("PassesDescriptors is %v", !framed)
	}
	return c
}

func sh(id, script string) ExecSpec {
	return ExecSpec{ID: id, Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}

// run runs a shell script to its end.
func run(t testing.TB, c *Client, id, script string) RunResult {
	t.Helper()
	r, err := c.Run(testContext(t), sh(id, script), nil, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// feedAll hands d all that r has, until its end.
func feedAll(d *decoder, r io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		if err != nil {
			return
		}
		d.feed(buf[:n])
	}
}
