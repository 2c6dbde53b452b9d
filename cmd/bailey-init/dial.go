//go:build linux && (amd64 || arm64)

package main

import (
	"os"
	"strconv"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/guest"
	"golang.org/x/sys/unix"
)

// dial connects to a port of the loopback, 127.0.0.1 and then ::1, and joins descriptors 0 and 1 with the
// connection until both directions have ended. What it says on descriptor 2 begins with guest.DialConnected once it is connected.
func dial(port string) int {
	n, err := strconv.Atoi(port)
	if err != nil || n < 1 || n > 65535 {
		return fail("connect", strconv.ErrRange)
	}
	var first error
	for _, to := range []unix.Sockaddr{&unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}}, &unix.SockaddrInet6{Port: n, Addr: [16]byte{15: 1}}} {
		s, err := connect(to)
		if err == nil {
			os.Stderr.WriteString(guest.DialConnected)
			return join(s)
		}
		if first == nil {
			first = err
		}
	}
	code := fail("connect", first)
	if first == unix.ECONNREFUSED {
		code = guest.DialRefused
	}
	return code
}

func connect(to unix.Sockaddr) (int, error) {
	family := unix.AF_INET
	if _, ok := to.(*unix.SockaddrInet6); ok {
		family = unix.AF_INET6
	}
	s, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	for {
		switch err = unix.Connect(s, to); err {
		case nil:
			return s, nil
		case unix.EINTR: // it goes on by itself, and asking again tells
			continue
		case unix.EISCONN:
			return s, nil
		case unix.EALREADY:
			pfd := []unix.PollFd{{Fd: int32(s), Events: unix.POLLOUT}}
			unix.Poll(pfd, -1)
			continue
		}
		unix.Close(s)
		return -1, err
	}
}

// join copies both ways. Each end is handed on as it comes.
func join(s int) int {
	sent := make(chan bool, 1)
	go func() {
		ok := pour(s, 0)
		unix.Shutdown(s, unix.SHUT_WR)
		sent <- ok
	}()
	ok := pour(1, s)
	unix.Close(1)
	if !ok || !<-sent {
		return 1
	}
	return 0
}

// pour copies until the end of what it reads, and says whether that was a good one.
func pour(to, from int) bool {
	buf := make([]byte, 32<<10)
	for {
		n, err := syscall.Read(from, buf)
		if err == syscall.EINTR {
			continue
		}
		if n <= 0 || err != nil {
			return err == nil
		}
		for p := buf[:n]; len(p) > 0; {
			k, err := syscall.Write(to, p)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return false
			}
			p = p[k:]
		}
	}
}
