//go:build linux

package cgroup

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
)

// The test here starts itself as an ordinary user in a group of a real version
// 2 tree, as systemd-run --user --scope -p Delegate=yes would. On a machine
// whose usual controllers belong to version 1 trees, one that nobody uses stands
// in for them; which it is makes no difference to the rules of the tree.
const (
	childVar = "BAILEY_CGROUP_CHILD"      // the machine's root folder for Detect
	ctrlVar  = "BAILEY_CGROUP_CONTROLLER" // the controller to turn on
)

func TestMain(m *testing.M) {
	if root := os.Getenv(childVar); root != "" {
		if err := delegatedChild(root, Controller(os.Getenv(ctrlVar))); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// report is what the child found.
type report struct {
	Mode       Mode
	Base, Self string
	After      string // its own group after New
	Control    string // subtree_control of the base
	InGroup    string // the group of a process started in the new group
	AgainBase  string // where a second Bailey would make groups
	AgainSelf  string
}

func delegatedChild(root string, c Controller) error {
	h := Detect(root)
	r := report{Mode: h.Mode(), Base: h.v2, Self: h.self}
	if h.v2 != "" {
		if err := h.enable([]setting{{controller: c}}); err != nil {
			return err
		}
		g, err := New(h, "child", bailey.Limits{})
		if err != nil {
			return err
		}
		e, err := g.Enter()
		if err != nil {
			return err
		}
		cmd := exec.Command("/bin/cat", "/proc/self/cgroup")
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: e.V2}
		out, err := cmd.Output()
		e.Close()
		if err != nil {
			return err
		}
		r.InGroup = ownGroups(string(out))[""]
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := g.Kill(ctx); err != nil {
			return err
		}
		if err := g.Remove(ctx); err != nil {
			return err
		}
		own, err := os.ReadFile("/proc/self/cgroup")
		if err != nil {
			return err
		}
		r.After = ownGroups(string(own))[""]
		r.Control, _ = read(h.v2, "cgroup.subtree_control")
		if err := os.WriteFile(filepath.Join(root, "proc/self/cgroup"), own, 0o644); err != nil {
			return err
		}
		again := Detect(root)
		r.AgainBase, r.AgainSelf = again.v2, again.self
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// spare finds a version 2 tree with a controller to give.
func spare(t *testing.T) (top string, c Controller) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: delegates a control group to an ordinary user")
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := cgroupMounts(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		have, _ := read(m.point, "cgroup.controllers")
		if m.v2 && isTop(m.point) && have != "" {
			all := strings.Fields(have)
			for _, want := range []string{"hugetlb", "pids", "memory"} {
				if slices.Contains(all, want) {
					return m.point, Controller(want)
				}
			}
		}
	}
	t.Skip("needs host cgroup-v2-top")
	return "", ""
}

func TestLiveDelegated(t *testing.T) {
	top, c := spare(t)
	if on, _ := read(top, "cgroup.subtree_control"); !slices.Contains(strings.Fields(on), string(c)) {
		if err := write(top, "cgroup.subtree_control", "+"+string(c)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { write(top, "cgroup.subtree_control", "-"+string(c)) })
	}
	run := func(t *testing.T, others, delegate bool) (report, string) {
		t.Helper()
		scope := filepath.Join(top, fmt.Sprintf("test-scope-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if err := os.Mkdir(scope, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := remove(scope); err != nil {
				t.Error(err)
			}
		})
		for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
			if err := os.Chown(filepath.Join(scope, name), 65534, 65534); err != nil {
				t.Fatal(err)
			}
		}
		if delegate {
			if err := unix.Setxattr(scope, "user.delegate", []byte("1"), 0); err != nil {
				t.Skipf("needs host cgroup-xattr: %v", err)
			}
		}
		fd, err := open(scope, unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		attr := func() *syscall.SysProcAttr {
			return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd, Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		if others {
			cat := exec.Command("/bin/cat")
			cat.SysProcAttr = attr()
			in, err := cat.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cat.Start(); err != nil {
				t.Fatal(err)
			}
			defer cat.Wait()
			defer in.Close()
		}
		root := t.TempDir()
		put(t, root, "proc/self/cgroup", "0::/"+filepath.Base(scope)+"\n")
		put(t, root, "proc/self/mountinfo", "1 1 0:1 / "+top+" rw - cgroup2 cgroup2 rw\n")
		if err := os.Symlink("/sys", root+"/sys"); err != nil {
			t.Fatal(err)
		}
		exe := filepath.Join(root, "test")
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(exe, self, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{filepath.Dir(root), root, root + "/proc/self", root + "/proc/self/cgroup"} {
			if err := os.Chmod(p, 0o777); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(exe)
		cmd.Dir = "/"
		cmd.Env = []string{childVar + "=" + root, ctrlVar + "=" + string(c), "GORACE=atexit_sleep_ms=0"}
		cmd.SysProcAttr = attr()
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		var r report
		if err := json.Unmarshal(out, &r); err != nil {
			t.Fatal(err)
		}
		return r, filepath.Join(root, scope)
	}

	check := func(t *testing.T, r report, scope string) {
		t.Helper()
		own := "/" + filepath.Base(scope)
		if r.Mode != V2 || r.Base != scope || r.Self != scope {
			t.Errorf("mode %s, groups in %s, moves %s", r.Mode, r.Base, r.Self)
		}
		if r.After != own+"/"+selfName || r.InGroup != own+"/bailey-child" || r.Control != string(c) {
			t.Errorf("itself in %s, the sandbox in %s, controllers %q", r.After, r.InGroup, r.Control)
		}
		if r.AgainBase != scope || r.AgainSelf != "" {
			t.Errorf("a second time: groups in %s, moves %q", r.AgainBase, r.AgainSelf)
		}
	}
	t.Run("alone", func(t *testing.T) {
		r, scope := run(t, false, false)
		check(t, r, scope)
	})
	t.Run("with others, not marked", func(t *testing.T) {
		if r, _ := run(t, true, false); r.Mode != None {
			t.Errorf("%+v", r)
		}
	})
	t.Run("with others, marked as delegated", func(t *testing.T) {
		r, scope := run(t, true, true)
		check(t, r, scope)
	})
}

func BenchmarkDetect(b *testing.B) {
	for b.Loop() {
		Detect("/")
	}
}
