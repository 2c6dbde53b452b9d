//go:build linux

package cgroup

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// hosts gives the ways to make groups on this machine: as found, and, where
// there are version 1 trees, as it would be found without the version 2 tree,
// and without the freezer.
func hosts(t *testing.T) map[string]*Host {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes control groups")
	}
	h := Detect("/")
	if h.Mode() == None {
		t.Skipf("needs host cgroups: %+v", h.Status())
	}
	out := map[string]*Host{string(h.Mode()): h}
	if h.Mode() == Hybrid {
		out["v1"] = detectWithout(t, " cgroup2 ")
		out["v1 without freezer"] = detectWithout(t, " cgroup2 ", ",freezer")
		for name, h := range out {
			if name != "hybrid" && h.Mode() != V1 {
				t.Fatalf("%s is taken for %s", name, h.Mode())
			}
		}
	}
	return out
}

// detectWithout detects this machine as if mounts with any of the words were
// not there.
func detectWithout(t *testing.T, words ...string) *Host {
	t.Helper()
	root := t.TempDir()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		drop := false
		for _, w := range words {
			drop = drop || strings.Contains(line, w)
		}
		if !drop {
			kept.WriteString(line)
		}
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	put(t, root, "proc/self/mountinfo", kept.String())
	put(t, root, "proc/self/cgroup", string(own))
	put(t, root, "proc/swaps", "Filename Type Size Used Priority\n")
	for _, dir := range []string{"sys", "dev"} {
		if err := os.Symlink("/"+dir, filepath.Join(root, dir)); err != nil {
			t.Fatal(err)
		}
	}
	return Detect(root)
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	p := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func forEachHost(t *testing.T, f func(t *testing.T, h *Host)) {
	for name, h := range hosts(t) {
		t.Run(name, func(t *testing.T) { f(t, h) })
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// newGroup makes a group and checks at the end of the test that it has gone.
func newGroup(t *testing.T, h *Host, l bailey.Limits, disks ...string) *Group {
	t.Helper()
	name := fmt.Sprintf("test-%d-%d", os.Getpid(), time.Now().UnixNano())
	g, err := New(h, name, l, disks...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := g.Kill(ctx); err != nil && len(g.folders()) > 0 {
			t.Error(err)
		}
		if err := g.Remove(ctx); err != nil {
			t.Error(err)
		}
		if err := g.Remove(ctx); err != nil {
			t.Errorf("a second removal: %v", err)
		}
		for _, dir := range g.folders() {
			if exists(dir, "") {
				t.Errorf("left over: %v", dir)
			}
		}
	})
	return g
}

func leftOver(h *Host, name string) (left []string) {
	for _, base := range []string{h.v2, h.freeze, h.v1[CPU], h.v1[Memory], h.v1[Pids], h.v1[IO]} {
		if base != "" && exists(base, h.folderOf(name)) {
			left = append(left, base)
		}
	}
	return left
}

// command prepares a shell script that runs in the group, entering it as the
// driver's child does.
func command(t *testing.T, g *Group, script string) *exec.Cmd {
	t.Helper()
	e, err := g.Enter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	cmd := exec.Command("/bin/sh", "-c")
	enter := ""
	for i, fd := range e.V1 {
		n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 3)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(n), "tasks")
		t.Cleanup(func() { f.Close() })
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		enter += fmt.Sprintf("echo 0 >&%d || exit 99; exec %d>&-; ", 3+i, 3+i)
	}
	cmd.Args = append(cmd.Args, enter+script)
	cmd.Stderr = os.Stderr
	if e.V2 >= 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: e.V2}
	}
	return cmd
}

// start starts a command and returns when its script has said "started", which
// it says in the group.
func start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "started\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

