//go:build linux

package main

import (
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	// unshare FLAGS ATTACK...: goes on with ATTACK in new namespaces. The change
	// is made by a child, since a program of many threads cannot leave its user
	// namespace.
	attacks["unshare"] = func(args []string) error {
		return again(&syscall.SysProcAttr{Unshareflags: uintptr(number(args[0]))}, args[1:]...)
	}
	attacks["clone"] = func(args []string) error {
		return again(&syscall.SysProcAttr{Cloneflags: uintptr(number(args[0]))}, args[1:]...)
	}
	// clone3 FLAGS: makes a child by clone3 and waits for the suite to look at it.
	attacks["clone3"] = func(args []string) error {
		var pidfd int32 = -1
		a := &struct{ flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls uint64 }{
			flags: uint64(number(args[0])) | unix.CLONE_PIDFD, pidfd: uint64(uintptr(unsafe.Pointer(&pidfd))), exitSignal: uint64(unix.SIGCHLD),
		}
		pid, e := cloneThree(unsafe.Pointer(a), unsafe.Sizeof(*a))
		runtime.KeepAlive(a)
		if e != 0 {
			return e
		}
		tell("look "+itoa(pid), int(pidfd))
		unix.Kill(pid, unix.SIGKILL)
		_, err := unix.Wait4(pid, nil, 0, nil)
		return err
	}
	// mount-and ATTACK...: a file system of the attacker's own at DIR.
	attacks["mount"] = func(args []string) error { // DIR
		err := unix.Mount("escape", args[0], "tmpfs", 0, "size=4k")
		if err == nil {
			tell("mounted")
		}
		return err
	}
	attacks["bind"] = func(args []string) error { // FROM TO
		err := unix.Mount(args[0], args[1], "", unix.MS_BIND|unix.MS_REC, "")
		if err == nil {
			tell("mounted")
		}
		return err
	}
	attacks["remount"] = func(args []string) error { // DIR FILE TEXT
		if err := unix.Mount("", args[0], "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil {
			return failed("remount", err)
		}
		return attacks["write"](args[1:])
	}
	attacks["setattr"] = func(args []string) error { // DIR FILE TEXT
		err := unix.MountSetattr(unix.AT_FDCWD, args[0], unix.AT_RECURSIVE, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		if err != nil {
			return failed("mount_setattr", err)
		}
		return attacks["write"](args[1:])
	}
	attacks["uncover"] = func(args []string) error { // COVER FILE r|w
		if err := unix.Unmount(args[0], unix.MNT_DETACH); err != nil {
			return failed("umount", err)
		}
		return attacks["open"](args[1:])
	}
	attacks["fsmount"] = func(args []string) error { // DIR
		fs, err := unix.Fsopen("tmpfs", 0)
		if err != nil {
			return failed("fsopen", err)
		}
		_, _, e := unix.Syscall6(unix.SYS_FSCONFIG, uintptr(fs), unix.FSCONFIG_CMD_CREATE, 0, 0, 0, 0)
		if e != 0 {
			return failed("fsconfig", e)
		}
		m, err := unix.Fsmount(fs, 0, 0)
		if err != nil {
			return failed("fsmount", err)
		}
		return attach(m, args[0])
	}
	attacks["open-tree"] = func(args []string) error { // FROM TO
		fd, err := unix.OpenTree(unix.AT_FDCWD, args[0], unix.OPEN_TREE_CLONE)
		if err != nil {
			return failed("open_tree", err)
		}
		return attach(fd, args[1])
	}
	attacks["move"] = func(args []string) error { // FROM TO
		err := unix.MoveMount(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], 0)
		if err == nil {
			tell("mounted")
		}
		return err
	}
	attacks["pivot"] = func(args []string) error { // DIR
		if err := unix.Mount("escape", args[0], "tmpfs", 0, "size=4k"); err != nil {
			return failed("mount", err)
		}
		if err := unix.Chdir(args[0]); err != nil {
			return err
		}
		if err := unix.PivotRoot(".", "."); err != nil {
			return failed("pivot_root", err)
		}
		tell("pivoted")
		return nil
	}
	attacks["fresh-proc"] = func(args []string) error { // DIR FILE r|w
		if err := unix.Mount("proc", args[0], "proc", 0, ""); err != nil {
			return failed("mount", err)
		}
		return attacks["open"]([]string{args[0] + "/" + args[1], args[2]})
	}
	attacks["cgroup"] = func(args []string) error { // DIR
		if err := unix.Mount("cgroup", args[0], "cgroup", 0, "freezer"); err != nil {
			return failed("mount", err)
		}
		return attacks["open"]([]string{args[0] + "/release_agent", "w"})
	}
	// setns NAMESPACE FILE: enters a mount namespace and reads FILE there.
	attacks["setns"] = func(args []string) error {
		ns, err := unix.Open(args[0], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		if err := unix.Unshare(unix.CLONE_FS); err != nil {
			return failed("unshare", err)
		}
		if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
			return failed("setns", err)
		}
		fd, err := unix.Open(args[1], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		return loot(fd)
	}
	attacks["swapon"] = func(args []string) error {
		p, err := unix.BytePtrFromString(args[0])
		if err != nil {
			return err
		}
		_, _, e := unix.Syscall(unix.SYS_SWAPON, uintptr(unsafe.Pointer(p)), 0, 0)
		answer(e)
		return errno(e)
	}
}

func attach(mount int, dir string) error {
	err := unix.MoveMount(mount, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err == nil {
		tell("mounted")
	}
	return failed("move_mount", err)
}

// answer tells how the kernel answered a call that must not take effect.
func answer(e unix.Errno) { tell("answer " + itoa(int(e))) }
