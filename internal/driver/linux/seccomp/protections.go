//go:build linux

package seccomp

import "golang.org/x/sys/unix"

// Protection is one thing the filter does that Options.Omit can leave out.
type Protection struct {
	Name string
	What string // what is refused, and why
}

// Protections lists all names that Options.Omit knows.
func Protections() []Protection {
	out := make([]Protection, len(protections))
	for i, p := range protections {
		out[i] = Protection{p.name, p.what}
	}
	return out
}

type protection struct {
	name, what string
	nested     bool     // left out by Options.NestedUserNS
	calls      []uint16 // refused with EPERM while the protection is on, allowed otherwise
	// rule does what calls cannot say. It is called whether the protection is
	// on or off.
	rule func(on bool, acts *[newest + 1]action, rules *ruleSet)
}

// The terminal requests that put characters into a terminal's input, or (with
// TIOCLINUX on a console) paste the selection.
const (
	tioCSTI  = 0x5412
	tioLinux = 0x541c
)

// addrNoRandomize is ADDR_NO_RANDOMIZE of <sys/personality.h>.
const addrNoRandomize = 0x40000

// ipprotoSMC is the stream protocol that reaches AF_SMC by way of AF_INET.
const ipprotoSMC = 256

var protections = [...]protection{
	{name: "keyring", what: "add_key, keyctl, request_key: keyrings are not divided by namespaces of all kinds, and hold the owner's secrets",
		calls: []uint16{unix.SYS_ADD_KEY, unix.SYS_KEYCTL, unix.SYS_REQUEST_KEY}},
	{name: "bpf", what: "bpf: programs in the kernel",
		calls: []uint16{unix.SYS_BPF}},
	{name: "userfaultfd", what: "userfaultfd: stops the kernel in mid-copy, which exploits of races need",
		calls: []uint16{unix.SYS_USERFAULTFD}},
	{name: "io_uring", what: "io_uring_setup, io_uring_enter, io_uring_register: calls by another way that no filter sees",
		calls: []uint16{unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER}},
	{name: "perf", what: "perf_event_open: counters that tell about the rest of the machine, and much kernel code",
		calls: []uint16{unix.SYS_PERF_EVENT_OPEN}},
	{name: "ptrace-out", what: "process_vm_readv, process_vm_writev, process_madvise, kcmp, pidfd_getfd: another process's memory and descriptors (ptrace itself is allowed, see the package text)",
		calls: []uint16{unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_PROCESS_MADVISE, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD}},
	{name: "file-handles", what: "open_by_handle_at: opens files by inode, past every mount and folder",
		calls: []uint16{unix.SYS_OPEN_BY_HANDLE_AT}},
	{name: "fanotify", what: "fanotify_init: watches and holds up accesses of whole file systems",
		calls: []uint16{unix.SYS_FANOTIFY_INIT}},
	{name: "modules", what: "init_module, finit_module, delete_module, kexec_load, kexec_file_load: other kernel code",
		calls: []uint16{unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD}},
	{name: "mount", what: "mount, umount2, pivot_root, fsopen, fsconfig, fsmount, fspick, open_tree, open_tree_attr, move_mount, mount_setattr: the walls themselves",
		nested: true,
		calls: []uint16{unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
			unix.SYS_FSPICK, unix.SYS_OPEN_TREE, unix.SYS_OPEN_TREE_ATTR, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR}},
	{name: "userns", what: "unshare, setns, clone with namespace flags, clone3 (ENOSYS), sethostname, setdomainname: a user namespace gives power over kernel code that is otherwise root's",
		nested: true,
		calls:  []uint16{unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME},
		rule: func(on bool, acts *[newest + 1]action, rules *ruleSet) {
			if !on {
				acts[unix.SYS_CLONE], acts[unix.SYS_CLONE3] = allow, allow
				return
			}
			acts[unix.SYS_CLONE3] = absent
			// CLONE_NEWTIME is not among the flags: clone has no room for it,
			// its bit belongs to the exit signal there.
			acts[unix.SYS_CLONE] = rules.add(clause{act: allow, n: 1, conds: [2]cond{{arg: 0, mask: cloneNewMask, values: []uint32{0}}}})
		}},
	{name: "socket-families", what: "sockets of other families than AF_UNIX, AF_INET, AF_INET6 and AF_NETLINK with NETLINK_ROUTE (so AF_VSOCK, AF_ALG, AF_PACKET, AF_XDP, netlink's audit and the like), and SMC",
		rule: func(on bool, acts *[newest + 1]action, rules *ruleSet) {
			if !on {
				acts[unix.SYS_SOCKET], acts[unix.SYS_SOCKETPAIR] = allow, allow
				return
			}
			acts[unix.SYS_SOCKET] = rules.add(
				clause{act: allow, n: 1, conds: [2]cond{{arg: 0, values: []uint32{unix.AF_UNIX}}}},
				clause{act: refuse, n: 1, conds: [2]cond{{arg: 2, values: []uint32{ipprotoSMC}}}},
				clause{act: allow, n: 1, conds: [2]cond{{arg: 0, values: []uint32{unix.AF_INET, unix.AF_INET6}}}},
				clause{act: allow, n: 2, conds: [2]cond{{arg: 0, values: []uint32{unix.AF_NETLINK}}, {arg: 2, values: []uint32{unix.NETLINK_ROUTE}}}},
			)
			// socketpair makes a socket of any family before it finds that the
			// family has no pairs.
			acts[unix.SYS_SOCKETPAIR] = rules.add(clause{act: allow, n: 1, conds: [2]cond{{arg: 0, values: []uint32{unix.AF_UNIX}}}})
		}},
	{name: "tiocsti", what: "ioctl with TIOCSTI or TIOCLINUX: types into the owner's terminal (CVE-2017-5226)",
		rule: func(on bool, acts *[newest + 1]action, rules *ruleSet) {
			if on {
				acts[unix.SYS_IOCTL] = rules.add(
					clause{act: refuse, n: 1, conds: [2]cond{{arg: 1, values: []uint32{tioCSTI, tioLinux}}}},
					clause{act: allow})
			}
		}},
	{name: "personality", what: "personality with other values than Linux and Linux32, with or without UNAME26, ADDR_NO_RANDOMIZE, and the question: the rest turns off protections of memory",
		rule: func(on bool, acts *[newest + 1]action, rules *ruleSet) {
			if !on {
				acts[unix.SYS_PERSONALITY] = allow
				return
			}
			acts[unix.SYS_PERSONALITY] = rules.add(
				clause{act: allow, n: 1, conds: [2]cond{{arg: 0, values: mobyPersonality[:]}}},
				clause{act: allow, n: 1, conds: [2]cond{{arg: 0, values: []uint32{addrNoRandomize}}}})
		}},
	{name: "quota", what: "quotactl, quotactl_fd: disk quotas",
		calls: []uint16{unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD}},
	{name: "acct", what: "acct: writes a record of every process to a file",
		calls: []uint16{unix.SYS_ACCT}},
	{name: "swap", what: "swapon, swapoff",
		calls: []uint16{unix.SYS_SWAPON, unix.SYS_SWAPOFF}},
	{name: "reboot", what: "reboot",
		calls: []uint16{unix.SYS_REBOOT}},
	{name: "syslog", what: "syslog: the kernel's log, with addresses and names of others",
		calls: []uint16{unix.SYS_SYSLOG}},
	{name: "clock", what: "settimeofday, clock_settime: the time of the machine",
		calls: []uint16{unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME}},
	{name: "numa", what: "get_mempolicy, set_mempolicy, mbind, move_pages, migrate_pages, set_mempolicy_home_node: where the machine keeps memory",
		calls: []uint16{unix.SYS_GET_MEMPOLICY, unix.SYS_SET_MEMPOLICY, unix.SYS_MBIND, unix.SYS_MOVE_PAGES, unix.SYS_MIGRATE_PAGES, unix.SYS_SET_MEMPOLICY_HOME_NODE}},
	{name: "vhangup", what: "vhangup: hangs up the owner's terminal",
		calls: []uint16{unix.SYS_VHANGUP}},
	{name: "lookup_dcookie", what: "lookup_dcookie: paths of files elsewhere",
		calls: []uint16{unix.SYS_LOOKUP_DCOOKIE}},
	{name: "memfd_secret", what: "memfd_secret: memory that cannot be swapped, dumped or looked at",
		calls: []uint16{unix.SYS_MEMFD_SECRET}},
	{name: "ioport", what: "iopl, ioperm: the hardware (amd64)",
		calls: ioportCalls},
	{name: "x32", what: "the x32 numbers of amd64 (killed): a second door to every call"},
	{name: "other-abi", what: "calls through another architecture's entry, such as int 0x80 (killed): other numbers for every call"},
}

// allowPackets adds AF_PACKET to what socket allows, where that is a rule.
func allowPackets(acts *[newest + 1]action, rules *ruleSet) {
	if act := acts[unix.SYS_SOCKET]; act >= firstRule {
		r := &rules.rules[act-firstRule]
		*r = append(*r, clause{act: allow, n: 1, conds: [2]cond{{arg: 0, values: []uint32{unix.AF_PACKET}}}})
	}
}
