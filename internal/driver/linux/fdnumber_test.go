package linux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

func TestTableSize(t *testing.T) {
	for text, want := range map[string]int{"Name:\tx\nFDSize:\t256\nGroups:\t0 \n": 256, "FDSize:\t8192": 8192, "": 0, "FDSize:\tx\n": 0} {
		if got := tableSize([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// A process with many descriptors still builds sandboxes, and each shows what
// it is meant to show: also where the numbers that a script opens by itself
// come to those it would fix in a process with few.
func TestManyDescriptors(t *testing.T) {
	testneeds.Host(t, testneeds.UserNS)
	testneeds.Host(t, testneeds.Overlay)
	lower := t.TempDir()
	os.WriteFile(filepath.Join(lower, "file"), []byte("from below"), 0o644)
	d := New(state(t))
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	for _, last := range []int{usualNumbers - 24, usualNumbers - 16, usualNumbers - 12, usualNumbers - 8, usualNumbers - 4, 2 * usualNumbers} {
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, f)
			if int(f.Fd()) >= last {
				break
			}
		}
		layer := t.TempDir()
		for _, name := range []string{"upper", "work"} {
			os.Mkdir(filepath.Join(layer, name), 0o755)
		}
		t.Cleanup(func() { // the kernel's own folders in there are closed to everybody
			for _, name := range []string{"work", "work/incompat", "work/incompat/volatile"} {
				os.Chmod(filepath.Join(layer, "work", name), 0o700)
			}
		})
		spec := smallSpec(t, "cat", "/w/file")
		spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.CoW, Target: "/w", Overlay: &driver.Overlay{Lower: []string{lower}, Layer: layer, HostIDs: true}})
		if out, _ := run(t, d, spec); strings.TrimSpace(out) != "from below" {
			t.Errorf("with %d descriptors the folder shows %q", last, out)
		}
	}
}

// A number that is taken ends the script and is not exchanged.
func TestTakenNumber(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := &builder{Script: &spawn.Script{}, next: int(f.Fd())}
	b.fixed(b.Do("open", unix.SYS_OPENAT, noFD, b.Str("/"), spawn.Int(unix.O_PATH), zero).Result())
	b.Do("exit", unix.SYS_EXIT_GROUP, zero)
	_, err = b.Script.Start(spawn.Options{Cgroup: -1})
	if err == nil || !strings.Contains(err.Error(), "in use") {
		t.Error(err)
	}
}
