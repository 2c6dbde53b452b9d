//go:build linux && (amd64 || arm64)

// Command bailey-boot is the first process of a virtual machine of Bailey's. It
// loads the kernel's modules, mounts the root that the host serves over one port
// (package share), and starts itself again in namespaces of their own, where it
// becomes bailey-init, which speaks to its owner over another port. What runs in
// the sandbox sees neither this process nor the file system that it lies in.
//
// It is a program of its own because it serves the root: it may not wait for a
// file of that root, which bailey-init does all the time, and no process inside may
// end it by a signal to all.
//
// The kernel's command line tells it what to do, in words that begin with
// "bailey.": host=NAME, net=1, pids=N.
package main

import (
	"errors"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == stageTwo {
		fail("enter the sandbox", enter())
	}
	if os.Getpid() != 1 {
		os.Stderr.WriteString("bailey-boot: this is the first process of a virtual machine\n")
		os.Exit(2)
	}
	code, err := boot()
	if err != nil {
		os.Stderr.WriteString("bailey-boot: " + err.Error() + "\n")
		code = 2
	}
	_ = code
	unix.Sync()
	// The monitor ends at a reboot as at a power off; a microvm has no power to cut.
	unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	select {}
}

func fail(what string, err error) {
	if err != nil {
		os.Stderr.WriteString("bailey-boot: cannot " + what + ": " + err.Error() + "\n")
	}
	os.Exit(2)
}

// words are the kernel's command line as it concerns this program.
func words() map[string]string {
	m := map[string]string{}
	b, _ := os.ReadFile("/proc/cmdline")
	for _, w := range strings.Fields(string(b)) {
		if w, ok := strings.CutPrefix(w, "bailey."); ok {
			k, v, _ := strings.Cut(w, "=")
			m[k] = v
		}
	}
	return m
}

const (
	stageTwo  = "enter"
	rootAt    = "/root"
	agentFile = "/bailey-init"
)

func boot() (int, error) {
	for _, m := range [][2]string{{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}} {
		if err := unix.Mount(m[0], m[1], m[0], 0, ""); err != nil && err != unix.EBUSY {
			return 2, errors.New("mount " + m[1] + ": " + err.Error())
		}
	}
	if err := loadModules(); err != nil {
		return 2, err
	}
	w := words()
	name := w["host"]
	if name == "" {
		name = "sandbox"
	}
	if err := unix.Sethostname([]byte(name)); err != nil {
		return 2, err
	}
	if err := network(w["net"] != ""); err != nil {
		return 2, err
	}
	files, err := openPort("files")
	if err != nil {
		return 2, err
	}
	agent, err := openPort("agent")
	if err != nil {
		return 2, err
	}
	if err := mountRoot(files); err != nil {
		return 2, err
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"bailey-boot", stageTwo}, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{agent.Fd(), agent.Fd(), 2},
		Sys:   &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWIPC, Setsid: true},
	})
	if err != nil {
		return 2, err
	}
	agent.Close()
	for {
		var ws syscall.WaitStatus
		got, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 2, err
		}
		if got == pid {
			return ws.ExitStatus(), nil
		}
	}
}

// enter is the second stage: the first process of the sandbox's own namespaces,
// which becomes bailey-init.
func enter() error {
	agent, err := unix.Open(agentFile, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.Umask(0)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	const calm = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV
	for _, m := range []struct {
		kind, at string
		flags    uintptr
		data     string
	}{
		{"proc", "/proc", calm, ""}, {"sysfs", "/sys", calm, ""}, {"tmpfs", "/dev", unix.MS_NOSUID | unix.MS_NOEXEC, "mode=0755,size=64k"},
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5"},
		{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"}, {"mqueue", "/dev/mqueue", calm, ""},
		{"cgroup2", "/sys/fs/cgroup", calm, ""},
	} {
		at := rootAt + m.at
		if strings.Count(m.at, "/") == 1 || strings.HasPrefix(m.at, "/dev/") {
			os.Mkdir(at, 0o755)
		}
		if err := unix.Mount(m.kind, at, m.kind, m.flags, m.data); err != nil && m.kind != "mqueue" && m.kind != "cgroup2" {
			return errors.New("mount " + m.at + ": " + err.Error())
		}
	}
	if err := devices(); err != nil {
		return err
	}
	if err := showAgent(); err != nil {
		return err
	}
	if err := unix.Chdir(rootAt); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot("."), unix.Chdir("/")); err != nil {
		return err
	}
	unix.Umask(0o022)
	limitPids(words()["pids"])
	os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
	return execAt(agent, []string{"bailey-init", "--stdio"}, []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "GOMAXPROCS=1", "GOGC=50"})
}

// devices makes the nodes and links of /dev that every sandbox has, and no other
// of the machine's.
func devices() error {
	for _, d := range []struct {
		name         string
		major, minor uint32
	}{{"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}} {
		if err := unix.Mknod(rootAt+"/dev/"+d.name, unix.S_IFCHR|0o666, int(unix.Mkdev(d.major, d.minor))); err != nil {
			return errors.New("make /dev/" + d.name + ": " + err.Error())
		}
	}
	for _, l := range [][2]string{{"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"}, {"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
		{"pts/ptmx", "ptmx"}, {"/proc/kcore", "core"}} {
		if err := os.Symlink(l[0], rootAt+"/dev/"+l[1]); err != nil {
			return err
		}
	}
	return nil
}

// showAgent shows bailey-init in the sandbox: it is what ports are reached by.
func showAgent() error {
	at := rootAt + "/dev/.bailey-init"
	if err := os.WriteFile(at, nil, 0o555); err != nil {
		return err
	}
	return unix.Mount(agentFile, at, "", unix.MS_BIND, "")
}

// limitPids puts this process, and so the whole sandbox, into a group with a bound of
// processes.
func limitPids(n string) {
	const top = "/sys/fs/cgroup"
	if n == "" || os.WriteFile(top+"/cgroup.subtree_control", []byte("+pids"), 0) != nil || os.Mkdir(top+"/sandbox", 0o755) != nil {
		return
	}
	if os.WriteFile(top+"/sandbox/pids.max", []byte(n), 0) == nil {
		os.WriteFile(top+"/sandbox/cgroup.procs", []byte("0"), 0)
	}
}
