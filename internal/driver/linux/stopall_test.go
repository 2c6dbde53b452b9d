package linux

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// withoutGroups makes a driver take this machine for one without control groups.
func withoutGroups(t *testing.T, d *Driver) {
	root := t.TempDir()
	os.MkdirAll(filepath.Join(root, "proc/self"), 0o755)
	for _, name := range []string{"mountinfo", "cgroup"} {
		if err := os.WriteFile(filepath.Join(root, "proc/self", name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d.cgroups.Do(func() { d.host = cgroup.Detect(root) })
	if d.PauseMethod() != driver.PauseSignals {
		t.Fatal("it can freeze")
	}
}

// Where nothing can freeze, all is stopped by signals: nothing moves, what the user
// had stopped stays stopped, another process lets the rest go on.
func TestPauseBySignals(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		y := newYard(t, level)
		d := y.driver()
		withoutGroups(t, d)
		made, err := d.Create(context.Background(), y.spec())
		if err != nil {
			t.Fatal(err)
		}
		in := made.(driver.Staying)
		held := duplicates(t, in.Held())
		c := speak(t, in)
		if out, _ := sh(t, c, "(while :; do echo x >> /place/count; /bin/true; done) >/dev/null 2>&1 & sleep 1000 >/dev/null 2>&1 & p=$!; kill -STOP $p; until read a < /proc/$p/stat && [ \"${a#*) T}\" != \"$a\" ]; do :; done; echo $p > /place/mine; while [ ! -s /place/count ]; do :; done; echo ok"); out != "ok\n" {
			t.Fatalf("%q", out)
		}
		count := func() int64 {
			fi, err := os.Stat(filepath.Join(y.Dir, "work-layer/upper/count"))
			if err != nil {
				t.Fatal(err)
			}
			return fi.Size()
		}
		ctx, cancel := context.WithTimeout(context.Background(), testneeds.Slower(20*time.Second))
		defer cancel()
		for range 2 {
			if err := in.Pause(ctx); err != nil {
				t.Fatal(err)
			}
		}
		was := count()
		time.Sleep(50 * time.Millisecond) // so long nothing may happen
		if now := count(); now != was {
			t.Errorf("it counts on: %d, %d", was, now)
		}
		r := in.Record()
		c.Close()
		in.Release()
		later := y.driver()
		withoutGroups(t, later)
		again, err := later.Adopt(ctx, y.spec(), r, driver.Kept{Files: held})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := again.Resume(ctx); err != nil {
				t.Fatal(err)
			}
		}
		for count() == was {
			if ctx.Err() != nil {
				t.Fatal("it does not go on")
			}
			time.Sleep(time.Millisecond)
		}
		if out, _ := sh(t, speak(t, again), "read x < /place/mine; read a < /proc/$x/stat; echo \"${a#*) }\" | cut -c1"); out != "T\n" {
			t.Errorf("what was stopped is %q", out)
		}
		if err := again.Pause(ctx); err != nil {
			t.Error(err)
		}
		if err := again.Destroy(ctx); err != nil {
			t.Error(err)
		}
		if list, _ := os.ReadDir(filepath.Join(y.Dir, stoppedDir)); len(list) != 0 {
			t.Errorf("%v is left", list)
		}
	})
}
