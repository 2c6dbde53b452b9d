//go:build linux

package egress

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/internet"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// stage is what the process in the outer namespaces is to do, as JSON in the
// environment variable stageVariable.
type stage struct {
	Dir       string
	Furnished bool
	CA        *internet.Authority
	Sockets   internet.Sockets
}

const stageVariable = "BAILEY_EGRESS_STAGE"

// onlyVariable names the cases, or the clients, to run, with commas, while one is worked on.
const onlyVariable = "BAILEY_EGRESS_ONLY"

var inside *stage

func TestMain(m *testing.M) {
	if text := os.Getenv(stageVariable); text != "" {
		var s stage
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			panic(err)
		}
		if !s.Furnished {
			fmt.Fprintln(os.Stderr, enter(s))
			os.Exit(1)
		}
		os.Unsetenv(stageVariable)
		inside = &s
	}
	rig.Main(m)
}

// enter furnishes the outer namespaces and starts again without the rights that
// it took.
func enter(s stage) (err error) {
	runtime.LockOSThread()
	if s.Sockets, err = internet.Furnish(s.Dir, s.CA); err != nil {
		return err
	}
	s.Furnished = true
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return err
	}
	os.Setenv(stageVariable, string(text))
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}

// TestEgress runs the suite in namespaces of its own.
func TestEgress(t *testing.T) {
	testneeds.Tool(t, "ip", "nsenter")
	outer(t, "^TestStage([^C]|Ca|Co)")
}

// outer runs tests of the inner part in namespaces of their own.
func outer(t *testing.T, tests string) {
	t.Helper()
	testneeds.Host(t, testneeds.UserNS)
	dir, err := os.MkdirTemp("/var/tmp", "bailey-egress-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// The program lies where only its builder may look; the inner part becomes
	// nobody else.
	s := stage{Dir: dir}
	if s.CA, err = internet.NewAuthority(); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=" + tests, "-test.timeout=9m"}
	if testing.Verbose() {
		args = append(args, "-test.v")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	internet.Outer(cmd)
	cmd.Env = append(os.Environ(), stageVariable+"="+string(text), "TMPDIR="+dir)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// attackProgram builds the attack program once, and gives its path.
func attackProgram(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "attack")
	if _, err := os.Stat(path); err == nil {
		return path
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, "./attack")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the attacker: %v\n%s", err, out)
	}
	return path
}
