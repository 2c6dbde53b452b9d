//go:build linux

package escape

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// onVictim makes an attack on a process of the host that has no capabilities.
func onVictim(args func(f *field, pid, addr, length, fd string) []string) func(f *field) error {
	return func(f *field) error {
		pid, addr, length, fd, err := f.victim()
		if err != nil {
			return err
		}
		f.slots["addr"] = addr
		return f.attack(args(f, fmt.Sprint(pid), addr, length, fd)...)
	}
}

// killTakes bounds how long a process that was sent SIGKILL is given to end.
var killTakes = testneeds.Slower(20 * time.Second)

// victimGone: the victim has ended, or is about to: a process that was not
// killed goes on waiting as it did, with no signal pending.
func victimGone(f *field, m *message) bool {
	if m == nil || m.text != "done" {
		return false
	}
	fds := []unix.PollFd{{Fd: int32(f.slots["pidfd"].(int)), Events: unix.POLLIN}}
	for until := time.Now().Add(killTakes); time.Now().Before(until); {
		if n, err := unix.Poll(fds, 10); err == nil && n == 1 {
			return true
		}
		pid := f.slots["victim"].(int)
		if strings.HasPrefix(status(pid, "State"), "S") && !pending(pid, unix.SIGKILL) {
			return false
		}
	}
	return false
}

func pending(pid int, sig unix.Signal) bool {
	for _, name := range []string{"SigPnd", "ShdPnd"} {
		if set, err := strconv.ParseUint(status(pid, name), 16, 64); err == nil && set&(1<<(sig-1)) != 0 {
			return true
		}
	}
	return false
}

// victimMemory looks at the victim's memory from outside.
func victimMemory(f *field, m *message) bool {
	if m != nil {
		return false
	}
	var addr int64
	fmt.Sscan(f.slots["addr"].(string), &addr)
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", f.slots["victim"]))
	if err != nil {
		return false
	}
	defer mem.Close()
	buf := make([]byte, 5)
	mem.ReadAt(buf, addr)
	return bytes.Equal(buf, []byte("owned"))
}

