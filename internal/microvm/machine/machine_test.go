//go:build linux && amd64

package machine

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/microvm/kit"
)

// programs is where Bailey's programs and the kit lie.
func programs(t testing.TB) string {
	if dir := os.Getenv("BAILEY_TEST_PROGRAMS"); dir != "" {
		return filepath.Join(dir, "levels")
	}
	return "../../../bin"
}

var unpacked struct {
	sync.Mutex
	dir string
}

func openKit(t testing.TB) *kit.Kit {
	t.Helper()
	unpacked.Lock()
	defer unpacked.Unlock()
	if unpacked.dir == "" {
		dir, err := os.MkdirTemp("", "microvm-kit")
		if err != nil {
			t.Fatal(err)
		}
		unpacked.dir = dir
	}
	k, err := kit.Open(filepath.Join(programs(t), kit.FileName), unpacked.dir)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(unpacked.dir)
	os.Exit(code)
}

// config is a machine over a root with busybox in it.
func config(t testing.TB) Config {
	t.Helper()
	k := openKit(t)
	root := t.TempDir()
	for _, d := range []string{"bin", "proc", "sys", "dev", "tmp", "work"} {
		if err := os.Mkdir(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), b, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sh", "ls", "cat", "uname", "ps", "ip", "date", "stat", "id", "head", "od", "tr", "mv", "rm"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return Config{
		Monitor: filepath.Join(k.Root(), k.Manifest.Monitor), Firmware: filepath.Join(k.Root(), "usr/share/qemu"), Vmlinux: k.Vmlinux(), Initramfs: k.Initramfs(),
		Root: root, Memory: 256 << 20, CPUs: 1, Host: "guest-1",
	}
}

// buffer is a log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// pair is the stream to bailey-init: its owner's end and the machine's.
func pair(t testing.TB) (ours, theirs *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), "agent"), os.NewFile(uintptr(fds[1]), "agent")
}

// attend ends a machine with the test, and speaks to bailey-init in it.
func attend(t testing.TB, m *Machine, ours *os.File, log *buffer) *guest.Client {
	t.Helper()
	t.Cleanup(func() {
		m.Kill()
		m.Wait()
		if t.Failed() {
			t.Logf("the machine's log:\n%s", log)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	client, err := guest.NewClient(ctx, ours, guest.ClientOptions{})
	if err != nil {
		t.Fatalf("reach bailey-init: %v", err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// boot starts a machine and speaks to bailey-init in it.
func boot(t testing.TB, c Config) (*Machine, *guest.Client) {
	t.Helper()
	ours, theirs := pair(t)
	log := &buffer{}
	begin := time.Now()
	m, err := Start(c, theirs, log)
	theirs.Close()
	if err != nil {
		t.Fatal(err, log)
	}
	client := attend(t, m, ours, log)
	t.Logf("ready after %v", time.Since(begin).Round(time.Millisecond))
	return m, client
}

func sh(t testing.TB, c *guest.Client, script string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	begin := time.Now()
	r, err := c.Run(ctx, guest.ExecSpec{ID: fmt.Sprint("t", begin.UnixNano()), Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/bin"}}, nil, 1<<20)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	t.Logf("%v: %s", time.Since(begin).Round(time.Millisecond), script)
	if r.End.ExitCode != 0 || r.End.Signal != 0 {
		t.Errorf("%s: %+v\n%s%s", script, r.End, r.Stdout, r.Stderr)
	}
	return string(r.Stdout) + string(r.Stderr)
}

func TestMachine(t *testing.T) {
	c := config(t)
	c.Console = os.Getenv("BAILEY_TEST_CONSOLE") != ""
	_, client := boot(t, c)
	if got := sh(t, client, "uname -r; uname -n; cat /proc/1/cmdline"); got != openKit(t).Kernel+"\nguest-1\nbailey-init\x00--stdio\x00" {
		t.Errorf("inside is %q", got)
	}
	got := sh(t, client, `set -e; cd /work
		echo hello > a; mkdir d; mv a d/b; ln d/b c; chmod 600 c; cat d/b; stat -c '%h %a %s' c
		exec 4<>c; ls -l /proc/self/fd/4 >/dev/null; cat <&4`)
	if got != "hello\n2 600 6\nhello\n" {
		t.Errorf("files inside: %q", got)
	}
	if b, err := os.ReadFile(filepath.Join(c.Root, "work/d/b")); err != nil || string(b) != "hello\n" {
		t.Errorf("outside the file has %q: %v", b, err)
	}
}
