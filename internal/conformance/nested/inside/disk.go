//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

// enterDisk leaves the start's own file system for the first disk's.
func enterDisk() error {
	for _, m := range [][3]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := errors.Join(os.MkdirAll(m[1], 0o755), mount(m[0], m[1], m[0], 0, "")); err != nil {
			return err
		}
	}
	modules, err := filepath.Glob("/modules/*.ko")
	if err != nil {
		return err
	}
	slices.Sort(modules) // they are named in the order in which they need each other
	for _, m := range modules {
		if err := load(m); err != nil {
			return err
		}
	}
	if err := os.MkdirAll("/disk", 0o755); err != nil {
		return err
	}
	if err := await("/dev/vda", "/dev/vdb"); err != nil {
		return err
	}
	if err := mount("/dev/vda", "/disk", "ext4", 0, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if err := mount(dir, "/disk"+dir, "", unix.MS_MOVE, ""); err != nil {
			return err
		}
	}
	if err := unix.Chdir("/disk"); err != nil {
		return err
	}
	if err := mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot("."), unix.Chdir("/")); err != nil {
		return err
	}
	// As systemd does with a machine's mounts.
	if err := mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return err
	}
	if err := os.MkdirAll(plan.Disk, 0o755); err != nil {
		return err
	}
	return mount("/dev/vdb", plan.Disk, "ext4", 0, "")
}

func mount(from, to, kind string, flags uintptr, options string) error {
	if err := unix.Mount(from, to, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s at %s: %w", from, to, err)
	}
	return nil
}

func load(module string) error {
	f, err := os.Open(module)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s: %w", module, err)
	}
	return nil
}

// await waits for devices that the kernel is still finding.
func await(paths ...string) error {
	for _, p := range paths {
		for n := 0; ; n++ {
			if _, err := os.Stat(p); err == nil {
				break
			} else if n == 200 {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// furnish does what a Debian's start does before anybody logs in.
func furnish() error {
	for _, m := range [][4]string{
		{"tmpfs", "/run", "tmpfs", "mode=0755"}, {"devpts", "/dev/pts", "devpts", "gid=5,mode=620,ptmxmode=000"},
		{"tmpfs", "/dev/shm", "tmpfs", ""}, {"mqueue", "/dev/mqueue", "mqueue", ""}, {"cgroup2", "/sys/fs/cgroup", "cgroup2", "nsdelegate,memory_recursiveprot"},
		{"securityfs", "/sys/kernel/security", "securityfs", ""},
	} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := mount(m[0], m[1], m[2], unix.MS_NOSUID, m[3]); err != nil {
			return err
		}
	}
	for _, l := range [][2]string{{"/proc/self/fd", "/dev/fd"}, {"fd/0", "/dev/stdin"}, {"fd/1", "/dev/stdout"}, {"fd/2", "/dev/stderr"}} {
		if err := os.Symlink(l[0], l[1]); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if err := os.Chmod("/tmp", 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("nested")); err != nil {
		return err
	}
	if err := os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
		return err
	}
	// loop and tun have device nodes before anybody has used them.
	for _, c := range [][]string{{"modprobe", "-a", "loop", "tun", "overlay"}, {"ip", "link", "set", "lo", "up"}} {
		if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(c, " "), err, out)
		}
	}
	link := "/usr/local/bin/go"
	if err := os.Symlink(plan.Disk+"/inside", link); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return groups()
}

const (
	groupTop = "/sys/fs/cgroup"
	ownGroup = groupTop + "/user-" + plan.UserName // delegated, as systemd does for a user's services
	ownLeaf  = ownGroup + "/work"
)

// groups gives every controller to the groups below the top, and a part of the
// tree to the ordinary user.
func groups() error {
	b, err := os.ReadFile(groupTop + "/cgroup.controllers")
	if err != nil {
		return err
	}
	enable := "+" + strings.Join(strings.Fields(string(b)), " +")
	for _, dir := range []string{groupTop, ownGroup} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(dir+"/cgroup.subtree_control", []byte(enable), 0); err != nil {
			return err
		}
	}
	if err := os.Mkdir(ownLeaf, 0o755); err != nil {
		return err
	}
	for _, p := range []string{ownGroup, ownGroup + "/cgroup.procs", ownGroup + "/cgroup.threads", ownGroup + "/cgroup.subtree_control",
		ownLeaf, ownLeaf + "/cgroup.procs", ownLeaf + "/cgroup.threads", ownLeaf + "/cgroup.subtree_control"} {
		if err := os.Chown(p, plan.UserID, plan.UserID); err != nil {
			return err
		}
	}
	return nil
}

// joinOwn moves a process to the ordinary user's group.
func joinOwn(pid int) error {
	return os.WriteFile(ownLeaf+"/cgroup.procs", []byte(strconv.Itoa(pid)), 0)
}
