package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

func TestBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "4096": 4096, "1k": 1024, "64M": 64 << 20, "1.5G": 3 << 29, "2GiB": 2 << 30, "1tb": 1 << 40, " 5m ": 5 << 20,
		"": 0, "0": 0, "-1": 0, "x": 0, "1X": 0, "1e30": 0, "NaN": 0, "inf": 0, "M": 0, "0.1": 0,
	} {
		got, err := parseBytes(text)
		if got != want || (err != nil) != (want == 0) || err != nil && bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "1h30m": 90 * time.Minute, "5": 5 * time.Second, "0.5": 500 * time.Millisecond,
		"0": 0, "-1s": 0, "": 0, "soon": 0, "1e300": 0,
	} {
		var d time.Duration
		err := durationValue{&d}.Set(text)
		if d != want || (err != nil) != (want == 0) {
			t.Errorf("%q: %v, %v; want %v", text, d, err, want)
		}
	}
}

func TestParseUser(t *testing.T) {
	for text, want := range map[string][2]int{"": {-1, -1}, "0": {0, 0}, "1000": {1000, 1000}, "5:7": {5, 7}} {
		uid, gid, err := parseUser(text)
		if err != nil || uid != want[0] || gid != want[1] {
			t.Errorf("%q: %d %d %v", text, uid, gid, err)
		}
	}
	for _, text := range []string{"root", "-1", "1:", ":1", "65536", "1:2:3"} {
		if _, _, err := parseUser(text); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// What the command line refuses before anything is made, and says in one line
// with a code.
func TestRefusals(t *testing.T) {
	t.Setenv("BAILEY_HOME", t.TempDir()+"/never-made")
	for _, tc := range []struct {
		args string
		code bailey.Code
	}{
		{"nonsense", bailey.CodeUsage},
		{"run", bailey.CodeUsage},
		{"run --", bailey.CodeUsage},
		{"run --no-such-flag -- true", bailey.CodeUsage},
		{"run --apply --discard -- true", bailey.CodeUsage},
		{"run --writable --apply -- true", bailey.CodeUsage},
		{"run --timeout 0 -- true", bailey.CodeUsage},
		{"run --memory none -- true", bailey.CodeUsage},
		{"run --isolation strong -- true", bailey.CodeUsage},
		{"run --user root -- true", bailey.CodeUsage},
		{"run --pids 0 -- true", bailey.CodeUsage},
		{"run --pids -1 -- true", bailey.CodeUsage},
		{"run --cpus 0 -- true", bailey.CodeUsage},
		{"run --cpus NaN -- true", bailey.CodeUsage},
		{"run --allow example.org -- true", bailey.CodeNotAvailable},
		{"changes a b", bailey.CodeUsage},
		{"changes --only /etc", bailey.CodeUsage},
		{"apply --revert --only src", bailey.CodeUsage},
		{"apply --revert --force", bailey.CodeUsage},
	} {
		var out, errs bytes.Buffer
		code := dispatch(strings.Fields(tc.args), &out, &errs)
		if code != bailey.ExitBailey || !strings.Contains(errs.String(), "["+string(tc.code)+"]") || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%s: exit %d, %q", tc.args, code, errs.String())
		}
	}
}

func TestHelpNamesEveryCommandAndFlag(t *testing.T) {
	var out, errs bytes.Buffer
	if code := dispatch(nil, &out, &errs); code != 0 {
		t.Errorf("exit %d", code)
	}
	for _, c := range commands() {
		if !strings.Contains(out.String(), "  "+c.name) {
			t.Errorf("help does not name %s", c.name)
		}
		var help bytes.Buffer
		if code := dispatch([]string{c.name, "--help"}, &help, &errs); code != 0 || !strings.Contains(help.String(), "usage: bailey "+c.name) {
			t.Errorf("%s --help: exit %d, %q", c.name, code, help.String())
		}
	}
	if errs.Len() > 0 {
		t.Errorf("help wrote errors: %s", errs.String())
	}
}
