package linux

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/pid1"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// smallSpec is a sandbox over the host's programs, as small as can be.
func smallSpec(t testing.TB, command ...string) driver.Spec {
	t.Helper()
	spec := driver.Spec{ID: strings.NewReplacer("/", "-", "#", "-").Replace(t.Name()), Level: bailey.IsolationProcess, Workdir: "/", Env: []string{"PATH=/usr/bin:/bin"},
		User: driver.User{UID: os.Geteuid(), GID: os.Getegid(), HostUID: os.Geteuid(), HostGID: os.Getegid()}}
	spec.Root.Places = programPlaces()
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.File, Target: "/etc/passwd", Content: []byte("root:x:0:0::/:/bin/sh\n"), Mode: 0o644})
	spec.Entry.Command = command
	return spec
}

// state is a folder the driver's user can reach and write to.
func state(t testing.TB) Options { return Options{State: t.TempDir()} }

func run(t testing.TB, d *Driver, spec driver.Spec) (string, bailey.End) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec.Entry.Stdio = [3]*os.File{nil, w, w}
	in, err := d.Create(context.Background(), spec)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(r)
	<-in.Done()
	if err := in.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	if err := in.Destroy(context.Background()); err != nil {
		t.Errorf("the second time: %v", err)
	}
	return string(out), in.End()
}

func TestProbe(t *testing.T) {
	d := New(state(t))
	for _, level := range []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer} {
		c := d.Probe(context.Background(), level)
		if !c.Available || !c.Overlay || c.Egress != driver.EgressTransparent || c.EgressFix != "" {
			t.Errorf("%s: %+v", level, c)
		}
		_, several := subordinates()
		if c.MultiUser != (os.Geteuid() == 0 || several && level == bailey.IsolationContainer) {
			t.Errorf("%s: %+v", level, c)
		}
		// Where several users exist, a limit by user is none of the sandbox.
		if one := os.Geteuid() == 0 || !c.MultiUser; one && !slices.Contains(c.Limits, "pids") {
			t.Errorf("%s: %+v", level, c)
		}
	}
}

func TestEnds(t *testing.T) {
	d := New(state(t))
	for _, tc := range []struct {
		name    string
		command []string
		want    bailey.End
	}{
		{"exit", []string{"sh", "-c", "exit 7"}, bailey.End{Reason: bailey.EndExit, ExitCode: 7}},
		{"signal", []string{"sh", "-c", "kill -SEGV $$"}, bailey.End{Reason: bailey.EndSignal, ExitCode: 139, Signal: "SIGSEGV"}},
		{"missing", []string{"no-such-command"}, bailey.End{Reason: bailey.EndNotStarted, ExitCode: 127}},
		{"not executable", []string{"/etc/passwd"}, bailey.End{Reason: bailey.EndNotStarted, ExitCode: 126}},
		{"empty name", []string{""}, bailey.End{Reason: bailey.EndNotStarted, ExitCode: 127}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, e := run(t, d, smallSpec(t, tc.command...))
			if e.Reason != tc.want.Reason || e.ExitCode != tc.want.ExitCode || e.Signal != tc.want.Signal {
				t.Errorf("%+v, want %+v", e, tc.want)
			}
		})
	}
}

func TestTimeoutEndsEverything(t *testing.T) {
	d := New(state(t))
	spec := smallSpec(t, "sh", "-c", "setsid sleep 1000 & trap '' TERM; sleep 1000")
	spec.Limits.Timeout = 200 * time.Millisecond
	_, e := run(t, d, spec) // returns when the last holder of the pipe has gone
	if e.Reason != bailey.EndTimeout || e.Code() != bailey.ExitTimeout {
		t.Errorf("%+v", e)
	}
}

