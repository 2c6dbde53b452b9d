//go:build linux

package main

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

type child struct{ *os.Process }

func (c child) String() string { return strconv.Itoa(c.Pid) }
func (c child) kill()          { c.Process.Kill(); c.Process.Wait() }

// start runs a program that says nothing on the channel.
func start(args ...string) (child, error) {
	cmd := exec.Command(args[0], args[1:]...)
	// A child must be at its program before it is of use, and is: Start returns
	// after execve.
	cmd.Stderr = os.Stderr
	err := cmd.Start()
	return child{cmd.Process}, err
}

func itoa(n int) string { return strconv.Itoa(n) }

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// again executes this program with other arguments in place of the attack.
func again(attr *syscall.SysProcAttr, args ...string) error {
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if attr.Cloneflags&unix.CLONE_NEWUSER != 0 {
		// Without a name in its namespace the program would lose its rights.
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	cmd.SysProcAttr = attr
	return cmd.Run()
}

func init() {
	// victim SECRET: not an attack, but the process of the host that attacks are
	// made on. It drops every capability, as an ordinary process has none.
	attacks["victim"] = func(args []string) error {
		if len(args) == 2 { // the first time
			for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
				unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			}
			return unix.Exec("/proc/self/exe", []string{"victim", "victim", args[0], args[1], "ready"}, os.Environ())
		}
		unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0)
		secret := []byte("in memory: " + args[0] + "\x00")
		fd, err := unix.Open(args[1], unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		fmt.Printf("%d %d %d\n", uintptr(unsafe.Pointer(&secret[0])), len(secret), fd)
		unix.Read(0, make([]byte, 1)) // until the suite has finished
		_ = secret[0]
		return nil
	}
	attacks["kill"] = func(args []string) error {
		return unix.Kill(number(args[0]), unix.Signal(number(args[1])))
	}
	attacks["kill-parent"] = func([]string) error { return unix.Kill(os.Getppid(), unix.SIGKILL) }
	attacks["ptrace"] = func(args []string) error {
		pid := number(args[0])
		// PTRACE_SEIZE does not stop the process. The end of this one lets go of it.
		if err := unix.PtraceSeize(pid); err != nil {
			return err
		}
		tell("attached")
		return nil
	}
	attacks["ptrace-parent"] = func([]string) error { return attacks["ptrace"]([]string{itoa(os.Getppid())}) }
	// memory-read PID ADDRESS LENGTH
	attacks["vm-read"] = func(args []string) error {
		buf := make([]byte, number(args[2]))
		_, err := unix.ProcessVMReadv(number(args[0]), []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}},
			[]unix.RemoteIovec{{Base: uintptr(number(args[1])), Len: len(buf)}}, 0)
		if err == nil {
			tell("loot " + string(buf))
		}
		return err
	}
	attacks["vm-write"] = func(args []string) error {
		buf := []byte(args[2])
		_, err := unix.ProcessVMWritev(number(args[0]), []unix.Iovec{{Base: &buf[0], Len: uint64(len(buf))}},
			[]unix.RemoteIovec{{Base: uintptr(number(args[1])), Len: len(buf)}}, 0)
		return err
	}
	// poke PID ADDRESS TEXT: writes another process's memory through /proc.
	attacks["poke"] = func(args []string) error {
		fd, err := unix.Open("/proc/"+args[0]+"/mem", unix.O_RDWR, 0)
		if err != nil {
			return err
		}
		_, err = unix.Pwrite(fd, []byte(args[2]), int64(number(args[1])))
		return err
	}
	// steal PID FD: takes another process's descriptor.
	attacks["steal"] = func(args []string) error {
		pid := number(args[0])
		if pid == 0 {
			pid = os.Getppid()
		}
		p, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			return failed("pidfd_open", err)
		}
		fd, err := unix.PidfdGetfd(p, number(args[1]), 0)
		if err != nil {
			return failed("pidfd_getfd", err)
		}
		tell("loot", fd)
		return nil
	}
	attacks["open-parent"] = func(args []string) error {
		return attacks["open"]([]string{filepath.Join("/proc", itoa(os.Getppid()), args[0]), args[1]})
	}
	attacks["renice"] = func(args []string) error {
		return unix.Setpriority(unix.PRIO_PROCESS, number(args[0]), 11)
	}
	attacks["prlimit"] = func(args []string) error {
		return unix.Prlimit(number(args[0]), unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 77, Max: 77}, nil)
	}
	attacks["affinity"] = func(args []string) error {
		var set unix.CPUSet
		set.Set(0)
		return unix.SchedSetaffinity(number(args[0]), &set)
	}
	// processes: sends the command line of every process there is.
	attacks["processes"] = func([]string) error {
		names, err := filepath.Glob("/proc/[0-9]*/cmdline")
		var all strings.Builder
		for _, n := range names {
			b, _ := os.ReadFile(n)
			all.Write(b)
			all.WriteByte('\n')
		}
		tell("loot " + all.String())
		return err
	}
	// hold: waits, so that the suite can look at this process.
	attacks["hold"] = func([]string) error { tell("look"); return nil }
	// exec PROGRAM ARGS...: becomes another program.
	attacks["exec"] = func(args []string) error { return unix.Exec(args[0], args, os.Environ()) }
	attacks["setuid"] = func(args []string) error {
		id := uintptr(number(args[0]))
		_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, id, id, id)
		if e == 0 {
			tell("look")
		}
		return errno(e)
	}
	attacks["ambient"] = func(args []string) error {
		c := uintptr(number(args[0]))
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			return err
		}
		data[0].Inheritable |= 1 << c
		data[0].Effective |= 1 << c
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			return failed("capset", err)
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0); err != nil {
			return failed("ambient", err)
		}
		tell("look")
		return nil
	}
	attacks["hostname"] = func(args []string) error { return unix.Sethostname([]byte(args[0])) }
	attacks["uname"] = func([]string) error {
		var u unix.Utsname
		err := unix.Uname(&u)
		tell("loot " + unix.ByteSliceToString(u.Nodename[:]))
		return err
	}
	// fork N: starts N processes and lets the suite count.
	attacks["fork"] = func(args []string) (err error) {
		for range number(args[0]) {
			if _, e := start("/bin/sleep", "30"); e != nil {
				err = e
				break
			}
		}
		tell("look")
		return err
	}
	// memory BYTES: touches so much.
	attacks["memory"] = func(args []string) error {
		b, err := unix.Mmap(-1, 0, number(args[0]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return err
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		tell("look")
		return nil
	}
	// shm BYTES: fills a file in memory.
	attacks["shm"] = func(args []string) error {
		f, err := os.Create("/dev/shm/filled")
		if err != nil {
			return err
		}
		chunk := make([]byte, 1<<20)
		for range number(args[0]) >> 20 {
			if _, err := f.Write(chunk); err != nil {
				return err
			}
		}
		tell("look", int(f.Fd()))
		return nil
	}
	// rlimit RESOURCE VALUE: raises a limit.
	attacks["rlimit"] = func(args []string) error {
		v := uint64(number(args[1]))
		_, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, uintptr(number(args[0])), uintptr(unsafe.Pointer(&unix.Rlimit{Cur: v, Max: v})), 0, 0, 0)
		if e == 0 {
			tell("look")
		}
		return errno(e)
	}
	// dump: dies with a core dump.
	attacks["dump"] = func([]string) error {
		var lim unix.Rlimit
		unix.Prlimit(0, unix.RLIMIT_CORE, nil, &lim)
		lim.Cur = lim.Max
		unix.Prlimit(0, unix.RLIMIT_CORE, &lim, nil)
		c, err := start("/bin/sleep", "30")
		if err != nil {
			return err
		}
		c.Signal(unix.SIGSEGV)
		c.Wait()
		return nil
	}
	// descriptor-bomb N: opens so many.
	attacks["descriptor-bomb"] = func(args []string) error {
		var lim unix.Rlimit
		unix.Prlimit(0, unix.RLIMIT_NOFILE, nil, &lim)
		lim.Cur = lim.Max
		unix.Prlimit(0, unix.RLIMIT_NOFILE, &lim, nil)
		var err error
		for range number(args[0]) {
			if _, err = unix.Open("/dev/null", unix.O_RDONLY, 0); err != nil {
				break
			}
		}
		tell("look")
		return err
	}
}
