package linux

import (
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// overlay makes a writable view over read-only folders, and over the mount ground,
// if there is one, as the lowest of them.
func (b *builder) overlay(what string, o driver.Overlay, ground *spawn.Slot) spawn.Slot {
	lower := make([]string, len(o.Lower), len(o.Lower)+1)
	for i, path := range o.Lower {
		fd := b.clone(path, b.openHost(path), false)
		b.mapIDs(path, fd, o.HostIDs)
		lower[len(lower)-1-i] = b.hold(path, fd) // overlayfs wants the highest first
	}
	if ground != nil {
		lower = append(lower, b.hold("the skeleton", *ground))
	}
	at := b.hold("the layer of "+what, b.layer(what, o))

	var options []string
	// A value may have 255 bytes.
	all, old := strings.Join(lower, ":"), false
	switch {
	case len(all) < 256:
		options = append(options, "lowerdir="+all)
	case lowerByLower():
		for _, l := range lower {
			options = append(options, "lowerdir+="+l)
		}
	default:
		old = true
	}
	// The layer must make sense on its own: no redirects, no files without data,
	// and none followed that somebody has put there. userxattr implies both.
	// volatile: what matters is what reaches BAILEY_HOME when the run is over,
	// not what survives a power cut in the middle of it.
	options = append(options, "upperdir="+at+"/upper", "workdir="+at+"/work",
		"index=off", "volatile")
	if b.id.rooted() {
		options = append(options, "redirect_dir=nofollow", "metacopy=off")
	} else {
		options = append(options, "userxattr")
	}
	// The kernel makes a folder of its own in the layer, as the one who mounts,
	// and gives a read-only view when it cannot: the host's root has no id in a
	// layer whose ids are mapped.
	b.as(insideRoot)
	defer b.as(hostRoot)
	if old {
		return b.oldOverlay(lower, options)
	}
	return b.newFS("overlay", b.calm(false), options...)
}

// lowerByLower says whether this kernel takes an overlay's lower folders one by one.
var lowerByLower = sync.OnceValue(func() bool {
	var u unix.Utsname
	return unix.Uname(&u) == nil && sinceKernel(unix.ByteSliceToString(u.Release[:]), 6, 5)
})

// sinceKernel says whether a release is of a version or a later one.
func sinceKernel(release string, major, minor int) bool {
	var a, b int
	n, _ := fmt.Sscanf(release, "%d.%d", &a, &b)
	return n == 2 && (a > major || a == major && b >= minor)
}

// oldOverlay makes an overlay by mount(2), which takes a page of options at once, and
// gives its mount detached. The folders are told by numbers alone, so that there is
// room for more than overlayfs takes.
func (b *builder) oldOverlay(lower, options []string) spawn.Slot {
	const numbers = "/proc/self/fd/"
	short := make([]string, len(lower))
	for i, l := range lower {
		short[i] = strings.TrimPrefix(l, numbers)
	}
	var flags uintptr
	for attr, flag := range map[uint64]uintptr{unix.MOUNT_ATTR_NOSUID: unix.MS_NOSUID, unix.MOUNT_ATTR_NODEV: unix.MS_NODEV} {
		if b.calm(false)&attr != 0 {
			flags |= flag
		}
	}
	data := strings.Join(append([]string{"lowerdir=" + strings.Join(short, ":")}, options...), ",")
	b.Do("go to the descriptors", unix.SYS_CHDIR, b.Str(numbers))
	b.Do("create overlay", unix.SYS_MOUNT, b.Str("overlay"), b.Str(holdPoint), b.Str("overlay"), spawn.Uint(flags), b.Str(data))
	b.Do("go back", unix.SYS_CHDIR, b.Str("/"))
	return b.Do("clone mount overlay", unix.SYS_OPEN_TREE, noFD, b.Str(holdPoint), spawn.Int(unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)).Result()
}

// holdPoint is where the parts of overlays are attached: a folder of proc that every
// kernel has and that nothing is taken from.
const holdPoint = "/proc/fs"

// hold gives the path by which an overlay finds a mount that it is to be made of.
// Kernels before 6.15 take nothing for an overlay that is not attached in the mount
// namespace of whoever makes it. So every part is, one on top of the other, where
// nobody looks: in the builder's own namespace, whose old root the sandbox leaves
// with all that is attached below it. The overlay has private copies by then.
func (b *builder) hold(what string, mount spawn.Slot) string {
	b.Do("hold "+what, unix.SYS_MOVE_MOUNT, spawn.From(mount), b.Str(""), noFD, b.Str(holdPoint), spawn.Int(unix.MOVE_MOUNT_F_EMPTY_PATH))
	return b.fixed(mount)
}

// memoryLayer bounds a layer in memory. It is counted as the sandbox's memory.
const memoryLayer = "size=2g"

// layer takes the folder on the host that carries an overlay's writes, or makes
// one in memory.
func (b *builder) layer(what string, o driver.Overlay) spawn.Slot {
	if o.Layer != "" {
		layer := b.clone(o.Layer, b.openHost(o.Layer), false)
		b.mapIDs(o.Layer, layer, o.HostIDs)
		return layer
	}
	b.as(insideUser)
	layer := b.newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, memoryLayer, "mode=0755")
	for _, name := range []string{"upper", "work"} {
		b.Do("make "+name+" of "+what, unix.SYS_MKDIRAT, spawn.From(layer), b.Str(name), spawn.Int(0o755))
	}
	b.as(hostRoot)
	return layer
}
