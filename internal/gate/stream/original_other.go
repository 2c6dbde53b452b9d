//go:build !linux

package stream

import (
	"errors"
	"net"
	"net/netip"
)

// redirectedFrom is not known on this system.
func redirectedFrom(*net.TCPConn) (netip.AddrPort, error) {
	return netip.AddrPort{}, errors.ErrUnsupported
}

// bytesOf is not known on this system.
func bytesOf(*net.TCPConn) uint64 { return 0 }
