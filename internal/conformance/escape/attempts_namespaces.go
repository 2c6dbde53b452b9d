//go:build linux

package escape

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// mountAttempts are about the mounts that the walls are made of.
func mountAttempts() []Attempt {
	walls := []Wall{"seccomp.mount", linux.NoCaps, linux.NoLandlock}
	userns := []Wall{linux.NoUserNS}
	const shows = "the host sees the mount in the sandbox's table"
	mounts := func(name, tries string, args func(f *field, at string) []string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: shows, Walls: walls, AsRoot: userns, landed: mounted,
			arrange: func(f *field) error {
				at := filepath.Join(f.ws, "mnt")
				f.slots["at"] = at
				f.attack(args(f, at)...)
				return f.folder(at)
			}}
	}
	rewrites := func(name, tries, attack string, walls []Wall) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: "the host's file changes", Walls: walls, AtProcess: []Wall{linux.NoLandlock}, AsRoot: userns, landed: wrote,
			arrange: target(inView, func(f *field, p string) []string { return []string{attack, f.view, p, f.nonce} })}
	}
	uncovers := func(name, cover, file, access, tries string) Attempt {
		a := opens(name, file, access, tries, Attempt{Walls: walls, AsRoot: userns, RootOnly: true, Why: "the file belongs to the host's root"})
		a.arrange = func(f *field) error { return f.attack("uncover", cover, file, access) }
		return a
	}
	core := opens("fresh-proc", "/proc/sys/kernel/core_pattern", "w", "mount a /proc without covers", Attempt{Walls: walls, AsRoot: userns, RootOnly: true, Why: "the file belongs to the host's root"})
	core.arrange = func(f *field) error {
		at := filepath.Join(f.ws, "proc")
		f.attack("fresh-proc", at, "sys/kernel/core_pattern", "w")
		return f.folder(at)
	}
	return []Attempt{
		mounts("mount", "mount a file system of its own", func(f *field, at string) []string { return []string{"mount", at} }),
		mounts("bind", "show a folder at another place", func(f *field, at string) []string { return []string{"bind", f.view, at} }),
		mounts("fsmount", "mount by fsopen, fsmount and move_mount", func(f *field, at string) []string { return []string{"fsmount", at} }),
		mounts("open-tree", "mount by open_tree and move_mount", func(f *field, at string) []string { return []string{"open-tree", f.view, at} }),
		mounts("move-mount", "move a mount to another place", func(f *field, at string) []string { return []string{"move", f.view, at} }),
		rewrites("remount", "make a read-only mount writable by mount", "remount", walls),
		rewrites("mount-setattr", "make a read-only mount writable by mount_setattr, which Landlock does not see", "setattr", walls[:2:2]),
		uncovers("uncover", "/proc/sys", "/proc/sys/kernel/core_pattern", "w", "take the cover off /proc/sys"),
		uncovers("unmask", "/proc/timer_list", "/proc/timer_list", "r", "take the mask off a file of /proc"),
		core,
		{Name: "pivot-root", Tries: "change the root by pivot_root", Seen: "the host sees another root in the sandbox's table", Walls: walls, AsRoot: userns,
			arrange: func(f *field) error {
				at := filepath.Join(f.ws, "mnt")
				f.attack("pivot", at)
				return f.folder(at)
			},
			landed: func(f *field, m *message) bool {
				if m == nil || m.text != "pivoted" {
					return false
				}
				return hasRoot(m.pid, "tmpfs escape")
			}},
		{Name: "release-agent", Tries: "mount a control group tree and name a program that the host starts (CVE-2022-0492)", Seen: "a descriptor of release_agent arrives, open for writing",
			Walls: walls, AsRoot: userns, RootOnly: true, Why: "the file belongs to the host's root", Needs: "/sys/fs/cgroup/freezer/release_agent",
			arrange: func(f *field) error {
				at := filepath.Join(f.ws, "cg")
				f.attack("cgroup", at)
				return f.folder(at)
			}, landed: gotFile("/sys/fs/cgroup/freezer/release_agent", unix.O_WRONLY)},
	}
}