func TestKillSaysWhy(t *testing.T) {
	d := New(state(t))
	in, err := d.Create(context.Background(), smallSpec(t, "sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	in.Kill(bailey.EndOutput)
	in.Kill(bailey.EndUser)
	<-in.Done()
	if e := in.End(); e.Reason != bailey.EndOutput {
		t.Errorf("%+v", e)
	}
	in.Destroy(context.Background())
	in.Kill(bailey.EndUser) // of something that has gone: nothing happens
}

func TestPid1KilledFromOutside(t *testing.T) {
	d := New(state(t))
	in, err := d.Create(context.Background(), smallSpec(t, "sleep", "1000"))
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	syscall.Kill(in.Pid(), syscall.SIGKILL)
	<-in.Done()
	if e := in.End(); e.Reason != bailey.EndHostLost || e.Code() != bailey.ExitBailey {
		t.Errorf("%+v", e)
	}
}

func TestRefusals(t *testing.T) {
	d := New(state(t))
	for _, tc := range []struct {
		name   string
		change func(*driver.Spec)
		code   bailey.Code
	}{
		{"no command", func(s *driver.Spec) { s.Entry.Command = nil }, bailey.CodeUsage},
		{"command and agent", func(s *driver.Spec) { s.Entry.Agent = "/bin/true" }, bailey.CodeUsage},
		{"other level", func(s *driver.Spec) { s.Level = bailey.IsolationGVisor }, bailey.CodeUsage},
		{"NUL in the environment", func(s *driver.Spec) { s.Env = []string{"A=a\x00b"} }, bailey.CodeUsage},
		{"relative working folder", func(s *driver.Spec) { s.Workdir = "x" }, bailey.CodeUsage},
		{"working folder by descriptor", func(s *driver.Spec) { s.Workdir = "/proc/self/fd/7" }, bailey.CodeUsage},
		{"the same in other words", func(s *driver.Spec) { s.Workdir = "/usr/..//proc/self/fd/7" }, bailey.CodeUsage},
		{"working folder that is not there", func(s *driver.Spec) { s.Workdir = "/nowhere" }, bailey.CodeUsage},
		{"place above the root", func(s *driver.Spec) {
			s.Root.Places = append(s.Root.Places, driver.Place{Kind: driver.Dir, Target: "/a/../.."})
		}, bailey.CodeUsage},
		{"source that is not there", func(s *driver.Spec) {
			s.Root.Places = append(s.Root.Places, driver.Place{Kind: driver.Bind, Source: "/nowhere", Target: "/x", IsDir: true})
		}, bailey.CodeSetupFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := openDescriptors(t)
			spec := smallSpec(t, "true")
			tc.change(&spec)
			if _, err := d.Create(context.Background(), spec); bailey.CodeOf(err) != tc.code {
				t.Errorf("got %v, want code %s", err, tc.code)
			}
			if after := openDescriptors(t); after > before+1 { // pid 1's program stays open
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

func TestWorkdirNamedLikeProc(t *testing.T) {
	spec := smallSpec(t, "pwd")
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Dir, Target: "/procedures", Mode: 0o755})
	spec.Workdir = "/procedures"
	if out, e := run(t, New(state(t)), spec); out != "/procedures\n" {
		t.Errorf("%q %+v", out, e)
	}
}

// What the sandbox's user writes in a mapped folder belongs to its owner on
// the host, under whatever id the user has inside.
func TestOwnersOfFiles(t *testing.T) {
	testneeds.Root(t, "an ordinary user has one id")
	for _, tc := range []struct{ inside, host int }{{0, 0}, {0, 1234}, {1000, 1234}, {1000, 70000}} {
		dir := t.TempDir()
		if err := os.Chown(dir, tc.host, tc.host); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "old"), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chown(filepath.Join(dir, "old"), tc.host, tc.host)
		spec := smallSpec(t, "sh", "-c", "cat old && echo y > new && stat -c %u old new")
		spec.User = driver.User{UID: tc.inside, GID: tc.inside, HostUID: tc.host, HostGID: tc.host}
		spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Bind, Source: dir, Target: "/data", IsDir: true, HostIDs: true})
		spec.Workdir = "/data"
		out, e := run(t, New(state(t)), spec)
		fields := strings.Fields(out)
		if e.ExitCode != 0 || len(fields) != 3 {
			t.Fatalf("%v: %q %+v", tc, out, e)
		}
		fi, err := os.Stat(filepath.Join(dir, "new"))
		if err != nil {
			t.Fatal(err)
		}
		if uid := int(fi.Sys().(*syscall.Stat_t).Uid); uid != tc.host {
			t.Errorf("%v: on the host the new file belongs to %d", tc, uid)
		}
	}
}

func TestTerminalHasTheGivenSize(t *testing.T) {
	spec := smallSpec(t, "sh", "-c", "tty; stty size; ps -o pgid=,tpgid= $$ >/dev/null; exec </dev/tty; echo tty-opened")
	spec.Entry.Terminal = &driver.WindowSize{Rows: 33, Cols: 77}
	d := New(state(t))
	in, err := d.Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	out, _ := io.ReadAll(in.Terminal()) // ends with EIO when the last slave is closed
	in.Terminal().Close()
	<-in.Done()
	in.Destroy(context.Background())
	for _, want := range []string{"/dev/pts/0", "33 77", "tty-opened"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in %q", want, out)
		}
	}
}

func TestCandidates(t *testing.T) {
	env := []string{"PATH=/a:/b::rel:/c/"}
	for _, tc := range []struct {
		name string
		want []string
	}{
		{"x", []string{"/a/x", "/b/x", "/c/x"}},
		{"./x", []string{"./x"}},
		{"/d/x", []string{"/d/x"}},
		{"", nil},
	} {
		if got := candidates(tc.name, env); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q", tc.name, got)
		}
	}
	if got := candidates("x", nil); len(got) != 3 {
		t.Errorf("without PATH: %q", got)
	}
}

