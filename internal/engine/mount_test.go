//go:build linux

package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

const listenVariable = "BAILEY_TEST_LISTEN"

func init() {
	children[listenVariable] = func() {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		if err := os.WriteFile("/tmp/port.new", []byte(strconv.Itoa(l.Addr().(*net.TCPAddr).Port)), 0o644); err != nil {
			panic(err)
		}
		os.Rename("/tmp/port.new", "/tmp/port")
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(c, c)
			c.Close()
		}
	}
}

// A port of a sandbox is reached, and whoever connects wakes it.
func TestDialPort(t *testing.T) {
	e := openEngine(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := create(t, e, api.SandboxSpec{Isolation: bailey.IsolationProcess, Mounts: []string{self + ":/opt/probe:ro"}})
	text := sh(t, e, s.ID, listenVariable+"=1 setsid /opt/probe >/dev/null 2>&1 & while [ ! -s /tmp/port ]; do sleep 0.01; done; cat /tmp/port")
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	say := func() {
		t.Helper()
		c, err := e.DialPort(t.Context(), s.ID, port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(patience))
		fmt.Fprint(c, "hello")
		c.(interface{ CloseWrite() error }).CloseWrite()
		if b, err := io.ReadAll(c); err != nil || string(b) != "hello" {
			t.Errorf("%q, %v", b, err)
		}
	}
	say()
	if _, err := e.DialPort(t.Context(), s.ID, 1); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := e.DialPort(t.Context(), "none", port); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Error(err)
	}
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{}); err != nil {
		if bailey.CodeOf(err) == bailey.CodeNotAvailable {
			return // no freezer here
		}
		t.Fatal(err)
	}
	say()
	if got, err := e.Sandbox(t.Context(), me, s.ID); err != nil || got.State != api.StateRunning {
		t.Errorf("%s, %v", got.State, err)
	}
}

// T85: a folder is added to a sandbox that runs. It is there at once, ro is
// enforced, and it is there in later generations.
func TestAddMount(t *testing.T) {
	e := openEngine(t)
	s := create(t, e, process)
	dir := filepath.Join(t.TempDir(), "added")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	target := sh(t, e, s.ID, "echo $HOME") + "/added"
	mount := dir + ":" + target + ":ro"
	for range 2 {
		got, err := e.AddMount(t.Context(), me, s.ID, mount, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Mounts) != 1 || got.Mounts[0] != mount || got.State != api.StateRunning {
			t.Errorf("%+v", got.Mounts)
		}
	}
	look := func() {
		t.Helper()
		if out := sh(t, e, s.ID, "cat "+target+"/file"); out != "of the host" {
			t.Errorf("%q", out)
		}
		if _, err := trySh(t, e, s.ID, "echo x > "+target+"/file"); err == nil {
			t.Error("it can be written to")
		}
		if n := sh(t, e, s.ID, "grep -c ' "+target+" ' /proc/self/mountinfo"); n != "1" {
			t.Errorf("it is mounted %s times", n)
		}
	}
	look()
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	look()
	for name, tc := range map[string]struct {
		mount string
		v     *api.VolumeMount
		who   Caller
		want  bailey.Code
	}{
		"another at the same place": {filepath.Dir(dir) + ":" + target + ":ro", nil, me, bailey.CodeConflict},
		"both":                      {mount, &api.VolumeMount{Volume: "v", Target: "/v"}, me, bailey.CodeUsage},
		"neither":                   {"", nil, me, bailey.CodeUsage},
		"no such folder":            {dir + "x:/x", nil, me, bailey.CodeNotFound},
		"from elsewhere":            {dir + ":/x", nil, Caller{Name: me.Name}, bailey.CodeForbidden},
		"the host":                  {"/:/host", nil, me, bailey.CodeHostRootEquivalent},
		"no volume":                 {"", &api.VolumeMount{Volume: "none", Target: "/v"}, me, bailey.CodeNotFound},
	} {
		if _, err := e.AddMount(t.Context(), tc.who, s.ID, tc.mount, tc.v); bailey.CodeOf(err) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := boxOf(t, e, s.ID).record(); r.Mounting != nil || len(r.Sandbox.Mounts) != 1 || len(r.Sandbox.Volumes) != 0 {
		t.Errorf("%+v", r.Sandbox)
	}
}