// namespaceAttempts are about namespaces of the attacker's own, and others'.
func namespaceAttempts() []Attempt {
	enters := func(name, tries, kind string, args ...string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: "the host sees a process of the sandbox in another namespace", Walls: []Wall{"seccomp.userns"},
			arrange: func(f *field) error { f.ordinary(); return f.attack(args...) }, landed: leftNamespace(kind)}
	}
	hex := func(flags int) string { return fmt.Sprintf("%#x", flags) }
	return []Attempt{
		enters("unshare-user", "make a user namespace by unshare, with every capability in it", "user", "unshare", hex(unix.CLONE_NEWUSER), "hold"),
		enters("clone-user", "make a user namespace by clone", "user", "clone", hex(unix.CLONE_NEWUSER), "hold"),
		enters("clone3-user", "make a user namespace by clone3, whose flags no filter can see", "user", "clone3", hex(unix.CLONE_NEWUSER)),
		enters("nested-net", "make a network namespace, and reach the kernel's packet filters", "net", "unshare", hex(unix.CLONE_NEWUSER|unix.CLONE_NEWNET), "hold"),
		enters("nested-mounts", "make a mount namespace", "mnt", "clone", hex(unix.CLONE_NEWUSER|unix.CLONE_NEWNS), "hold"),
		enters("nested-pids", "make a process namespace", "pid", "clone", hex(unix.CLONE_NEWUSER|unix.CLONE_NEWPID), "hold"),
		{Name: "nested-mount", Tries: "mount something in namespaces of its own", Seen: "the host sees the mount in the sandbox's table", Walls: []Wall{"seccomp.userns", "seccomp.mount", linux.NoLandlock},
			arrange: func(f *field) error {
				at := filepath.Join(f.ws, "mnt")
				f.slots["at"] = at
				f.ordinary()
				f.attack("clone", hex(unix.CLONE_NEWUSER|unix.CLONE_NEWNS), "mount", at)
				return f.folder(at)
			}, landed: mounted},
		{Name: "setns", Tries: "enter the mount namespace of a process of the host", Seen: "the secret arrives",
			Walls: []Wall{linux.NoPidNS, "seccomp.userns", linux.NoCaps, linux.NoUserNS, linux.NoLandlock}, RootOnly: true, Why: "an ordinary user has no right to enter it anyway",
			arrange: func(f *field) error {
				pid, _, _, _, err := f.victim()
				if err != nil {
					return err
				}
				p, err := f.secret()
				f.attack("setns", fmt.Sprintf("/proc/%d/ns/mnt", pid), p)
				return err
			}, landed: gotNonce},
		{Name: "hostname", Tries: "change the host's name", Seen: "the host has another name", alone: true,
			Walls: []Wall{linux.NoUTSNS, "seccomp.userns", linux.NoCaps, linux.NoUserNS}, RootOnly: true, Why: "an ordinary user has no right to it anyway",
			arrange: func(f *field) error {
				var u unix.Utsname
				if err := unix.Uname(&u); err != nil {
					return err
				}
				old := unix.ByteSliceToString(u.Nodename[:])
				f.later(func() { unix.Sethostname([]byte(old)) })
				return f.attack("hostname", f.nonce)
			},
			landed: func(f *field, m *message) bool {
				var u unix.Utsname
				return m == nil && unix.Uname(&u) == nil && unix.ByteSliceToString(u.Nodename[:]) == f.nonce
			}},
		{Name: "host-name-read", Tries: "learn the host's name", Seen: "it arrives", Walls: []Wall{linux.NoUTSNS},
			arrange: func(f *field) error {
				var u unix.Utsname
				err := unix.Uname(&u)
				f.slots["want"] = unix.ByteSliceToString(u.Nodename[:])
				f.attack("uname")
				return err
			}, landed: gotText},
		{Name: "cgroup-path", Tries: "learn the sandbox's control group and so its neighbours", Seen: "the path of a group of Bailey arrives", Walls: []Wall{linux.NoCgroupNS},
			RootOnly: true, Why: "an ordinary user has no groups here",
			arrange: func(f *field) error {
				f.spec.Defaults.Pids = 4096
				f.slots["want"] = f.spec.ID
				return f.attack("read", "/proc/self/cgroup")
			}, landed: gotText},
	}
}

// hasRoot says whether a process's table has a mount of the given kind and
// source at its root.
func hasRoot(pid int, what string) bool {
	return lineOf(fmt.Sprintf("/proc/%d/mountinfo", pid), func(line string) bool {
		f := strings.Fields(line)
		return len(f) > 4 && f[4] == "/" && strings.Contains(line, " - "+what+" ")
	}) != ""
}
