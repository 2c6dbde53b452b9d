//go:build linux

package internet

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// frames records every frame that leaves the host but TCP segments, whose bytes
// the servers keep, and what keeps the link itself going.
func (w *World) frames(fd int) {
	unix.CloseOnExec(fd)
	stop, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		panic(err)
	}
	w.closers = append(w.closers, func() { unix.Write(stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	w.tasks.Go(func() {
		defer unix.Close(fd)
		defer unix.Close(stop)
		buf := make([]byte, 64<<10)
		for {
			polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(stop), Events: unix.POLLIN}}
			if _, err := unix.Poll(polled, -1); err != nil && err != unix.EINTR {
				return
			}
			if polled[1].Revents != 0 {
				return
			}
			if polled[0].Revents == 0 {
				continue
			}
			n, from, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
			if err != nil {
				continue
			}
			if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			w.frame(buf[:n])
		}
	})
}

const ethernetHeader = 14

// frame notes a frame unless it is TCP, ARP, neighbour discovery, or a datagram
// to a socket of the internet, which records it itself.
func (w *World) frame(b []byte) {
	if len(b) < ethernetHeader {
		return
	}
	kind, p := binary.BigEndian.Uint16(b[12:]), b[ethernetHeader:]
	var proto int
	var to, from netip.Addr
	var rest []byte
	switch {
	case kind == unix.ETH_P_ARP:
		return
	case kind == unix.ETH_P_IP && len(p) >= 20 && len(p) >= int(p[0]&15)*4:
		proto, from, to, rest = int(p[9]), netip.AddrFrom4([4]byte(p[12:16])), netip.AddrFrom4([4]byte(p[16:20])), p[int(p[0]&15)*4:]
	case kind == unix.ETH_P_IPV6 && len(p) >= 40:
		proto, from, to, rest = int(p[6]), netip.AddrFrom16([16]byte(p[8:24])), netip.AddrFrom16([16]byte(p[24:40])), p[40:]
		if proto == 0 && len(rest) >= 8 && rest[0] == unix.IPPROTO_ICMPV6 {
			return // multicast listener reports have a hop-by-hop header
		}
		const routerSolicitation, neighbourAdvertisement = 133, 136
		if proto == unix.IPPROTO_ICMPV6 && len(rest) > 0 && rest[0] >= routerSolicitation && rest[0] <= neighbourAdvertisement {
			return
		}
	default:
		w.Record.add(Event{Kind: "frame", Proto: fmt.Sprintf("ethertype %#04x", kind), Text: string(b)})
		return
	}
	if proto == unix.IPPROTO_TCP || proto == unix.IPPROTO_UDP && len(rest) >= 4 && binary.BigEndian.Uint16(rest[2:]) == 53 {
		return
	}
	const unreachable4, unreachable6 = 3, 1
	if len(rest) > 0 && (proto == unix.IPPROTO_ICMP && rest[0] == unreachable4 || proto == unix.IPPROTO_ICMPV6 && rest[0] == unreachable6) {
		return // the host says that nobody waits for an answer of the name server any more
	}
	w.Record.add(Event{Kind: "frame", Proto: fmt.Sprint("ip ", proto), Host: plan.HostAt(to), From: netip.AddrPortFrom(from, 0), To: netip.AddrPortFrom(to, 0), Text: string(p)})
}
