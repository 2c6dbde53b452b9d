package linux

import (
	"path"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// builder writes a sandbox's set-up down as a script. Its methods append
// steps; nothing happens before the script starts.
type builder struct {
	*spawn.Script
	id   *identity
	omit map[Protection]bool
	// dirs holds a descriptor for each folder of the new root that a step has
	// opened or mounted, by its path inside.
	dirs map[string]ground
	fs   owner // whose files the child makes at this point of the script
	next int   // the next fixed descriptor number for paths through /proc/self/fd

	stop Stop // for the fault suite
}

// Do appends a step.
func (b *builder) Do(name string, nr uintptr, args ...spawn.Arg) spawn.Step {
	st := b.Script.Do(name, nr, args...)
	if b.stop.After > 0 && b.stop.After == len(b.Steps()) {
		gate := spawn.Int(b.stop.Gate)
		b.Script.Do("stop: say so", unix.SYS_WRITE, gate, b.Bytes([]byte("x")), spawn.Int(1))
		b.Script.Do("stop: wait", unix.SYS_READ, gate, b.Bytes(make([]byte, 1)), spawn.Int(1))
	}
	return st
}

// Start runs the script.
func (b *builder) Start(opt spawn.Options) (*spawn.Process, error) {
	if b.stop.Steps != nil {
		b.stop.Steps(b.Steps())
	}
	return b.Script.Start(opt)
}

// ground is a folder of the new root, and who owns what is made there.
type ground struct {
	fd    spawn.Slot
	owner owner
	// image says that the content comes from an image, so that a name may be
	// taken already.
	image bool
}

// owner says whose a new file is.
type owner int

const (
	hostRoot   owner = iota // outside of the sandbox's ids: nobody, as seen inside
	insideRoot              // the sandbox's root
	insideUser              // the sandbox's user
)

// usualSteps is how many steps a sandbox takes, roughly.
const usualSteps = 1024

func newBuilder(id *identity, omit map[Protection]bool, stop Stop) *builder {
	return &builder{Script: spawn.NewScript(usualSteps), id: id, omit: omit, dirs: map[string]ground{}, next: firstNumber(), stop: stop}
}

var (
	noFD = spawn.Int(unix.AT_FDCWD)
	zero = spawn.Int(0)
)

// openHost opens a folder or file of the host that a caller has resolved
// already: a link on the way means that somebody exchanged it since.
func (b *builder) openHost(p string) spawn.Slot {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW, Resolve: unix.RESOLVE_NO_SYMLINKS}
	if b.omit[NoSafeTargets] {
		how = &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC}
	}
	return b.Do("open "+p, unix.SYS_OPENAT2, noFD, b.Str(p), b.Pointer(unsafe.Pointer(how)), spawn.Int(unix.SizeofOpenHow)).Result()
}

// clone makes a detached copy of the mount at fd, with what is mounted below.
func (b *builder) clone(what string, fd spawn.Slot, recursive bool) spawn.Slot {
	flags := unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return b.Do("clone mount "+what, unix.SYS_OPEN_TREE, spawn.From(fd), b.Str(""), spawn.Int(flags)).Result()
}

// attr sets attributes of a mount that is not seen by anybody yet.
func (b *builder) attr(what string, fd spawn.Slot, recursive bool, attr unix.MountAttr) spawn.Step {
	flags := unix.AT_EMPTY_PATH
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return b.Do(stepIDs+what, unix.SYS_MOUNT_SETATTR, spawn.From(fd), b.Str(""), spawn.Int(flags),
		b.Pointer(unsafe.Pointer(&attr)), spawn.Int(int(unsafe.Sizeof(attr))))
}

// calm gives the attributes of every mount that shows something of the host.
func (b *builder) calm(readOnly bool) uint64 {
	var set uint64
	if readOnly && !b.omit[NoReadOnly] {
		set |= unix.MOUNT_ATTR_RDONLY
	}
	if !b.omit[NoNoSUID] {
		set |= unix.MOUNT_ATTR_NOSUID
	}
	if !b.omit[NoNoDev] {
		set |= unix.MOUNT_ATTR_NODEV
	}
	return set
}

// newFS makes a file system and gives its detached mount. Options are
// name=value, or a bare name for a flag.
func (b *builder) newFS(kind string, attrs uint64, options ...string) spawn.Slot {
	fs := b.Do("fsopen "+kind, unix.SYS_FSOPEN, b.Str(kind), spawn.Int(unix.FSOPEN_CLOEXEC)).Result()
	for _, o := range options {
		if name, value, ok := strings.Cut(o, "="); ok {
			b.Do("configure "+kind+" "+o, unix.SYS_FSCONFIG, spawn.From(fs), spawn.Int(unix.FSCONFIG_SET_STRING), b.Str(name), b.Str(value), zero)
		} else {
			b.Do("configure "+kind+" "+o, unix.SYS_FSCONFIG, spawn.From(fs), spawn.Int(unix.FSCONFIG_SET_FLAG), b.Str(o), zero, zero)
		}
	}
	b.Do("create "+kind, unix.SYS_FSCONFIG, spawn.From(fs), spawn.Int(unix.FSCONFIG_CMD_CREATE), zero, zero, zero)
	return b.Do("fsmount "+kind, unix.SYS_FSMOUNT, spawn.From(fs), spawn.Int(unix.FSMOUNT_CLOEXEC), spawn.Uint(uintptr(attrs))).Result()
}

