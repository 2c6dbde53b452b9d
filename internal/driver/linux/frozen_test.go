package linux

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// withoutV2 makes a driver take this machine for one that has no cgroup version 2.
func withoutV2(t *testing.T, d *Driver) {
	t.Helper()
	root := t.TempDir()
	for _, name := range []string{"mountinfo", "cgroup"} {
		b, err := os.ReadFile("/proc/self/" + name)
		if err != nil {
			t.Fatal(err)
		}
		kept := ""
		for line := range strings.Lines(string(b)) {
			if !strings.Contains(line, " cgroup2 ") {
				kept += line
			}
		}
		p := filepath.Join(root, "proc/self", name)
		os.MkdirAll(filepath.Dir(p), 0o755)
		if err := os.WriteFile(p, []byte(kept), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"sys", "dev"} {
		if err := os.Symlink("/"+dir, filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	d.cgroups.Do(func() { d.host = cgroup.Detect(root) })
	if d.host.Mode() != cgroup.V1 || !d.host.CanFreeze() {
		t.Skip(testneeds.CgroupV1.Reason("there is no freezer to write to"))
	}
}

// One that is frozen is destroyed, with either version of control groups.
func TestDestroyFrozen(t *testing.T) {
	for _, v1 := range []bool{false, true} {
		name := map[bool]string{false: "as found", true: "version 1"}[v1]
		t.Run(name, func(t *testing.T) {
			y := newYard(t, bailey.IsolationContainer)
			d := y.driver()
			if v1 {
				withoutV2(t, d)
			} else if !d.cgroupHost().CanFreeze() {
				t.Skip(testneeds.Cgroups.Reason("none can freeze"))
			}
			in, err := d.Create(context.Background(), y.spec())
			if err != nil {
				t.Fatal(err)
			}
			c := speak(t, in)
			if out, _ := sh(t, c, "sleep 1000 & echo started"); out != "started\n" {
				t.Errorf("%q", out)
			}
			for range 2 {
				if err := in.Pause(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if err := in.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
			if e := await(t, in); e.Reason != bailey.EndUser {
				t.Errorf("%+v", e)
			}
		})
	}
}

func BenchmarkFreeze(b *testing.B) {
	y := newYard(b, bailey.IsolationContainer)
	in, c := stays(b, y)
	sh(b, c, "sleep 1000 & sleep 1000 & sleep 1000 &")
	var frozen, thawed laps
	for b.Loop() {
		frozen.begin()
		if err := in.Pause(context.Background()); err != nil {
			b.Skip(err)
		}
		frozen.end()
		thawed.begin()
		if err := in.Resume(context.Background()); err != nil {
			b.Fatal(err)
		}
		thawed.end()
	}
	frozen.report(b, "freeze-us")
	thawed.report(b, "thaw-us")
}
