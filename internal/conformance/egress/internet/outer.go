//go:build linux

package internet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

const (
	uplink   = "uplink" // the host's end
	downlink = "downlink"
	gateway4 = "100.64.7.1"
	gateway6 = "fd64:7::1"
)

// Outer prepares a command to run as first process of namespaces that are "the
// host": processes, network and mounts of its own. When the caller is not root
// they belong to a user namespace, in which the command keeps its user.
func Outer(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE}
	}
}

// Furnish completes the namespaces that Outer's command finds itself in: mounts,
// both networks, and the internet's sockets, which survive an exec. dir takes the
// files that stand for the host's.
func Furnish(dir string, ca *Authority) (s Sockets, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return s, fmt.Errorf("detach from the mounts outside: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return s, fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Sethostname([]byte("egress-host")); err != nil {
		return s, fmt.Errorf("set the host name: %w", err)
	}
	if err := replace(dir, ca); err != nil {
		return s, err
	}
	if err := ip("link set lo up", "link add "+uplink+" type veth peer name "+downlink); err != nil {
		return s, err
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread is of another network
		var err error
		s, err = settle()
		done <- err
	}()
	if err := <-done; err != nil {
		return s, err
	}
	if err := s.openHost(); err != nil {
		return s, err
	}
	return s, ip("addr add "+plan.HostOwn4.String()+"/30 dev "+uplink, "-6 addr add "+plan.HostOwn6.String()+"/64 dev "+uplink+" nodad",
		"link set "+uplink+" up", "route add default via "+gateway4, "-6 route add default via "+gateway6)
}

// settle makes the internet's namespace from the calling thread, which stays there.
func settle() (s Sockets, err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return s, err
	}
	defer home.Close()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return s, fmt.Errorf("make the internet's network: %w", err)
	}
	move := exec.Command("nsenter", "--net=/proc/self/fd/3", "ip", "link", "set", downlink, "netns", fmt.Sprint(unix.Gettid()))
	move.ExtraFiles = []*os.File{home}
	if out, err := move.CombinedOutput(); err != nil {
		return s, fmt.Errorf("%v: %w: %s", move.Args, err, out)
	}
	if err := ip("link set lo up", "addr add "+gateway4+"/30 dev "+downlink, "-6 addr add "+gateway6+"/64 dev "+downlink+" nodad",
		"link set "+downlink+" up", "route add local 0.0.0.0/0 dev lo table main", "-6 route add local ::/0 dev lo table main"); err != nil {
		return s, err
	}
	return open()
}

func ip(lines ...string) error {
	for _, line := range lines {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// resolvConf and bundles are the host's files that the world replaces.
const resolvConf = "/etc/resolv.conf"

var bundles = []string{"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"}

// Resolver is the file that is the host's resolv.conf; tests may write to it.
func Resolver(dir string) string { return filepath.Join(dir, "resolv.conf") }

// replace mounts files of the world over those of the host.
func replace(dir string, ca *Authority) error {
	if err := os.WriteFile(Resolver(dir), []byte("nameserver "+plan.NameServer.String()+"\n"), 0o644); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks(resolvConf)
	if err != nil {
		return err
	}
	if err := unix.Mount(Resolver(dir), target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("replace %s: %w", target, err)
	}
	found := errors.New("the host has no certificate bundle")
	for i, name := range bundles {
		target, err := filepath.EvalSymlinks(name)
		if err != nil {
			continue
		}
		roots, err := os.ReadFile(target)
		if err != nil {
			return err
		}
		file := filepath.Join(dir, fmt.Sprintf("bundle-%d.pem", i))
		if err := os.WriteFile(file, append(roots, ca.PEM()...), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("replace %s: %w", target, err)
		}
		found = nil
	}
	return found
}