func TestLiveMemoryLimit(t *testing.T) {
	const limit = 32 << 20
	forEachHost(t, func(t *testing.T, h *Host) {
		g := newGroup(t, h, bailey.Limits{Memory: limit})
		swap := map[string]int64{"memory.memsw.limit_in_bytes": limit, "memory.swap.max": 0}
		for name, want := range swap {
			if dir := g.controllerDir(Memory); exists(dir, name) && number(dir, name) != want {
				t.Errorf("%s is %d", name, number(dir, name))
			}
		}
		// tail keeps all of a line, so it grows until it is killed; the shell
		// lives on to say so.
		cmd := command(t, g, "tail /dev/zero >/dev/null; echo $?")
		cmd.Stderr = nil
		out, err := cmd.Output()
		if err != nil || string(out) != "137\n" {
			t.Fatalf("%v, %q", err, out)
		}
		s := g.Stats()
		if s.OOMKills != 1 || s.MemoryHits < 1 || s.MemoryPeak < limit*9/10 || s.MemoryPeak > limit {
			t.Errorf("%+v", s)
		}
		if v := g.Victim(); v != "tail" {
			t.Errorf("the victim is %q", v)
		}
	})
}

func TestLivePidsLimit(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		g := newGroup(t, h, bailey.Limits{Pids: 8})
		cmd := command(t, g, "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 100 & done; wait")
		cmd.Stderr = nil
		cmd.Run() // dash gives up at the first fork that fails
		s := g.Stats()
		if s.PidsHits < 1 || s.PidsPeak > 8 || s.Pids != 7 {
			t.Errorf("%+v", s)
		}
	})
}

func TestLiveCPULimit(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		g := newGroup(t, h, bailey.Limits{CPUs: 0.2})
		if err := command(t, g, "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done").Run(); err != nil {
			t.Fatal(err)
		}
		s := g.Stats()
		if s.Throttles < 1 || s.ThrottledT <= 0 {
			t.Errorf("%+v", s)
		}
		if h.v2 != "" && s.CPU <= 0 {
			t.Errorf("no processor time: %+v", s)
		}
	})
}

func TestLiveIOLimit(t *testing.T) {
	dir := t.TempDir()
	forEachHost(t, func(t *testing.T, h *Host) {
		const limit = 8 << 20
		if disks, err := h.devices([]string{dir}); err != nil || len(disks) == 0 {
			t.Skipf("needs host block-disk: %v", err)
		}
		g := newGroup(t, h, bailey.Limits{IO: limit}, dir)
		start := time.Now()
		script := "dd if=/dev/zero of=" + dir + "/f bs=1M count=4 oflag=direct 2>/dev/null && dd if=" + dir + "/f of=/dev/null bs=1M iflag=direct 2>/dev/null"
		if err := command(t, g, script).Run(); err != nil {
			t.Fatal(err)
		}
		// 4 MiB each way at 8 MiB/s take half a second each; the first slice
		// is free.
		if d := time.Since(start); d < 500*time.Millisecond {
			t.Errorf("it took only %v", d)
		}
		s := g.Stats()
		if s.IORead < 4<<20 || s.IOWrite < 4<<20 {
			t.Errorf("%+v", s)
		}
		if h.Mode() != V2 && len(g.Notes()) == 0 {
			t.Error("no word about what version 1 does not cover")
		}
	})
}

