package linux

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/pid1"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// Create builds a sandbox.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Instance, error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, setupError(err)
	}
	d.trace("identity")
	id, err := d.newIdentity(spec.User, spec.Level)
	if err != nil {
		return nil, setupError(err)
	}
	if levelCaps(spec.Level) != 0 && slices.ContainsFunc(spec.Root.Places, func(p driver.Place) bool { return p.Kind == driver.Bind && p.HostIDs }) {
		if err := id.ownerOnly(); err != nil {
			id.close()
			return nil, setupError(err)
		}
	}
	err = id.cellUser(spec)
	if err == nil && spec.Cell != nil && spec.Cell.Link && id.rooted() {
		id.link, err = id.newLinkNS()
	}
	if err != nil {
		id.close()
		return nil, setupError(err)
	}
	d.trace("cgroup")
	group, err := d.newGroup(spec, id)
	if err != nil {
		id.close()
		return nil, err
	}
	in := d.newInstance(spec, id, group)
	in.hostrw = writesHost(spec)
	if err := d.start(in); err != nil {
		in.release()
		return nil, err
	}
	if spec.Limits.Timeout > 0 && len(spec.Entry.Command) > 0 {
		in.startTimer(spec.Limits.Timeout)
	}
	go in.watch()
	if in.group.watched > 0 {
		go in.watchMemory(in.group.watched)
	}
	return in, nil
}

// check refuses what would otherwise fail in the middle or mean something else.
func check(spec driver.Spec) error {
	bad := func(format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, "create the sandbox", "", format, args...)
	}
	if spec.Level != bailey.IsolationProcess && spec.Level != bailey.IsolationContainer {
		return bad("this driver has no level %s", spec.Level)
	}
	if (len(spec.Entry.Command) > 0) == (spec.Entry.Agent != "") {
		return bad("it needs either a command or an agent")
	}
	if err := checkCell(spec); err != nil {
		return err
	}
	texts := append([]string{spec.ID, spec.Hostname, spec.Workdir, spec.Entry.Agent}, spec.Env...)
	texts = append(texts, spec.Entry.Command...)
	for _, p := range spec.Root.Places {
		if !path.IsAbs(p.Target) || path.Clean(p.Target) != p.Target || p.Target == "/" {
			return bad("%q is not a place inside", p.Target)
		}
		texts = append(texts, p.Target, p.Source)
	}
	for _, t := range texts {
		if strings.IndexByte(t, 0) >= 0 {
			return bad("%q has a NUL byte in it", t)
		}
	}
	if !path.IsAbs(spec.Workdir) {
		return bad("the working folder %q is not an absolute path", spec.Workdir)
	}
	if w := path.Clean(spec.Workdir); w == "/proc" || strings.HasPrefix(w, "/proc/") {
		// A folder of the host that a descriptor leads to could be reached so
		// (CVE-2024-21626). None is open then, and nobody works in there.
		return bad("the working folder %q lies in /proc", spec.Workdir)
	}
	return nil
}

// start writes the script down and runs it.
func (d *Driver) start(in *instance) error {
	d.trace("descriptors")
	fds, err := in.descriptors()
	if err != nil {
		return setupError(err)
	}
	defer fds.close()
	d.trace("script")
	b := newBuilder(in.id, d.omit, d.opt.StopAt)
	enter, opts := in.group.enter()
	if !in.id.joined {
		opts.Flags = d.namespaces(in.id)
	}
	if err := d.compose(b, in, fds, enter); err != nil {
		return err
	}
	d.trace("spawn")
	proc, err := in.id.startShared(b, opts)
	if err != nil {
		return d.explain(in, err)
	}
	if in.first, err = born(proc); err != nil {
		return setupError(err)
	}
	in.started = startOf(in.first.pid)
	in.id.built()
	in.group.entry.Close()
	d.trace("spawned")
	control := in.control
	if control == nil {
		control = in.agent
	}
	if in.outlet != nil {
		if in.out, err = in.outlet.take(int(control.Fd())); err != nil {
			return setupError(err)
		}
	}
	if in.spec.Entry.Terminal != nil {
		if in.terminal, err = takeTerminal(int(control.Fd())); err != nil {
			return setupError(err)
		}
	}
	return nil
}

