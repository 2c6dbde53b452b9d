package stream

import (
	"net"

	"golang.org/x/sys/unix"
)

// bytesOf gives what went through a stream in both directions; 0 if that cannot be
// known any more.
func bytesOf(c *net.TCPConn) (n uint64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_received + info.Bytes_acked
		}
	}) // it is closed: leave will count it
	return n
}
