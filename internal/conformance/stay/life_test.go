//go:build linux

package stay

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// TestTimesAreWhatWasAsked is T05, T06 and T08 from the command line: no value is
// changed in silence.
func TestTimesAreWhatWasAsked(t *testing.T) {
	for _, who := range rig.People() {
		t.Run(who.Name, func(t *testing.T) {
			y := rig.New(t, who)
			y.Write("config.yaml", "quota: {each: {max_timeout: 2h}}\n", 0o600)
			y.Serve("--config", filepath.Join(y.Work, "config.yaml"))
			says(t, y, bailey.ExitBailey, "never", "create", "--timeout", "0")
			says(t, y, bailey.ExitBailey, "2h", "create", "--timeout", "24h")
			says(t, y, bailey.ExitBailey, "[quota_exceeded]", "create", "--timeout", "never")
			y.Must("create", "--name", "box", "--timeout", "30m")
			expires := func() string {
				_, rest, _ := strings.Cut(y.Must("show", "--json", "box"), `"expires": "`)
				at, _, _ := strings.Cut(rest, `"`)
				return at
			}
			at := expires()
			y.Must("exec", "box", "--", "true")
			y.Must("ls")
			y.Must("show", "box")
			if got := expires(); got != at || at == "" {
				t.Errorf("it expired at %s, and now at %s", at, got)
			}
			y.Must("extend", "--timeout", "1h", "box")
			if got := expires(); got <= at {
				t.Errorf("extended, it expires at %s", got)
			}
			says(t, y, bailey.ExitBailey, "2h", "extend", "--timeout", "24h", "box")
		})
	}
}

// TestKilledClients is T72: of clients that are killed at any moment nothing stays
// beyond their leases, and nothing is left on the host.
func TestKilledClients(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		var all []*started
		for range 12 {
			all = append(all, begin(t, y, "create", "--timeout", "never", "--lease", "1s", "--", "sleep", "1000"))
		}
		for i := 0; i < len(all); i += 3 { // at once; the others when there are sandboxes
			all[i].cmd.Process.Signal(syscall.SIGKILL)
		}
		waitUntil(t, "there is a sandbox", func() bool { return running("sleep") })
		for _, s := range all {
			s.cmd.Process.Signal(syscall.SIGKILL)
			s.cmd.Wait() // it was killed
		}
		waitUntil(t, "no sandbox is left", func() bool { return y.Must("ls", "-q") == "" })
		if out := y.Must("gc", "--dry-run", "--json"); strings.Contains(out, "kind") {
			t.Errorf("left behind: %s", out)
		}
	})
}

// dockerfile builds an image of one program from nothing.
const dockerfile = "FROM scratch\nCOPY busybox /bin/busybox\nRUN [\"/bin/busybox\", \"--install\", \"-s\", \"/bin\"]\n"

// project writes a folder that a template is built from.
func project(t *testing.T, y *rig.Yard, more string) string {
	t.Helper()
	b, err := os.ReadFile(testneeds.Tool(t, "busybox"))
	if err != nil {
		t.Fatal(err)
	}
	y.Write("project/busybox", string(b), 0o755)
	y.Write("project/Dockerfile", dockerfile+more, 0o644)
	return filepath.Join(y.Work, "project")
}

// TestBuildUnderAKilledDaemon is T82: a build ends failed when the daemon is killed,
// its log is kept, and it can be built again and removed.
func TestBuildUnderAKilledDaemon(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		dir := project(t, y, "RUN echo here-we-are; exec sleep 1000\n")
		s := begin(t, y, "template", "build", "-t", "app", dir)
		waitUntil(t, "the last step runs", func() bool { return running("sleep") })
		if !d.Kill() {
			t.Fatal("there is no daemon")
		}
		if code := s.wait(); code == 0 {
			t.Errorf("it said %s", &s.out)
		}
		waitUntil(t, "it has failed", func() bool { return strings.Contains(y.Run("template", "ls").Stdout, "failed") })
		waitUntil(t, "nothing of it runs", func() bool { return !running("sleep") })
		project(t, y, "RUN echo now > /made\n")
		y.Must("template", "build", "-t", "app", dir)
		if out := y.Must("template", "ls"); !strings.Contains(out, "ready") || strings.Contains(out, "failed") {
			t.Errorf("built again: %s", out)
		}
		y.Must("template", "rm", "app")
		if out := y.Must("template", "ls", "--json"); strings.Contains(out, "app") {
			t.Errorf("removed: %s", out)
		}
	})
}

