package testneeds

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

var probes = map[Feature]probe{
	Processors:    anyProcessor,
	AMD64:         amd64,
	UserNS:        userNS,
	CgroupV1:      func() (bool, string) { return cgroups("cgroup") },
	CgroupV2:      func() (bool, string) { return cgroups("cgroup2") },
	Cgroups:       anyCgroups,
	CgroupV2Top:   cgroupV2Top,
	CgroupXattr:   cgroupXattr,
	Overlay:       overlay,
	UserXattr:     userXattr,
	MountXFS:      func() (bool, string) { return mounts("xfs") },
	MountBtrfs:    func() (bool, string) { return mounts("btrfs") },
	MountExt4:     func() (bool, string) { return mounts("ext4") },
	Landlock:      landlock,
	BlockDisk:     blockDisk,
	SubordinateID: subordinate,
}

func userNS() (bool, string) {
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1, HostID: os.Getegid(), Size: 1}},
	}
	if err := cmd.Run(); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// cgroups tries to make a group with a memory limit in a tree of the kind.
func cgroups(kind string) (bool, string) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return false, err.Error()
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		before, after, _ := strings.Cut(lines.Text(), " - ")
		fields, tail := strings.Fields(before), strings.Fields(after)
		if len(fields) < 5 || len(tail) < 3 || tail[0] != kind {
			continue
		}
		dir := fields[4]
		if kind == "cgroup" && !slices.Contains(strings.Split(tail[2], ","), "memory") {
			continue
		}
		if kind == "cgroup2" {
			b, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
			if !slices.Contains(strings.Fields(string(b)), "memory") {
				continue
			}
		}
		group, err := os.MkdirTemp(dir, "bailey-probe-")
		if err != nil {
			continue
		}
		_ = os.Remove(group)
		return true, ""
	}
	return false, "no writable " + kind + " tree with the memory controller"
}

// v2Mounts gives where version 2 trees are mounted.
func v2Mounts() (dirs []string) {
	b, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(b)) {
		before, after, _ := strings.Cut(line, " - ")
		if fields := strings.Fields(before); len(fields) > 4 && strings.HasPrefix(after, "cgroup2 ") {
			dirs = append(dirs, fields[4])
		}
	}
	return dirs
}

func cgroupV2Top() (bool, string) {
	for _, dir := range v2Mounts() {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
		if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err == nil {
			continue // only groups below the top have a type, see cgroups(7)
		}
		if len(strings.Fields(string(b))) > 0 && unix.Access(filepath.Join(dir, "cgroup.subtree_control"), unix.W_OK) == nil {
			return true, ""
		}
	}
	return false, "no writable top of a version 2 tree with controllers"
}

func cgroupXattr() (bool, string) {
	for _, dir := range v2Mounts() {
		group, err := os.MkdirTemp(dir, "bailey-probe-")
		if err != nil {
			continue
		}
		err = unix.Setxattr(group, "user.bailey", []byte("1"), 0)
		_ = os.Remove(group)
		if err == nil {
			return true, ""
		}
	}
	return false, "no version 2 tree takes them"
}

func anyCgroups() (bool, string) {
	if ok, _ := cgroups("cgroup2"); ok {
		return true, ""
	}
	if ok, _ := cgroups("cgroup"); ok {
		return true, ""
	}
	return false, "no writable tree with the memory controller"
}

// overlay asks mount(8) for one in a namespace of its own.
func overlay() (bool, string) {
	dir, err := os.MkdirTemp("", "overlay-probe-")
	if err != nil {
		return false, err.Error()
	}
	defer os.RemoveAll(dir)
	for _, d := range []string{"l", "u", "w", "m"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return false, err.Error()
		}
	}
	option := "lowerdir=l,upperdir=u,workdir=w"
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		option += ",userxattr"
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	cmd := exec.Command("/bin/sh", "-c", "mount --make-rprivate / && mount -t overlay -o "+option+" none m && : >m/x && umount m; s=$?; rm -rf w/work; exit $s")
	cmd.Dir, cmd.SysProcAttr = dir, attr
	if out, err := cmd.CombinedOutput(); err != nil {
		return false, strings.TrimSpace(fmt.Sprint(err, " ", string(out)))
	}
	return true, ""
}

func userXattr() (bool, string) {
	f, err := os.CreateTemp("", "xattr-probe-")
	if err != nil {
		return false, err.Error()
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if err := unix.Fsetxattr(int(f.Fd()), "user.bailey", []byte("x"), 0); err != nil {
		return false, err.Error()
	}
	return true, ""
}

// mounts makes a small image and mounts it, as root; others cannot in any case.
func mounts(fs string) (bool, string) {
	dir, err := os.MkdirTemp("", "mount-probe-")
	if err != nil {
		return false, err.Error()
	}
	defer os.RemoveAll(dir)
	img := filepath.Join(dir, "img")
	script := fmt.Sprintf("truncate -s 512M img && mkfs.%s -q img && mkdir m && mount --make-rprivate / && mount -o loop img m && umount m", fs)
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		return false, strings.TrimSpace(fmt.Sprint(err, " ", string(out), " ", img))
	}
	return true, ""
}

func landlock() (bool, string) {
	return landlockVersion() > 0, "this kernel has none"
}

// landlockVersion asks the kernel; 0 means that it has no Landlock.
func landlockVersion() int {
	const versionFlag = 1 // LANDLOCK_CREATE_RULESET_VERSION
	v, _, e := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, versionFlag)
	if e != 0 {
		return 0
	}
	return int(v)
}

func blockDisk() (bool, string) {
	var st unix.Stat_t
	if err := unix.Stat(os.TempDir(), &st); err != nil {
		return false, err.Error()
	}
	name := fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
	if _, err := os.Stat(name); err != nil {
		return false, "it lies on no block device"
	}
	return true, ""
}

func subordinate() (bool, string) {
	if os.Geteuid() == 0 {
		return true, ""
	}
	u, err := user.Current()
	if err != nil {
		return false, err.Error()
	}
	for _, name := range []string{"/etc/subuid", "/etc/subgid"} {
		b, err := os.ReadFile(name)
		if err != nil {
			return false, err.Error()
		}
		if !slices.ContainsFunc(strings.Split(string(b), "\n"), func(line string) bool {
			who, _, _ := strings.Cut(line, ":")
			return who == u.Username || who == u.Uid
		}) {
			return false, name + " has no range for " + u.Username
		}
	}
	for _, tool := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(tool); err != nil {
			return false, tool + " is absent"
		}
	}
	return true, ""
}
