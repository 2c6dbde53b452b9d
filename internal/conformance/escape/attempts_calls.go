//go:build linux

package escape

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// callAttempts are about system calls that open parts of the kernel that a
// sandbox has no use for.
func callAttempts() []Attempt {
	const answers = "the kernel looks at the call's arguments (which are wrong on purpose) instead of refusing it"
	const readImplies = 0x400000
	door := func(name, tries, wall, object string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: "the descriptor arrives", Walls: []Wall{Wall("seccomp." + wall)},
			arrange: func(f *field) error { return f.attack(name) }, landed: gotAnonymous(object)}
	}
	withCaps := func(a Attempt, rootOnly bool) Attempt {
		a.Walls, a.AsRoot = append(a.Walls, linux.NoCaps), []Wall{linux.NoUserNS}
		if rootOnly {
			a.RootOnly, a.Why = true, "the kernel asks for a capability of the host"
		}
		return a
	}
	personality := func(name, tries, wall string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: "the host sees the process with executable data", Walls: []Wall{Wall("seccomp." + wall)},
			arrange: func(f *field) error { return f.attack(name, fmt.Sprint(readImplies)) },
			landed: func(f *field, m *message) bool {
				if m == nil || m.text != "look" {
					return false
				}
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/personality", m.pid))
				return strings.TrimSpace(string(b)) == "00400000"
			}}
	}
	asks := func(name, tries, wall string, args []string, errnos ...unix.Errno) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: answers, Walls: []Wall{Wall("seccomp." + wall)},
			arrange: func(f *field) error { return f.attack(append([]string{name}, args...)...) }, landed: answered(errnos...)}
	}
	list := []Attempt{
		{Name: "io_uring", Tries: "make a socket the filter refuses by io_uring, which no filter sees", Seen: "the socket arrives", Walls: []Wall{"seccomp.io_uring"},
			arrange: func(f *field) error { return f.attack("io_uring") }, landed: gotSocket(unix.AF_VSOCK, unix.SOCK_STREAM, -1)},
		door("userfaultfd", "stop the kernel in the middle of a copy", "userfaultfd", "[userfaultfd]"),
		door("perf", "watch the machine through performance counters", "perf", "[perf_event]"),
		door("memfd-secret", "keep memory that nobody can look at", "memfd_secret", "secretmem"),
		door("fanotify", "watch whole file systems", "fanotify", "[fanotify]"),
		withCaps(door("bpf", "load programs into the kernel", "bpf", "bpf-map"), true),
		personality("personality", "turn off memory protection (READ_IMPLIES_EXEC)", "personality"),
		{Name: "mempolicy", Tries: "choose where the machine keeps memory", Seen: "the host sees the process with another memory policy", Walls: []Wall{"seccomp.numa"},
			arrange: func(f *field) error { return f.attack("mempolicy") },
			landed: func(f *field, m *message) bool {
				if m == nil || m.text != "look" {
					return false
				}
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/numa_maps", m.pid))
				return bytes.Contains(b, []byte(" interleave"))
			}},
		withCaps(Attempt{Name: "kernel-log", Tries: "read the kernel's log", Seen: "the log arrives", Walls: []Wall{"seccomp.syslog"},
			arrange: func(f *field) error {
				buf := make([]byte, 1<<20)
				n, err := unix.Klogctl(3, buf)
				if err != nil {
					return err
				}
				lines := strings.Split(strings.TrimSpace(string(buf[:n])), "\n")
				f.slots["want"] = lines[len(lines)-1]
				return f.attack("syslog")
			}, landed: gotText}, true),
		withCaps(Attempt{Name: "timezone", Tries: "change the host's clock (its time zone, which nothing uses)", Seen: "the host has another one", Walls: []Wall{"seccomp.clock"}, alone: true,
			arrange: func(f *field) error {
				f.later(func() { setTimezone(0) })
				return f.attack("timezone", "7")
			}, landed: func(f *field, m *message) bool { return m == nil && timezone() == 7 }}, true),
		withCaps(asks("swapon", "make the host swap to a file", "swap", []string{"/nowhere"}, unix.ENOENT), true),
		withCaps(asks("reboot", "reboot the host", "reboot", nil, unix.EINVAL), false),
		withCaps(asks("acct", "have the host record every process", "acct", []string{"/nowhere"}, unix.ENOENT), true),
		asks("quota", "change disk quotas", "quota", nil, unix.ENODEV, unix.ENOTBLK, unix.EINVAL, unix.EFAULT, unix.ENOENT),
	}
	if runtime.GOARCH == "amd64" {
		list = append(list,
			withCaps(asks("iopl", "reach the hardware's ports", "ioport", nil, 0), true),
			personality("int80", "make the call by the entry for programs of 32 bits, whose numbers differ", "other-abi"))
	}
	return list
}