func TestLiveKillForksAndFrozen(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		g := newGroup(t, h, bailey.Limits{Pids: 200})
		// A tree that always makes new processes, in sessions of their own.
		cmd := command(t, g, "echo started; trap '' TERM HUP INT; while :; do for i in 1 2 3 4 5; do setsid sh -c 'trap \"\" TERM; sleep 1000 & wait' & done; wait -n 2>/dev/null; sleep 0.01; done")
		cmd.Stderr = nil
		start(t, cmd)
		if h.CanFreeze() {
			if err := g.Freeze(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
		if err := g.Remove(expired(t)); bailey.CodeOf(err) != bailey.CodeBusy {
			t.Errorf("a group in use is removed: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if err := g.Kill(deadline(t)); err != nil {
			t.Fatal(err)
		}
		<-done
		if err := g.WaitEmpty(deadline(t)); err != nil {
			t.Error(err)
		}
	})
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestLiveKillOneByOne is for kernels without cgroup.kill.
func TestLiveKillOneByOne(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		g := newGroup(t, h, bailey.Limits{Pids: 100})
		cmd := command(t, g, "for i in 1 2 3 4 5 6 7 8; do (sleep 1000; :) & done; echo started; wait")
		start(t, cmd)
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		if err := g.killEach(deadline(t)); err != nil {
			t.Fatal(err)
		}
		<-done
		if err := g.WaitEmpty(deadline(t)); err != nil {
			t.Error(err)
		}
	})
}

func TestLiveFreezeAndThaw(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		g := newGroup(t, h, bailey.Limits{Pids: 100})
		if !h.CanFreeze() {
			if err := g.Freeze(deadline(t)); bailey.CodeOf(err) != bailey.CodeNotAvailable {
				t.Errorf("%v", err)
			}
			return
		}
		cmd := command(t, g, "cat")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		cmd.Stdout = w
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		answer := bufio.NewReader(r)
		ask := func() { io.WriteString(in, "a\n") }
		ask()
		if _, err := answer.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := g.Freeze(deadline(t)); err != nil {
				t.Fatal(err)
			}
			ask()
			r.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
			if s, err := answer.ReadString('\n'); err == nil {
				t.Errorf("a frozen process said %q", s)
			}
			r.SetReadDeadline(time.Time{})
			if err := g.Thaw(deadline(t)); err != nil {
				t.Fatal(err)
			}
			if s, err := answer.ReadString('\n'); err != nil || s != "a\n" {
				t.Errorf("thawed: %q, %v", s, err)
			}
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// spawnVariable makes this test program one that starts programs all the time, by
// vfork, which is what a version 1 freezer gets stuck on.
const spawnVariable = "BAILEY_TEST_SPAWNS"

func TestSpawns(t *testing.T) {
	if os.Getenv(spawnVariable) == "" {
		t.Skip("part of TestLiveFreezeUnderLoad")
	}
	for range 4 {
		go func() {
			for {
				exec.Command("/bin/true").Run()
			}
		}()
	}
	fmt.Println("started")
	io.Copy(io.Discard, os.Stdin)
}

func TestLiveFreezeUnderLoad(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	forEachHost(t, func(t *testing.T, h *Host) {
		if !h.CanFreeze() {
			return
		}
		g := newGroup(t, h, bailey.Limits{Pids: 1000})
		cmd := command(t, g, "exec "+program+" -test.run '^TestSpawns$'")
		cmd.Env = append(os.Environ(), spawnVariable+"=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		for range 20 {
			if err := g.Freeze(deadline(t)); err != nil {
				t.Fatal(err)
			}
			if err := g.Thaw(deadline(t)); err != nil {
				t.Fatal(err)
			}
		}
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// TestLiveRemoveWaits removes a group whose last process is about to end.
func TestLiveRemoveWaits(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		g := newGroup(t, h, bailey.Limits{Pids: 10})
		cmd := command(t, g, "echo started; read x")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		removed := make(chan error, 1)
		go func() { removed <- g.Remove(deadline(t)) }()
		in.Close()
		cmd.Wait()
		if err := <-removed; err != nil {
			t.Error(err)
		}
	})
}

func TestLiveSweepAndOpen(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		others := newGroup(t, h, bailey.Limits{Pids: 10}) // of a Bailey with another owner
		if err := h.SetOwner(fmt.Sprintf("test%d", os.Getpid())); err != nil {
			t.Fatal(err)
		}
		dead, live := newGroup(t, h, bailey.Limits{Pids: 10, Memory: 64 << 20}), newGroup(t, h, bailey.Limits{Pids: 10})
		cmd := command(t, dead, "echo started; sleep 1000")
		start(t, cmd)
		again, err := Open(h, dead.Name())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(again.folders()), fmt.Sprint(dead.folders()); got != want {
			t.Errorf("opened %s, made %s", got, want)
		}
		go cmd.Wait()
		alive := func(name string) bool { return name == live.Name() }
		if stale := Stale(h, alive); len(stale) != 1 || stale[0] != dead.Name() || len(leftOver(h, dead.Name())) == 0 {
			t.Errorf("stale are %v", stale)
		}
		removed, err := Sweep(deadline(t), h, alive)
		if err != nil || len(removed) != 1 || removed[0] != dead.Name() {
			t.Errorf("removed %v, %v", removed, err)
		}
		if left := leftOver(h, dead.Name()); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
		if len(leftOver(h, live.Name())) == 0 {
			t.Error("the living one has gone too")
		}
		if _, err := Open(h, dead.Name()); bailey.CodeOf(err) != bailey.CodeNotFound {
			t.Errorf("%v", err)
		}
		h.owner = ""
		if len(leftOver(h, others.Name())) == 0 {
			t.Error("another owner's group has gone")
		}
	})
}

