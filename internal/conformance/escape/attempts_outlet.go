//go:build linux

package escape

import (
	"bytes"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/netfilter"
)

// somewhere is an address outside, and a port that a service inside has too.
const somewhere = "192.0.2.7:7007" // TEST-NET-1 of RFC 5737

// arrived says whether a connection waits at the sandbox's outlet.
func (f *field) arrived() bool {
	out, _ := f.slots["outlet"].(*driver.Outlet)
	if out == nil {
		return false
	}
	fd, _, err := unix.Accept4(int(out.TCP.Fd()), unix.SOCK_CLOEXEC)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
}

// evaded: a connection to somewhere has been handed over that is not at the outlet.
func evaded(f *field, m *message) bool {
	return carries(m, func(fd int) bool {
		peer, err := unix.Getpeername(fd)
		if err != nil || f.slots["outlet"] == nil {
			return false
		}
		var to net.TCPAddr
		switch a := peer.(type) {
		case *unix.SockaddrInet4:
			to = net.TCPAddr{IP: a.Addr[:], Port: a.Port}
		case *unix.SockaddrInet6:
			to = net.TCPAddr{IP: a.Addr[:], Port: a.Port}
		}
		return to.String() == somewhere && !f.arrived()
	})
}

// heardOutside is heard for a connection that may have ended at the outlet.
func heardOutside(f *field, m *message) bool {
	if m == nil || m.text != "done" {
		return false
	}
	for {
		select {
		case <-f.slots["heard"].(chan struct{}):
			e := f.slots["ear"].(*ear)
			e.mu.Lock()
			defer e.mu.Unlock()
			return bytes.Contains(e.all, []byte(f.nonce))
		case <-time.After(5 * time.Millisecond):
			if f.arrived() {
				return false
			}
		}
	}
}

// tookPort: a socket that listens at the outlet's port has been handed over.
func tookPort(_ *field, m *message) bool {
	return carries(m, func(fd int) bool {
		listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
		if err != nil || listens == 0 {
			return false
		}
		at, _ := unix.Getsockname(fd)
		switch a := at.(type) {
		case *unix.SockaddrInet4:
			return a.Port == linux.OutletPort
		case *unix.SockaddrInet6:
			return a.Port == linux.OutletPort
		}
		return false
	})
}

// withOutlet makes an attempt one of a sandbox that has a way to a gate. Nobody
// serves it: what arrives there waits.
func withOutlet(a Attempt) Attempt {
	arrange := a.arrange
	a.arrange = func(f *field) error {
		f.spec.Outlet = true
		return arrange(f)
	}
	return a
}

// outletAttempts are about the way past the gate.
func outletAttempts() []Attempt {
	const receives = "the service receives it"
	power := []Wall{linux.NoCaps}
	asRoot := []Wall{linux.NoUserNS}
	list := []Attempt{
		{Name: "outlet-rules", Tries: "remove the rules that lead to the gate", Seen: "a connection arrives that is not at the gate",
			Walls: append([]Wall{"seccomp.socket-families"}, power...), AsRoot: asRoot, landed: evaded,
			arrange: func(f *field) error { return f.attack("flush", netfilter.Table, somewhere) }},
		{Name: "outlet-interface", Tries: "make a network interface", Seen: "a socket arrives that knows it", Walls: power, AsRoot: asRoot,
			arrange: func(f *field) error {
				f.slots["name"] = f.nonce[len(f.nonce)-12:]
				return f.attack("interface", f.slots["name"].(string))
			},
			landed: func(f *field, m *message) bool {
				return carries(m, func(fd int) bool {
					ifr, err := unix.NewIfreq(f.slots["name"].(string))
					return err == nil && unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr) == nil && ifr.Uint32() > 0
				})
			}},
		{Name: "outlet-icmp", Tries: "send words to the host in an echo request", Seen: "the host hears them",
			Walls: append([]Wall{linux.NoNetNS}, power...), AsRoot: asRoot, RootOnly: true, Why: "an ordinary user may not make such packets on the host either",
			arrange: func(f *field) error {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_ICMP)
				if err != nil {
					return err
				}
				f.later(func() { unix.Close(fd) })
				f.slots["icmp"] = fd
				return f.attack("icmp", outerIP, f.nonce)
			},
			landed: func(f *field, m *message) bool {
				buf := make([]byte, 2048)
				for {
					n, _, err := unix.Recvfrom(f.slots["icmp"].(int), buf, 0)
					if err != nil {
						return false
					}
					if bytes.Contains(buf[:n], []byte(f.nonce)) {
						return true
					}
				}
			}},
		{Name: "outlet-loopback", Tries: "reach a service on the host's loopback address", Seen: receives, Walls: []Wall{linux.NoNetNS}, landed: heardOutside,
			arrange: func(f *field) error {
				l, err := net.Listen("tcp4", "127.0.0.1:0")
				if err != nil {
					return err
				}
				f.listen(l)
				return f.attack("dial", "tcp4", l.Addr().String(), f.nonce)
			}},
		{Name: "outlet-abstract", Tries: "talk to a service of the host by an abstract unix socket", Seen: receives,
			Walls: []Wall{linux.NoNetNS, linux.NoLandlock}, landed: heardOutside,
			arrange: func(f *field) error {
				l, err := net.Listen("unix", "@"+f.nonce+"-service")
				if err != nil {
					return err
				}
				f.listen(l)
				return f.attack("dial", "unix", "@"+f.nonce+"-service", f.nonce)
			}},
		{Name: "outlet-network", Tries: "reach a service in a network that only the host can route to", Seen: receives, Walls: []Wall{linux.NoNetNS}, landed: heardOutside,
			arrange: func(f *field) error {
				l, address, err := f.suite.peerListen()
				if err != nil {
					return err
				}
				f.listen(l)
				return f.attack("dial", "tcp4", address, f.nonce)
			}},
	}
	for i := range list {
		list[i] = withOutlet(list[i])
	}
	return list
}

// outletOthers are those without a control run.
func outletOthers() []Attempt {
	nested := func(name, tries string, flags int, attack ...string) Attempt {
		return Attempt{Name: name, Tries: tries, Seen: "a connection arrives that is not at the gate", landed: evaded,
			Why: "the network belongs to somebody else whatever is left out; the driver's tests try it without the filter",
			arrange: func(f *field) error {
				f.spec.NestedSandboxes = true
				return f.attack(append([]string{"unshare", strconv.Itoa(flags)}, attack...)...)
			}}
	}
	list := []Attempt{
		nested("outlet-nested", "become root of a user namespace, and remove the rules that lead to the gate", unix.CLONE_NEWUSER, "flush", netfilter.Table, somewhere),
		{Name: "outlet-port", Tries: "listen at the gate's port", Seen: "a socket that does arrives", Why: "the listener is there before the sandbox", landed: tookPort,
			arrange: func(f *field) error { return f.attack("port", strconv.Itoa(linux.OutletPort)) }},
		{Name: "outlet-listener", Tries: "take the gate's listener from another process", Seen: "it arrives", Why: "no process of the sandbox has ever executed with it", landed: tookPort,
			arrange: func(f *field) error { return f.attack("listeners") }},
	}
	for i := range list {
		list[i] = withOutlet(list[i])
	}
	return list
}
