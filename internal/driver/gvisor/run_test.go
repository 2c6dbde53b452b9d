package gvisor_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/gvisor"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// What it writes, and nothing else, lies in its layer.
func TestRun(t *testing.T) {
	r := newRig(t)
	// What a crash has left is in nobody's way.
	if err := os.MkdirAll(filepath.Join(r.state, "own", "sandbox", "left"), 0o700); err != nil {
		t.Fatal(err)
	}
	out, end := r.run(r.spec("sh", "-c", "uname -r; hostname; id -u; echo $HOME; dmesg | head -1; echo x >/root/new; echo y >/tmp/kept; rm /bin/yes; exit 7"))
	if want := "4.19.0-gvisor\ninside\n0\n/root\n[   0.000000] Starting gVisor...\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if end.Reason != bailey.EndExit || end.ExitCode != 7 {
		t.Errorf("%+v", end)
	}
	var made []string
	err := filepath.WalkDir(filepath.Join(r.layer, "upper"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			made = append(made, strings.TrimPrefix(p, filepath.Join(r.layer, "upper")))
		}
		return err
	})
	if err != nil || !slices.Equal(made, []string{"/bin/yes", "/root/new", "/tmp/kept"}) {
		t.Errorf("%v %v", made, err)
	}
	if _, err := os.Lstat(filepath.Join(r.state, "own")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder is left: %v", err)
	}
}

func TestEnds(t *testing.T) {
	r := newRig(t)
	for name, c := range map[string]struct {
		command []string
		reason  bailey.Reason
		code    int
	}{
		"well":           {[]string{"true"}, bailey.EndExit, 0},
		"badly":          {[]string{"sh", "-c", "exit 128"}, bailey.EndExit, 128},
		"by a signal":    {[]string{"sh", "-c", "kill -9 $$"}, bailey.EndExit, 137},
		"absent":         {[]string{"no-such-command"}, bailey.EndNotStarted, 127},
		"not executable": {[]string{"/etc"}, bailey.EndNotStarted, 126},
	} {
		t.Run(name, func(t *testing.T) {
			r := &rig{t: t, d: r.d, state: r.state, root: r.root, layer: layer(t)}
			out, end := r.run(r.spec(c.command...))
			if end.Reason != c.reason || end.ExitCode != c.code {
				t.Errorf("%+v, want %s with %d: %s", end, c.reason, c.code, out)
			}
		})
	}
}

func TestTimeoutAndKill(t *testing.T) {
	r := newRig(t)
	s := r.spec("sleep", "1000")
	s.Limits.Timeout = 700 * time.Millisecond
	if _, end := r.run(s); end.Reason != bailey.EndTimeout {
		t.Errorf("%+v", end)
	}
	r.layer = layer(t)
	in, output := r.start(r.spec("sleep", "1000"))
	in.Kill(bailey.EndUser)
	output()
	if end := in.End(); end.Reason != bailey.EndUser {
		t.Errorf("%+v", end)
	}
}

// A signal reaches the command.
func TestSignal(t *testing.T) {
	r := newRig(t)
	ready := filepath.Join(r.layer, "upper/root/ready")
	in, output := r.start(r.spec("sh", "-c", "trap 'echo got it; exit 5' TERM; touch /root/ready; while :; do sleep 0.05; done"))
	for deadline := time.Now().Add(within); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not come to work")
		}
	}
	if err := in.Signal(15); err != nil {
		t.Fatal(err)
	}
	if out := output(); out != "got it\n" || in.End().ExitCode != 5 {
		t.Errorf("%q %+v", out, in.End())
	}
}

// Its places are seen inside as in a container.
func TestPlaces(t *testing.T) {
	r := newRig(t)
	shared, copied, kept := t.TempDir(), t.TempDir(), t.TempDir()
	for _, dir := range []string{shared, copied} {
		if err := os.WriteFile(filepath.Join(dir, "f"), []byte("the host's\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		os.Chmod(kept, 0o755)
	}
	s := r.spec("sh", "-c", `cat /made/file /place/f /shared/f /ro/f; readlink /made/link
		echo a >/place/f; echo b >/shared/g; echo c >/kept/h; echo d >/ro/f || echo refused; ls /bin/hidden; ls /made; stat -c %u:%a /made/file`)
	s.Root.Places = []driver.Place{
		{Kind: driver.Dir, Target: "/made", Mode: 0o755},
		{Kind: driver.File, Target: "/made/file", Content: []byte("made\n"), Mode: 0o640},
		{Kind: driver.Symlink, Target: "/made/link", Source: "/somewhere"},
		{Kind: driver.CoW, Target: "/place", IsDir: true, HostIDs: true, Overlay: &driver.Overlay{Lower: []string{copied}, Layer: layer(t), HostIDs: true}},
		{Kind: driver.Bind, Target: "/shared", Source: shared, IsDir: true, HostIDs: true},
		{Kind: driver.Bind, Target: "/ro", Source: shared, IsDir: true, ReadOnly: true, HostIDs: true},
		{Kind: driver.Scratch, Target: "/kept", Source: kept, IsDir: true, HostIDs: true},
	}
	out, end := r.run(s)
	want := "made\nthe host's\nthe host's\nthe host's\n/somewhere\nsh: can't create /ro/f: Read-only file system\nrefused\nls: /bin/hidden: No such file or directory\nfile\nlink\n0:640\n"
	if out != want || end.ExitCode != 0 {
		t.Errorf("%q, want %q; %+v", out, want, end)
	}
	for path, want := range map[string]string{copied + "/f": "the host's\n", shared + "/g": "b\n", kept + "/h": "c\n", shared + "/f": "the host's\n"} {
		if b, err := os.ReadFile(path); string(b) != want {
			t.Errorf("%s: %q %v", path, b, err)
		}
	}
}

// With several ids a program may become another user, and its files are that user's.
func TestUsers(t *testing.T) {
	testneeds.Host(t, testneeds.SubordinateID)
	r := newRig(t)
	s := r.spec("sh", "-c", "id -u; id -g; touch /tmp/mine; stat -c %u:%g /tmp/mine; chown 0:0 /tmp/mine || echo refused")
	s.User.UID, s.User.GID = 1234, 1235
	if out, end := r.run(s); out != "1234\n1235\n1234:1235\nchown: /tmp/mine: Operation not permitted\nrefused\n" {
		t.Errorf("%q %+v", out, end)
	}
}

func TestMemoryLimit(t *testing.T) {
	testneeds.Host(t, testneeds.Cgroups)
	r := newRig(t)
	s := r.spec("sh", "-c", "dd if=/dev/zero of=/dev/shm/x bs=1000000 count=500")
	s.Limits.Memory = 128 << 20
	if out, end := r.run(s); end.Reason != bailey.EndOOM || end.Limit != s.Limits.Memory {
		t.Errorf("%+v %s", end, out)
	}
}

func TestProbe(t *testing.T) {
	r := newRig(t)
	c := r.d.Probe(context.Background(), bailey.IsolationGVisor)
	if !c.Available || c.Egress != driver.EgressTransparent {
		t.Errorf("%+v", c)
	}
	absent := gvisor.New(gvisor.Options{State: r.state, Runsc: filepath.Join(r.state, "absent")})
	if c := absent.Probe(context.Background(), bailey.IsolationGVisor); c.Available || !strings.Contains(c.Fix, "./scripts/levels gvisor") {
		t.Errorf("%+v", c)
	}
	if _, err := absent.Create(context.Background(), r.spec("true")); bailey.CodeOf(err) != bailey.CodeIsolationUnavailable {
		t.Error(err)
	}
}
