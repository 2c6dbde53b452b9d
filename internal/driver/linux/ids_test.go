package linux

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/cgroup"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// look gives what a map makes of an id, or -1.
func look(m idMap, id int) int {
	for _, e := range m {
		if id >= e.from && id < e.from+e.count {
			return e.to + id - e.from
		}
	}
	return -1
}

func TestRangeMap(t *testing.T) {
	const base = 1 << 30
	for _, tc := range []struct{ inside, host int }{
		{0, 0}, {1000, 1000}, {0, 1000}, {1000, 0}, {65535, 0}, {0, 65535}, {7, 70000}, {0, 4000000}, {65535, 1 << 29},
	} {
		m := rangeMap(base, tc.inside, tc.host)
		if got := look(m, tc.host); got != base+tc.inside {
			t.Errorf("%v: the owner becomes %d, want %d", tc, got-base, tc.inside)
		}
		// Nobody else becomes the owner, and every id of the range is used once.
		seen := map[int]int{}
		for _, e := range m {
			for i := range e.count {
				seen[e.to+i]++
				if e.to+i < base || e.to+i >= base+idsPerSandbox {
					t.Fatalf("%v: %d lies outside the range", tc, e.to+i)
				}
			}
		}
		for id, n := range seen {
			if n != 1 {
				t.Fatalf("%v: %d is mapped %d times", tc, id-base, n)
			}
		}
		if other := 4242; tc.host != other && tc.inside != other {
			if got := look(m, other); got != base+other {
				t.Errorf("%v: a third user becomes %d", tc, got-base)
			}
		}
		if len(m) > 5 {
			t.Errorf("%v: %d lines; kernels before 4.15 take five", tc, len(m))
		}
	}
}

func TestRangesAreExclusive(t *testing.T) {
	dir := t.TempDir()
	bases := map[int]*idRange{}
	for range 20 {
		r, err := takeRange(dir, 7)
		if err != nil {
			t.Fatal(err)
		}
		if bases[r.base] != nil {
			t.Fatalf("the range at %d was given twice", r.base)
		}
		if r.base < firstRange || r.base+idsPerSandbox > firstRange+rangeCount*idsPerSandbox {
			t.Errorf("the range at %d lies outside", r.base)
		}
		bases[r.base] = r
	}
	for base, r := range bases {
		r.release()
		again, err := takeRange(dir, (base-firstRange)/idsPerSandbox)
		if err != nil || again.base != base {
			t.Errorf("a released range was not given again: %v, %v", again, err)
		}
		again.release()
		break
	}
}

func TestRangesKeepClearOfSubordinateIDs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	text := "alice:100000:65536\n# a comment\nbroken\nbob:x:y\ncarol:1879048192:65536\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	spans := subordinate(file)
	if len(spans) != 2 {
		t.Fatalf("read %v", spans)
	}
	if !overlaps(spans, firstRange) || overlaps(spans, firstRange+idsPerSandbox) {
		t.Errorf("%v", spans)
	}
	if subordinate(file+"-none") != nil {
		t.Error("a file that is not there has ranges")
	}
}

func TestMapText(t *testing.T) {
	if got := rangeMap(100, 0, 0).String(); got != "0 100 65536\n" {
		t.Errorf("%q", got)
	}
}

func TestUserOutsideTheRangeIsRefused(t *testing.T) {
	testneeds.Root(t, "an ordinary user has one id")
	d := New(Options{State: t.TempDir()})
	for _, u := range []driver.User{{UID: 65536}, {GID: 65536}, {UID: -1}} {
		if _, err := d.newIdentity(u, bailey.IsolationProcess); err == nil || !strings.Contains(err.Error(), "usage") {
			t.Errorf("%+v: %v", u, err)
		}
	}
}

// Reserves are used once, and what is not used is given back.
func TestReserves(t *testing.T) {
	testneeds.Root(t, "namespaces of an ordinary user are made by the sandbox")
	before := openDescriptors(t)
	d := New(Options{State: t.TempDir()})
	d.Warm(3, true)
	seen := map[int]bool{}
	var ids []*identity
	for range 8 {
		id, err := d.newIdentity(driver.User{}, bailey.IsolationProcess)
		if err != nil {
			t.Fatal(err)
		}
		if seen[id.ids.base] {
			t.Fatalf("the range at %d is in use twice", id.ids.base)
		}
		if id.net == nil {
			t.Error("a reserve has no network namespace")
		}
		seen[id.ids.base] = true
		ids = append(ids, id)
	}
	for _, id := range ids {
		id.close()
	}
	d.Close()
	// There may be fewer: what earlier tests have dropped is closed at some time.
	if after := openDescriptors(t); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// A limit of processes by RLIMIT_NPROC is one of the sandbox only where it
// cannot become another user.
func TestSingleUser(t *testing.T) {
	rooted, alone, joined := &identity{ids: &idRange{}}, &identity{}, &identity{joined: true}
	for _, tc := range []struct {
		id    *identity
		level bailey.Isolation
		want  bool
	}{
		{rooted, bailey.IsolationProcess, true},
		{rooted, bailey.IsolationContainer, false},
		{alone, bailey.IsolationProcess, true},
		{alone, bailey.IsolationContainer, true},
		{joined, bailey.IsolationContainer, false},
	} {
		if got := tc.id.single(tc.level); got != tc.want {
			t.Errorf("%+v at %s: %v", tc.id, tc.level, got)
		}
		// Asked for, it is in force for all of the sandbox or refused.
		d := New(Options{})
		d.cgroups.Do(func() { d.host = cgroup.Detect(t.TempDir()) }) // a host that has none
		spec := driver.Spec{ID: "x", Level: tc.level, Limits: bailey.Limits{Pids: 100}}
		g, err := d.newGroup(spec, tc.id)
		if tc.want != (err == nil && g.rlimit) || !tc.want && bailey.CodeOf(err) != bailey.CodeLimitUnavailable {
			t.Errorf("%+v at %s: %v", tc.id, tc.level, err)
		}
		spec.Limits, spec.Defaults = bailey.Limits{}, bailey.Limits{Pids: 100}
		if g, err := d.newGroup(spec, tc.id); err != nil || !g.rlimit || g.limits.Pids != 100 {
			t.Errorf("by default, %+v at %s: %+v %v", tc.id, tc.level, g, err)
		}
	}
}
