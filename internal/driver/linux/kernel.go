package linux

import (
	"io/fs"
	"os"
	"path"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// procCovers are the parts of /proc through which a kernel is configured. They
// are read-only whether or not their files look writable: with the host's root
// mapped, the check is by owner and needs no capability.
var procCovers = []string{"sys", "sysrq-trigger", "irq", "bus", "fs"}

// procMasks are the parts of /proc that tell about the host or its memory, as
// runc's and Docker's defaults hide them.
var procMasks = []string{"acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "timer_list", "timer_stats", "sched_debug", "scsi"}

// sysShows are the folders of sysfs that language runtimes ask for the shape
// of the machine. The rest of sysfs, with serial numbers and devices, is not there.
var sysShows = []string{"/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/kernel/mm/transparent_hugepage"}

// present says which of the files above this kernel has. The answer is the
// same for every proc and sysfs of one boot.
var present = sync.OnceValue(func() map[string]fs.FileInfo {
	m := map[string]fs.FileInfo{}
	for _, name := range append(append([]string(nil), procCovers...), procMasks...) {
		if fi, err := os.Stat("/proc/" + name); err == nil {
			m["/proc/"+name] = fi
		}
	}
	for _, name := range sysShows {
		if fi, err := os.Stat(name); err == nil {
			m[name] = fi
		}
	}
	return m
})

// devices are the nodes of /dev, with their numbers from the kernel's
// Documentation/admin-guide/devices.txt. Each is harmless by itself.
var devices = []struct {
	name         string
	major, minor uint32
}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}}

// kernelFiles makes /dev, /proc and what is shown of /sys.
func (b *builder) kernelFiles(m *mounts) {
	sys := b.takeSys()
	b.makeDev(m)
	b.makeProc(m)
	for i, name := range sysShows {
		if sys[i] != nil {
			b.attach(*sys[i], name, true, hostRoot)
		}
	}
}

func (b *builder) takeSys() []*spawn.Slot {
	slots := make([]*spawn.Slot, len(sysShows))
	for i, name := range sysShows {
		if present()[name] == nil {
			continue
		}
		// /sys may be masked where Bailey itself runs in a container. It is a
		// courtesy to programs; none depends on it.
		fd := b.clone(name, b.openHost(name), true)
		b.attr(name, fd, true, unix.MountAttr{Attr_set: b.calm(true) | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE})
		slots[i] = &fd
	}
	return slots
}

// makeDev makes /dev out of nodes of its own, or, where the caller may not
// make nodes, of the host's.
func (b *builder) makeDev(m *mounts) {
	b.as(hostRoot)
	var hostNodes []spawn.Slot
	if !b.id.rooted() {
		for _, d := range devices {
			fd := b.clone("/dev/"+d.name, b.openHost("/dev/"+d.name), false)
			b.attr("/dev/"+d.name, fd, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC, Propagation: unix.MS_PRIVATE})
			hostNodes = append(hostNodes, fd)
		}
	}
	dev := b.newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "mode=0755", "size=64k", "nr_inodes=64")
	b.attach(dev, "/dev", true, hostRoot)
	for i, d := range devices {
		if hostNodes != nil {
			b.attach(hostNodes[i], "/dev/"+d.name, false, hostRoot)
			continue
		}
		b.Do("make /dev/"+d.name, unix.SYS_MKNODAT, spawn.From(dev), b.Str(d.name), spawn.Int(unix.S_IFCHR|0o666), spawn.Uint(uintptr(unix.Mkdev(d.major, d.minor))))
	}
	for _, l := range [][2]string{{"fd", "/proc/self/fd"}, {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
		{"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"}, {"core", "/proc/kcore"}} {
		b.symlink("/dev/"+l[0], l[1], hostRoot)
	}
	pts := b.newFS("devpts", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NOEXEC, "ptmxmode=0666", "mode=0620")
	b.attach(pts, "/dev/pts", true, hostRoot)
	// A share of the machine's memory, for hosts on which no control group counts it.
	shm := b.newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode=1777", "size=25%", "nr_inodes=256k")
	b.attach(shm, "/dev/shm", true, hostRoot)
	if b.id.rooted() || !b.omit[NoIPCNS] { // the host's queues are not an ordinary user's to mount
		mq := b.newFS("mqueue", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
		b.attach(mq, "/dev/mqueue", true, hostRoot)
	}
	m.null = b.Do("open null", unix.SYS_OPENAT, spawn.From(dev), b.Str("null"), spawn.Int(unix.O_PATH|unix.O_CLOEXEC), zero).Result()
	b.attr("/dev", dev, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// makeProc mounts a proc of the sandbox's own PID namespace and closes its doors.
func (b *builder) makeProc(m *mounts) {
	if m.proc == (spawn.Slot{}) {
		m.proc = b.newFS("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	}
	b.attach(m.proc, "/proc", true, hostRoot)
	if !b.omit[NoProcCovers] {
		for _, name := range procCovers {
			fi := present()["/proc/"+name]
			if fi == nil {
				continue
			}
			at := b.lookup(b.dirs["/proc"], "/proc/"+name, name, 0).Result()
			cover := b.clone("/proc/"+name, at, false)
			b.attr("/proc/"+name, cover, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOEXEC})
			b.move(cover, at, "/proc/"+name)
		}
	}
	if !b.omit[NoProcMasks] {
		for _, name := range procMasks {
			if fi := present()["/proc/"+name]; fi != nil {
				b.mask("/proc/"+name, fi.IsDir(), m)
			}
		}
	}
}

// mask covers what is at p with nothing.
func (b *builder) mask(p string, isDir bool, m *mounts) {
	at := b.lookup(b.dir(path.Dir(p)), p, path.Base(p), 0).Result()
	var empty spawn.Slot
	if isDir {
		empty = b.newFS("tmpfs", unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC, "mode=0555", "size=4k", "nr_inodes=1")
	} else {
		empty = b.clone("/dev/null", m.null, false)
	}
	b.move(empty, at, p)
	delete(b.dirs, p)
}

// modeBits gives the bits of a mode that Perm leaves out and a folder may have.
func modeBits(p driver.Place) uint32 {
	if p.Mode&fs.ModeSticky != 0 {
		return unix.S_ISVTX
	}
	return 0
}
