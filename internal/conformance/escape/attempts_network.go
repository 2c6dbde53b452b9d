//go:build linux

package escape

import (
	"bytes"
	"net"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux"
)

// ear is a service of the host that remembers what it hears.
type ear struct {
	mu  sync.Mutex
	all []byte
}

func (e *ear) take(b []byte) {
	e.mu.Lock()
	e.all = append(e.all, b...)
	e.mu.Unlock()
}

// listen serves l until the run is over.
func (f *field) listen(l net.Listener) {
	e := &ear{}
	f.slots["ear"] = e
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 256)
			n, _ := c.Read(buf)
			e.take(buf[:n])
			c.Close()
			f.slots["heard"].(chan struct{}) <- struct{}{}
		}
	}()
	f.slots["heard"] = make(chan struct{}, 16)
	f.later(func() { l.Close() })
}

// heard: the host's service has received the nonce. The attacker has closed
// its connection by the time it says that it is done, so what it sent is there
// to be read, if not read yet.
func heard(f *field, m *message) bool {
	if m == nil || m.text != "done" {
		return false
	}
	<-f.slots["heard"].(chan struct{})
	e := f.slots["ear"].(*ear)
	e.mu.Lock()
	defer e.mu.Unlock()
	return bytes.Contains(e.all, []byte(f.nonce))
}

// networkAttempts are about the host's network.
func networkAttempts() []Attempt {
	netns := []Wall{linux.NoNetNS}
	const receives = "the service receives it"
	dials := func(name, network, address, tries string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: receives, Walls: netns, landed: heard,
			arrange: func(f *field) error {
				l, err := net.Listen(network, address)
				if err != nil {
					return err
				}
				f.listen(l)
				return f.attack("dial", network, l.Addr().String(), f.nonce)
			}}
	}
	sockets := func(name, tries string, family, kind, protocol int, a Attempt) Attempt {
		a.Name, a.Tries, a.Seen = name, tries, "the socket arrives"
		a.arrange = func(f *field) error { return f.attack("socket", itoa(family), itoa(kind), itoa(protocol)) }
		a.landed = gotSocket(family, kind, -1)
		if family == unix.AF_NETLINK {
			a.landed = gotSocket(family, kind, protocol)
		}
		return a
	}
	family := Attempt{Walls: []Wall{"seccomp.socket-families"}}
	raw := Attempt{Walls: []Wall{linux.NoCaps}, AsRoot: []Wall{linux.NoUserNS}}
	packet := Attempt{Walls: []Wall{"seccomp.socket-families", linux.NoCaps}, AsRoot: []Wall{linux.NoUserNS}}
	abstract := Attempt{Name: "abstract-socket", Tries: "talk to a service of the host by an abstract unix socket", Seen: receives,
		Walls: []Wall{linux.NoNetNS, linux.NoLandlock}, landed: heard,
		arrange: func(f *field) error {
			l, err := net.Listen("unix", "@"+f.nonce+"-service")
			if err != nil {
				return err
			}
			f.listen(l)
			return f.attack("dial", "unix", "@"+f.nonce+"-service", f.nonce)
		}}
	return []Attempt{
		dials("loopback", "tcp4", "127.0.0.1:0", "reach a service on the host's loopback address"),
		dials("loopback-6", "tcp6", "[::1]:0", "reach a service on the host's loopback address of IPv6"),
		{Name: "loopback-udp", Tries: "send a datagram to a service on the host's loopback address", Seen: receives, Walls: netns,
			arrange: func(f *field) error {
				c, err := net.ListenPacket("udp4", "127.0.0.1:0")
				if err != nil {
					return err
				}
				f.later(func() { c.Close() })
				raw, err := c.(*net.UDPConn).SyscallConn()
				f.slots["socket"] = raw
				f.attack("dial", "udp4", c.LocalAddr().String(), f.nonce)
				return err
			},
			landed: func(f *field, m *message) (ok bool) {
				if m == nil || m.text != "done" {
					return false
				}
				f.slots["socket"].(interface{ Control(func(uintptr)) error }).Control(func(fd uintptr) {
					buf := make([]byte, 256)
					n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
					ok = err == nil && string(buf[:n]) == f.nonce
				})
				return ok
			}},
		{Name: "other-network", Tries: "reach a service in a network that only the host can route to", Seen: receives, Walls: netns, landed: heard,
			arrange: func(f *field) error {
				l, address, err := f.suite.peerListen()
				if err != nil {
					return err
				}
				f.listen(l)
				return f.attack("dial", "tcp4", address, f.nonce)
			}},
		{Name: "interfaces", Tries: "see the host's network interfaces", Seen: "the name of one arrives", Walls: netns,
			arrange: func(f *field) error {
				f.slots["want"] = outerLink
				return f.attack("read", "/proc/net/dev")
			}, landed: gotText},
		{Name: "connections", Tries: "see the host's connections", Seen: "the address of a service arrives", Walls: netns,
			arrange: func(f *field) error {
				l, err := net.Listen("unix", "@"+f.nonce+"-seen")
				if err != nil {
					return err
				}
				f.later(func() { l.Close() })
				return f.attack("read", "/proc/net/unix")
			}, landed: gotNonce},
		abstract,
		sockets("raw-socket", "make packets of any kind", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, raw),
		sockets("packet-socket", "hear and make frames", unix.AF_PACKET, unix.SOCK_RAW, 0, packet),
		sockets("vsock", "reach the hypervisor's host", unix.AF_VSOCK, unix.SOCK_STREAM, 0, family),
		sockets("device-events", "hear the kernel's device events", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT, family),
		sockets("audit", "reach the kernel's audit", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT, family),
		sockets("socket-list", "list the kernel's sockets", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG, family),
		sockets("netfilter", "reach the kernel's packet filter", unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER, family),
		sockets("xdp-socket", "reach packets past the network stack", unix.AF_XDP, unix.SOCK_RAW, 0, packet),
	}
}

