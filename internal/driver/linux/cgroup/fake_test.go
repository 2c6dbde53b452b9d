//go:build linux

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// fake is a version 2 machine of plain files.
type fake struct {
	t    *testing.T
	root string
}

const cgroupDir = "sys/fs/cgroup"

// groupFiles are those of every group but the top one.
var groupFiles = map[string]string{
	"cgroup.type": "domain\n", "cgroup.procs": "", "cgroup.subtree_control": "\n", "cgroup.controllers": "cpuset cpu io memory pids\n",
	"cgroup.events": "populated 0\nfrozen 0\n", "cgroup.freeze": "0\n", "cgroup.kill": "",
	"cpu.max": "max 100000\n", "cpu.stat": "usage_usec 2500\nuser_usec 1\nnr_periods 9\nnr_throttled 3\nthrottled_usec 700\n",
	"memory.max": "max\n", "memory.swap.max": "max\n", "memory.current": "4096\n", "memory.peak": "8192\n",
	"memory.events": "low 0\nhigh 0\nmax 5\noom 2\noom_kill 1\noom_group_kill 0\n", "memory.oom.group": "0\n",
	"pids.max": "max\n", "pids.current": "2\n", "pids.peak": "6\n", "pids.events": "max 4\n",
	"io.max": "", "io.stat": "8:0 rbytes=10 wbytes=20 rios=1 wios=1 dbytes=0 dios=0\n8:16 rbytes=1 wbytes=2 rios=1 wios=1\n",
}

// newFake makes a machine whose process is in the group own; groups are made
// with all groups above it.
func newFake(t *testing.T, own string) *fake {
	f := &fake{t, t.TempDir()}
	f.put("proc/self/cgroup", "0::"+own+"\n")
	f.put("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n35 22 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n")
	f.put("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n/swapfile file 1 0 -2\n")
	for name, text := range groupFiles {
		if name != "cgroup.type" && name != "cgroup.events" && name != "cgroup.freeze" && name != "cgroup.kill" && !strings.HasSuffix(name, ".max") {
			f.put(cgroupDir+"/"+name, text)
		}
	}
	f.put(cgroupDir+"/cgroup.procs", "1\n2\n")
	at := ""
	for part := range strings.SplitSeq(strings.Trim(own, "/"), "/") {
		if part != "" {
			at += "/" + part
			f.group(at)
		}
	}
	return f
}

func (f *fake) put(name, text string) { put(f.t, f.root, name, text) }

func (f *fake) group(path string) {
	for name, text := range groupFiles {
		f.put(cgroupDir+path+"/"+name, text)
	}
}

