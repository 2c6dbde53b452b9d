package gvisor_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/gvisor"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// programs gives the folder with Bailey's programs and runsc.
func programs(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("BAILEY_TEST_PROGRAMS")
	if dir == "" {
		dir = "../../../bin"
	} else {
		dir = filepath.Join(dir, "levels")
	}
	dir, err := filepath.Abs(dir)
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, "runsc"))
	}
	if err != nil {
		t.Fatalf("%v: ./scripts/levels gvisor builds it", err)
	}
	return dir
}

// applets are what a root file system of busybox has.
var applets = []string{"sh", "cat", "echo", "ls", "id", "uname", "sleep", "touch", "mkdir", "rm", "nc", "ip", "stty", "kill", "true", "dmesg", "mount", "hostname", "chown", "stat", "nslookup", "yes", "head", "readlink", "dd"}

// busybox makes a root file system with a shell.
func busybox(t testing.TB) string {
	t.Helper()
	program := testneeds.Tool(t, "busybox")
	root := filepath.Join(t.TempDir(), "root")
	for _, dir := range []string{"bin", "etc", "tmp", "root"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", program, filepath.Join(root, "bin/busybox")).CombinedOutput(); err != nil {
		t.Fatal(err, string(out))
	}
	for _, name := range applets {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// rig is a driver and what its sandboxes are made of.
type rig struct {
	t     testing.TB
	d     *gvisor.Driver
	state string
	root  string
	layer string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	testneeds.Host(t, testneeds.UserNS)
	testneeds.Host(t, testneeds.Overlay)
	r := &rig{t: t, state: t.TempDir(), root: busybox(t), layer: layer(t)}
	r.d = r.other()
	return r
}

// other gives one more driver, as another process would have it.
func (r *rig) other() *gvisor.Driver {
	dir := programs(r.t)
	return gvisor.New(gvisor.Options{Outer: linux.New(linux.Options{State: r.state}), State: r.state,
		Runsc: filepath.Join(dir, "runsc"), Cell: filepath.Join(dir, "bailey-cell")})
}

// layer makes a folder for an overlay's writes.
func layer(t testing.TB) string {
	dir := t.TempDir()
	for _, name := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // overlayfs makes folders there that their owner may not read
		for _, name := range []string{"", "/incompat", "/incompat/volatile"} {
			os.Chmod(filepath.Join(dir, "work/work"+name), 0o700)
		}
	})
	return dir
}

// spec is a sandbox that runs a command.
func (r *rig) spec(command ...string) driver.Spec {
	s := driver.Spec{
		ID: "gvisor-test", Own: filepath.Join(r.state, "own"), Level: bailey.IsolationGVisor, Hostname: "inside", Workdir: "/",
		Root: driver.Root{Base: &driver.Overlay{Lower: []string{r.root}, Layer: r.layer}},
		Env:  []string{"PATH=/bin", "HOME=/root"},
	}
	s.User.HostUID, s.User.HostGID = os.Geteuid(), os.Getegid()
	s.Entry.Command = command
	return s
}

// within bounds everything that a test waits for.
const within = 60 * time.Second

// start starts a sandbox. What it writes comes from the function, which waits for the end of it.
func (r *rig) start(s driver.Spec) (driver.Instance, func() string) {
	r.t.Helper()
	rd, wr, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	s.Entry.Stdio[1], s.Entry.Stdio[2] = wr, wr
	in, err := r.d.Create(context.Background(), s)
	wr.Close()
	if err != nil {
		r.t.Fatal(err)
	}
	var out bytes.Buffer
	done := make(chan struct{})
	go func() { out.ReadFrom(rd); rd.Close(); close(done) }()
	r.t.Cleanup(func() { in.Destroy(context.Background()) })
	return in, func() string {
		r.t.Helper()
		select {
		case <-in.Done():
		case <-time.After(within):
			r.t.Fatal("it does not end")
		}
		<-done
		return out.String()
	}
}

// run runs a command to its end and gives its output.
func (r *rig) run(s driver.Spec) (string, bailey.End) {
	r.t.Helper()
	in, output := r.start(s)
	out := output()
	if err := in.Destroy(context.Background()); err != nil {
		r.t.Error(err)
	}
	return out, in.End()
}