// TestSavedWithoutItsBase is T16 and T83: a sandbox of a template that is deleted is
// saved, moved into another data folder and works there. T80 on the way: what was
// built before and has gone is built again.
func TestSavedWithoutItsBase(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		dir := project(t, y, "RUN echo base > /made\n")
		y.Must("template", "build", "-t", "app", dir)
		y.Must("create", "--template", "app", "--name", "box")
		y.Must("exec", "box", "--", "sh", "-c", "echo mine > /mine")
		y.Must("template", "rm", "app")
		y.Must("gc")
		y.Must("pause", "--to-disk", "box")
		file := filepath.Join(y.Temp, "saved.tar")
		snap := strings.TrimSpace(y.Must("snapshot", "create", "box"))
		y.Must("snapshot", "export", "-o", file, snap)
		y.Must("snapshot", "rm", snap)
		y.Must("rm", "box")
		y.Must("gc")
		says(t, y, bailey.ExitBailey, "[not_found]", "create", "--template", "app")

		y.Must("template", "build", "-t", "app", dir)
		y.Must("create", "--template", "app", "--name", "again")
		says(t, y, 0, "base\n", "exec", "again", "--", "cat", "/made")
		d.End() // the other yard counts all processes

		other := rig.New(t, y.Who)
		other.Serve()
		other.Must("snapshot", "import", "--name", "moved", file)
		other.Must("create", "--snapshot", "moved", "--name", "box")
		says(t, other, 0, "base\nmine\n", "exec", "box", "--", "cat", "/made", "/mine")
	})
}

// TestOneFolder is T87: one set of programs, one data folder and a unit for systemd
// are all that a server needs.
func TestOneFolder(t *testing.T) {
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		unit := y.Must("serve", "--install", "--home", y.Data)
		for _, want := range []string{"[Unit]", "[Service]", "[Install]", "ExecStart=", y.Data, "Restart="} {
			if !strings.Contains(unit, want) {
				t.Errorf("the unit has no %s:\n%s", want, unit)
			}
		}
		for range 5 {
			id := strings.TrimSpace(y.Must("create", "--", "sleep", "1000"))
			says(t, y, 0, "ok\n", "exec", id, "--", "echo", "ok")
		}
		for _, dir := range []string{y.Home, y.Temp, y.Work} {
			if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
				t.Errorf("%s has %v, %v", dir, list, err)
			}
		}
	})
}

// TestNoSecretIsStored is T14: of a secret that a sandbox uses nothing is in its
// files, its snapshots or what is exported.
func TestNoSecretIsStored(t *testing.T) {
	const value = "the-real-value-of-the-token"
	each(t, func(t *testing.T, y *rig.Yard, d *rig.Daemon) {
		set := y.Bailey("secret", "set", "TOKEN")
		set.Stdin = strings.NewReader(value)
		if r := y.Finish(set); r.Code != 0 {
			t.Fatal(r)
		}
		y.Must("create", "--name", "box", "--allow", "api.test", "--secret", "TOKEN@api.test")
		before := y.Must("exec", "box", "--", "sh", "-c", "cd; env > env; echo $TOKEN")
		if len(strings.TrimSpace(before)) < 8 || strings.Contains(before, value) {
			t.Fatalf("the sandbox sees %q", before)
		}
		set = y.Bailey("secret", "set", "TOKEN")
		y.Must("pause", "--to-disk", "box")
		set.Stdin = strings.NewReader("another-" + value)
		if r := y.Finish(set); r.Code != 0 {
			t.Fatal(r)
		}
		if after := y.Must("exec", "box", "--", "sh", "-c", "echo $TOKEN"); after != before {
			t.Errorf("it sees %q, and saw %q", after, before)
		}
		file := filepath.Join(y.Temp, "box.tar")
		y.Must("snapshot", "export", "-o", file, strings.TrimSpace(y.Must("snapshot", "create", "box")))
		if out, err := command("grep", "-rlaF", "--", value, y.Data, file); out != "" || err == nil {
			t.Errorf("the value is in %s (%v)", out, err)
		}
		if out, err := command("grep", "-rlaF", "--", strings.TrimSpace(before), y.Data+"/layers"); err != nil || out == "" {
			t.Errorf("the placeholder is not even found: %v", err) // the search finds what is there
		}
	})
}
