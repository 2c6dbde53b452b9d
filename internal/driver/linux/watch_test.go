package linux

import (
	"os"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

func TestParseResident(t *testing.T) {
	status := []byte("Name:\tx\\ny\x1b[31m\nVmRSS:\t  900 kB\nRssAnon:\t  100 kB\nRssFile:\t 700 kB\nRssShmem:\t  50 kB\nRssAnon: x kB\n")
	if n := parseResident(status); n != 150<<10 {
		t.Errorf("%d", n)
	}
	if name := processName(status); strings.ContainsAny(name, "\x1b\n") || !strings.HasPrefix(name, "x") {
		t.Errorf("%q", name)
	}
	if processName(nil) != "" || parseResident(nil) != 0 {
		t.Error("nothing gives something")
	}
}

func TestResidentBelowCountsDescendants(t *testing.T) {
	d := New(state(t))
	spec := smallSpec(t, "sh", "-c", "setsid sh -c 'head -c 80000000 /dev/zero | tail -c 80000000 | sleep 1000' & sleep 1000")
	in, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(t.Context())
	for {
		if n, name := residentBelow(in.Pid()); n > 70<<20 {
			if name != "tail" {
				t.Errorf("the largest is %q", name)
			}
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("not counted")
		}
	}
}

// Without a control group the default limit is held by looking.
func TestMemoryIsWatched(t *testing.T) {
	opt := state(t)
	opt.Omit = []Protection{NoCgroup}
	spec := smallSpec(t, "sh", "-c", "head -c 300000000 /dev/zero | tail -c 300000000 | sleep 1000")
	spec.Defaults.Memory = 100 << 20
	_, e := run(t, New(opt), spec)
	if e.Reason != bailey.EndOOM || e.Limit != 100<<20 || e.Victim != "tail" || e.Peak <= e.Limit {
		t.Errorf("%+v", e)
	}
	if os.Geteuid() == 0 {
		return
	}
	// An ordinary user who asks for a limit is told, unless a group was delegated.
	spec.Limits.Memory = 100 << 20
	if _, err := New(state(t)).Create(t.Context(), spec); err != nil && bailey.CodeOf(err) != bailey.CodeLimitUnavailable {
		t.Error(err)
	}
}

func FuzzStatus(f *testing.F) {
	f.Add([]byte("Name:\tx\nRssAnon:\t1 kB\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		parseResident(b)
		if strings.ContainsAny(processName(b), "\x1b\n\r\x00") {
			t.Errorf("%q", processName(b))
		}
	})
}
