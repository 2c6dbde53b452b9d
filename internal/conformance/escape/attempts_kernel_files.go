//go:build linux

package escape

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// opens makes an attempt that opens a file of the kernel for reading or
// writing. Nothing is written: whoever holds such a descriptor could.
func opens(name, path, access, tries string, a Attempt) Attempt {
	mode := map[string]int{"r": unix.O_RDONLY, "w": unix.O_WRONLY, "rw": unix.O_RDWR}[access]
	a.Name, a.Tries, a.Needs = name, tries, path
	a.Seen = "a descriptor of it arrives, open for " + map[string]string{"r": "reading", "w": "writing", "rw": "both"}[access]
	a.arrange = func(f *field) error { return f.attack("open", path, access) }
	a.landed = gotFile(path, mode)
	return a
}

// kernelFileAttempts are about /proc and /sys.
func kernelFileAttempts() []Attempt {
	covers := Attempt{Walls: []Wall{linux.NoProcCovers}, AsRoot: []Wall{linux.NoUserNS}, RootOnly: true, Why: "the file belongs to the host's root, which does not exist in an ordinary user's namespace"}
	masks := Attempt{Walls: []Wall{linux.NoProcMasks}}
	ownersMasks := Attempt{Walls: []Wall{linux.NoProcMasks}, AsRoot: []Wall{linux.NoUserNS}, RootOnly: true, Why: covers.Why}
	owners := Attempt{AsRoot: []Wall{linux.NoUserNS}, RootOnly: true, Why: covers.Why}
	log := Attempt{Walls: []Wall{linux.NoCaps}, AsRoot: []Wall{linux.NoUserNS}, RootOnly: true, Why: covers.Why}
	sys := Attempt{Walls: []Wall{linux.NoReadOnly}, AtProcess: []Wall{linux.NoLandlock}, AsRoot: []Wall{linux.NoUserNS}, RootOnly: true, Why: covers.Why}
	net := Attempt{Walls: []Wall{linux.NoProcCovers}, AsRoot: []Wall{linux.NoUserNS}, AsUser: []Wall{linux.NoCaps}}
	return []Attempt{
		opens("core-pattern", "/proc/sys/kernel/core_pattern", "w", "name a program that the kernel starts on the host when a process crashes", covers),
		opens("sysctl-kernel", "/proc/sys/kernel/panic", "w", "configure the kernel", covers),
		opens("sysctl-vm", "/proc/sys/vm/overcommit_memory", "w", "configure the host's memory", covers),
		opens("sysctl-fs", "/proc/sys/fs/suid_dumpable", "w", "make privileged programs dump their memory", covers),
		opens("sysctl-net", "/proc/sys/net/ipv4/ip_forward", "w", "configure a network", net),
		opens("sysrq", "/proc/sysrq-trigger", "w", "reboot or crash the host through its sysrq file", covers),
		opens("irq", "/proc/irq/default_smp_affinity", "w", "move the host's interrupts", covers),
		opens("modprobe", "/proc/sys/kernel/modprobe", "w", "name a program that loads modules", covers),
		opens("kcore", "/proc/kcore", "r", "read the kernel's memory", ownersMasks),
		opens("timer-list", "/proc/timer_list", "r", "see the timers of every process of the host", ownersMasks),
		opens("interrupts", "/proc/interrupts", "r", "time the host's keyboard and network", masks),
		opens("keys", "/proc/keys", "r", "see the keys of the host's users", masks),
		opens("scsi", "/proc/scsi/scsi", "r", "see and remove disks", masks),
		opens("acpi", "/proc/acpi/wakeup", "r", "see the host's firmware tables", masks),
		opens("slabinfo", "/proc/slabinfo", "r", "watch the kernel's allocations", owners),
		opens("vmallocinfo", "/proc/vmallocinfo", "r", "learn where the kernel keeps what", owners),
		opens("page-counts", "/proc/kpagecount", "r", "watch the host's physical memory", owners),
		opens("kernel-log-file", "/proc/kmsg", "r", "read the kernel's log", log),
		opens("huge-pages", "/sys/kernel/mm/transparent_hugepage/enabled", "w", "configure the host's memory through sysfs", sys),
		opens("sysfs", "/sys/kernel/uevent_seqnum", "r", "read the host's sysfs", Attempt{Walls: []Wall{linux.NoRoot}}),
		opens("firmware", "/sys/kernel/boot_params/data", "r", "read how the host was booted", Attempt{Walls: []Wall{linux.NoRoot}}),
		{Name: "mounts", Tries: "learn what the host has mounted where", Seen: "the host's mounts arrive", Walls: []Wall{linux.NoRoot},
			arrange: func(f *field) error {
				f.slots["want"] = " /proc/1/mounts-of-nobody "
				// The device of the host's root, and something mounted on it.
				b, err := os.ReadFile("/proc/self/mounts")
				for line := range strings.Lines(string(b)) {
					if fields := strings.Fields(line); len(fields) > 1 && fields[1] == "/sys" {
						f.slots["want"] = strings.Join(fields[:3], " ")
					}
				}
				f.attack("read", "/proc/self/mounts")
				return err
			}, landed: gotText},
		{Name: "neighbours", Tries: "learn what lies beside the workspace on the host", Seen: "a name that is not the sandbox's arrives", Walls: []Wall{linux.NoRoot},
			arrange: func(f *field) error {
				p, err := f.secret()
				f.slots["want"] = filepath.Base(f.home)
				f.attack("list", filepath.Dir(filepath.Dir(filepath.Dir(p))))
				return err
			}, landed: gotText},
	}
}