// processAttempts are about processes of the host and of other sandboxes.
func processAttempts() []Attempt {
	// Whoever may trace a process may read and change it. The kernel asks for
	// the same user in the same user namespace.
	tracing := []Wall{linux.NoPidNS, linux.NoUserNS, linux.NoLandlock}
	const foreign = "a user namespace cannot be left out, and the kernel protects the host's processes from those in it"
	traces := func(a Attempt) Attempt {
		a.Walls, a.RootOnly, a.Why = append(a.Walls, tracing...), true, foreign
		return a
	}
	signals := func(a Attempt) Attempt {
		a.Walls, a.AsRoot = []Wall{linux.NoPidNS, linux.NoLandlock}, []Wall{linux.NoUserNS}
		return a
	}
	touches := func(a Attempt) Attempt {
		a.Walls, a.AsRoot = []Wall{linux.NoPidNS}, []Wall{linux.NoUserNS}
		return a
	}
	out := []Wall{"seccomp.ptrace-out"}
	return []Attempt{
		traces(Attempt{Name: "ptrace", Tries: "trace a process of the host", Seen: "the host sees it being traced",
			arrange: onVictim(func(f *field, pid, _, _, _ string) []string { return []string{"ptrace", pid} }),
			landed: func(f *field, m *message) bool {
				return m != nil && m.text == "attached" && status(f.slots["victim"].(int), "TracerPid") == fmt.Sprint(m.pid)
			}}),
		traces(Attempt{Name: "process-root", Tries: "read the host's files by way of /proc/PID/root", Seen: "the secret arrives",
			arrange: onVictim(func(f *field, pid, _, _, _ string) []string {
				return []string{"read", "/proc/" + pid + "/root" + filepath.Join(f.home, ".ssh", "id_ed25519")}
			}), landed: gotNonce}),
		traces(Attempt{Name: "process-descriptor", Tries: "open a file that a process of the host has open", Seen: "the secret arrives",
			arrange: onVictim(func(f *field, pid, _, _, fd string) []string { return []string{"read", "/proc/" + pid + "/fd/" + fd} }), landed: gotNonce}),
		traces(Attempt{Name: "process-environment", Tries: "read the environment of a process of the host", Seen: "the secret arrives",
			arrange: onVictim(func(f *field, pid, _, _, _ string) []string { return []string{"read", "/proc/" + pid + "/environ"} }), landed: gotNonce}),
		traces(Attempt{Name: "process-memory", Tries: "change the memory of a process of the host through /proc/PID/mem", Seen: "its memory changes",
			arrange: onVictim(func(f *field, pid, addr, _, _ string) []string { return []string{"poke", pid, addr, "owned"} }), landed: victimMemory}),
		traces(Attempt{Name: "vm-read", Tries: "read the memory of a process of the host (process_vm_readv)", Seen: "the secret arrives", Walls: out,
			arrange: onVictim(func(f *field, pid, addr, n, _ string) []string { return []string{"vm-read", pid, addr, n} }), landed: gotNonce}),
		traces(Attempt{Name: "vm-write", Tries: "change the memory of a process of the host (process_vm_writev)", Seen: "its memory changes", Walls: out,
			arrange: onVictim(func(f *field, pid, addr, _, _ string) []string { return []string{"vm-write", pid, addr, "owned"} }), landed: victimMemory}),
		traces(Attempt{Name: "steal-descriptor", Tries: "take a descriptor of a process of the host (pidfd_getfd)", Seen: "the descriptor arrives", Walls: out,
			arrange: onVictim(func(f *field, pid, _, _, fd string) []string { return []string{"steal", pid, fd} }),
			landed: func(f *field, m *message) bool {
				return carries(m, func(fd int) bool {
					buf := make([]byte, 256)
					n, _ := unix.Pread(fd, buf, 0)
					return n > 0 && strings.Contains(string(buf[:n]), f.nonce)
				})
			}}),
		signals(Attempt{Name: "kill", Tries: "kill a process of the host", Seen: "it has ended",
			arrange: onVictim(func(f *field, pid, _, _, _ string) []string { return []string{"kill", pid, "9"} }), landed: victimGone}),
		signals(Attempt{Name: "kill-all", Tries: "kill every process there is", Seen: "a process of the host has ended", alone: true,
			arrange: onVictim(func(f *field, _, _, _, _ string) []string { return []string{"kill", "-1", "9"} }), landed: victimGone}),
		touches(Attempt{Name: "renice", Tries: "slow a process of the host down", Seen: "its priority changes",
			arrange: onVictim(func(f *field, pid, _, _, _ string) []string { return []string{"renice", pid} }),
			landed: func(f *field, m *message) bool {
				n, err := unix.Getpriority(unix.PRIO_PROCESS, f.slots["victim"].(int))
				return m == nil && err == nil && n == 20-11 // as the system call returns it
			}}),
		touches(Attempt{Name: "limit-other", Tries: "take a limit away from a process of the host (prlimit)", Seen: "its limit changes",
			arrange: onVictim(func(f *field, pid, _, _, _ string) []string { return []string{"prlimit", pid} }),
			landed: func(f *field, m *message) bool {
				var lim unix.Rlimit
				return m == nil && unix.Prlimit(f.slots["victim"].(int), unix.RLIMIT_NOFILE, nil, &lim) == nil && lim.Cur == 77
			}}),
		touches(Attempt{Name: "affinity", Tries: "move a process of the host to one processor", Seen: "its processors change",
			arrange: onVictim(func(f *field, pid, _, _, _ string) []string { return []string{"affinity", pid} }),
			landed: func(f *field, m *message) bool {
				var set unix.CPUSet
				return m == nil && unix.SchedGetaffinity(f.slots["victim"].(int), &set) == nil && set.Count() == 1
			}}),
		touches(Attempt{Name: "oom-score", Tries: "make the kernel prefer a process of the host when memory is short", Seen: "its score changes",
			arrange: onVictim(func(f *field, pid, _, _, _ string) []string {
				return []string{"write", "/proc/" + pid + "/oom_score_adj", "901"}
			}),
			landed: func(f *field, m *message) bool {
				b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", f.slots["victim"]))
				return m == nil && strings.TrimSpace(string(b)) == "901"
			}}),
		{Name: "list-processes", Tries: "read the command lines of the host's processes", Seen: "the secret in one of them arrives", Walls: []Wall{linux.NoPidNS},
			arrange: onVictim(func(f *field, _, _, _, _ string) []string { return []string{"processes"} }), landed: gotNonce},
		{Name: "list-neighbour", Tries: "read the command lines of another sandbox", Seen: "the secret in one of them arrives", Walls: []Wall{linux.NoPidNS},
			arrange: func(f *field) error {
				if _, err := f.neighbour("/bin/sh", "-c", "sleep 30; : "+f.nonce); err != nil {
					return err
				}
				return f.attack("processes")
			}, landed: gotNonce},
		{Name: "kill-neighbour", Tries: "kill another sandbox", Seen: "it has ended", Walls: []Wall{linux.NoPidNS, linux.NoLandlock},
			RootOnly: true, Why: "as killing a process of the host", Only: bailey.IsolationContainer, AsRoot: []Wall{linux.NoUserNS},
			arrange: func(f *field) error {
				n, err := f.neighbour("/bin/sleep", "30")
				if err != nil {
					return err
				}
				f.slots["neighbour"] = n
				return f.attack("kill", fmt.Sprint(n.Pid()), "9")
			},
			landed: func(f *field, m *message) bool {
				if m == nil || m.text != "done" {
					return false
				}
				select {
				case <-f.slots["neighbour"].(driver.Instance).Done():
					return true
				case <-time.After(killTakes):
					return false
				}
			}},
	}
}