// queueAttempts are about the host's memory and queues between processes.
func queueAttempts() []Attempt {
	ipc := []Wall{linux.NoIPCNS}
	return []Attempt{
		{Name: "shared-memory-read", Tries: "read a System V segment of the host", Seen: "the secret arrives", Walls: ipc,
			arrange: func(f *field) error {
				key, b, err := f.segment()
				if err != nil {
					return err
				}
				copy(b, f.nonce)
				return f.attack("shm-read", itoa(key), itoa(len(f.nonce)))
			}, landed: gotNonce},
		{Name: "shared-memory-write", Tries: "change a System V segment of the host", Seen: "the segment changes", Walls: ipc,
			arrange: func(f *field) error {
				key, b, err := f.segment()
				f.slots["segment"] = b
				f.attack("shm-write", itoa(key), f.nonce)
				return err
			},
			landed: func(f *field, m *message) bool {
				return m == nil && bytes.HasPrefix(f.slots["segment"].([]byte), []byte(f.nonce))
			}},
		{Name: "message-queue", Tries: "send to a System V queue of the host", Seen: "the queue's owner receives it", Walls: ipc,
			arrange: func(f *field) error {
				key := f.key()
				id, err := f.messageQueue(key)
				f.slots["queue"] = id
				f.attack("msg-send", itoa(key), f.nonce)
				return err
			},
			landed: func(f *field, m *message) bool {
				return m == nil && receiveMessage(f.slots["queue"].(int)) == f.nonce
			}},
		{Name: "semaphore", Tries: "change a System V semaphore of the host", Seen: "its value changes", Walls: ipc,
			arrange: func(f *field) error {
				key := f.key()
				id, err := f.semaphore(key)
				f.slots["semaphore"] = id
				f.attack("sem-set", itoa(key), "42")
				return err
			},
			landed: func(f *field, m *message) bool {
				return m == nil && semaphoreValue(f.slots["semaphore"].(int)) == 42
			}},
		{Name: "posix-queue", Tries: "send to a POSIX queue of the host", Seen: "the queue's owner receives it", Walls: []Wall{linux.NoIPCNS, linux.NoLandlock},
			arrange: func(f *field) error {
				q, err := f.posixQueue(f.nonce)
				f.slots["queue"] = q
				f.attack("mq-send", f.nonce, f.nonce)
				return err
			},
			landed: func(f *field, m *message) bool {
				return m == nil && receivePosix(f.slots["queue"].(int)) == f.nonce
			}},
	}
}