func (d *Driver) namespaces(id *identity) uint64 {
	flags := uint64(unix.CLONE_NEWNS)
	for p, f := range map[Protection]uint64{NoPidNS: unix.CLONE_NEWPID, NoNetNS: unix.CLONE_NEWNET, NoIPCNS: unix.CLONE_NEWIPC, NoUTSNS: unix.CLONE_NEWUTS} {
		if !d.omit[p] && !(p == NoNetNS && id.net != nil) {
			flags |= f
		}
	}
	if !id.rooted() && !id.joined {
		flags |= unix.CLONE_NEWUSER
	}
	return flags
}

// compose writes the whole set-up in order.
func (d *Driver) compose(b *builder, in *instance, fds *descriptors, enterCgroup []int) error {
	spec := in.spec
	b.Do("umask", unix.SYS_UMASK, zero) // modes are as written here
	if b.id.rooted() {
		b.keepOverOwners()
	} else if b.id.joined {
		b.join(d.namespaces(b.id))
	} else {
		b.mapSelf()
	}
	for _, fd := range enterCgroup {
		// "0" is the writer itself. Only the file tasks is quick: attaching
		// through cgroup.procs waits for a grace period of several milliseconds.
		b.Do("enter the cgroup", unix.SYS_WRITE, spawn.Int(fd), b.Bytes([]byte("0")), spawn.Int(1))
	}
	if !d.omit[NoCgroupNS] {
		b.Do("hide the cgroup's path", unix.SYS_UNSHARE, spawn.Int(unix.CLONE_NEWCGROUP))
	}
	b.preferForOOM()
	if b.id.net != nil {
		b.Do("enter the network namespace", unix.SYS_SETNS, spawn.Uint(b.id.net.Fd()), spawn.Int(unix.CLONE_NEWNET))
	} else if !d.omit[NoNetNS] {
		b.loopback()
	}
	if spec.Outlet && !d.omit[NoNetNS] {
		in.outlet = b.outlet(fds.child)
		if spec.Cell != nil && spec.Cell.Link {
			b.link(in.outlet)
		}
	}
	b.Do("detach from the host's mounts", unix.SYS_MOUNT, zero, b.Str("/"), zero, spawn.Int(unix.MS_REC|unix.MS_PRIVATE), zero)

	if spec.Mount != nil {
		b.Do("attach the sandbox's disk", unix.SYS_MOVE_MOUNT, spawn.Uint(spec.Mount.Fd()), b.Str(""), noFD, b.Str(spec.MountAt), spawn.Int(unix.MOVE_MOUNT_F_EMPTY_PATH))
	}
	if d.omit[NoRoot] {
		b.Do("mount /proc", unix.SYS_MOUNT, b.Str("proc"), b.Str("/proc"), b.Str("proc"), zero, zero)
	} else {
		m := b.collect(spec.Root)
		b.assemble(spec.Root, m)
		b.enter(m)
	}
	if !d.omit[NoUTSNS] {
		host := spec.Hostname
		if host == "" {
			host = spec.ID
		}
		b.Do("set host name", unix.SYS_SETHOSTNAME, b.Str(host), spawn.Int(len(host)))
	}
	b.limits(in.group)
	b.user(spec.Cell != nil)
	if spec.Entry.Terminal != nil {
		stderr := -1
		if spec.Entry.Stdio[2] != nil {
			stderr = fds.stdio[2]
		}
		b.terminal(*spec.Entry.Terminal, fds.child, stderr)
	} else {
		for i, fd := range fds.stdio {
			b.Do("standard descriptors", unix.SYS_DUP3, spawn.Int(fd), spawn.Int(i), zero)
		}
	}
	b.Do("control descriptor", unix.SYS_DUP3, spawn.Int(fds.child), spawn.Int(pid1.Control), zero)
	if !d.omit[NoClose] {
		b.Do("close all others", unix.SYS_CLOSE_RANGE, spawn.Int(pid1.Control+1), spawn.Uint(uintptr(^uint32(0))), spawn.Int(unix.CLOSE_RANGE_CLOEXEC))
	}
	b.Do("umask", unix.SYS_UMASK, spawn.Int(0o022))
	b.workdir(spec.Workdir)
	caps := capsFor(spec)
	if spec.Cell != nil && !b.id.rooted() {
		// To make a user namespace that has root takes it. Nobody's files get rights
		// outside of it: the host's root is none of its ids.
		caps |= 1 << unix.CAP_SETFCAP
	}
	b.drop(caps, spec.User.UID == 0 || spec.Cell != nil)
	switch {
	case d.omit[NoLandlock]:
	case spec.Cell != nil:
		b.cellDomain()
	case !spec.NestedSandboxes:
		b.landlock(spec)
	}
	const sigSetmask = 2
	b.Do("unblock signals", unix.SYS_RT_SIGPROCMASK, spawn.Int(sigSetmask), b.Bytes(make([]byte, 8)), zero, spawn.Int(8))
	if err := b.filter(spec, d.omittedCalls()); err != nil {
		return err
	}
	argv, env := spec.Entry.Command, spec.Env
	if spec.Entry.Agent != "" {
		// The connection is the sandbox's lease as well.
		argv, env = []string{path.Base(spec.Entry.Agent), "--lease"}, guest.InitEnv()
		if spec.Cell != nil {
			argv = append(argv, spec.Cell.Args...)
		}
	} else {
		argv = pid1.Argv(candidates(argv[0], spec.Env), argv)
	}
	b.Do("execute", unix.SYS_EXECVEAT, spawn.Int(fds.image), b.Str(""), b.Strings(argv), b.Strings(env), spawn.Int(unix.AT_EMPTY_PATH))
	return nil
}

