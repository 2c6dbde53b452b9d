//go:build linux

package engine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// ready waits until so many of a kind are ready.
func ready(t testing.TB, e *Engine, k kind, n int) {
	t.Helper()
	eventually(t, 20*time.Second, "sandboxes are made ahead", func() bool {
		e.pools.mu.Lock()
		defer e.pools.mu.Unlock()
		return len(e.pools.ready[k]) == n
	})
}

func container(change func(*api.SandboxSpec)) api.SandboxSpec {
	s := api.SandboxSpec{Isolation: bailey.IsolationContainer}
	if change != nil {
		change(&s)
	}
	return s
}

// TestWarm is T78: a sandbox that was made ahead is what was asked for, quickly and
// again and again; nobody sees it before, and what cannot be had so says why.
func TestWarm(t *testing.T) {
	e := openEngine(t, func(o *Options) {
		o.Warm = []Warm{{Count: 1}, {Level: bailey.IsolationProcess, Count: 1}}
		o.Quota = func(string) api.Quota { return api.Quota{Sandboxes: 3} }
	})
	kinds := map[bailey.Isolation]kind{}
	for _, level := range []bailey.Isolation{bailey.IsolationContainer, bailey.IsolationProcess} {
		kinds[level] = kind{template: "host", level: level}
		ready(t, e, kinds[level], 1)
	}
	if list, _, err := e.Sandboxes(t.Context(), Caller{Admin: true}, api.SandboxQuery{}); err != nil || len(list) > 0 {
		t.Errorf("listed before anybody has asked: %+v %v", list, err)
	}
	if info, err := e.Info(t.Context()); err != nil || info.Sandboxes != 0 || !slices.Equal(info.Warm, []api.Warm{
		{Template: "host", Isolation: bailey.IsolationProcess, Wanted: 1, Ready: 1}, {Template: "host", Isolation: bailey.IsolationContainer, Wanted: 1, Ready: 1},
	}) {
		t.Errorf("counted: %+v %v", info, err)
	}
	if list, err := e.GC(t.Context(), Caller{Admin: true}, false); err != nil || len(list) > 0 {
		t.Errorf("collected: %+v %v", list, err)
	}
	for level, k := range kinds {
		t.Run(level.String(), func(t *testing.T) {
			for round := range 3 {
				ready(t, e, k, 1)
				spec := api.SandboxSpec{Isolation: level, Env: map[string]string{"LATE": "value"}, Labels: map[string]string{"a": "b"}, Timeout: minutes(5), Workdir: "/tmp"}
				if level == bailey.IsolationContainer && os.Geteuid() == 0 {
					spec.Name = "named"
				}
				s := create(t, e, spec)
				if s.Warm != "hit" || s.Owner != me.Name || s.Labels["a"] != "b" || s.Name != spec.Name || s.State != api.StateRunning {
					t.Fatalf("round %d: %+v", round, s)
				}
				want := "value\n/tmp\n" + s.ID
				if spec.Name != "" {
					want = "value\n/tmp\nnamed\nnamed"
				}
				script := "echo $LATE; pwd; cat /proc/sys/kernel/hostname"
				if spec.Name != "" {
					script += "; cat /etc/hostname"
				}
				if got := sh(t, e, s.ID, script); got != want {
					t.Errorf("it is %q, want %q", got, want)
				}
				sh(t, e, s.ID, "cd; echo kept > f")
				if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
					t.Fatal(err)
				}
				if got := sh(t, e, s.ID, script+"; cd; cat f"); got != want+"\nkept" {
					t.Errorf("started anew it is %q", got)
				}
				if err := e.Delete(t.Context(), me, s.ID); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for why, spec := range map[string]api.SandboxSpec{
		"limits":    container(func(s *api.SandboxSpec) { s.Limits.Pids = 100 }),
		"mounts":    container(func(s *api.SandboxSpec) { s.Mounts = []string{t.TempDir() + ":/x"} }),
		"workspace": container(func(s *api.SandboxSpec) { s.Workspace = t.TempDir() }),
		"user":      with(func(s *api.SandboxSpec) { s.User = "1000" }),
	} {
		s, err := e.Create(t.Context(), me, spec)
		if bailey.CodeOf(err) == bailey.CodeLimitUnavailable || why == "user" && err != nil {
			continue // not on this host
		}
		if err != nil || s.Warm != why {
			t.Errorf("%s: warm is %q, %v", why, s.Warm, err)
		}
		if err := e.Delete(t.Context(), me, s.ID); err != nil {
			t.Error(err)
		}
	}
	if _, why := e.takeWarm(api.SandboxSpec{Image: "x.example/y"}); why != "image" {
		t.Errorf("an image: %q", why)
	}
	if _, why := e.takeWarm(api.SandboxSpec{Template: "other"}); why != "template" {
		t.Errorf("another template: %q", why)
	}
	// One that has died is not given to anybody.
	ready(t, e, kinds[bailey.IsolationProcess], 1)
	e.pools.mu.Lock()
	w := e.pools.ready[kinds[bailey.IsolationProcess]][0]
	e.pools.mu.Unlock()
	unix.Kill(w.g.instance.Pid(), unix.SIGKILL)
	<-w.g.instance.Done()
	if s := create(t, e, process); s.Warm != "none ready" || s.ID == w.box.id {
		t.Errorf("instead of one that has died: %+v", s)
	}
}

// TestWarmHostChanged: when the host changes, what is ready is taken for as long as the
// description of the host template could be that old, and is replaced meanwhile.
func TestWarmHostChanged(t *testing.T) {
	e := openEngine(t, func(o *Options) { o.Warm = []Warm{{Level: bailey.IsolationContainer, Count: 1}} })
	k := kind{template: "host", level: bailey.IsolationContainer}
	ready(t, e, k, 1)
	first := func() (w *warm) {
		e.pools.mu.Lock()
		defer e.pools.mu.Unlock()
		if list := e.pools.ready[k]; len(list) == 1 {
			w = list[0]
		}
		return w
	}
	old := first()
	changed := *old.from.Rootfs
	changed.Config.Env = append(slices.Clone(changed.Config.Env), "NEW=1")
	now := e.clock.Now()
	if !e.hostRoot.put(&changed, now) || e.hostRoot.put(old.from.Rootfs, now.Add(-time.Minute)) {
		t.Fatal("it does not know what is new")
	}
	if !e.outdated(old) || !e.hostRoot.fresh(old.from.Rootfs, now) || e.hostRoot.fresh(old.from.Rootfs, now.Add(hostRootOld)) || e.hostRoot.fresh(&changed, now) {
		t.Error("it does not know what can be taken still")
	}
	if s := create(t, e, container(nil)); s.Warm != "hit" || s.ID != old.box.id {
		t.Errorf("right after it is %q", s.Warm)
	}
	ready(t, e, k, 1)
	e.hostRoot.mu.Lock()
	back := e.hostRoot.made.Add(time.Nanosecond)
	e.hostRoot.mu.Unlock()
	w := first()
	other := *w.from.Rootfs
	other.Config.Env = append(slices.Clone(other.Config.Env), "NEWER=1")
	if !e.hostRoot.put(&other, back) {
		t.Fatal("it does not know what is new")
	}
	e.nudgePools()
	eventually(t, 60*time.Second, "the one that is outdated is replaced", func() bool {
		now := first()
		return now != nil && now != w && !e.outdated(now)
	})
}

// TestWarmPolicy: a policy is put on a sandbox that was made ahead with a way out; the
// first who wants one is told that there is none yet.
func TestWarmPolicy(t *testing.T) {
	e := openEngine(t, func(o *Options) { o.Warm = []Warm{{Count: 1}} })
	net := kind{template: "host", level: bailey.IsolationContainer, net: true}
	ready(t, e, kind{template: "host", level: bailey.IsolationContainer}, 1)
	spec := container(func(s *api.SandboxSpec) { s.Allow = []string{"allowed.example.com:443"} })
	cold := create(t, e, spec)
	if cold.Warm != "none ready" {
		t.Errorf("the first is %q", cold.Warm)
	}
	ready(t, e, net, 1)
	s := create(t, e, spec)
	if s.Warm != "hit" || s.Policy != cold.Policy || s.Egress != cold.Egress {
		t.Fatalf("%+v", s)
	}
	first, second := sh(t, e, cold.ID, askName), sh(t, e, s.ID, askName)
	if first == "" || first[:10] != second[:10] {
		t.Errorf("made anew it says %q, ahead %q", first, second)
	}
	before := sh(t, e, s.ID, askName)
	if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil {
		t.Fatal(err)
	}
	if after := sh(t, e, s.ID, askName); after != before {
		t.Errorf("after a stop: %q, and was %q", after, before)
	}
	ready(t, e, net, 1)
	spec.Allow, spec.Policy = nil, json.RawMessage(`"version: 1\nmin_isolation: container\nlimits:\n  pids: 50\n"`)
	if got, err := e.Create(t.Context(), me, spec); err == nil && got.Warm != "limits" {
		t.Errorf("with limits of a policy: %q", got.Warm)
	}
}

// TestWarmGoes: what was made ahead goes with the engine, and after a crash with the
// next one.
func TestWarmGoes(t *testing.T) {
	home := newHome(t)
	dir := programs(t)
	opt := Options{Home: home, Init: filepath.Join(dir, "bailey-init"), Daemon: filepath.Join(dir, "baileyd"), Warm: []Warm{{Count: 2}}}
	e, err := Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	k := kind{template: "host", level: bailey.IsolationContainer}
	ready(t, e, k, 2)
	e.pools.mu.Lock()
	pid := e.pools.ready[k][0].g.instance.Pid()
	e.pools.mu.Unlock()
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(pid, 0); err != unix.ESRCH {
		t.Errorf("its process is there: %v", err)
	}
	folders := func() int {
		list, err := os.ReadDir(filepath.Join(home, sandboxesDir))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if n := folders(); n != 0 {
		t.Errorf("%d folders are left", n)
	}
	// As after a crash.
	if err := os.MkdirAll(filepath.Join(home, sandboxesDir, "aaaaaaaaaaaa", "roots"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, sandboxesDir, "aaaaaaaaaaaa", warmMark), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	opt.Warm = nil
	if e, err = Open(t.Context(), opt); err != nil {
		t.Fatal(err)
	}
	eventually(t, 5*time.Second, "it is removed", func() bool { return folders() == 0 })
	if err := e.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
