//go:build linux

package escape

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The network that the suite can reach and no sandbox may: a pair of
// interfaces whose other end lies in a namespace of its own.
const (
	outerLink = "escape-out"
	peerLink  = "escape-peer"
	outerIP   = "198.51.100.1" // TEST-NET-2 of RFC 5737
	peerIP    = "198.51.100.2"
	outerName = "outer-host"
)

// Outer prepares a command to run as first process of namespaces that are
// "the host" for a suite: processes, network, queues, names and mounts of its
// own. When the caller is not root they belong to a user namespace.
func Outer(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Geteuid(), HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getegid(), HostID: os.Getegid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN}
	}
}

// Furnish completes the namespaces that Outer's command finds itself in.
func Furnish() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("detach from the mounts outside: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Sethostname([]byte(outerName)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	for _, line := range []string{
		"link set lo up",
		"link add " + outerLink + " type veth peer name " + peerLink,
		"addr add " + outerIP + "/24 dev " + outerLink,
		"link set " + outerLink + " up",
	} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", line, err, out)
		}
	}
	return nil
}

// peerListeners is how many services the peer network has: each is used once.
const peerListeners = 64

// PeerNetwork moves the peer interface to a namespace of its own and gives
// services that listen there, as descriptors that survive an exec.
func PeerNetwork() (fds []int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread is of another network
		var home *os.File
		if home, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return
		}
		defer home.Close()
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		for _, line := range []string{
			// The interface is pushed from its old namespace to this thread.
			"nsenter --net=/proc/self/fd/3 ip link set " + peerLink + " netns " + fmt.Sprint(unix.Gettid()),
			"ip addr add " + peerIP + "/24 dev " + peerLink,
			"ip link set " + peerLink + " up",
		} {
			args := strings.Fields(line)
			cmd := exec.Command(args[0], args[1:]...)
			cmd.ExtraFiles = []*os.File{home}
			var out []byte
			if out, err = cmd.CombinedOutput(); err != nil {
				err = fmt.Errorf("%s: %w: %s", line, err, out)
				return
			}
		}
		for range peerListeners {
			var fd int
			if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
				return
			}
			if err = unix.Listen(fd, 1); err != nil { // binds to a free port of every address
				return
			}
			fds = append(fds, fd)
		}
	}()
	<-done
	return fds, err
}

// peerListen gives a service in the peer network and its address.
func (s *Suite) peerListen() (net.Listener, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.Peers) == 0 {
		return nil, "", fmt.Errorf("the peer network has no services left")
	}
	f := os.NewFile(uintptr(s.Peers[0]), "service")
	s.Peers = s.Peers[1:]
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return l, net.JoinHostPort(peerIP, port), err
}
