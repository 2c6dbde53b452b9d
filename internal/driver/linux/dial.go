package linux

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

const dialTag = 'd'

// Dial connects to a port of the sandbox's loopback. A socket is of the network
// namespace that it was made in for good: a child makes it there, and everything
// else happens here.
func (in *instance) Dial(ctx context.Context, port int) (net.Conn, error) {
	fail := func(code bailey.Code, err error) error {
		return bailey.Errorf(code, fmt.Sprintf("connect to port %d of the sandbox", port), "", "%w", err)
	}
	if port < 1 || port > 65535 {
		return nil, bailey.Errorf(bailey.CodeUsage, "connect to a port of the sandbox", "use 1 to 65535", "%d is no port", port)
	}
	if err := ctx.Err(); err != nil {
		return nil, fail(bailey.CodeNotAvailable, err)
	}
	addresses := []unix.Sockaddr{&unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}}
	if hostIPv6() {
		addresses = append(addresses, &unix.SockaddrInet6{Port: port, Addr: [16]byte{15: 1}})
	}
	var refused error
	for _, a := range addresses {
		s, err := in.socket(a)
		if errors.Is(err, errEnded) {
			return nil, fail(bailey.CodeSandboxLost, errors.New("it has ended"))
		}
		if err != nil {
			return nil, fail(bailey.CodeSetupFailed, err)
		}
		err = connect(ctx, s, a)
		if err == nil {
			conn, err := net.FileConn(s)
			s.Close()
			if err != nil {
				return nil, fail(bailey.CodeSetupFailed, err)
			}
			return conn, nil
		}
		s.Close()
		if refused == nil {
			refused = err
		}
		if ctx.Err() != nil {
			refused = ctx.Err()
			break
		}
	}
	return nil, fail(bailey.CodeNotAvailable, refused)
}

// socket makes a TCP socket in the sandbox's network namespace.
func (in *instance) socket(to unix.Sockaddr) (*os.File, error) {
	family := unix.AF_INET
	if _, ok := to.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	err = in.visit(in.id, func(b *builder, pidfd int) {
		flags := unix.CLONE_NEWNET
		if !b.id.rooted() {
			flags |= unix.CLONE_NEWUSER // the network belongs to it, and so do the rights
		}
		b.Do("enter the network namespace", unix.SYS_SETNS, spawn.Int(pidfd), spawn.Int(flags))
		h := newHandover(dialTag)
		h.from(b.Do("make a socket", unix.SYS_SOCKET, spawn.Int(family), spawn.Int(unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), zero))
		b.send("hand out the socket", pair[1], h)
	})
	if err != nil {
		return nil, err
	}
	fd, err := receive(pair[0], dialTag)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "port"), nil
}

// connect connects a socket that does not block, until ctx ends.
func connect(ctx context.Context, s *os.File, to unix.Sockaddr) error {
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var cerr error
	if err := raw.Control(func(fd uintptr) { cerr = unix.Connect(int(fd), to) }); err != nil {
		return err
	}
	if cerr != unix.EINPROGRESS && cerr != unix.EINTR {
		return os.NewSyscallError("connect", cerr)
	}
	stop := context.AfterFunc(ctx, func() { s.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	err = raw.Write(func(fd uintptr) bool {
		var n int
		if n, cerr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); cerr != nil {
			return true
		}
		if n != 0 {
			cerr = syscall.Errno(n)
			return true
		}
		_, cerr = unix.Getpeername(int(fd))
		return cerr != unix.ENOTCONN
	})
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return os.NewSyscallError("connect", cerr)
}
