package linux

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// builtInit is where bailey-init was built, if it was.
var builtInit string

var buildInit = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("BAILEY_TEST_PROGRAMS"); dir != "" {
		return filepath.Join(dir, "bailey-init"), nil
	}
	dir, err := os.MkdirTemp("", "bailey-init")
	if err != nil {
		return "", err
	}
	builtInit = filepath.Join(dir, "bailey-init")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", builtInit, "github.com/bailey-sandbox/bailey/cmd/bailey-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return builtInit, nil
})

// yard is where the sandboxes of a test have their files: a process that makes
// one and the test that adopts it name the same.
type yard struct {
	Dir, Init string
	Level     bailey.Isolation
	Outlet    bool
	Late      bool
	Memory    int64
}

func newYard(t testing.TB, level bailey.Isolation) yard {
	t.Helper()
	init, err := buildInit()
	if err != nil {
		t.Fatal(err)
	}
	y := yard{Dir: t.TempDir(), Init: init, Level: level}
	for _, name := range []string{"lower/home", "layer/upper", "layer/work", "work", "work-layer/upper", "work-layer/work"} {
		if err := os.MkdirAll(filepath.Join(y.Dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, layer := range []string{"layer", "work-layer"} {
			for _, name := range []string{"", "/incompat", "/incompat/volatile"} {
				os.Chmod(filepath.Join(y.Dir, layer, "work/work"+name), 0o700)
			}
		}
		if _, several := subordinates(); several && os.Geteuid() != 0 {
			RemoveForeign(y.Dir)
		}
	})
	return y
}

func (y yard) driver() *Driver { return New(Options{State: y.Dir}) }

func (y yard) spec() driver.Spec {
	uid, gid := os.Geteuid(), os.Getegid()
	spec := driver.Spec{ID: "stay-" + ownerWord(y.Dir), Level: y.Level, Workdir: "/", Env: []string{"PATH=/usr/bin:/bin"},
		User:  driver.User{UID: uid, GID: gid, HostUID: uid, HostGID: gid},
		Entry: driver.Entry{Agent: y.Init}, Outlet: y.Outlet, LateMounts: y.Late}
	if y.Level == bailey.IsolationContainer {
		spec.Root.Base = &driver.Overlay{Lower: []string{filepath.Join(y.Dir, "lower")}, Layer: filepath.Join(y.Dir, "layer"), HostIDs: true}
	}
	spec.Limits.Memory = y.Memory
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	spec.Root.Places = append(programPlaces(), driver.Place{Kind: driver.CoW, Target: "/place", IsDir: true,
		Overlay: &driver.Overlay{Lower: []string{filepath.Join(y.Dir, "work")}, Layer: filepath.Join(y.Dir, "work-layer"), HostIDs: true}},
		driver.Place{Kind: driver.Bind, Source: program, Target: "/probe", ReadOnly: true, HostIDs: true})
	return spec
}

// stays makes one that the test holds itself.
func stays(t testing.TB, y yard) (driver.Staying, *guest.Client) {
	t.Helper()
	in, err := y.driver().Create(context.Background(), y.spec())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := in.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return in.(driver.Staying), speak(t, in)
}

// speak opens the conversation with a sandbox.
func speak(t testing.TB, in driver.Instance) *guest.Client {
	t.Helper()
	s, err := guest.NewSocket(in.Agent())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), testneeds.Slower(10*time.Second))
	defer cancel()
	c, err := guest.NewClient(ctx, s, guest.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sh runs a script in a sandbox and gives its output and status.
func sh(t testing.TB, c *guest.Client, script string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testneeds.Slower(20*time.Second))
	defer cancel()
	execs++
	res, err := c.Run(ctx, guest.ExecSpec{ID: fmt.Sprint("sh-", execs), Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}, nil, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout) + string(res.Stderr), res.End.End().Code()
}

var execs int

// makerVariable makes a test program the process that makes a sandbox and is
// then killed. Its value is the yard; descriptor 3 leads to the test.
const makerVariable = "BAILEY_TEST_MAKER"

// handed is what the maker says about its sandbox.
type handed struct {
	Record driver.Record
	Names  []string // of the descriptors that come along
}

