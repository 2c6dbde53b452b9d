package gatebench

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/netfilter"
)

// outletPort is where the gate's listeners are in a network namespace, as in a
// sandbox's.
const outletPort = 64053

// yard makes the network namespace of this thread like a sandbox's: every
// address is its own, and connections to other than loopback end at outletPort.
// It gives the listeners.
func yard() (tcp, udp *os.File, err error) {
	if err := loopbackUp(); err != nil {
		return nil, nil, fmt.Errorf("bring lo up: %w", err)
	}
	if err := tell(unix.NETLINK_ROUTE, netfilter.Routes(false)); err != nil {
		return nil, nil, fmt.Errorf("make all addresses local: %w", err)
	}
	if err := tell(unix.NETLINK_NETFILTER, netfilter.Rules(outletPort)); err != nil {
		return nil, nil, fmt.Errorf("redirect connections: %w", err)
	}
	if tcp, err = listener(unix.SOCK_STREAM); err != nil {
		return nil, nil, err
	}
	if udp, err = listener(unix.SOCK_DGRAM); err != nil {
		tcp.Close()
		return nil, nil, err
	}
	return tcp, udp, nil
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// tell gives a message to the kernel and takes its one answer.
func tell(protocol int, message []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
	switch {
	case err != nil:
		return err
	case n < unix.SizeofNlMsghdr+4:
		return unix.EBADMSG
	}
	if e := -int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); e != 0 {
		return unix.Errno(e)
	}
	return nil
}

func listener(kind int) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "listener")
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: outletPort}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 4096); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// lookup asks the gate for the address that a name has inside.
func lookup(name string) (net.IP, error) {
	c, err := net.Dial("udp", net.JoinHostPort(driver.GateAddr4.String(), "53"))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(10 * time.Second))
	conn := &dns.Conn{Conn: c}
	q := new(dns.Msg)
	q.SetQuestion(name+".", dns.TypeA)
	if err := conn.WriteMsg(q); err != nil {
		return nil, err
	}
	m, err := conn.ReadMsg()
	if err != nil {
		return nil, err
	}
	for _, rr := range m.Answer {
		if a, ok := rr.(*dns.A); ok {
			return a.A, nil
		}
	}
	return nil, fmt.Errorf("the gate gives no address for %s: %s", name, dns.RcodeToString[m.Rcode])
}

func at(ip string, port int) string { return net.JoinHostPort(ip, strconv.Itoa(port)) }
