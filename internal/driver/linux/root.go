package linux

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// attachPoint is where the new root is attached before it becomes the root: a
// folder that every host has, and that nothing is taken from afterwards.
const attachPoint = "/proc"

// mounts holds the detached mounts that a root is built from.
type mounts struct {
	root   spawn.Slot
	places []spawn.Slot // by index in Root.Places; only for kinds that are mounts
	proc   spawn.Slot
	null   spawn.Slot
}

// collect takes what the sandbox may see of the host as detached mounts, while
// the host's paths can still be reached.
func (b *builder) collect(r driver.Root) *mounts {
	m := &mounts{places: make([]spawn.Slot, len(r.Places))}
	// Before overlays are made, whose parts are attached below it (see hold).
	if !b.id.rooted() && b.omit[NoPidNS] { // the only proc of the host's processes an ordinary user can have
		m.proc = b.clone("/proc", b.openHost("/proc"), true)
	}
	for i, p := range r.Places {
		switch p.Kind {
		case driver.Bind, driver.Scratch:
			m.places[i] = b.hostMount(p)
		case driver.CoW:
			var skeleton *spawn.Slot
			if p.Overlay.Root {
				s := b.skeleton(below(r, p.Target))
				skeleton = &s
			}
			m.places[i] = b.overlay(p.Target, *p.Overlay, skeleton)
		}
	}
	if r.Base != nil {
		skeleton := b.skeleton(r)
		m.root = b.overlay("/", *r.Base, &skeleton)
	} else {
		// Room for the links, generated files and mount points, and no more.
		m.root = b.newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode=0755", "size=4m", "nr_inodes=8k")
	}
	return m
}

// hostMount takes a folder or file of the host.
func (b *builder) hostMount(p driver.Place) spawn.Slot {
	fd := b.clone(p.Source, b.openHost(p.Source), true)
	attr := unix.MountAttr{Attr_set: b.calm(p.ReadOnly), Propagation: unix.MS_PRIVATE}
	b.attr(p.Source, fd, true, attr)
	ns := b.id.ns
	switch {
	case p.HostIDs && p.Kind == driver.Bind && b.id.ownerNS != nil:
		ns = b.id.ownerNS
	case p.HostIDs:
		ns = b.id.hostNS
	}
	b.mapTo(p.Source, fd, true, ns, p.Kind != driver.Scratch && p.ReadOnly)
	return fd
}

// mapIDs makes files of the host's ids belong to the sandbox's. Without it
// they belong to nobody inside, which is good enough for what is only read
// and not at all for what is written.
func (b *builder) mapIDs(what string, fd spawn.Slot, hostIDs bool) {
	ns := b.id.ns
	if hostIDs {
		ns = b.id.hostNS
	}
	b.mapTo(what, fd, false, ns, false)
}

const (
	stepIDs    = "set mount attributes of " // what Linux calls an idmapped mount
	stepIDsEnd = " (ids)"
)

// noOwners explains that a folder's file system cannot show other owners than it has:
// each has to know how, tmpfs since Linux 6.3 for instance. Nil if something else was wrong.
func noOwners(what string, se *spawn.StepError) error {
	p, ok := strings.CutSuffix(strings.TrimPrefix(se.Step, stepIDs), stepIDsEnd)
	if !ok || se.Errno != unix.EINVAL {
		return nil
	}
	return bailey.Errorf(bailey.CodeNotAvailable, what, "use a folder on another file system, such as ext4, xfs or btrfs (also for BAILEY_HOME), a newer kernel, or Bailey as an ordinary user",
		"this kernel cannot map the owners of files on the file system of %s, as it has to for sandboxes that root starts (on tmpfs since Linux 6.3)", p)
}

func (b *builder) mapTo(what string, fd spawn.Slot, recursive bool, ns *os.File, courtesy bool) {
	if !b.id.rooted() || b.omit[NoUserNS] {
		return
	}
	st := b.attr(what+stepIDsEnd, fd, recursive, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(ns.Fd())})
	if courtesy {
		st.IgnoreAll()
	}
}

// assemble attaches the collected mounts and makes the rest.
func (b *builder) assemble(r driver.Root, m *mounts) {
	var on owner
	if r.Base != nil {
		on = insideRoot
	}
	b.Do("attach the new root", unix.SYS_MOVE_MOUNT, spawn.From(m.root), b.Str(""), noFD, b.Str(attachPoint), spawn.Int(unix.MOVE_MOUNT_F_EMPTY_PATH))
	b.dirs["/"] = ground{m.root, on, r.Base != nil}
	b.kernelFiles(m)
	inRoot := "" // below what there is a root file system of a cell
	for i, p := range r.Places {
		o := on
		if inRoot != "" && strings.HasPrefix(p.Target, inRoot) {
			o = insideRoot
		}
		if p.Owned {
			o = insideUser
		}
		switch p.Kind {
		case driver.Dir:
			g := b.dir(p.Target)
			if p.Mode.Perm() != 0o755 || p.Owned && o != g.owner {
				b.give(p, g, o)
			}
		case driver.File:
			b.write(p.Target, p.Content, uint32(p.Mode.Perm()), o)
		case driver.Symlink:
			b.symlink(p.Target, p.Source, o)
		case driver.Bind, driver.CoW, driver.Scratch:
			isDir := p.IsDir || p.Kind != driver.Bind
			b.attach(m.places[i], p.Target, isDir, insideUser)
			if p.Kind == driver.CoW && p.Overlay.Root {
				b.dirs[p.Target] = ground{m.places[i], insideRoot, true}
				inRoot = p.Target + "/"
			}
		case driver.Mask:
			b.mask(p.Target, p.IsDir, m)
		}
	}
	b.as(hostRoot)
	if r.Base == nil && !b.omit[NoReadOnly] {
		b.attr("the new root", m.root, false, unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
}

// give sets mode and owner of a folder that was just made.
func (b *builder) give(p driver.Place, g ground, o owner) {
	// Through the descriptor: fchmodat on an O_PATH descriptor needs Linux 6.6,
	// opening it again does not.
	fd := b.Do("open "+p.Target, unix.SYS_OPENAT, spawn.From(g.fd), b.Str("."), spawn.Int(unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC), zero).Result()
	if o == insideUser && b.id.rooted() {
		b.as(hostRoot)
		b.Do("give "+p.Target, unix.SYS_FCHOWN, spawn.From(fd), spawn.Int(b.id.kuid()), spawn.Int(b.id.kgid()))
		g.owner = insideUser
		b.dirs[p.Target] = g
	}
	b.Do("mode of "+p.Target, unix.SYS_FCHMOD, spawn.From(fd), spawn.Int(int(p.Mode.Perm())|int(modeBits(p))))
	b.Do("close "+p.Target, unix.SYS_CLOSE, spawn.From(fd))
}

// enter makes the new root the root and lets go of the old one.
func (b *builder) enter(m *mounts) {
	b.Do("enter the new root", unix.SYS_FCHDIR, spawn.From(m.root))
	b.Do("pivot_root", unix.SYS_PIVOT_ROOT, b.Str("."), b.Str("."))
	b.Do("leave the host's root", unix.SYS_UMOUNT2, b.Str("."), spawn.Int(unix.MNT_DETACH))
	b.Do("chdir /", unix.SYS_CHDIR, b.Str("/"))
}