func timezone() int32 {
	var tz [2]int32
	unix.Syscall(unix.SYS_GETTIMEOFDAY, 0, uintptr(unsafe.Pointer(&tz)), 0)
	return tz[1]
}

func setTimezone(dst int32) {
	tz := [2]int32{0, dst}
	unix.Syscall(unix.SYS_SETTIMEOFDAY, 0, uintptr(unsafe.Pointer(&tz)), 0)
}

// limitAttempts are about using more than was given.
func limitAttempts() []Attempt {
	const mem = 64 << 20
	const noGroups = "an ordinary user has no control groups here"
	rlimits := []Wall{linux.NoRlimits}
	list := []Attempt{
		{Name: "memory", Tries: "use more memory than the limit", Seen: "the host sees the process use it", Walls: []Wall{linux.NoCgroup}, RootOnly: true, Why: noGroups,
			arrange: func(f *field) error {
				f.spec.Limits.Memory = mem
				return f.attack("memory", itoa(mem*3/2))
			},
			landed: func(f *field, m *message) bool {
				if m == nil || m.text != "look" {
					return false
				}
				var kb int64
				fmt.Sscan(status(m.pid, "VmRSS"), &kb)
				return kb<<10 > mem
			}},
		{Name: "memory-files", Tries: "use more memory than the limit by files in memory", Seen: "the host sees the file", Walls: []Wall{linux.NoCgroup}, RootOnly: true, Why: noGroups,
			arrange: func(f *field) error {
				f.spec.Limits.Memory = mem
				return f.attack("shm", itoa(mem*3/2))
			},
			landed: func(f *field, m *message) bool {
				return carries(m, func(fd int) bool {
					var st unix.Stat_t
					return unix.Fstat(fd, &st) == nil && st.Blocks*512 > mem
				})
			}},
		{Name: "core-dump", Tries: "have the host write or handle a core dump", Seen: "a dump appears", Walls: rlimits, Needs: "/proc/sys/kernel/core_pattern",
			arrange: func(f *field) error { return f.attack("dump") },
			landed: func(f *field, m *message) bool {
				list, _ := filepath.Glob(filepath.Join(f.ws, "core*"))
				return m == nil && len(list) > 0
			}},
		{Name: "core-limit", Tries: "raise the limit of core dumps", Seen: "the host sees it raised", Walls: rlimits,
			arrange: func(f *field) error { return f.attack("rlimit", itoa(unix.RLIMIT_CORE), itoa(1<<20)) },
			landed: func(f *field, m *message) bool {
				var lim unix.Rlimit
				return m != nil && m.text == "look" && unix.Prlimit(m.pid, unix.RLIMIT_CORE, nil, &lim) == nil && lim.Cur == 1<<20
			}},
	}
	// Where control groups bound processes they do; elsewhere a limit by user.
	fork := Attempt{Name: "fork-bomb", Tries: "start more processes than the limit", Seen: "the host counts them",
		arrange: func(f *field) error {
			f.spec.Defaults.Pids = 64
			return f.attack("fork", "100")
		},
		landed: func(f *field, m *message) bool {
			return m != nil && m.text == "look" && descendants(f.slots["pid1"].(int)) > 64
		}}
	asRoot, asUser := fork, fork
	asRoot.Walls, asRoot.RootOnly, asRoot.Why = []Wall{linux.NoCgroup}, true, "see fork-bomb-rlimit"
	asUser.Name, asUser.Walls, asUser.userOnly = "fork-bomb-rlimit", rlimits, true
	return append(list, asRoot, asUser)
}

// descendants counts processes below pid.
func descendants(pid int) int {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	n := 0
	for _, c := range strings.Fields(string(b)) {
		var child int
		fmt.Sscan(c, &child)
		n += 1 + descendants(child)
	}
	return n
}