// deviceAttempts are about device nodes.
func deviceAttempts() []Attempt {
	node := func(name, path, tries string, more ...Wall) Attempt {
		return opens(name, path, "r", tries, Attempt{Walls: append([]Wall{linux.NoRoot}, more...), AsRoot: []Wall{linux.NoUserNS}, RootOnly: true, Why: "it is root's on the host"})
	}
	planted := func(name string, kind uint32, major, minor uint32, tries string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: "a descriptor of the device arrives", Walls: []Wall{linux.NoNoDev},
			RootOnly: true, Why: "only root can plant one",
			arrange: func(f *field) error {
				p := filepath.Join(f.ws, "node")
				if err := unix.Mknod(p, kind|0o666, int(unix.Mkdev(major, minor))); err != nil {
					return err
				}
				f.attack("open", p, "r")
				return os.Chmod(p, 0o666)
			},
			landed: func(f *field, m *message) bool {
				return carries(m, func(fd int) bool {
					var st unix.Stat_t
					return unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == kind && st.Rdev == unix.Mkdev(major, minor)
				})
			}}
	}
	const mem, kmsg, loop = 1, 11, 7
	made := planted("mknod", unix.S_IFCHR, mem, 3, "make a device node and open it")
	made.Walls, made.AsRoot = []Wall{linux.NoCaps, linux.NoNoDev}, []Wall{linux.NoUserNS}
	made.AtProcess, made.AtContainer = []Wall{linux.NoLandlock}, []Wall{linux.NoLandlock}
	made.arrange = func(f *field) error { return f.attack("mknod", filepath.Join(f.ws, "node"), "1", "3") }
	log := planted("planted-log", unix.S_IFCHR, mem, kmsg, "open the node of the kernel's log that lies in the workspace")
	log.Walls, log.AsRoot = append(log.Walls, linux.NoCaps), []Wall{linux.NoUserNS}
	return []Attempt{
		planted("planted-disk", unix.S_IFBLK, loop, 0, "open the node of a disk that lies in the workspace"),
		log,
		made,
		node("kmsg", "/dev/kmsg", "open the kernel's log", linux.NoCaps),
		node("fuse", "/dev/fuse", "serve a file system to the host's kernel"),
		node("tun", "/dev/net/tun", "make a network interface"),
		node("kvm", "/dev/kvm", "run a virtual machine"),
		node("loop-control", "/dev/loop-control", "make disks of files"),
		node("disk", "/dev/loop0", "open a disk"),
		node("mem", "/dev/mem", "open the machine's memory"),
		{Name: "foreign-terminal", Tries: "write to a terminal of the host's user", Seen: "the terminal's owner reads it", Walls: []Wall{linux.NoRoot}, AsRoot: []Wall{linux.NoUserNS},
			arrange: func(f *field) error {
				master, name, err := terminalPair()
				if err != nil {
					return err
				}
				f.later(func() { unix.Close(master) })
				f.slots["master"] = master
				return f.attack("write", name, f.nonce)
			},
			landed: func(f *field, m *message) bool {
				if m != nil {
					return false
				}
				buf := make([]byte, 256)
				n, _ := unix.Read(f.slots["master"].(int), buf)
				return n > 0 && strings.Contains(string(buf[:n]), f.nonce)
			}},
	}
}