func TestVerdictPrefersTheCommandsReport(t *testing.T) {
	exit := func(code int) uint32 { return uint32(code) << 8 }
	for _, tc := range []struct {
		name   string
		last   pid1.Report
		ws     syscall.WaitStatus
		reason bailey.Reason
		want   bailey.Reason
	}{
		{"report", pid1.Report{Kind: pid1.Ended, Value: exit(3)}, 0, "", bailey.EndExit},
		{"killed by us, though it had ended", pid1.Report{Kind: pid1.Ended, Value: exit(0)}, 9, bailey.EndTimeout, bailey.EndTimeout},
		{"no report", pid1.Report{}, 9, "", bailey.EndHostLost},
		{"not started", pid1.Report{Kind: pid1.NotStarted, Value: uint32(syscall.ENOENT)}, 0, "", bailey.EndNotStarted},
		{"an agent that left", pid1.Report{}, 0, "", bailey.EndExit},
	} {
		if got := verdict(tc.last, tc.ws, tc.reason, bailey.Limits{}); got.Reason != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got.Reason, tc.want)
		}
	}
}

// Nothing of a hundred sandboxes is left in this process or its folder.
func TestNothingIsLeft(t *testing.T) {
	d := New(state(t))
	run(t, d, smallSpec(t, "true"))
	before := openDescriptors(t)
	for range 100 {
		run(t, d, smallSpec(t, "true"))
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	left, _ := filepath.Glob("/sys/fs/cgroup/*/*" + "TestNothingIsLeft" + "*")
	if len(left) > 0 {
		t.Errorf("control groups: %v", left)
	}
}

func BenchmarkCreate(b *testing.B) {
	d := New(state(b))
	d.Warm(2, true)
	defer d.Close()
	for _, lower := range []int{0, 1, 20} {
		b.Run(fmt.Sprintf("lower-%d", lower), func(b *testing.B) {
			for b.Loop() {
				spec := smallSpec(b, "/bin/echo", "hi")
				if lower > 0 {
					spec.Level, spec.Root.Base = bailey.IsolationContainer, overlayOf(b, lower)
				}
				run(b, d, spec)
			}
		})
	}
}

// A container's root may give files away, but in a folder of the host only the
// owner's id is there to be had: a set-uid program of the host's root, or of
// anybody else, must not come out of it.
func TestContainersHaveOnlyTheOwnersID(t *testing.T) {
	testneeds.Root(t, "an ordinary user's containers hold none of the host's ids")
	for _, host := range []int{0, 1234} {
		dir := t.TempDir()
		if err := os.Chown(dir, host, host); err != nil {
			t.Fatal(err)
		}
		secret := filepath.Join(dir, "secret")
		if err := os.WriteFile(secret, []byte("others' own\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(secret, 4321, 4321); err != nil {
			t.Fatal(err)
		}
		spec := smallSpec(t, "sh", "-c", `cp /bin/true own && for id in 0 1 1000 1234 4321 65534; do
			cp /bin/true $id; chown $id:$id $id; chmod 4755 $id; done; cat secret; stat -c %u own`)
		spec.Level = bailey.IsolationContainer
		spec.User = driver.User{HostUID: host, HostGID: host}
		spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Bind, Source: dir, Target: "/data", IsDir: true, HostIDs: true})
		spec.Workdir = "/data"
		out, _ := run(t, New(state(t)), spec)
		if strings.Contains(out, "others' own") || !strings.HasSuffix(out, "\n0\n") {
			t.Errorf("owner %d: %q", host, out)
		}
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != 8 {
			t.Fatal(list, err)
		}
		for _, e := range list {
			fi, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			if uid := int(fi.Sys().(*syscall.Stat_t).Uid); e.Name() != "secret" && uid != host {
				t.Errorf("owner %d: %s belongs to %d on the host", host, e.Name(), uid)
			}
		}
	}
}

// A program that lends its owner's rights to all users of the host must not
// come out of a sandbox that writes the host's files as they are.
func TestNoSetUIDProgramsOnTheHost(t *testing.T) {
	for _, level := range []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer} {
		for _, omit := range [][]Protection{nil, {NoNoSetUID}} {
			dir := t.TempDir()
			// The container's root is its user here, as /usr belongs to nobody it knows.
			spec := smallSpec(t, "sh", "-c", "cp /bin/true x && chmod 4755 x")
			spec.Level = level
			if level == bailey.IsolationContainer {
				spec.User.UID, spec.User.GID = 0, 0
			}
			spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Bind, Source: dir, Target: "/data", IsDir: true, HostIDs: true})
			spec.Workdir = "/data"
			opt := state(t)
			opt.Omit = omit
			out, e := run(t, New(opt), spec)
			fi, err := os.Stat(filepath.Join(dir, "x"))
			if err != nil {
				t.Fatal(out, e, err)
			}
			if got, want := fi.Mode()&os.ModeSetuid != 0, len(omit) > 0; got != want || (e.ExitCode == 0) != want {
				t.Errorf("%s without %v: %v, %q %+v", level, omit, fi.Mode(), out, e)
			}
		}
	}
}