// as makes the files that follow belong to o. Only root has a choice.
func (b *builder) as(o owner) {
	if b.fs == o || !b.id.rooted() {
		return
	}
	b.fs = o
	uid, gid := 0, 0
	switch o {
	case insideRoot:
		uid, gid = b.id.ids.base, b.id.ids.base
	case insideUser:
		uid, gid = b.id.kuid(), b.id.kgid()
	}
	// These calls return the previous id and never fail.
	b.Do("file owner", unix.SYS_SETFSUID, spawn.Int(uid))
	b.Do("file group", unix.SYS_SETFSGID, spawn.Int(gid))
}

// lookup opens a name in a folder of the new root, as O_PATH. Whatever is a
// link there, an image or an earlier run has made: it is refused.
func (b *builder) lookup(at ground, inside, name string, flags int) spawn.Step {
	how := &unix.OpenHow{Flags: uint64(unix.O_PATH | unix.O_CLOEXEC | unix.O_NOFOLLOW | flags),
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH}
	if b.omit[NoSafeTargets] {
		how = &unix.OpenHow{Flags: uint64(unix.O_PATH | unix.O_CLOEXEC | flags)}
	}
	return b.Do("open "+inside+" in the new root", unix.SYS_OPENAT2, spawn.From(at.fd), b.Str(name),
		b.Pointer(unsafe.Pointer(how)), spawn.Int(unix.SizeofOpenHow))
}

// dir gives the folder at path p of the new root and makes it, with its
// parents, where it is missing.
func (b *builder) dir(p string) ground {
	if g, ok := b.dirs[p]; ok {
		return g
	}
	parent := b.dir(path.Dir(p))
	name := path.Base(p)
	b.as(parent.owner)
	b.Do("make folder "+p, unix.SYS_MKDIRAT, spawn.From(parent.fd), b.Str(name), spawn.Int(0o755)).Ignore(unix.EEXIST)
	g := ground{b.lookup(parent, p, name, unix.O_DIRECTORY).Result(), parent.owner, parent.image}
	b.dirs[p] = g
	return g
}

// attach moves a detached mount to path p of the new root.
func (b *builder) attach(mount spawn.Slot, p string, isDir bool, o owner) {
	var target spawn.Slot
	if isDir {
		target = b.dir(p).fd
	} else {
		parent := b.dir(path.Dir(p))
		b.as(parent.owner)
		b.Do("make file "+p, unix.SYS_MKNODAT, spawn.From(parent.fd), b.Str(path.Base(p)), spawn.Int(unix.S_IFREG|0o444), zero).Ignore(unix.EEXIST)
		target = b.lookup(parent, p, path.Base(p), 0).Result()
		if !b.omit[NoSafeTargets] {
			b.noLink(parent, target, p)
		}
	}
	b.move(mount, target, p)
	if isDir {
		b.dirs[p] = ground{fd: mount, owner: o}
	}
}

// noLink ends the script with ELOOP when fd, which was opened as p, is a link: as
// the last part of a path one can be opened itself.
func (b *builder) noLink(parent ground, fd spawn.Slot, p string) {
	what := "open " + p + " in the new root"
	b.Do(what, unix.SYS_READLINKAT, spawn.From(fd), b.Str(""), b.Bytes(make([]byte, 1)), spawn.Int(1)).Ignore(unix.ENOENT).ElseSkip(1)
	b.Do(what, unix.SYS_OPENAT, spawn.From(parent.fd), b.Str(path.Base(p)), spawn.Int(unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK), zero)
}

func (b *builder) move(mount, target spawn.Slot, what string) {
	b.Do("mount at "+what, unix.SYS_MOVE_MOUNT, spawn.From(mount), b.Str(""), spawn.From(target), b.Str(""),
		spawn.Int(unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH))
}

// write makes a small file at path p of the new root.
func (b *builder) write(p string, content []byte, mode uint32, o owner) {
	parent := b.dir(path.Dir(p))
	b.as(o)
	name := b.Str(path.Base(p))
	if parent.image {
		b.Do("replace "+p, unix.SYS_UNLINKAT, spawn.From(parent.fd), name, zero).Ignore(unix.ENOENT)
	}
	fd := b.Do("make file "+p, unix.SYS_OPENAT, spawn.From(parent.fd), name,
		spawn.Int(unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC), spawn.Uint(uintptr(mode))).Result()
	if len(content) > 0 {
		b.Do("write "+p, unix.SYS_WRITE, spawn.From(fd), b.Bytes(content), spawn.Int(len(content)))
	}
	b.Do("close "+p, unix.SYS_CLOSE, spawn.From(fd))
}

// symlink makes a link at path p of the new root.
func (b *builder) symlink(p, text string, o owner) {
	parent := b.dir(path.Dir(p))
	b.as(o)
	st := b.Do("make link "+p, unix.SYS_SYMLINKAT, b.Str(text), spawn.From(parent.fd), b.Str(path.Base(p)))
	if parent.image {
		st.Ignore(unix.EEXIST)
	}
}
