package linux

import (
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/seccomp"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// containerCaps are the capabilities of root inside a container: what package
// managers and servers need over files, ids and ports of the sandbox's own.
// Docker's defaults have NET_RAW, MKNOD and AUDIT_WRITE on top.
var containerCaps = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_KILL, unix.CAP_SYS_CHROOT,
}

// writesHost says whether a sandbox writes files of the host as they are, now or
// later.
func writesHost(spec driver.Spec) bool {
	return spec.LateMounts || slices.ContainsFunc(spec.Root.Places, func(p driver.Place) bool {
		return p.Kind == driver.Bind && p.HostIDs && !p.ReadOnly
	})
}

// capsFor gives the capabilities a sandbox keeps, as a bit set. One that writes
// files of the host gives none of them capabilities: what it is given inside
// holds outside where the owner is the host's root.
func capsFor(spec driver.Spec) uint64 {
	set := levelCaps(spec.Level)
	if spec.Cell != nil {
		for _, c := range cellCaps {
			set |= 1 << c
		}
	}
	if writesHost(spec) {
		set &^= 1 << unix.CAP_SETFCAP
	}
	return set
}

func levelCaps(level bailey.Isolation) (set uint64) {
	if level == bailey.IsolationProcess {
		return 0
	}
	for _, c := range containerCaps {
		set |= 1 << c
	}
	return set
}

// user makes the child the sandbox's user, or its root. From here on it owns
// nothing of the host.
func (b *builder) user(root bool) {
	b.as(hostRoot)
	uid, gid := b.id.user.UID, b.id.user.GID
	if root {
		uid, gid = 0, 0
	}
	if b.id.rooted() {
		if b.omit[NoUserNS] {
			uid, gid = 0, 0
		} else {
			b.Do("enter the user namespace", unix.SYS_SETNS, spawn.Uint(b.id.ns.Fd()), spawn.Int(unix.CLONE_NEWUSER))
		}
	}
	if b.id.rooted() || b.id.joined {
		b.Do("drop groups", unix.SYS_SETGROUPS, zero, zero)
	}
	// None of these takes capabilities away: the id left behind is not root's in
	// the namespace just entered. drop gives them up, explicitly.
	b.Do("set group", unix.SYS_SETRESGID, spawn.Int(gid), spawn.Int(gid), spawn.Int(gid))
	b.Do("set user", unix.SYS_SETRESUID, spawn.Int(uid), spawn.Int(uid), spawn.Int(uid))
	if !b.omit[NoKeyring] {
		// Keys of the caller's session keyring are not for the sandbox. A kernel
		// without keyrings has none to leave.
		b.Do("new session keyring", unix.SYS_KEYCTL, spawn.Int(unix.KEYCTL_JOIN_SESSION_KEYRING), zero).IgnoreAll()
	}
}

// limits sets what setrlimit can bound.
func (b *builder) limits(g *group) {
	if b.omit[NoRlimits] {
		return
	}
	set := func(what string, resource int, soft, hard uint64) {
		lim := &unix.Rlimit{Cur: soft, Max: hard}
		b.Do("limit "+what, unix.SYS_PRLIMIT64, zero, spawn.Int(resource), b.Pointer(unsafe.Pointer(lim)), zero)
	}
	// One byte, not none: with none, a core_pattern that is a pipe still starts
	// its handler on the host (core(5), "Piping core dumps to a program").
	set("core dumps", unix.RLIMIT_CORE, 1, 1)
	var nofile unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &nofile) == nil {
		hard := min(nofile.Max, 1<<20)
		set("descriptors", unix.RLIMIT_NOFILE, min(nofile.Cur, hard, 65536), hard)
	}
	set("locked memory", unix.RLIMIT_MEMLOCK, 8<<20, 8<<20)
	set("queued messages", unix.RLIMIT_MSGQUEUE, 819200, 819200)
	if g.rlimit && g.limits.Pids > 0 {
		// Counted by user and user namespace (since Linux 5.14), so with a
		// namespace of one user it is a limit of the whole sandbox.
		set("processes", unix.RLIMIT_NPROC, uint64(g.limits.Pids), uint64(g.limits.Pids))
	}
}

// drop gives up all capabilities but keep, for good.
func (b *builder) drop(keep uint64, root bool) {
	if !b.omit[NoCaps] {
		for c := uintptr(0); c <= lastCap(); c++ {
			if keep&(1<<c) == 0 {
				b.Do("drop capability", unix.SYS_PRCTL, spawn.Int(unix.PR_CAPBSET_DROP), spawn.Uint(c), zero, zero, zero)
			}
		}
		b.Do("clear ambient capabilities", unix.SYS_PRCTL, spawn.Int(unix.PR_CAP_AMBIENT), spawn.Int(unix.PR_CAP_AMBIENT_CLEAR_ALL), zero, zero, zero)
		held := keep
		if !root {
			held = 0 // an ordinary user inside has none until it becomes root inside
		}
		header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := &[2]unix.CapUserData{
			{Effective: uint32(held), Permitted: uint32(held)},
			{Effective: uint32(held >> 32), Permitted: uint32(held >> 32)},
		}
		b.Do("set capabilities", unix.SYS_CAPSET, b.Pointer(unsafe.Pointer(header)), b.Pointer(unsafe.Pointer(data)))
	}
	if !b.omit[NoNNP] {
		b.Do("no new privileges", unix.SYS_PRCTL, spawn.Int(unix.PR_SET_NO_NEW_PRIVS), spawn.Int(1), zero, zero, zero)
	}
}

// filter loads the system call filter. What follows it must be allowed by it.
func (b *builder) filter(spec driver.Spec, omit []string) error {
	if b.omit[NoSeccomp] {
		return nil
	}
	prog, err := seccomp.Filter(seccomp.Options{
		NestedUserNS: spec.NestedSandboxes || spec.Cell != nil, PacketSockets: spec.Cell != nil && spec.Cell.Link,
		NoSetUID: writesHost(spec) && !b.omit[NoNoSetUID], KeepOpenat2: spec.Entry.Agent != "", Omit: omit})
	if err != nil {
		return err
	}
	b.Pointer(unsafe.Pointer(unsafe.SliceData(prog)))
	fprog := &unix.SockFprog{Len: uint16(len(prog)), Filter: unsafe.SliceData(prog)}
	const setModeFilter = 1
	b.Do("load the system call filter", unix.SYS_SECCOMP, spawn.Int(setModeFilter), zero, b.Pointer(unsafe.Pointer(fprog)))
	return nil
}
