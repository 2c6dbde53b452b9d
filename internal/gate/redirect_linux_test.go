package gate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/netfilter"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// network is a network namespace of which every way out ends at a listener.
type network struct {
	calls    chan func()
	tcp, udp *os.File
	v6       bool
}

// outletPort is the listeners' port in these tests.
const outletPort = 41000

// newNetwork makes one. A thread stays in it until the test ends.
func newNetwork(t *testing.T) *network {
	n := &network{calls: make(chan func())}
	ready, ended := make(chan error), make(chan bool)
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: the thread ends
		ready <- n.build()
		for f := range n.calls {
			f()
		}
	}()
	t.Cleanup(func() { close(n.calls); <-ended })
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *network) build() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		return err
	}
	if err := toKernel(unix.NETLINK_ROUTE, netfilter.Routes(false)); err != nil {
		return err
	}
	n.v6 = toKernel(unix.NETLINK_ROUTE, netfilter.Routes(true)) == nil
	if err := toKernel(unix.NETLINK_NETFILTER, netfilter.Rules(outletPort)); err != nil {
		return err
	}
	address := fmt.Sprintf(":%d", outletPort)
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	defer u.Close()
	if n.tcp, err = l.(*net.TCPListener).File(); err != nil {
		return err
	}
	n.udp, err = u.(*net.UDPConn).File()
	return err
}

// toKernel sends a netlink message and gives the first answer.
func toKernel(protocol int, message []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	k, _, err := unix.Recvfrom(fd, answer, 0)
	if err == nil && k >= 20 {
		if code := int32(binary.NativeEndian.Uint32(answer[unix.SizeofNlMsghdr:])); code != 0 {
			err = unix.Errno(-code)
		}
	}
	return err
}

// try connects from inside.
func (n *network) try(t *testing.T, kind, to string) (c net.Conn, err error) {
	done := make(chan bool)
	n.calls <- func() {
		defer close(done)
		// A dialer without happy eyeballs stays on its goroutine, and so in the namespace.
		c, err = (&net.Dialer{Timeout: patience, FallbackDelay: -1}).DialContext(context.Background(), kind, to)
	}
	<-done
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(patience))
	return c, nil
}

// dial connects from inside to what lets it.
func (n *network) dial(t *testing.T, kind, to string) net.Conn {
	t.Helper()
	c, err := n.try(t, kind, to)
	if err != nil {
		t.Fatalf("%s: %v", to, err)
	}
	return c
}

// What the kernel redirects is led to the name behind the address: the whole way
// of a stream, over both families, with names asked for at any server.
func TestRedirect(t *testing.T) {
	testneeds.Root(t, "a network namespace")
	n := newInternet(t, map[string][][]string{"db.test": {{"127.0.10.1"}}})
	port := n.serve(t, "127.0.10.1:0", n.echo)
	y := newYard(t, n, parse(t, fmt.Sprintf("hosts: [db.test], protocol: tcp, ports: ['%d']", port)))
	inside := newNetwork(t)
	b, err := y.server.Add(Sandbox{ID: "inside", Policy: y.box.version.Load().policy, Web: y.web})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Serve(inside.tcp, inside.udp); err != nil {
		t.Fatal(err)
	}
	servers := []string{"198.18.0.1:53", "8.8.8.8:53"}
	if inside.v6 {
		servers = append(servers, "[fdba:11e4::1]:53", "[2001:4860:4860::8888]:53")
	}
	var addresses []netip.Addr
	for _, server := range servers {
		for kind, network := range map[uint16]string{dns.TypeA: "udp", dns.TypeAAAA: "tcp"} {
			q := new(dns.Msg)
			q.SetQuestion("db.test.", kind)
			// The answer comes from where the question went, or a connected socket does not take it.
			c := &dns.Conn{Conn: inside.dial(t, network, server)}
			if err := c.WriteMsg(q); err != nil {
				t.Fatal(err)
			}
			m, err := c.ReadMsg()
			if err != nil || len(m.Answer) != 1 {
				t.Fatalf("%s %s: %v, %v", network, server, m, err)
			}
			switch rr := m.Answer[0].(type) {
			case *dns.A:
				a, _ := netip.AddrFromSlice(rr.A)
				addresses = append(addresses, a)
			case *dns.AAAA:
				if a, _ := netip.AddrFromSlice(rr.AAAA); inside.v6 {
					addresses = append(addresses, a)
				}
			}
		}
	}
	for _, a := range addresses {
		c := inside.dial(t, "tcp", netip.AddrPortFrom(a, port).String())
		fmt.Fprint(c, "hello")
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	for i, r := range y.acts() {
		if r.Decision != "allow" || r.Egress.Host != "db.test" || r.Egress.Port != port {
			t.Errorf("%d: %+v %+v", i, r, r.Egress)
		}
	}
	for _, to := range []string{"8.8.8.8:443", "169.254.169.254:80", "198.18.0.1:80"} {
		// The reset may come before the connection is known to be there.
		if c, err := inside.try(t, "tcp", to); err == nil {
			isReset(t, c)
		} else if !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: %v", to, err)
		}
	}
	list := y.acts()
	if len(list) != len(addresses)+3 {
		t.Fatalf("%d records for %d streams and 3 refused", len(list), len(addresses))
	}
	for i, want := range []string{"literal_address", "metadata", "gate_port"} {
		if r := list[len(addresses)+i]; r.Reason != want || r.Decision != "deny" || r.Sandbox != "inside" {
			t.Errorf("%+v", r)
		}
	}
	proxy := inside.dial(t, "tcp", "198.18.0.1:3128")
	fmt.Fprint(proxy, socks("db.test", port))
	if _, err := io.ReadFull(proxy, make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(proxy, "hello")
	if _, err := io.ReadFull(proxy, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
}
