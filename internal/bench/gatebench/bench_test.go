package gatebench

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// program is baileyd, built once for this package's tests. The race detector is
// not for it: a gate gives up its rights only where no C code has threads.
var program string

func TestMain(m *testing.M) {
	dir, remove, err := testneeds.Programs("baileyd")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "baileyd")
	code := m.Run()
	remove()
	os.Exit(code)
}

// bench runs `baileyd bench gate`, as short as it can be.
func benchGate(t *testing.T, path string, args ...string) (r Report) {
	t.Helper()
	testneeds.Host(t, testneeds.UserNS)
	home, err := os.MkdirTemp("", "bailey-gatebench-home-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	cmd := exec.Command(program, append([]string{"bench", "gate", "--json", "-n", "1", "--slot", "5ms", "--workers", "2", "--downloads", "1",
		"--size", "1000000", "--rules", "20", "--sandboxes", "3", "--as", "test"}, args...)...)
	var said strings.Builder
	cmd.Stderr = &said
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return path != "" && strings.HasPrefix(kv, "PATH=") }), "BAILEY_HOME="+home)
	if path != "" {
		cmd.Env = append(cmd.Env, "PATH="+path)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s%s", err, out, said.String())
	}
	if err := json.Unmarshal(out, &r); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(home, "cache", "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	return r
}

// TestEveryMeasure runs the whole benchmark and looks at the shape of the result.
// Times are no matter of a test; that every request had the answer it should is.
func TestEveryMeasure(t *testing.T) {
	testneeds.Tool(t, "mitmdump")
	testneeds.Tool(t, "/usr/sbin/nginx")
	r := benchGate(t, "")
	if r.Bailey != "test" || len(r.Measures) != len(Names()) {
		t.Fatalf("%d measures of %s", len(r.Measures), r.Bailey)
	}
	for i, m := range r.Measures {
		if m.Name != Names()[i] || m.What == "" || m.Name != "download" && len(m.Targets) == 0 {
			t.Errorf("%+v", m)
		}
		var want []string
		switch {
		case m.Name == "memory":
			if m.Memory == nil || m.Memory.Sandboxes != 3 || m.Memory.First <= 0 || m.Memory.Resident <= m.Memory.Anonymous {
				t.Errorf("%+v", m.Memory)
			}
		case m.Name == "rules":
			for _, s := range m.Subjects {
				if s.Latency == nil || s.Latency.N != 10 || s.Latency.Median <= 0 {
					t.Errorf("%+v", s)
				}
			}
			continue
		case m.Name == "download-spliced":
			want = []string{nameDirect, nameGate, nameNginx}
		default:
			want = []string{nameDirect, nameGate, nameReverse, nameMitm}
		}
		var got []string
		for _, s := range m.Subjects {
			got = append(got, s.Name)
			if strings.HasPrefix(m.Name, "download") {
				if s.Bytes == nil || s.Bytes.N != 1 || s.Bytes.Median <= 0 {
					t.Errorf("%s: %+v", m.Name, s)
				}
			} else if s.Requests == nil || s.Requests.Min <= 0 || s.Latency == nil || s.Latency.P99 < s.Latency.Median || (s.Added == nil) != (s.Name == nameDirect) {
				t.Errorf("%s: %+v", m.Name, s)
			}
		}
		if !slices.Equal(got, want) || len(m.NotMeasured) > 0 {
			t.Errorf("%s: %q and not %q; %+v", m.Name, got, want, m.NotMeasured)
		}
	}
}

// Who is not there is named.
func TestMissingPeer(t *testing.T) {
	r := benchGate(t, t.TempDir(), "--only", "plain,rules")
	if len(r.Measures) != 2 || len(r.Measures[0].Subjects) != 3 {
		t.Fatalf("%+v", r.Measures)
	}
	if n := r.Measures[0].NotMeasured; len(n) != 1 || n[0].Name != nameMitm || !strings.Contains(n[0].Why, "not installed") {
		t.Errorf("%+v", n)
	}
}

func TestWhatCannotBeMeasured(t *testing.T) {
	for _, args := range [][]string{{"--only", "speed"}, {"-n", "0"}, {"--slot", "0"}, {"--colour"}, {"more"}} {
		out, err := exec.Command(program, append([]string{"bench", "gate"}, args...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "[usage]") {
			t.Errorf("%q: %v, %s", args, err, out)
		}
	}
}

func TestStatistics(t *testing.T) {
	hundred := make([]time.Duration, 200)
	for i := range hundred {
		hundred[i] = time.Duration(200 - i)
	}
	if l := latencies(hundred); *l != (Latency{N: 200, Median: 100, P99: 198}) {
		t.Errorf("%+v", l)
	}
	if hundred[0] != 200 {
		t.Error("the samples were changed")
	}
	if m := median([]float64{3, 1, 2, 10}); m != 2.5 {
		t.Error(m)
	}
	if m := median(nil); m != 0 {
		t.Error(m)
	}
	if s := summarise([]float64{3, 1, 2}); *s != (Rates{N: 3, Min: 1, Median: 2, Max: 3}) {
		t.Errorf("%+v", s)
	}
	if d := median(differences([]time.Duration{5, 1}, []time.Duration{2, 2})); d != 1 {
		t.Error(d)
	}
}

func TestText(t *testing.T) {
	m := Measure{Name: "plain", What: "requests", Subjects: []Subject{
		{Name: "direct", Features: []string{"nothing"}, Requests: &Rates{1, 10, 20, 30}, Latency: &Latency{5, 100 * time.Microsecond, 2 * time.Millisecond}},
		{Name: "gate", Requests: &Rates{1, 5, 6, 7}, Latency: &Latency{5, time.Millisecond, 3 * time.Millisecond}, Added: &Added{900 * time.Microsecond, -time.Millisecond}},
	}, Targets: []result.Target{result.AtLeast("gate / peer", 4, 5)}, NotMeasured: []result.Missing{{Name: "peer", Why: "it is not installed"}}}
	r := Report{Bailey: "v1", Measures: []Measure{m, m, {Name: "memory", What: "much", Memory: &Memory{Resident: 2e6, Anonymous: 1e6, First: 1.5e6, Each: 10e3}}}}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  direct        20        10    100 µs   2.00 ms\n", "  gate           6         5   1.00 ms   3.00 ms    900 µs  -1.00 ms\n",
		"  gate / peer: 4, at least 5: MISSED\n", "  peer: not measured: it is not installed\n", "2.0 MB resident, 1.0 MB of it no file's; 1.5 MB with the first sandbox, and 10 kB",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
	if strings.Count(b.String(), "direct has nothing") != 1 || r.Missed() != 2 {
		t.Errorf("missed %d in\n%s", r.Missed(), b.String())
	}
}