// TestLiveSweepWithoutOwner must not hurt what may be somebody else's.
func TestLiveSweepWithoutOwner(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		used, empty := newGroup(t, h, bailey.Limits{Pids: 10, Memory: 64 << 20}), newGroup(t, h, bailey.Limits{Pids: 10, Memory: 64 << 20})
		cmd := command(t, used, "echo started; read x; exit 7")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		start(t, cmd)
		mine := func(name string) bool { return name != used.Name() && name != empty.Name() }
		removed, err := Sweep(deadline(t), h, mine)
		if err != nil || len(removed) != 1 || removed[0] != empty.Name() {
			t.Errorf("removed %v, %v", removed, err)
		}
		if got := len(leftOver(h, used.Name())); got != len(used.folders()) {
			t.Errorf("the group in use has %d folders left", got)
		}
		in.Close()
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("the process in it ended with %v", cmd.ProcessState)
		}
	})
}

func TestLiveNameTaken(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		g := newGroup(t, h, bailey.Limits{Pids: 10})
		if _, err := New(h, g.Name(), bailey.Limits{Pids: 10}); bailey.CodeOf(err) != bailey.CodeBusy {
			t.Errorf("%v", err)
		}
		if number(g.controllerDir(Pids), "pids.max") != 10 {
			t.Error("the first group has been damaged")
		}
	})
}

func TestLiveLimitsAreReadBack(t *testing.T) {
	forEachHost(t, func(t *testing.T, h *Host) {
		name := fmt.Sprintf("test-%d-back", os.Getpid())
		// More than the kernel's own most: it takes the number and keeps another.
		_, err := New(h, name, bailey.Limits{Pids: 1 << 40})
		if bailey.CodeOf(err) != bailey.CodeLimitUnavailable {
			t.Errorf("%v", err)
		}
		if left := leftOver(h, name); len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	})
}

func BenchmarkNew(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root: makes control groups")
	}
	h := Detect("/")
	if h.Mode() == None {
		b.Skip("needs host cgroups")
	}
	var made, removed time.Duration
	n := 0
	for b.Loop() {
		start := time.Now()
		g, err := New(h, fmt.Sprintf("bench-%d-%d", os.Getpid(), n), bailey.Limits{Memory: 1 << 28, Pids: 100, CPUs: 1})
		made += time.Since(start)
		if err != nil {
			b.Fatal(err)
		}
		start = time.Now()
		if err := g.Remove(b.Context()); err != nil {
			b.Fatal(err)
		}
		removed += time.Since(start)
		n++
	}
	b.ReportMetric(float64(made.Microseconds())/float64(n), "µs/new")
	b.ReportMetric(float64(removed.Microseconds())/float64(n), "µs/remove")
}
