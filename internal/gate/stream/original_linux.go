package stream

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST have the same number
// (linux/netfilter_ipv4.h, linux/netfilter_ipv6/ip6_tables.h).
const soOriginalDst = 80

// redirectedFrom asks the kernel's connection tracking where a stream was going.
// A stream that was not redirected was going where it arrived.
func redirectedFrom(c *net.TCPConn) (netip.AddrPort, error) {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%s is no TCP address", c.LocalAddr())
	}
	here := local.AddrPort()
	raw, err := c.SyscallConn()
	if err != nil {
		return netip.AddrPort{}, err
	}
	var dst netip.AddrPort
	var failed error
	err = raw.Control(func(fd uintptr) {
		if here.Addr().Unmap().Is4() {
			var sa unix.RawSockaddrInet4
			if failed = getsockopt(fd, unix.SOL_IP, unsafe.Pointer(&sa), unsafe.Sizeof(sa)); failed == nil {
				dst = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), port(sa.Port))
			}
			return
		}
		var sa unix.RawSockaddrInet6
		if failed = getsockopt(fd, unix.SOL_IPV6, unsafe.Pointer(&sa), unsafe.Sizeof(sa)); failed == nil {
			dst = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), port(sa.Port))
		}
	})
	switch {
	case err != nil:
		return netip.AddrPort{}, err
	case failed == unix.ENOENT || failed == unix.ENOPROTOOPT: // not tracked; no connection tracking
		return here, nil
	case failed != nil:
		return netip.AddrPort{}, failed
	}
	return dst, nil
}

func getsockopt(fd uintptr, level int, p unsafe.Pointer, size uintptr) error {
	n := uint32(size)
	_, _, e := syscall.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), soOriginalDst, uintptr(p), uintptr(unsafe.Pointer(&n)), 0)
	if e != 0 {
		return e
	}
	return nil
}

// port reads a port that is in network order in a number of the host's.
func port(p uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], p)
	return binary.BigEndian.Uint16(b[:])
}
