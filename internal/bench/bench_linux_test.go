package bench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// programs are Bailey's, built once for this package's tests.
var programs string

func TestMain(m *testing.M) {
	dir, remove, err := testneeds.Programs("bailey", "bailey-init", "baileyd")
	if err != nil {
		panic(err)
	}
	programs = dir
	code := m.Run()
	remove()
	os.Exit(code)
}

func options(t testing.TB) Options {
	t.Helper()
	testneeds.Host(t, testneeds.UserNS)
	testneeds.Host(t, testneeds.Overlay)
	// t.TempDir would be below a folder that others may write to or not enter.
	parent, err := os.MkdirTemp("", "bailey-bench-parent-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(parent) })
	if err := os.Chmod(parent, 0o711); err != nil {
		t.Fatal(err)
	}
	return Options{Parent: parent, Version: "test", Rounds: 2, GitRounds: 2, Files: 250, Idle: 3,
		Bailey: filepath.Join(programs, "bailey"), Init: filepath.Join(programs, "bailey-init"), Daemon: filepath.Join(programs, "baileyd")}
}

// TestEveryMeasure runs the whole benchmark, as short as it can be, and looks
// at the shape of the result. Times are no matter of a test.
func TestEveryMeasure(t *testing.T) {
	opt := options(t)
	testneeds.Tool(t, "git")
	r, err := Run(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(opt.Parent, "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if len(r.Measures) != len(Names()) {
		t.Fatalf("%d measures of %d", len(r.Measures), len(Names()))
	}
	for i, m := range r.Measures {
		if m.Name != Names()[i] || m.What == "" {
			t.Errorf("measure %d is %q: %q", i, m.Name, m.What)
		}
		for _, s := range m.Subjects {
			if s.Total.N != 2 || s.Total.Min <= 0 || s.Total.Median < s.Total.Min || s.Total.P95 < s.Total.Median || len(s.Features) == 0 {
				t.Errorf("%s: %+v", m.Name, s)
			}
			if s.First != nil && s.First.Median > s.Total.Median {
				t.Errorf("%s of %s: the first byte came after the end", m.Name, s.Name)
			}
		}
		measured := map[string]bool{}
		for _, s := range m.Subjects {
			measured[s.Name] = true
		}
		for _, n := range m.NotMeasured {
			if measured[n.Name] || n.Why == "" {
				t.Errorf("%s: %+v", m.Name, n)
			}
			// A peer that is there has to work, or the benchmark is of no use.
			if !strings.Contains(n.Why, "not installed") && !strings.Contains(n.Why, "by root only") && n.Name != "srt" {
				t.Errorf("%s: %s could not be measured: %s", m.Name, n.Name, n.Why)
			}
		}
		if m.Memory != nil {
			if m.Memory.Processes < opt.Idle || m.Memory.PrivateDirtyEach <= 0 {
				t.Errorf("%+v", *m.Memory)
			}
		} else if len(m.Subjects) == 0 {
			t.Errorf("%s: nobody was measured", m.Name)
		}
	}
}

func TestWhatCannotBeMeasured(t *testing.T) {
	for _, opt := range []Options{
		{Parent: t.TempDir(), Rounds: 1, GitRounds: 1, Files: 1, Idle: 1, Only: []string{"process", "speed"}},
		{Parent: t.TempDir(), Rounds: 0, GitRounds: 1, Files: 1, Idle: 1},
	} {
		if _, err := Run(context.Background(), opt); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%+v: %v", opt, err)
		}
	}
}

// A benchmark that is interrupted leaves nothing.
func TestInterrupted(t *testing.T) {
	opt := options(t)
	ctx, cancel := context.WithCancel(context.Background())
	opt.Rounds, opt.Only = 1000, []string{"process"}
	opt.Progress = func(_ string, done, _ int) {
		if done == 2 {
			cancel()
		}
	}
	if _, err := Run(ctx, opt); err == nil {
		t.Error("it did not say that it was interrupted")
	}
	if left, _ := filepath.Glob(filepath.Join(opt.Parent, "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func benchmark(b *testing.B, level bailey.Isolation) {
	be := &bench{opt: options(b)}
	if err := be.setUp(); err != nil {
		b.Fatal(err)
	}
	defer be.tearDown()
	req := be.request(level, echo...)
	if level == bailey.IsolationContainer {
		root, err := be.prepareRoot()
		if err != nil {
			b.Fatal(err)
		}
		req.Rootfs = root
	}
	for b.Loop() {
		if _, err := be.once(context.Background(), req, "hi\n"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkProcess(b *testing.B)   { benchmark(b, bailey.IsolationProcess) }
func BenchmarkContainer(b *testing.B) { benchmark(b, bailey.IsolationContainer) }
