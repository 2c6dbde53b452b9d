package linux

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

func TestSubordinateMaps(t *testing.T) {
	s := span{100000, 65536}
	for inside, want := range map[int]string{
		0:     "0 1000 1\n1 100000 65535\n",
		1000:  "0 100000 1000\n1000 1000 1\n1001 101000 64535\n",
		65535: "0 100000 65535\n65535 1000 1\n",
	} {
		m := s.lines(inside, 1000)
		if m.String() != want {
			t.Errorf("%d: %q, want %q", inside, m, want)
		}
		if look(m, inside) != 1000 {
			t.Errorf("%d is not the caller", inside)
		}
	}
	if m := (span{5, 10}).lines(100, 7); m.String() != "0 5 10\n100 7 1\n" {
		t.Errorf("a short range: %q", m)
	}
	if got := strings.Join(s.lines(0, 1000).args(42), " "); got != "42 0 1000 1 1 100000 65535" {
		t.Errorf("arguments %q", got)
	}
}

// An ordinary user's container has several users when the host gives the user
// ids for them, and what they leave behind can be taken and removed.
func TestSeveralUsersForAnOrdinaryUser(t *testing.T) {
	testneeds.Ordinary(t, "root has ids of its own for each sandbox")
	testneeds.Tool(t, "newuidmap")
	testneeds.Host(t, testneeds.SubordinateID)
	dir, err := os.MkdirTemp(t.TempDir(), "layers")
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	for _, name := range []string{"lower", "layer/upper", "layer/work", "data"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	spec := smallSpec(t, "sh", "-ec", "cd /data; touch own other; chown 33:33 other; mkdir d; touch d/x; chown -R 40:40 d; chmod 700 d; stat -c %u own other d; id -G")
	spec.Level = bailey.IsolationContainer
	spec.User = driver.User{HostUID: os.Geteuid(), HostGID: os.Getegid()}
	spec.Root.Base = &driver.Overlay{Lower: []string{filepath.Join(dir, "lower")}, Layer: filepath.Join(dir, "layer")}
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Scratch, Source: data, Target: "/data", IsDir: true, HostIDs: true})
	out, e := run(t, New(state(t)), spec)
	if e.ExitCode != 0 || out != "0\n33\n40\n0\n" {
		t.Errorf("%q %+v", out, e)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(data, "own"), &st); err != nil || int(st.Uid) != os.Geteuid() {
		t.Errorf("root's file belongs to %d on the host, %v", st.Uid, err)
	}
	if err := unix.Stat(filepath.Join(data, "other"), &st); err != nil || int(st.Uid) == os.Geteuid() || st.Uid == 0 {
		t.Errorf("another user's file belongs to %d on the host, %v", st.Uid, err)
	}
	if _, err := os.ReadDir(filepath.Join(data, "d")); !os.IsPermission(err) {
		t.Errorf("a closed folder of another user: %v", err)
	}
	if err := ReclaimForeign(data); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(data, "d", "x")); err != nil {
		t.Errorf("after reclaiming: %v", err)
	}
	// The next one works as the first: this process has not lost its rights
	// over its own children.
	if out, e := run(t, New(state(t)), func() driver.Spec {
		spec.ID += "-2"
		for _, name := range []string{"layer/upper", "layer/work", "data"} {
			if err := RemoveForeign(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
			os.MkdirAll(filepath.Join(dir, name), 0o755)
		}
		return spec
	}()); e.ExitCode != 0 {
		t.Errorf("the second time: %q %+v", out, e)
	}
	// Several at once, with and without several users, do not disturb each other.
	var wg sync.WaitGroup
	d := New(state(t))
	for i := range 12 {
		spec := smallSpec(t, "true")
		spec.ID += strconv.Itoa(i)
		if i%2 == 0 {
			spec.Level = bailey.IsolationContainer
			layer := filepath.Join(dir, "many", strconv.Itoa(i))
			for _, name := range []string{"upper", "work"} {
				if err := os.MkdirAll(filepath.Join(layer, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			spec.User = driver.User{HostUID: os.Geteuid(), HostGID: os.Getegid()}
			spec.Root.Base = &driver.Overlay{Lower: []string{filepath.Join(dir, "lower")}, Layer: layer}
		}
		wg.Go(func() {
			in, err := d.Create(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			<-in.Done()
			if e := in.End(); e.ExitCode != 0 {
				t.Errorf("%+v", e)
			}
			in.Destroy(context.Background())
		})
	}
	wg.Wait()
	if err := RemoveForeign(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