func (f *fake) text(name string) string {
	f.t.Helper()
	b, err := os.ReadFile(filepath.Join(f.root, name))
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func (f *fake) detect() *Host {
	h := Detect(f.root)
	h.mkdir = func(p string) error {
		if err := os.Mkdir(p, 0o755); err != nil {
			return err
		}
		for name, text := range groupFiles {
			if err := os.WriteFile(filepath.Join(p, name), []byte(text), 0o644); err != nil {
				return err
			}
		}
		return nil
	}
	return h
}

func (f *fake) where(h *Host) string {
	return strings.TrimPrefix(h.v2, filepath.Join(f.root, cgroupDir))
}

func TestFakePlacement(t *testing.T) {
	me := fmt.Sprintln(os.Getpid())
	const scope = "/user.slice/user-1000.slice/run-1.scope"
	tests := []struct {
		name, own string
		prepare   func(f *fake)
		want      string // below the mount
		self      bool
	}{
		{"the real top", "/", func(*fake) {}, "", false},
		{"alone in a scope", scope, func(f *fake) { f.put(cgroupDir+scope+"/cgroup.procs", me) }, scope, true},
		{"with others, as root", scope, func(f *fake) { f.put(cgroupDir+scope+"/cgroup.procs", me+"1\n") }, "/user.slice/user-1000.slice", false},
		{"with others also above", scope, func(f *fake) {
			f.put(cgroupDir+scope+"/cgroup.procs", me+"1\n")
			f.put(cgroupDir+"/user.slice/user-1000.slice/cgroup.procs", "7\n")
		}, "/user.slice", false},
		{"moved down before", scope + "/bailey.self", func(f *fake) { f.put(cgroupDir+scope+"/bailey.self/cgroup.procs", me) }, scope, false},
		{"a threaded group", scope, func(f *fake) { f.put(cgroupDir+scope+"/cgroup.type", "threaded\n") }, "/user.slice/user-1000.slice", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, tt.own)
			tt.prepare(f)
			h := f.detect()
			if h.Mode() != V2 || f.where(h) != tt.want || (h.self != "") != tt.self {
				t.Errorf("mode %s, in %q, self %q", h.Mode(), f.where(h), h.self)
			}
			for _, s := range h.Status() {
				if !s.OK {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

func TestFakeInsideContainer(t *testing.T) {
	// The mount shows a part of the tree, and the group is written from the
	// machine's top.
	f := newFake(t, "/docker/abc")
	f.put("proc/self/mountinfo", "35 22 0:30 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n")
	h := f.detect()
	if h.Mode() != V2 || f.where(h) != "" {
		t.Errorf("mode %s, in %q", h.Mode(), f.where(h))
	}
	// Outside of what is mounted.
	f.put("proc/self/cgroup", "0::/docker/abcd\n")
	for _, own := range []string{"/docker/abcd", "/../other", "/"} {
		f.put("proc/self/cgroup", "0::"+own+"\n")
		if h := f.detect(); h.Mode() != None || h.Status()[0].Fix == "" {
			t.Errorf("%s: mode %s, %+v", own, h.Mode(), h.Status()[0])
		}
	}
	// A namespace's top is not the machine's: it has a type, and processes.
	f = newFake(t, "/")
	f.put(cgroupDir+"/cgroup.type", "domain\n")
	if h := f.detect(); h.Mode() != None || !strings.Contains(h.Status()[0].Why, "processes of others") {
		t.Errorf("mode %s, %+v", h.Mode(), h.Status()[0])
	}
}

// asUser runs f on a thread with the rights of an ordinary user.
func asUser(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with this
		// seteuid for this thread only; it takes the capabilities with it.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), 65534, ^uintptr(0)); errno != 0 {
			t.Error(errno)
			return
		}
		f()
	}()
	<-done
}

func TestFakeWithoutDelegation(t *testing.T) {
	f := newFake(t, "/user.slice/session-1.scope")
	if err := os.Chmod(filepath.Dir(f.root), 0o755); err != nil { // the folder of t.TempDir is private
		t.Fatal(err)
	}
	if os.Geteuid() != 0 {
		// The files are the test's own, so their modes have to refuse it.
		for _, dir := range []string{"", "/user.slice", "/user.slice/session-1.scope"} {
			for _, name := range []string{"cgroup.procs", "cgroup.subtree_control"} {
				if err := os.Chmod(filepath.Join(f.root, cgroupDir+dir, name), 0o444); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	var h *Host
	asUser(t, func() { h = f.detect() })
	if h == nil {
		t.Fatal("no answer")
	}
	if h.Mode() != None {
		t.Fatalf("mode %s, %q", h.Mode(), h.v2)
	}
	for _, s := range h.Status() {
		if s.OK || !strings.Contains(s.Why, "delegated") || !strings.Contains(s.Fix, "Delegate=yes") {
			t.Errorf("%+v", s)
		}
	}
	_, err := New(h, "x", bailey.Limits{Memory: 1 << 20})
	if bailey.CodeOf(err) != bailey.CodeLimitUnavailable || !strings.Contains(err.Error(), "systemd-run") {
		t.Errorf("%v", err)
	}
	g, err := New(h, "x", bailey.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := g.Enter(); err != nil || e.V2 != -1 || len(e.V1) != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	if err := g.Kill(context.Background()); bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Errorf("%v", err)
	}
	if s := g.Stats(); s.Memory != -1 || s.CPU != -1 {
		t.Errorf("%+v", s)
	}
	if err := g.Remove(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestFakeLimits(t *testing.T) {
	const scope = "/run-1.scope"
	f := newFake(t, scope)
	f.put(cgroupDir+scope+"/cgroup.procs", fmt.Sprintln(os.Getpid()))
	h := f.detect()
	g, err := New(h, "a", bailey.Limits{CPUs: 1.5, Memory: 64<<20 + 5, Pids: 32})
	if err != nil {
		t.Fatal(err)
	}
	at := cgroupDir + scope + "/bailey-a/"
	for name, want := range map[string]string{
		"memory.max": "67108864", "memory.swap.max": "0", "pids.max": "32", "cpu.max": "150000 100000", "memory.oom.group": "0",
	} {
		if got := f.text(at + name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if got := f.text(cgroupDir + scope + "/cgroup.subtree_control"); got != "+memory +pids +cpu" {
		t.Errorf("subtree_control was given %q", got)
	}
	// Plain files keep the process where it was, too; the order is what
	// matters: it has been moved before controllers were turned on.
	if got := f.text(cgroupDir + scope + "/bailey.self/cgroup.procs"); got != itoa(int64(os.Getpid())) {
		t.Errorf("bailey.self has %q", got)
	}
	want := Stats{Memory: 4096, MemoryPeak: 8192, MemoryHits: 5, OOMs: 2, OOMKills: 1, Pids: 2, PidsPeak: 6, PidsHits: 4,
		CPU: 2500 * time.Microsecond, Throttles: 3, ThrottledT: 700 * time.Microsecond, IORead: 11, IOWrite: 22}
	if got := g.Stats(); got != want {
		t.Errorf("%+v", got)
	}
	e, err := g.Enter()
	if err != nil || e.V2 < 0 || len(e.V1) != 0 {
		t.Errorf("%+v, %v", e, err)
	}
	e.Close()
	if err := g.Kill(deadline(t)); err != nil || f.text(at+"cgroup.kill") != "1" {
		t.Errorf("%v", err)
	}
	f.put(at+"cgroup.events", "populated 0\nfrozen 1\n")
	if err := g.Freeze(deadline(t)); err != nil || f.text(at+"cgroup.freeze") != "1" {
		t.Errorf("%v", err)
	}
}

func TestFakeIO(t *testing.T) {
	f := newFake(t, "/")
	h := f.detect()
	// A partition of a disk, by this machine's number for the test's folder.
	var st unix.Stat_t
	if err := unix.Stat(f.root, &st); err != nil {
		t.Fatal(err)
	}
	if unix.Major(st.Dev) == 0 {
		t.Skip("needs host block-disk: the temporary folder has no number that could be given a disk")
	}
	dev := fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	f.put("sys/devices/disk/dev", "7:77\n")
	f.put("sys/devices/disk/part1/partition", "1\n")
	f.put("sys/devices/disk/part1/dev", dev+"\n")
	if err := os.MkdirAll(f.root+"/sys/dev/block", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../../devices/disk/part1", f.root+"/sys/dev/block/"+dev); err != nil {
		t.Fatal(err)
	}
	if _, err := New(h, "io", bailey.Limits{IO: 1 << 20}, f.root, f.root); err != nil {
		t.Fatal(err)
	}
	if got := f.text(cgroupDir + "/bailey-io/io.max"); got != "7:77 rbps=1048576 wbps=1048576" {
		t.Errorf("io.max is %q", got)
	}
	if _, err := New(h, "none", bailey.Limits{IO: 1 << 20}); bailey.CodeOf(err) != bailey.CodeLimitUnavailable {
		t.Errorf("without a disk: %v", err)
	}
	if _, err := New(h, "proc", bailey.Limits{IO: 1 << 20}, "/proc"); bailey.CodeOf(err) != bailey.CodeLimitUnavailable {
		t.Errorf("on /proc: %v", err)
	}
}

func TestFakeFailures(t *testing.T) {
	limits := bailey.Limits{CPUs: 1, Memory: 1 << 20, Pids: 5}
	tests := []struct {
		name    string
		limits  bailey.Limits
		prepare func(f *fake, h *Host)
		code    bailey.Code
		says    string
	}{
		{"negative", bailey.Limits{Memory: -1}, nil, bailey.CodeUsage, "out of range"},
		{"too little processor", bailey.Limits{CPUs: 0.001}, nil, bailey.CodeUsage, "0.01"},
		{"too little memory", bailey.Limits{Memory: 100}, nil, bailey.CodeUsage, "page"},
		{"top without io", bailey.Limits{IO: 1}, nil, bailey.CodeLimitUnavailable, "which disks"},
		{"file missing", limits, func(f *fake, h *Host) {
			mkdir := h.mkdir
			h.mkdir = func(p string) error {
				err := mkdir(p)
				os.Remove(p + "/pids.max")
				return err
			}
		}, bailey.CodeLimitUnavailable, "pids"},
		{"swap not counted", limits, func(f *fake, h *Host) {
			mkdir := h.mkdir
			h.mkdir = func(p string) error {
				err := mkdir(p)
				os.Remove(p + "/memory.swap.max")
				return err
			}
		}, bailey.CodeLimitUnavailable, "swapaccount=1"},
		{"the kernel keeps another value", limits, func(f *fake, h *Host) {
			mkdir := h.mkdir
			h.mkdir = func(p string) error {
				err := mkdir(p)
				os.Remove(p + "/pids.max")
				os.Symlink("/dev/null", p+"/pids.max")
				return err
			}
		}, bailey.CodeLimitUnavailable, `pids.max says ""`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake(t, "/")
			h := f.detect()
			if tt.prepare != nil {
				tt.prepare(f, h)
			}
			_, err := New(h, "x", tt.limits)
			if bailey.CodeOf(err) != tt.code || !strings.Contains(fmt.Sprint(err), tt.says) {
				t.Errorf("%v", err)
			}
		})
	}
	f := newFake(t, "/")
	f.put(cgroupDir+"/cgroup.controllers", "memory pids\n")
	if _, err := New(f.detect(), "x", limits); bailey.CodeOf(err) != bailey.CodeLimitUnavailable || !strings.Contains(err.Error(), "cpu controller") {
		t.Errorf("a controller that was not given: %v", err)
	}
	f = newFake(t, "/")
	h := f.detect()
	f.put("proc/swaps", "Filename\tType\n")
	mkdir := h.mkdir
	h.mkdir = func(p string) error {
		err := mkdir(p)
		os.Remove(p + "/memory.swap.max")
		return err
	}
	if _, err := New(h, "noswap", limits); err != nil {
		t.Errorf("without swap there is nothing to count: %v", err)
	}
	for _, name := range []string{"", "a/b", "../x", "a b", strings.Repeat("a", 65), "a\n"} {
		if _, err := New(h, name, bailey.Limits{}); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}

func TestOrdinaryUserWithVersion1(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: sees the machine as another user")
	}
	h := Detect("/")
	if h.Mode() != Hybrid && h.Mode() != V1 {
		t.Skip("needs host cgroup-v1")
	}
	asUser(t, func() { h = Detect("/") })
	if h.Mode() != None {
		t.Errorf("mode %s: %+v", h.Mode(), h.Status())
	}
	for _, s := range h.Status() {
		if s.OK || !strings.Contains(s.Fix, "run as root") {
			t.Errorf("%+v", s)
		}
	}
}

// TestFakeFreezerStuck is a version 1 freezer that never gets there.
func TestFakeFreezerStuck(t *testing.T) {
	root := t.TempDir()
	put(t, root, "proc/self/cgroup", "6:freezer:/\n")
	put(t, root, "proc/self/mountinfo", "37 31 0:34 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n")
	put(t, root, "sys/fs/cgroup/freezer/cgroup.procs", "")
	h := Detect(root)
	h.mkdir = func(p string) error {
		if err := os.Mkdir(p, 0o755); err != nil {
			return err
		}
		return os.Symlink("/dev/null", p+"/freezer.state") // takes all, says nothing
	}
	if !h.CanFreeze() {
		t.Fatalf("%+v", h)
	}
	g, err := New(h, "stuck", bailey.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := g.Freeze(ctx); bailey.CodeOf(err) != bailey.CodeSetupFailed || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestOwners(t *testing.T) {
	h := newFake(t, "/").detect()
	for _, bad := range []string{"", "a-b", "a.b", "a@b", "a/b", strings.Repeat("a", 33)} {
		if err := h.SetOwner(bad); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if err := h.SetOwner("a1"); err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{"bailey-x@a1": "x", "bailey-x": "", "bailey-x@a12": "", "bailey-x@b@a1": "", "bailey.self": "", "bailey-@a1": "", "x@a1": ""} {
		if got, ok := h.nameOf(folder); ok != (want != "") || ok && got != want {
			t.Errorf("%s: %q, %v", folder, got, ok)
		}
	}
	if got := h.folderOf("x"); got != "bailey-x@a1" {
		t.Error(got)
	}
}

func TestDetectNothing(t *testing.T) {
	for what, prepare := range map[string]func(root string){
		"no proc":   func(string) {},
		"no cgroup": func(root string) { put(t, root, "proc/self/cgroup", ""); put(t, root, "proc/self/mountinfo", "") },
	} {
		root := t.TempDir()
		prepare(root)
		h := Detect(root)
		if h.Mode() != None || h.CanFreeze() {
			t.Errorf("%s: mode %s", what, h.Mode())
		}
		for _, s := range h.Status() {
			if s.OK || s.Why == "" || s.Fix == "" {
				t.Errorf("%s: %+v", what, s)
			}
		}
	}
}

func TestMountsAndMembership(t *testing.T) {
	m, err := cgroupMounts([]byte("32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n33 31 0:38 /a\\040b /c\\134d rw shared:1 - cgroup2 x rw\n9 9 9:9 / /x rw - tmpfs t rw\n"))
	if err != nil || len(m) != 2 || m[0].v2 || m[0].controllers[1] != "cpu" || m[0].controllers[2] != "cpuacct" || !m[1].v2 || m[1].root != "/a b" || m[1].point != `/c\d` {
		t.Errorf("%+v", m)
	}
	own := ownGroups("9:name=systemd:/s\n1:cpu,cpuacct:/a:b\n0::/u\nodd\n")
	if own["cpu"] != "/a:b" || own["cpuacct"] != "/a:b" || own[""] != "/u" || own["name=systemd"] != "/s" {
		t.Errorf("%+v", own)
	}
}
