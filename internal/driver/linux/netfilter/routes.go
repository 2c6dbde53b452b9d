//go:build linux

package netfilter

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// loopbackIndex is the index of lo in every network namespace.
const loopbackIndex = 1

// Routes gives the message that makes every address of IPv4 or IPv6 one of the
// namespace's own, for a NETLINK_ROUTE socket: `ip route add local 0.0.0.0/0 dev
// lo src 127.0.0.1`, and `::/0` with `::1`. The source matters for datagrams: an
// answer leaves with it, and it must be the address that a redirected question
// was sent to. lo must be up. The kernel answers with one acknowledgement.
func Routes(v6 bool) []byte {
	family, source := byte(unix.AF_INET), []byte{127, 0, 0, 1}
	if v6 {
		family, source = unix.AF_INET6, append(make([]byte, 15), 1)
	}
	m := &batch{}
	m.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, func() {
		// struct rtmsg; no destination, so all of them.
		m.raw(family, 0, 0, 0, unix.RT_TABLE_LOCAL, unix.RTPROT_STATIC, unix.RT_SCOPE_HOST, unix.RTN_LOCAL, 0, 0, 0, 0)
		m.bytes(unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, loopbackIndex)...)
		m.bytes(unix.RTA_PREFSRC, source...)
	})
	return m.b
}
