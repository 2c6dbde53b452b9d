package names

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"
)

// idle is how long a client may keep a TCP connection without a query (RFC 7766,
// section 6.2.3, asks for some seconds).
const idle = 10 * time.Second

// ServeUDP answers queries from c until it is closed. Each answer leaves from
// the address that its query was sent to.
func (s *Responder) ServeUDP(ctx context.Context, c *net.UDPConn) error {
	if err := wantDestination(c); err != nil {
		return err
	}
	buf := make([]byte, maxQuery+1)
	for {
		n, session, err := dns.ReadFromSessionUDP(c, buf)
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			var temporary interface{ Temporary() bool } // an ICMP error that came back for an answer
			if errors.As(err, &temporary) && temporary.Temporary() && ctx.Err() == nil {
				continue
			}
			return err
		}
		if answer := s.Answer(ctx, buf[:n], false); answer != nil {
			// A client that cannot be answered asks again.
			dns.WriteToSessionUDP(c, answer, session)
		}
	}
}

// wantDestination has the kernel say of each datagram where it was sent to.
func wantDestination(c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var e4, e6 error
	if err := raw.Control(func(fd uintptr) {
		e4 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		e6 = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	}); err != nil {
		return err
	}
	if e4 != nil && e6 != nil {
		return errors.Join(e4, e6)
	}
	return nil
}

// ServeTCP answers the queries of one connection, one after the other, until it
// ends. It closes c.
func (s *Responder) ServeTCP(ctx context.Context, c net.Conn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var length [2]byte
	buf := make([]byte, maxQuery+1)
	for {
		c.SetDeadline(time.Now().Add(idle))
		if _, err := io.ReadFull(c, length[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(length[:]))
		// A query that is too long is answered from its first bytes, and ends the
		// connection.
		kept := buf[:min(n, len(buf))]
		if _, err := io.ReadFull(c, kept); err != nil {
			return
		}
		answer := s.Answer(ctx, kept, true)
		if answer == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil || n > maxQuery {
			return
		}
	}
}
