//go:build linux

package engine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// programsVariable names a folder with programs of Bailey that are built already.
const programsVariable = "BAILEY_TEST_PROGRAMS"

// builtPrograms are bailey-init and baileyd, built when the first test asks.
var builtPrograms struct {
	sync.Once
	dir string
	err error
}

// children are what this test program is in other processes, by the variable that
// says so; see crash_test.go.
var children = map[string]func(){}

func TestMain(m *testing.M) {
	for variable, child := range children {
		if os.Getenv(variable) != "" {
			child()
			return
		}
	}
	// What a killed engine leaves behind comes to this process.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		panic(err)
	}
	code := m.Run()
	if builtPrograms.dir != "" {
		os.RemoveAll(builtPrograms.dir)
	}
	os.Exit(code)
}

// programs gives the folder of bailey-init, baileyd and bailey-keeper.
func programs(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv(programsVariable); dir != "" {
		return dir
	}
	builtPrograms.Do(func() {
		if builtPrograms.dir, builtPrograms.err = os.MkdirTemp("", "bailey-engine-"); builtPrograms.err != nil {
			return
		}
		os.Chmod(builtPrograms.dir, 0o755)
		cmd := exec.Command("go", "build", "-o", builtPrograms.dir+"/", "./cmd/bailey-init", "./cmd/bailey-cell", "./cmd/baileyd", "./cmd/bailey-keeper")
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			builtPrograms.err = fmt.Errorf("go build: %w: %s", err, out)
		}
	})
	if builtPrograms.err != nil {
		t.Fatal(builtPrograms.err)
	}
	return builtPrograms.dir
}

// me is the caller that tests are.
var me = Caller{Name: "uid:0", Local: true}

// newHome makes a data folder.
func newHome(t testing.TB) string {
	t.Helper()
	home := t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // overlayfs leaves folders that only RemoveTree can enter
		list, _ := os.ReadDir(home)
		for _, f := range list {
			if err := folder.RemoveTree(filepath.Join(home, f.Name())); err != nil {
				t.Error(err)
			}
		}
	})
	return home
}

// openEngine opens an engine without a keeper in a new data folder. What it leaves
// running at the end is a failure.
func openEngine(t testing.TB, change ...func(*Options)) *Engine {
	t.Helper()
	dir := programs(t)
	opt := Options{Home: newHome(t), Init: filepath.Join(dir, "bailey-init"), Daemon: filepath.Join(dir, "baileyd")}
	for _, c := range change {
		c(&opt)
	}
	e, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return e
}

// create makes a sandbox, at the process level unless the spec says otherwise.
func create(t testing.TB, e *Engine, spec api.SandboxSpec) api.Sandbox {
	t.Helper()
	s, err := e.Create(t.Context(), me, spec)
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	return s
}

// process is the least spec.
var process = api.SandboxSpec{Isolation: bailey.IsolationProcess}

// sh runs a shell command in a sandbox, waking it, and gives what it printed. A
// status other than 0 is a failure.
func sh(t testing.TB, e *Engine, id, script string) string {
	t.Helper()
	out, err := trySh(t, e, id, script)
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out
}

func trySh(t testing.TB, e *Engine, id, script string) (string, error) {
	t.Helper()
	u, err := e.awake(t.Context(), me, id)
	if err != nil {
		return "", err
	}
	defer u.release()
	shSeq.Lock()
	shSeq.n++
	n := shSeq.n
	shSeq.Unlock()
	res, err := u.client.Run(t.Context(), guest.ExecSpec{ID: fmt.Sprintf("test-%d", n), Argv: []string{"sh", "-c", script}, Env: u.gen.env, Dir: u.gen.workdir, User: u.gen.user}, nil, 1<<20)
	if err != nil {
		return "", err
	}
	if end := res.End.End(); end.ExitCode != 0 {
		return string(res.Stdout), fmt.Errorf("%s: %s", end, res.Stderr)
	}
	return strings.TrimSuffix(string(res.Stdout), "\n"), nil
}

var shSeq struct {
	sync.Mutex
	n int
}

// patience is how long a busy machine may take for anything.
const patience = time.Minute

// eventually waits until ok says yes: within tells how soon that is to be expected,
// and a busy machine gets its time.
func eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	within = max(within, patience)
	for deadline := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, within)
		}
	}
}