// ownAttempts are about what the sandbox has of its owner: its first process
// and the descriptors it was started with.
func ownAttempts() []Attempt {
	caps, userns := []Wall{linux.NoCaps}, []Wall{linux.NoUserNS}
	leak := func(f *field, path string, flags int) (int, error) {
		// Without O_CLOEXEC, as a careless owner would.
		low, err := unix.Open(path, flags, 0)
		if err != nil {
			return -1, err
		}
		f.later(func() { unix.Close(low) })
		return low, nil
	}
	return []Attempt{
		{Name: "trace-init", Tries: "trace the sandbox's first process, which holds the lease", Seen: "the host sees it being traced", Walls: caps, AsRoot: userns,
			arrange: func(f *field) error { return f.attack("ptrace-parent") },
			landed: func(f *field, m *message) bool {
				return m != nil && m.text == "attached" && status(f.slots["pid1"].(int), "TracerPid") == fmt.Sprint(m.pid)
			}},
		{Name: "steal-lease", Tries: "take the lease out of the sandbox's first process, to outlive its owner", Seen: "the lease arrives",
			Walls: []Wall{linux.NoCaps, "seccomp.ptrace-out"}, AsRoot: userns,
			arrange: func(f *field) error { return f.attack("steal", "0", "3") },
			landed: func(f *field, m *message) bool {
				want, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/3", f.slots["pid1"]))
				return carries(m, func(fd int) bool {
					have, err2 := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
					return err == nil && err2 == nil && have == want
				})
			}},
		{Name: "init-memory", Tries: "open the memory of the sandbox's first process for writing", Seen: "a descriptor of it arrives", Walls: caps, AsRoot: userns,
			arrange: func(f *field) error { return f.attack("open-parent", "mem", "rw") },
			landed: func(f *field, m *message) bool {
				return carries(m, func(fd int) bool {
					link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
					flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
					return strings.HasSuffix(link, "/mem") && err == nil && flags&unix.O_ACCMODE == unix.O_RDWR
				})
			}},
		{Name: "init-program", Tries: "open the program of the sandbox's first process, which every sandbox shares", Seen: "a descriptor of it arrives", Walls: caps, AsRoot: userns,
			arrange: func(f *field) error { return f.attack("open-parent", "exe", "r") }, landed: gotAnonymous("memfd:bailey-pid1")},
		{Name: "kill-init", Tries: "kill the sandbox's first process and live on without an owner", Seen: "the owner sees it killed", Walls: []Wall{linux.NoPidNS},
			arrange: func(f *field) error { return f.attack("kill-parent") },
			landed:  func(f *field, m *message) bool { return m == nil && f.end.Reason == bailey.EndHostLost }},
		{Name: "leaked-folder", Tries: "read by way of a folder that the owner left open", Seen: "the secret arrives", Walls: []Wall{linux.NoClose, linux.NoLandlock},
			arrange: func(f *field) error {
				p, err := f.secret()
				if err != nil {
					return err
				}
				if _, err = leak(f, filepath.Dir(p), unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
					return err
				}
				return f.attack("descriptors", "id_ed25519")
			}, landed: gotNonce},
		{Name: "leaked-parent", Tries: "climb from a folder that the owner left open", Seen: "the secret arrives", Walls: []Wall{linux.NoClose, linux.NoLandlock},
			arrange: func(f *field) error {
				p, err := f.secret()
				if err != nil {
					return err
				}
				if _, err := leak(f, f.ws, unix.O_RDONLY|unix.O_DIRECTORY); err != nil {
					return err
				}
				return f.attack("descriptors", ".."+strings.TrimPrefix(p, f.dir))
			}, landed: gotNonce},
		{Name: "leaked-file", Tries: "write to a file that the owner left open", Seen: "the file changes", Walls: []Wall{linux.NoClose}, alone: true,
			arrange: func(f *field) error {
				p, err := f.file(inHome(f), "untouched")
				if err != nil {
					return err
				}
				f.slots["file"] = p
				if _, err := leak(f, p, unix.O_RDWR); err != nil {
					return err
				}
				return f.attack("descriptors-write", f.nonce)
			}, landed: wrote},
		{Name: "leaked-socket", Tries: "speak on a connection that the owner left open", Seen: "its other end receives it", Walls: []Wall{linux.NoClose}, alone: true,
			arrange: func(f *field) error {
				pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET, 0)
				if err != nil {
					return err
				}
				f.later(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
				f.slots["other"] = pair[0]
				unix.CloseOnExec(pair[0])
				return f.attack("descriptors-send", f.nonce)
			},
			landed: func(f *field, m *message) bool {
				if m != nil {
					return false
				}
				buf := make([]byte, 256)
				n, _, err := unix.Recvfrom(f.slots["other"].(int), buf, unix.MSG_DONTWAIT)
				return err == nil && string(buf[:n]) == f.nonce
			}},
		{Name: "working-folder", Tries: "have the owner start in a link that leads to a folder the owner has open, /proc/self/fd/N (CVE-2024-21626)", Seen: "the secret in there arrives",
			Walls: []Wall{linux.NoSafeTargets, linux.NoLandlock}, refused: true,
			arrange: func(f *field) error {
				p, err := f.secret()
				if err != nil {
					return err
				}
				low, err := unix.Open(f.home, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
				if err != nil {
					return err
				}
				f.later(func() { unix.Close(low) })
				link := filepath.Join(f.ws, "here")
				if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", low), link); err != nil {
					return err
				}
				f.spec.Workdir = link
				return f.attack("read", ".ssh/"+filepath.Base(p))
			}, landed: gotNonce},
		{Name: "environment", Tries: "read a token out of the environment", Seen: "the token arrives", Walls: []Wall{ViewEnv},
			arrange: func(f *field) error {
				env, err := f.environment([]string{"PATH=/usr/bin:/bin", "HOME=" + f.home, "GITHUB_TOKEN=" + f.nonce})
				f.spec.Env = env
				f.attack("environment")
				return err
			}, landed: gotNonce},
	}
}