// keepOverOwners keeps the capabilities to make files while they are made as
// somebody else. Entering a user namespace resets this.
func (b *builder) keepOverOwners() {
	const noSetuidFixup = 1 << 2
	b.Do("keep capabilities over file owners", unix.SYS_PRCTL, spawn.Int(unix.PR_SET_SECUREBITS), spawn.Int(noSetuidFixup), zero, zero, zero)
}

// workdir enters the command's first folder. Links on the way are an image's or
// an earlier run's and are followed, but not those of /proc: one to a descriptor
// that is still open leads out to the host (CVE-2024-21626).
func (b *builder) workdir(p string) {
	if b.omit[NoSafeTargets] {
		b.Do("enter "+p, unix.SYS_CHDIR, b.Str(p))
		return
	}
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	fd := b.Do("enter "+p, unix.SYS_OPENAT2, noFD, b.Str(p), b.Pointer(unsafe.Pointer(how)), spawn.Int(unix.SizeofOpenHow)).Result()
	b.Do("enter "+p, unix.SYS_FCHDIR, spawn.From(fd))
}

func (d *Driver) omittedCalls() []string {
	var names []string
	for p := range d.omit {
		if name, ok := strings.CutPrefix(string(p), seccompPrefix); ok {
			names = append(names, name)
		}
	}
	return names
}

// mapSelf writes the id maps of a user namespace that the child has made
// itself. With groups not to be changed, the kernel lets a user map its own id.
func (b *builder) mapSelf() {
	for _, f := range [][2]string{{"setgroups", "deny"}, {"uid_map", b.id.uidMap}, {"gid_map", b.id.gidMap}} {
		fd := b.Do("open "+f[0], unix.SYS_OPENAT, noFD, b.Str("/proc/self/"+f[0]), spawn.Int(unix.O_WRONLY|unix.O_CLOEXEC), zero).Result()
		b.Do("write "+f[0], unix.SYS_WRITE, spawn.From(fd), b.Bytes([]byte(f[1])), spawn.Int(len(f[1])))
		b.Do("close "+f[0], unix.SYS_CLOSE, spawn.From(fd))
	}
}

