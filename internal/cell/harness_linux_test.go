package cell

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// built is where some test built the programs, "" if none did.
var built string

// programs gives the folder with bailey-cell and bailey-init.
var programs = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("BAILEY_TEST_PROGRAMS"); dir != "" {
		return dir, nil
	}
	dir, err := os.MkdirTemp("", "bailey-cell")
	if err != nil {
		return "", err
	}
	built = dir
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir,
		"github.com/bailey-sandbox/bailey/cmd/bailey-cell", "github.com/bailey-sandbox/bailey/cmd/bailey-init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", &exec.Error{Name: string(out), Err: err}
	}
	// Pages that are not on disk yet would count as the memory of the process that runs them.
	f, err := os.Open(filepath.Join(dir, "bailey-cell"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	return dir, f.Sync()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

func program(t testing.TB, name string) string {
	t.Helper()
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// running is a bailey-cell as the first process of namespaces of its own.
type running struct {
	t      testing.TB
	cmd    *exec.Cmd
	owner  *guest.Socket
	dir    string // with its files: config.json, log, control
	errs   bytes.Buffer
	done   chan struct{} // closed once it has gone
	client *guest.Client
}

// insideScript starts bailey-init as the first process of namespaces below the cell's, as a
// stand-in for a program with a kernel of its own. The place of its stream is the last argument.
const insideScript = `mount -t proc proc /proc && mount -t devpts -o newinstance,ptmxmode=0666 devpts /dev/pts && mount --bind /dev/pts/ptmx /dev/ptmx && exec "$@"`

// start starts a cell; change may change its configuration.
func start(t testing.TB, change func(*Config)) *running {
	t.Helper()
	testneeds.Root(t, "new pid and mount namespaces")
	r := &running{t: t, dir: t.TempDir(), done: make(chan struct{})}
	initProgram := program(t, "bailey-init")
	cfg := Config{
		Inner: []string{"/usr/bin/unshare", "--pid", "--mount", "--fork", "--kill-child", "/bin/sh", "-c", insideScript, "sh", initProgram, "--stdio", "--lease"},
		Env:   append(guest.InitEnv(), "PATH=/usr/bin:/bin:/usr/sbin:/sbin"), Init: initProgram,
		Log: filepath.Join(r.dir, "log"), Control: filepath.Join(r.dir, "control"), StartWithin: 30,
	}
	if change != nil {
		change(&cfg)
	}
	b, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(r.dir, "config.json")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	owner, theirs, err := guest.Pair()
	if err != nil {
		t.Fatal(err)
	}
	r.owner = owner
	r.cmd = exec.Command("/bin/sh", "-c", insideScript, "sh", program(t, "bailey-cell"), "--lease", path)
	r.cmd.Env = append(guest.InitEnv(), "PATH="+os.Getenv("PATH"))
	r.cmd.ExtraFiles = []*os.File{theirs}
	r.cmd.Stderr = &r.errs
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS, Unshareflags: syscall.CLONE_NEWNS}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	go func() { r.cmd.Wait(); close(r.done) }()
	t.Cleanup(func() {
		r.cmd.Process.Kill()
		<-r.done
		owner.Close()
		if t.Failed() {
			t.Logf("the cell said: %s", r.errs.String())
		}
	})
	return r
}

// speak opens the conversation.
func (r *running) speak() *guest.Client {
	r.t.Helper()
	c, err := guest.NewClient(testContext(r.t), r.owner, guest.ClientOptions{})
	if err != nil {
		<-r.done
		r.t.Fatal(err, r.errs.String())
	}
	r.t.Cleanup(func() { c.Close() })
	r.client = c
	return c
}

// exit waits for the cell's end and gives its exit code.
func (r *running) exit() int {
	<-r.done
	return r.cmd.ProcessState.ExitCode()
}

func sh(id, script string) guest.ExecSpec {
	return guest.ExecSpec{ID: id, Argv: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}}
}
