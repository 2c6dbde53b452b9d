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

// build builds bailey-init once for all tests.
var buildInit = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "bailey-init")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "bailey-init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", bin, "github.com/bailey-sandbox/bailey/cmd/bailey-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	// Written back now: pages that are not yet on disk would count as the
	// process's own dirty memory.
	f, err := os.Open(bin)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return bin, f.Sync()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := buildInit2(); err == nil {
		os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// built is whether some test built bailey-init.
var built bool

func buildInit2() (string, error) {
	if !built {
		return "", os.ErrNotExist
	}
	return buildInit()
}

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
	built = true
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
	for _, mode := range []string{"descriptors", "stream"} {
		t.Run(mode, func(t *testing.T) {
			s := startSandbox(t, "--lease")
			test(t, s.client(mode == "stream"))
		})
	}
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
