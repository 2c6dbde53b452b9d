package lifebench

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// programs are Bailey's, built once for this package's tests. The race detector is
// not for them: a gate gives up its rights only where no C code has threads.
var programs string

func TestMain(m *testing.M) {
	dir, remove, err := testneeds.Programs("baileyd", "bailey-init", "bailey-keeper")
	if err != nil {
		panic(err)
	}
	programs = dir
	code := m.Run()
	remove()
	os.Exit(code)
}

func options(t *testing.T) Options {
	t.Helper()
	testneeds.Host(t, testneeds.UserNS)
	testneeds.Host(t, testneeds.Overlay)
	// t.TempDir would be below a folder that others may not enter.
	parent, err := os.MkdirTemp("", "bailey-lifebench-parent-")
	if err != nil {
		t.Fatal(err)
	}
	os.Chmod(parent, 0o711)
	t.Cleanup(func() {
		if left, _ := filepath.Glob(filepath.Join(parent, "*")); len(left) > 0 {
			t.Errorf("left behind: %q", left)
		}
		if groups := groupsOfOurs(); len(groups) > 0 {
			t.Errorf("control groups are left: %q", groups)
		}
		os.RemoveAll(parent)
	})
	return Options{Parent: parent, Programs: programs, Version: "test", Rounds: 2, Stagger: time.Millisecond, Turns: 1, Execs: 2, Files: 20, Idle: 2,
		Watch: time.Millisecond, Limit: time.Minute}
}

// groupsOfOurs are control groups of crun's containers of this process.
func groupsOfOurs() (all []string) {
	for _, pattern := range []string{"/sys/fs/cgroup/*/bailey-bench-", "/sys/fs/cgroup/bailey-bench-"} {
		found, _ := filepath.Glob(pattern + pid() + "-*")
		all = append(all, found...)
	}
	return all
}

// TestEveryMeasure runs the whole benchmark, as short as it can be, and looks at the
// shape of the result. Times are no matter of a test; that everything succeeded is.
func TestEveryMeasure(t *testing.T) {
	opt := options(t)
	opt.Profile = filepath.Join(t.TempDir(), "profile")
	said := map[string]bool{}
	opt.Progress = func(measure string, _, _ int) { said[measure] = true }
	r, err := Run(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if f, err := os.Stat(opt.Profile); err != nil || f.Size() == 0 {
		t.Errorf("no profile: %v", err)
	}
	if r.Bailey != "test" || len(r.Command) == 0 || len(r.Measures) != len(Names(false)) || len(said) < len(Names(false)) {
		t.Fatalf("%d measures of %q with %q, said %v", len(r.Measures), r.Bailey, r.Command, said)
	}
	lives := map[string]bool{"first": true, "warm": true, "sequential": true, "staggered": true, "burst": true}
	subjects := map[string]int{"first": 2, "sequential": 2, "staggered": 2, "burst": 2, "fork": 4, "snapshot": 7, "resume": 5, "exec": 2}
	for i, m := range r.Measures {
		if m.Name != Names(false)[i] || m.What == "" {
			t.Errorf("measure %d is %q: %q", i, m.Name, m.What)
		}
		ours := 0
		for _, s := range m.Subjects {
			if s.Tried == 0 || s.Success != 1 || s.Failure != "" {
				t.Errorf("%s of %s: %d tried, %v succeeded: %s", m.Name, s.Name, s.Tried, s.Success, s.Failure)
			}
			if x := s.Total; x.N != s.Tried || x.Min <= 0 || x.Median < x.Min || x.P95 < x.Median || x.P99 < x.P95 {
				t.Errorf("%s of %s: %+v", m.Name, s.Name, x)
			}
			if lives[m.Name] != (s.First != nil) || s.First != nil && (s.First.N != s.Tried || s.First.Median > s.Total.Median) {
				t.Errorf("%s of %s: first %+v, all %+v", m.Name, s.Name, s.First, s.Total)
			}
			if s.Name != crun && s.Name != warm {
				ours++
			}
		}
		if ours != subjects[m.Name] {
			t.Errorf("%s: %d subjects, want %d: %+v", m.Name, ours, subjects[m.Name], m.Subjects)
		}
		if m.Name != "idle" && len(m.Targets) == 0 {
			t.Errorf("%s judges nothing", m.Name)
		}
		missing := map[string]string{}
		for _, n := range m.NotMeasured {
			missing[n.Name] = n.Why
		}
		if lives[m.Name] {
			// Who has crun and may use it sees it measured, and who has not is told.
			_, err := exec.LookPath("crun")
			can := err == nil && os.Geteuid() == 0
			if (m.subject(crun) != nil) != can || (missing[crun] == "") != can {
				t.Errorf("%s: crun, which can run: %v: %+v, %v", m.Name, can, m.subject(crun), missing)
			}
			delete(missing, crun)
		}
		for name, why := range missing {
			if !strings.Contains(why, "may not look") || os.Geteuid() == 0 {
				t.Errorf("%s: %s: %s", m.Name, name, why)
			}
		}
	}
	idle := r.Measures[len(r.Measures)-1].Idle
	var states []string
	for _, v := range idle {
		states = append(states, v.State)
		if v.Sandboxes != 2 || v.Service <= 0 || v.Processes < 2 {
			t.Errorf("%+v", v)
		}
	}
	if strings.Join(states, " ") != "running paused stopped" || idle[0].Processes != idle[2].Processes+2 {
		t.Errorf("%+v", idle)
	}
}

// A benchmark that is interrupted says so and leaves nothing.
func TestInterrupted(t *testing.T) {
	opt := options(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	opt.Rounds, opt.Only = 1000, []string{"first"}
	opt.Progress = func(_ string, done, _ int) {
		if done == 2 {
			cancel()
		}
	}
	if _, err := Run(ctx, opt); bailey.CodeOf(err) != bailey.CodeBusy {
		t.Errorf("it says %v", err)
	}
}

// A measure that does not end in its time is given up, and the report says so.
func TestTimeIsUp(t *testing.T) {
	opt := options(t)
	opt.Only, opt.Rounds, opt.Stagger, opt.Limit = []string{"staggered"}, 1000, time.Hour, 3*time.Second
	r, err := Run(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Measures) != 1 || !strings.Contains(r.Measures[0].NotMeasured[len(r.Measures[0].NotMeasured)-1].Why, "time") {
		t.Errorf("%+v", r.Measures)
	}
}

func TestWhatCannotBeMeasured(t *testing.T) {
	for name, change := range map[string]func(*Options){
		"name": func(o *Options) { o.Only = []string{"speed"} }, "rounds": func(o *Options) { o.Rounds = 0 }, "limit": func(o *Options) { o.Limit = 0 },
		"idle": func(o *Options) { o.Idle = 1_000_000 }, "stagger": func(o *Options) { o.Stagger = -1 },
	} {
		o := Defaults()
		change(&o)
		if _, err := Run(context.Background(), o); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
	o := Defaults()
	o.Parent, o.Programs = t.TempDir(), t.TempDir()
	if _, err := Run(context.Background(), o); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("without programs: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(o.Parent, "*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
