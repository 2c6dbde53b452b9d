//go:build linux

package internet

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// Sockets are the descriptors of the internet's namespace, by port. They are
// opened with the rights to do so and used without.
type Sockets struct {
	TCP, UDP map[int]int
	Host     map[int]int // services of the host, on all its addresses
	Frames   int         // a packet socket at the internet's end of the link
}

// The ports where something listens, on every address there is.
var (
	tcpPorts = []int{21, 22, 25, 53, 80, 443, 465, 853, 993, 1080, 3128, 4000, 5432, 6667, 8000, 8080, 8443, 9418}
	udpPorts = []int{53, 123, 443, 853, 3478, 4000, 5353, 5355}
	// hostPorts are where a dial that is led back to the host would end.
	hostPorts = []int{80, 443, 8443, plan.HostService}
)

func open() (s Sockets, err error) {
	s.TCP, s.UDP = map[int]int{}, map[int]int{}
	for _, port := range tcpPorts {
		if s.TCP[port], err = bound(unix.SOCK_STREAM, port); err != nil {
			return s, err
		}
		if err := unix.Listen(s.TCP[port], 512); err != nil {
			return s, err
		}
	}
	for _, port := range udpPorts {
		if s.UDP[port], err = bound(unix.SOCK_DGRAM, port); err != nil {
			return s, err
		}
	}
	if s.Frames, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(networkOrder(unix.ETH_P_ALL))); err != nil {
		return s, fmt.Errorf("open a packet socket: %w", err)
	}
	link, err := net.InterfaceByName(downlink)
	if err != nil {
		return s, err
	}
	if err := unix.SetsockoptInt(s.Frames, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20); err != nil {
		unix.SetsockoptInt(s.Frames, unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<20) // lost frames are counted
	}
	return s, unix.Bind(s.Frames, &unix.SockaddrLinklayer{Protocol: networkOrder(unix.ETH_P_ALL), Ifindex: link.Index})
}

// openHost opens the services of the host; the calling thread is in its network.
func (s *Sockets) openHost() (err error) {
	s.Host = map[int]int{}
	for _, port := range hostPorts {
		if s.Host[port], err = bound(unix.SOCK_STREAM, port); err != nil {
			return err
		}
		if err := unix.Listen(s.Host[port], 512); err != nil {
			return err
		}
	}
	return nil
}

// networkOrder is htons.
func networkOrder(v uint16) uint16 { return v<<8 | v>>8 }

// bound gives a socket at a port of all addresses of both families.
func bound(kind, port int) (int, error) {
	fd, err := unix.Socket(unix.AF_INET6, kind, 0)
	if err != nil {
		return fd, err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
		return fd, err
	}
	if err := unix.Bind(fd, &unix.SockaddrInet6{Port: port}); err != nil {
		return fd, fmt.Errorf("bind to port %d: %w", port, err)
	}
	return fd, nil
}

// listener takes a socket of the table.
func listener(fd int) (net.Listener, error) {
	f := take(fd)
	defer f.Close()
	return net.FileListener(f)
}

func (s Sockets) packets(port int) (*net.UDPConn, error) {
	f := take(s.UDP[port])
	defer f.Close()
	c, err := net.FilePacketConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UDPConn), nil
}

func take(fd int) *os.File {
	unix.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), "internet")
}