func makeAndWait() error {
	var y yard
	if err := json.Unmarshal([]byte(os.Getenv(makerVariable)), &y); err != nil {
		return err
	}
	os.Unsetenv(makerVariable)
	d := y.driver()
	d.Warm(1, true) // what is made ahead goes with the maker
	in, err := d.Create(context.Background(), y.spec())
	if err != nil {
		return err
	}
	st := in.(driver.Staying)
	h := handed{Record: st.Record()}
	var fds []int
	for name, f := range st.Held() {
		h.Names = append(h.Names, name)
		fd, err := dup(f)
		if err != nil {
			return err
		}
		fds = append(fds, fd)
	}
	s, err := guest.NewSocket(in.Agent())
	if err != nil {
		return err
	}
	c, err := guest.NewClient(context.Background(), s, guest.ClientOptions{Framed: true})
	if err != nil {
		return err
	}
	// Something runs, says something, and waits for input.
	p, err := c.Exec(context.Background(), guest.ExecSpec{ID: "long", Argv: []string{"/bin/sh", "-c", "echo before; read x; echo $x; exit 3"}, Stdin: true, ManualAck: true})
	if err != nil {
		return err
	}
	b := make([]byte, 100)
	if _, err := p.Stdout().Read(b); err != nil {
		return err
	}
	// The conversation is cut in the middle of a frame, as by SIGKILL.
	raw, err := os.NewFile(uintptr(fds[indexOf(h.Names, driver.HeldAgent)]), "").SyscallConn()
	if err != nil {
		return err
	}
	raw.Control(func(fd uintptr) { unix.Write(int(fd), []byte{0xb5, 18, 0, 0, 1}) })
	msg, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(3, msg, unix.UnixRights(fds...), nil, 0); err != nil {
		return err
	}
	select {}
}

func indexOf(list []string, s string) int {
	for i, have := range list {
		if have == s {
			return i
		}
	}
	return -1
}

// maker is the process that made a sandbox.
type maker struct {
	cmd    *exec.Cmd
	record driver.Record
	files  map[string]*os.File
}

// make has a process of its own make a sandbox and hand its descriptors over.
// Orphans come to this process.
func (y yard) make(t *testing.T) *maker {
	t.Helper()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	defer unix.Close(pair[0])
	text, err := json.Marshal(y)
	if err != nil {
		t.Fatal(err)
	}
	m := &maker{cmd: exec.Command("/proc/self/exe"), files: map[string]*os.File{}}
	m.cmd.Env = append(os.Environ(), makerVariable+"="+string(text))
	m.cmd.ExtraFiles = []*os.File{theirs}
	var stderr bytes.Buffer
	m.cmd.Stderr = &stderr
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	buf, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(4*16))
	n, oobn, _, _, err := unix.Recvmsg(pair[0], buf, oob, unix.MSG_CMSG_CLOEXEC)
	if err != nil || n == 0 {
		m.cmd.Wait()
		t.Fatal(err, stderr.String())
	}
	var h handed
	if err := json.Unmarshal(buf[:n], &h); err != nil {
		t.Fatal(err)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != len(h.Names) {
		t.Fatal(err, fds)
	}
	for i, fd := range fds {
		m.files[h.Names[i]] = os.NewFile(uintptr(fd), h.Names[i])
	}
	m.record = h.Record
	t.Cleanup(func() {
		if m.cmd.ProcessState == nil {
			m.kill()
		}
		for _, f := range m.files {
			f.Close()
		}
	})
	return m
}

func (m *maker) kill() {
	m.cmd.Process.Kill()
	m.cmd.Wait()
}

// reap is how the keeper reaps.
func (m *maker) reap(context.Context) (syscall.WaitStatus, error) {
	var ws syscall.WaitStatus
	_, err := syscall.Wait4(m.record.Pid, &ws, 0, nil)
	return ws, err
}

func (m *maker) kept() driver.Kept {
	k := driver.Kept{Files: m.files, Wait: m.reap}
	m.files = nil
	return k
}

// await fails the test when a sandbox does not end.
func await(t testing.TB, in driver.Instance) bailey.End {
	t.Helper()
	select {
	case <-in.Done():
		return in.End()
	case <-time.After(20 * time.Second):
		t.Fatal("it did not end")
		panic("")
	}
}