// preferForOOM lets the kernel choose a sandbox before anything else when the
// whole machine is out of memory. It is a courtesy to the host.
func (b *builder) preferForOOM() {
	const score = "500"
	fd := b.Do("open oom_score_adj", unix.SYS_OPENAT, noFD, b.Str("/proc/self/oom_score_adj"), spawn.Int(unix.O_WRONLY|unix.O_CLOEXEC), zero).
		IgnoreAll().ElseSkip(2).Result()
	b.Do("write oom_score_adj", unix.SYS_WRITE, spawn.From(fd), b.Bytes([]byte(score)), spawn.Int(len(score))).IgnoreAll()
	b.Do("close oom_score_adj", unix.SYS_CLOSE, spawn.From(fd))
}

// loopback brings lo up and lets everybody inside listen on every port: the
// namespace may belong to the host, so no capability of the sandbox would do.
func (b *builder) loopback() {
	s := b.Do("socket", unix.SYS_SOCKET, spawn.Int(unix.AF_INET), spawn.Int(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), zero).Result()
	ifr := &struct {
		name  [16]byte
		flags uint16
		pad   [22]byte
	}{flags: unix.IFF_UP}
	copy(ifr.name[:], "lo")
	b.Do("bring lo up", unix.SYS_IOCTL, spawn.From(s), spawn.Uint(unix.SIOCSIFFLAGS), b.Pointer(unsafe.Pointer(ifr)))
	b.Do("close socket", unix.SYS_CLOSE, spawn.From(s))
	b.sysctl("net/ipv4/ip_unprivileged_port_start", "0")
}

// candidates lists the paths at which a command named as in a shell may lie.
// They are tried inside the sandbox; the host is not looked at.
func candidates(name string, env []string) []string {
	if strings.Contains(name, "/") {
		return []string{name}
	}
	if name == "" {
		return nil
	}
	search := "/usr/local/bin:/usr/bin:/bin"
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v
		}
	}
	var list []string
	for _, dir := range strings.Split(search, ":") {
		if path.IsAbs(dir) { // a relative entry would run what lies in the working folder
			list = append(list, path.Join(dir, name))
		}
	}
	return list
}

// setupError makes an Error of what failed in the parent.
func setupError(err error) error {
	var be *bailey.Error
	if errors.As(err, &be) {
		return err
	}
	var se *spawn.StepError
	if errors.As(err, &se) && noNamespaces(se) {
		return bailey.Errorf(bailey.CodeIsolationUnavailable, "make the sandbox's namespaces", doctorFix, "%s", se)
	}
	return bailey.Errorf(bailey.CodeSetupFailed, "create the sandbox", doctorFix, "%w", err)
}

const doctorFix = "`bailey doctor` tells what this host lacks and how to get it"

// noNamespaces says that this host, or what Bailey itself runs in, does not let
// it make namespaces. A filter of system calls says ENOSYS to clone3.
func noNamespaces(se *spawn.StepError) bool {
	switch {
	case se.Step == "clone":
		return slices.Contains([]syscall.Errno{unix.EPERM, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS}, se.Errno)
	case strings.HasSuffix(se.Step, "uid_map"):
		return se.Errno == unix.EPERM
	}
	return se.Step == "detach from the host's mounts"
}

// explain turns a failed step into what a person can act on.
func (d *Driver) explain(in *instance, err error) error {
	var se *spawn.StepError
	if !errors.As(err, &se) {
		return setupError(err)
	}
	if in.outlet != nil {
		if err := in.outlet.explain(se); err != nil {
			return err
		}
	}
	if err := noOwners("create the sandbox", se); err != nil {
		return err
	}
	switch {
	case noNamespaces(se):
		return setupError(err)
	case se.Step == "enter "+in.spec.Workdir:
		return bailey.Errorf(bailey.CodeUsage, "start in "+in.spec.Workdir, "name a folder that exists inside with --workdir", "%w", se.Errno)
	case se.Errno == unix.ELOOP || se.Errno == unix.ENOTDIR:
		return bailey.Errorf(bailey.CodeSetupFailed, "create the sandbox", "",
			"%s: there is a link or a file where a folder has to be", se)
	}
	return bailey.Errorf(bailey.CodeSetupFailed, "create the sandbox", doctorFix, "%s", se)
}
