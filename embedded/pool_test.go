package embedded_test

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/embedded"
	"github.com/bailey-sandbox/bailey/internal/changes"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// names lists what is in the folder of the runs.
func names(t testing.TB, home string) (list []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(home, "runs"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

// client is a Client with its data folder and a project.
func client(t testing.TB) (c *embedded.Client, home, project string) {
	t.Helper()
	home, project = t.TempDir(), t.TempDir()
	os.Chmod(home, 0o700)
	write(t, filepath.Join(project, "file"), "old\n")
	c, err := embedded.Open(embedded.Options{Home: home, Init: initPath})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, home, project
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// create makes a sandbox and says whether it is one that was ready.
func create(t testing.TB, c *embedded.Client, home string, spec bailey.Spec) (s *embedded.Sandbox, prepared bool) {
	t.Helper()
	before := names(t, home)
	s, err := c.Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	for _, n := range before {
		prepared = prepared || n == ".new-"+s.ID()
	}
	return s, prepared
}

func output(t testing.TB, s *embedded.Sandbox, script string) string {
	t.Helper()
	r, err := s.Run(context.Background(), bailey.Command{Args: []string{"sh", "-c", script}})
	if err != nil {
		t.Fatal(err)
	}
	return string(r.Stdout) + string(r.Stderr)
}

func prepare(t testing.TB, c *embedded.Client, spec bailey.Spec, n int) {
	t.Helper()
	if err := c.Prepare(context.Background(), spec, n); err != nil {
		t.Fatal(err)
	}
}

// apply applies what a sandbox did and gives what was refused.
func apply(t testing.TB, home, id string) *changes.Report {
	t.Helper()
	f, err := folder.OpenAt(home)
	if err != nil {
		t.Fatal(err)
	}
	r, err := f.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Lock(); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	set, err := changes.Seal(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	report, err := changes.Apply(context.Background(), r, set, changes.ApplyOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// What the host changes between Prepare and Create is what a sandbox made then
// would see, and not in conflict with what the sandbox does to it.
func TestHostEditsBeforeCreate(t *testing.T) {
	c, home, project := client(t)
	spec := bailey.Spec{Workspace: project}
	prepare(t, c, spec, 1)
	write(t, filepath.Join(project, "file"), "edited before\n")
	write(t, filepath.Join(project, "more"), "made before\n")
	past := time.Now().Add(-time.Hour).Truncate(time.Second)
	if err := os.Chtimes(project, past, past); err != nil {
		t.Fatal(err)
	}
	s, prepared := create(t, c, home, spec)
	if !prepared {
		t.Error("the sandbox that was ready was not used")
	}
	if got := output(t, s, "cat file more; stat -c %Y .; echo inside >> file"); got != "edited before\nmade before\n"+strconv.FormatInt(past.Unix(), 10)+"\n" {
		t.Errorf("inside: %q", got)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r := apply(t, home, s.ID()); len(r.Conflicts) != 0 || !r.Complete() {
		t.Errorf("conflicts: %+v", r)
	}
	if b, _ := os.ReadFile(filepath.Join(project, "file")); string(b) != "edited before\ninside\n" {
		t.Errorf("applied: %q", b)
	}
}

// What it changes after Create is in conflict.
func TestHostEditsAfterCreate(t *testing.T) {
	c, home, project := client(t)
	spec := bailey.Spec{Workspace: project}
	prepare(t, c, spec, 1)
	s, prepared := create(t, c, home, spec)
	if !prepared {
		t.Error("the sandbox that was ready was not used")
	}
	output(t, s, "echo inside > file")
	write(t, filepath.Join(project, "file"), "edited after\n")
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	if r := apply(t, home, s.ID()); len(r.Conflicts) != 1 {
		t.Errorf("conflicts: %+v", r)
	}
	if b, _ := os.ReadFile(filepath.Join(project, "file")); string(b) != "edited after\n" {
		t.Errorf("applied over the host's edit: %q", b)
	}
}

// A workspace that looks different from when a sandbox was prepared over it, or
// is another one, is seen as it is.
func TestPreparedOverAnotherWorkspace(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, project string){
		"mode": func(t *testing.T, project string) {
			if err := os.Chmod(project, 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"replaced": func(t *testing.T, project string) {
			if err := os.Rename(project, project+"-old"); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(project, 0o700); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(project, "file"), "another\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, home, project := client(t)
			os.Chmod(project, 0o755)
			spec := bailey.Spec{Workspace: project}
			prepare(t, c, spec, 1)
			change(t, project)
			s, prepared := create(t, c, home, spec)
			if prepared {
				t.Error("the sandbox that was ready was used")
			}
			want, _ := os.ReadFile(filepath.Join(project, "file"))
			if got := output(t, s, "stat -c %a .; cat file"); got != "700\n"+string(want) {
				t.Errorf("inside: %q", got)
			}
		})
	}
}

// Equal Specs are those of the same sandboxes, however they are written.
func TestWhichSpecsAreEqual(t *testing.T) {
	c, home, project := client(t)
	if err := os.Mkdir(filepath.Join(project, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(project, link); err != nil {
		t.Fatal(err)
	}
	t.Chdir(project)
	spec := bailey.Spec{Env: []string{"A=b"}, Workdir: filepath.Join(project, "sub")}
	with := func(change func(*bailey.Spec)) bailey.Spec {
		s := spec
		s.Env = slices.Clone(s.Env)
		change(&s)
		return s
	}
	for _, tc := range []struct {
		spec  bailey.Spec
		equal bool
	}{
		{spec, true},
		{with(func(s *bailey.Spec) { s.Workspace = link }), true},
		{with(func(s *bailey.Spec) { s.Workspace = "./sub/.." }), true},
		{with(func(s *bailey.Spec) { s.Mounts = []string{} }), true},
		{with(func(s *bailey.Spec) { s.Env[0] = "A=c" }), false},
		{with(func(s *bailey.Spec) { s.Limits.Timeout = time.Hour }), false},
		{with(func(s *bailey.Spec) { s.Mounts = []string{"sub:/mnt"} }), false},
	} {
		prepare(t, c, spec, 1)
		s, prepared := create(t, c, home, tc.spec)
		if prepared != tc.equal {
			t.Errorf("%+v: taken from what was prepared: %v", tc.spec, prepared)
		}
		if got := output(t, s, "pwd"); got != project+"/sub\n" {
			t.Errorf("%+v: it starts in %q", tc.spec, got)
		}
	}
	// A folder to start in that has gone is the same error as without.
	prepare(t, c, spec, 1)
	if err := os.Remove(filepath.Join(project, "sub")); err != nil {
		t.Fatal(err)
	}
	_, err := c.Create(context.Background(), spec)
	prepare(t, c, bailey.Spec{}, 0)
	if err := c.Prepare(context.Background(), spec, 0); err != nil {
		t.Fatal(err)
	}
	_, cold := c.Create(context.Background(), spec)
	if err == nil || bailey.CodeOf(err) != bailey.CodeOf(cold) {
		t.Errorf("with prepared ones: %v\nwithout: %v", err, cold)
	}
}

// Each is used once and replaced, by any number of callers at once, and nothing
// stays.
func TestPreparedOnceEach(t *testing.T) {
	ctx := context.Background()
	c, home, project := client(t)
	spec := bailey.Spec{Workspace: project}
	prepare(t, c, spec, 3)
	var mu sync.Mutex
	ids := map[string]bool{}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 5 {
				s, err := c.Create(ctx, spec)
				if err != nil {
					t.Error(err)
					return
				}
				r, err := s.Run(ctx, bailey.Command{Args: []string{"sh", "-c", "cat /tmp/mine file; echo x > /tmp/mine"}})
				if err != nil || string(r.Stdout) != "old\n" {
					t.Errorf("%v %+v", err, r)
				}
				mu.Lock()
				if ids[s.ID()] {
					t.Errorf("%s was given out twice", s.ID())
				}
				ids[s.ID()] = true
				mu.Unlock()
				if err := s.Close(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	prepare(t, c, spec, 3) // waits for what is under way
	if n := len(names(t, home)); n < 3 {
		t.Errorf("%d are ready", n)
	}
	prepare(t, c, spec, 1)
	if _, prepared := create(t, c, home, spec); !prepared {
		t.Error("the one that was left was not used")
	}
	prepare(t, c, spec, 0)
	if _, prepared := create(t, c, home, spec); prepared {
		t.Error("one was ready after the end")
	}
	prepare(t, c, spec, 2)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for _, n := range names(t, home) {
		if strings.HasPrefix(n, ".") {
			t.Errorf("left behind: %s", n)
		}
	}
}

func TestWhatCannotBePrepared(t *testing.T) {
	c, home, project := client(t)
	other := t.TempDir()
	if err := os.Mkdir(filepath.Join(project, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		spec bailey.Spec
		n    int
		code bailey.Code
	}{
		{bailey.Spec{Workspace: project}, -1, bailey.CodeUsage},
		{bailey.Spec{Workspace: project}, embedded.MaxPrepared + 1, bailey.CodeUsage},
		{bailey.Spec{Workspace: "/"}, 1, bailey.CodeWorkspaceRefused},
		{bailey.Spec{Workspace: project, Mounts: []string{other + ":" + project + "/sub"}}, 1, bailey.CodeNotAvailable},
		{bailey.Spec{Workspace: project, Image: "x", Template: "host"}, 1, bailey.CodeUsage},
		{bailey.Spec{Workspace: project, Template: "host", Isolation: bailey.IsolationProcess}, 1, bailey.CodeUsage},
	} {
		if err := c.Prepare(context.Background(), tc.spec, tc.n); bailey.CodeOf(err) != tc.code {
			t.Errorf("%+v, %d: %v, want code %s", tc.spec, tc.n, err, tc.code)
		}
	}
	if left := names(t, home); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestMain starts the test binary so, to be killed.
func holdPrepared(home, project string) {
	os.Stdout.WriteString("started\n")
	c, err := embedded.Open(embedded.Options{Home: home, Init: os.Getenv("BAILEY_TEST_INIT")})
	if err == nil {
		err = c.Prepare(context.Background(), bailey.Spec{Workspace: project}, 2)
	}
	if err != nil {
		os.Stdout.WriteString(err.Error() + "\n")
		return
	}
	os.Stdout.WriteString("ready\n")
	select {}
}

// What was ready when the process was killed is no change that waits, and the
// next one removes it.
func TestKilledWithPrepared(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	os.Chmod(home, 0o700)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "BAILEY_TEST_HOLD="+home+":"+project, "BAILEY_TEST_INIT="+initPath)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []string
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if said = append(said, lines.Text()); lines.Text() == "ready" {
			break
		}
	}
	ready := names(t, home)
	f, ferr := folder.OpenAt(home)
	if ferr != nil {
		t.Fatal(ferr)
	}
	for _, n := range ready {
		if id, ok := strings.CutPrefix(n, ".new-"); !ok || !f.Alive(id) {
			t.Errorf("%s does not count as alive", n)
		}
	}
	if n, err := f.Sweep(); n != 0 || err != nil {
		t.Errorf("the sweep of another process removed %d: %v", n, err)
	}
	cmd.Process.Signal(syscall.SIGKILL)
	cmd.Wait()
	if len(ready) != 2 {
		t.Fatalf("ready: %q; it said %q", ready, said)
	}
	if list, err := f.List(); err != nil || len(list) != 0 {
		t.Errorf("in the list: %v, %v", list, err)
	}
	c, err := embedded.Open(embedded.Options{Home: home, Init: initPath})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if left := names(t, home); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func BenchmarkCreateRunClose(b *testing.B) {
	for _, n := range []int{0, 1} {
		b.Run("prepared="+strconv.Itoa(n), func(b *testing.B) {
			ctx := context.Background()
			c, _, project := client(b)
			spec := bailey.Spec{Workspace: project}
			for b.Loop() {
				b.StopTimer()
				prepare(b, c, spec, n)
				b.StartTimer()
				s, err := c.Create(ctx, spec)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.Run(ctx, bailey.Command{Args: []string{"/bin/true"}}); err != nil {
					b.Fatal(err)
				}
				if err := s.Close(ctx); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A container is prepared like any other, and its Spec says what it is made from.
func TestContainers(t *testing.T) {
	home, project := t.TempDir(), t.TempDir()
	os.Chmod(home, 0o700)
	write(t, filepath.Join(project, "file"), "old\n")
	c, err := embedded.Open(embedded.Options{Home: home, Init: initPath, Baileyd: daemonPath})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	for _, spec := range []bailey.Spec{{Workspace: project, Template: "host"}, {Workspace: project, Isolation: bailey.IsolationContainer}} {
		for _, n := range []int{0, 1} {
			prepare(t, c, spec, n)
			write(t, filepath.Join(project, "file"), "new\n")
			s, prepared := create(t, c, home, spec)
			if level, _ := s.Isolation(); level != bailey.IsolationContainer || prepared != (n == 1) {
				t.Errorf("%+v: level %s, prepared %v", spec, level, prepared)
			}
			if got := output(t, s, "cat file; echo inside > file; touch /usr/made && cat /etc/hostname"); got != "new\n"+s.ID()+"\n" {
				t.Errorf("%+v: %q", spec, got)
			}
		}
	}
	if _, err := c.Create(context.Background(), bailey.Spec{Workspace: project, Image: filepath.Join(project, "none.tar")}); err == nil {
		t.Error("an image that does not exist was used")
	}
}

// What is too old or dead is not used, goes, and is replaced.
func TestPreparedOldOrDead(t *testing.T) {
	c, home, project := client(t)
	spec := bailey.Spec{Workspace: project}
	for name, spoil := range map[string]func(){"old": func() { c.Age(time.Minute) }, "dead": c.Kill} {
		prepare(t, c, spec, 2)
		before := names(t, home)
		spoil()
		s, prepared := create(t, c, home, spec)
		if prepared {
			t.Errorf("%s: it was used", name)
		}
		output(t, s, "true")
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		prepare(t, c, spec, 2)
		if err := c.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
		after := names(t, home)
		for _, n := range before {
			if slices.Contains(after, n) {
				t.Errorf("%s: %s is still there", name, n)
			}
		}
		if len(after) != 2 {
			t.Errorf("%s: there are %q", name, after)
		}
	}
}
