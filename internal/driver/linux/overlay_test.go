package linux

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// overlayOf is a view of so many folders, each with one file of the number of its
// place in the stack, over a layer on disk.
func overlayOf(t testing.TB, lower int) *driver.Overlay {
	t.Helper()
	dir := t.TempDir()
	o := &driver.Overlay{Layer: filepath.Join(dir, "layer"), HostIDs: true}
	for _, name := range []string{"upper", "work"} {
		if err := os.MkdirAll(filepath.Join(o.Layer, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { // overlayfs makes folders there that their owner may not even read
		for _, name := range []string{"", "/incompat", "/incompat/volatile"} {
			os.Chmod(filepath.Join(o.Layer, "work/work"+name), 0o700)
		}
	})
	for i := range lower {
		p := filepath.Join(dir, "lower", strconv.Itoa(i))
		if err := os.MkdirAll(p, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(p, "layer-"+strconv.Itoa(i)), []byte(strconv.Itoa(i)), 0o644); err != nil {
			t.Fatal(err)
		}
		o.Lower = append(o.Lower, p)
	}
	return o
}

// A chain of layers gets long before it is flattened, longer than what one option of
// a mount has room for.
func TestManyLayers(t *testing.T) {
	const lower = 100
	for _, level := range []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer} {
		t.Run(level.String(), func(t *testing.T) {
			o := overlayOf(t, lower)
			for i, dir := range o.Lower {
				if err := os.WriteFile(filepath.Join(dir, "top"), []byte(strconv.Itoa(i)+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			spec := smallSpec(t, "sh", "-c", "cd /l; ls | grep -c layer-; cat top; echo new >top; cat top; grep ' /l ' /proc/self/mounts | cut -d' ' -f 4")
			if spec.Level = level; level == bailey.IsolationContainer {
				spec.Root.Base = overlayOf(t, 20)
			}
			spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.CoW, Target: "/l", IsDir: true, Overlay: o})
			out, end := run(t, New(state(t)), spec)
			if want := fmt.Sprintf("%d\n%d\nnew\n", lower, lower-1); !strings.HasPrefix(out, want) || !strings.Contains(out, "nosuid") || !strings.Contains(out, "nodev") || end.ExitCode != 0 {
				t.Errorf("%+v: %s, want %s", end, out, want)
			}
			if b, err := os.ReadFile(filepath.Join(o.Layer, "upper/top")); string(b) != "new\n" {
				t.Errorf("%q, %v", b, err)
			}
		})
	}
}

// What an overlay is made of is attached somewhere while it is made. Nobody inside
// finds it there, and whoever shows one more place sees nothing of it on the host.
func TestPartsOfOverlaysAreNowhere(t *testing.T) {
	o := overlayOf(t, 3)
	spec := smallSpec(t, "sh", "-c", "cat /proc/self/mountinfo; ls /proc/fs; read x; cat /proc/self/mountinfo")
	spec.Level, spec.Root.Base = bailey.IsolationContainer, overlayOf(t, 3)
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.CoW, Target: "/l", IsDir: true, Overlay: overlayOf(t, 3)})
	before, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	stdin, answer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	spec.Entry.Stdio = [3]*os.File{stdin, out, out}
	in, err := New(state(t)).Create(context.Background(), spec)
	stdin.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	if err := in.(driver.Staying).Attach(context.Background(), driver.Place{Kind: driver.CoW, Target: "/added", IsDir: true, Overlay: o}); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if string(after) != string(before) {
		t.Errorf("the host's mounts were\n%s and are\n%s", before, after)
	}
	if _, err := answer.WriteString("\n"); err != nil {
		t.Fatal(err)
	}
	<-in.Done()
	b, err := os.ReadFile(out.Name())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), " /added ") {
		t.Errorf("the place that was added is not there: %s", b)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], "/proc/fs") && !strings.Contains(line, " - proc ") {
			t.Errorf("something lies at %s: %s", f[4], line)
		}
		if strings.Contains(line, "/lower/") && !strings.Contains(line, " - overlay ") || strings.Contains(line, "/layer ") {
			t.Errorf("a part of an overlay is seen: %s", line)
		}
	}
}

func TestSinceKernel(t *testing.T) {
	for release, want := range map[string]bool{"6.1.0-57-cloud-amd64": false, "6.5.0": true, "6.18.44": true, "7.0": true, "5.19": false, "": false, "6": false} {
		if have := sinceKernel(release, 6, 5); have != want {
			t.Errorf("%q: %v", release, have)
		}
	}
}

// A file system that cannot show other owners is named, with what to do.
func TestNoOwners(t *testing.T) {
	for step, want := range map[string]string{stepIDs + "/a b" + stepIDsEnd: "file system of /a b,", stepIDs + "/a": "", "open /a": ""} {
		err := noOwners("create the sandbox", &spawn.StepError{Step: step, Errno: unix.EINVAL})
		if (err != nil) != (want != "") || err != nil && (bailey.CodeOf(err) != bailey.CodeNotAvailable || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", step, err)
		}
	}
	if err := noOwners("create the sandbox", &spawn.StepError{Step: stepIDs + "/a" + stepIDsEnd, Errno: unix.EPERM}); err != nil {
		t.Error(err)
	}
	// On a kernel that can it works, on one that cannot it says so: both are tried.
	testneeds.Root(t, "an ordinary user's mounts keep their owners")
	dir, err := os.MkdirTemp("/dev/shm", "owners-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	spec := smallSpec(t, "touch", "/l/made")
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Bind, Source: dir, Target: "/l", IsDir: true, HostIDs: true})
	in, err := New(state(t)).Create(context.Background(), spec)
	if err == nil {
		<-in.Done()
		in.Destroy(context.Background())
		if _, err := os.Stat(filepath.Join(dir, "made")); err != nil {
			t.Error(err)
		}
	} else if bailey.CodeOf(err) != bailey.CodeNotAvailable || !strings.Contains(err.Error(), "tmpfs") {
		t.Error(err)
	}
}
