//go:build linux

package rig

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Descendants lists the processes that this one has started, with all they have
// started, by their parents' death notwithstanding: see Main.
func Descendants() []int {
	children := map[int][]int{}
	for _, pid := range processes() {
		if _, parent, ok := stat(pid); ok {
			children[parent] = append(children[parent], pid)
		}
	}
	var list []int
	for next := children[os.Getpid()]; len(next) > 0; {
		list = append(list, next...)
		var more []int
		for _, pid := range next {
			more = append(more, children[pid]...)
		}
		next = more
	}
	return list
}

func processes() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var list []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// stat gives a process's state and parent; see proc_pid_stat(5).
func stat(pid int) (state byte, parent int, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0, false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 2 {
		return 0, 0, false
	}
	parent, err = strconv.Atoi(f[1])
	return f[0][0], parent, err == nil
}

// Parent gives a process's parent, or 0.
func Parent(pid int) int {
	_, parent, _ := stat(pid)
	return parent
}

// Await returns when the process has ended, after Patience at the latest.
func Await(pid int) { await(pid, Patience) }

// Gone waits until no process is left that this one has started, at most as long
// as given, and tells how long it took. Every command that the test has started
// must have been waited for.
func (y *Yard) Gone(within time.Duration) (time.Duration, error) {
	begin := time.Now()
	for {
		left := Descendants()
		if len(left) == 0 {
			return time.Since(begin), nil
		}
		remain := within - time.Since(begin)
		if remain <= 0 {
			return time.Since(begin), fmt.Errorf("processes are left: %s", describe(left))
		}
		await(left[0], remain)
	}
}

// await returns when the process has ended and, if it is a child of this one,
// has been reaped, or after the time.
func await(pid int, within time.Duration) {
	if fd, err := unix.PidfdOpen(pid, 0); err == nil {
		unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(within.Milliseconds())+1)
		unix.Close(fd)
	}
	if _, parent, ok := stat(pid); ok && parent == os.Getpid() {
		unix.Wait4(pid, nil, unix.WNOHANG, nil)
	}
}

func describe(pids []int) string {
	var list []string
	for _, pid := range pids {
		state, parent, _ := stat(pid)
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		list = append(list, fmt.Sprintf("%d (%c, parent %d) %q", pid, state, parent, strings.ReplaceAll(string(line), "\x00", " ")))
	}
	return strings.Join(list, ", ")
}

var namespaceKinds = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"}

// Namespaces opens the namespaces in which the processes are and this one is
// not. While they are open their numbers stand for nothing else.
func Namespaces(pids []int) []*os.File {
	seen := map[string]bool{}
	for _, k := range namespaceKinds {
		if n, err := os.Readlink("/proc/self/ns/" + k); err == nil {
			seen[n] = true
		}
	}
	var list []*os.File
	for _, pid := range pids {
		for _, k := range namespaceKinds {
			f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, k))
			if err != nil {
				continue // it has ended, or is not this user's to look at
			}
			if n := nameOf(f); n == "" || seen[n] {
				f.Close()
			} else {
				seen[n] = true
				list = append(list, f)
			}
		}
	}
	return list
}

// nameOf gives the name of an open namespace, such as net:[4026532840].
func nameOf(f *os.File) string {
	n, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	return n
}

// Unheld fails the test if any process of the machine is in one of the
// namespaces, has a descriptor of it, or sees it mounted. Then it closes them.
func (y *Yard) Unheld(open []*os.File) {
	y.t.Helper()
	var namespaces []string
	for _, f := range open {
		namespaces = append(namespaces, nameOf(f))
		defer f.Close()
	}
	if len(open) == 0 {
		return
	}
	seen := map[string]bool{}
	for _, pid := range processes() {
		if pid == os.Getpid() {
			continue
		}
		for _, k := range namespaceKinds {
			n, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, k))
			if err == nil && slices.Contains(namespaces, n) {
				y.t.Errorf("process %s is still in %s", describe([]int{pid}), n)
			}
		}
		fds := fmt.Sprintf("/proc/%d/fd", pid)
		d, err := os.Open(fds)
		if err != nil {
			continue
		}
		names, _ := d.Readdirnames(-1)
		d.Close()
		for _, fd := range names {
			if n, err := os.Readlink(fds + "/" + fd); err == nil && slices.Contains(namespaces, n) {
				y.t.Errorf("process %s still has a descriptor of %s", describe([]int{pid}), n)
			}
		}
		mnt, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/mnt", pid))
		if err != nil || seen[mnt] {
			continue
		}
		seen[mnt] = true
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		for _, n := range namespaces {
			if bytes.Contains(b, []byte(n)) {
				y.t.Errorf("process %s still sees %s mounted", describe([]int{pid}), n)
			}
		}
	}
}

// mounts lists this namespace's mounts.
func mounts(t testing.TB) []string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// Mounts fails the test for each mount that was not there before and is not
// somebody else's: one in another's temporary folder, or the kernel's own below
// /sys/kernel, which is made for whoever looks there.
func (y *Yard) Mounts(before []string) {
	y.t.Helper()
	for _, line := range mounts(y.t) {
		f := strings.Fields(line)
		if slices.Contains(before, line) || len(f) < 5 {
			continue
		}
		foreign := slices.ContainsFunc([]string{os.TempDir(), "/tmp", "/dev/shm", Shared, "/sys/kernel"}, func(dir string) bool { return strings.HasPrefix(f[4], dir+"/") })
		if !foreign || strings.Contains(line, y.Base) {
			y.t.Errorf("a mount is left: %s", line)
		}
	}
}

// MountsNow is what Mounts compares with.
func (y *Yard) MountsNow() []string { return mounts(y.t) }

// LoopDevices fails the test if a loop device still has a file of the yard. The
// kernel takes a device down when its last user has gone, from a work queue, and
// tells nobody, so this looks again and again.
func (y *Yard) LoopDevices() {
	y.t.Helper()
	files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
	deadline := time.Now().Add(Patience)
	for _, f := range files {
		for {
			b, err := os.ReadFile(f)
			if err != nil || !strings.HasPrefix(string(b), y.Base+"/") {
				break
			}
			if time.Now().After(deadline) {
				y.t.Errorf("%s still has %s", f, b)
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
}

// Groups lists the control groups of the runs named.
func Groups(ids []string) []string {
	var list []string
	filepath.WalkDir("/sys/fs/cgroup", func(p string, e os.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return nil
		}
		for _, id := range ids {
			if strings.HasPrefix(e.Name(), "bailey-"+id) {
				list = append(list, p)
			}
		}
		return nil
	})
	return list
}

// Runs lists the names in the data folder's folder of runs.
func (y *Yard) Runs() []string {
	entries, _ := os.ReadDir(filepath.Join(y.Data, "runs"))
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// RunIDs gives the ids of the runs, finished or not.
func (y *Yard) RunIDs() []string {
	names := y.Runs()
	for i, n := range names {
		names[i] = strings.TrimPrefix(strings.TrimPrefix(n, ".new-"), ".gone-")
	}
	return names
}
