package linux

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/netfilter"
)

// What the test program does inside a sandbox with an outlet. Everything that it
// finds is printed, one line each.
func init() {
	insides["talk"] = func(args []string) error {
		for _, to := range args {
			fmt.Println(to, talk("tcp", to))
		}
		return nil
	}
	insides["ask"] = func(args []string) error {
		for _, to := range args {
			fmt.Println(to, ask(to))
		}
		return nil
	}
	insides["own"] = own
	insides["port"] = func([]string) error { return gatesPort() }
	insides["refused"] = func([]string) error { return refused() }
	insides["many"] = many
	insides["descriptors"] = func([]string) error {
		list, err := filepath.Glob("/proc/self/fd/*")
		for _, name := range list {
			if to, err := os.Readlink(name); err == nil && strings.HasPrefix(to, "socket:") {
				fmt.Println(name, to)
			}
		}
		return err
	}
	insides["wait"] = func([]string) error {
		c, err := net.Dial("tcp", "192.0.2.1:80")
		if err != nil {
			return err
		}
		fmt.Println("connected")
		_, err = io.ReadAll(c) // nobody answers
		return err
	}
	insides["lines"] = func([]string) error {
		for {
			var line string
			if _, err := fmt.Scanln(&line); err != nil {
				return nil
			}
			fmt.Println(talk("tcp", "192.0.2.1:80"))
		}
	}
}

// patience bounds what must not wait. Nothing takes it but a fault.
const patience = 30 * time.Second

// talk connects, says hello and gives what comes back.
func talk(network, to string) string {
	c, err := net.DialTimeout(network, to, patience)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	io.WriteString(c, "hello")
	c.(*net.TCPConn).CloseWrite()
	b, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// ask sends a datagram from a socket that is connected, and from one that is
// not and so sees where the answer comes from.
func ask(to string) string {
	c, err := net.Dial("udp", to)
	if err != nil {
		return err.Error()
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	buf := make([]byte, 64)
	c.Write([]byte("a"))
	n, err := c.Read(buf)
	if err != nil {
		return err.Error()
	}
	said := string(buf[:n])
	u, err := net.ListenPacket("udp", ":0")
	if err != nil {
		return err.Error()
	}
	defer u.Close()
	u.SetDeadline(time.Now().Add(patience))
	u.WriteTo([]byte("b"), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(to)))
	n, from, err := u.ReadFrom(buf)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s, %s from %v", said, buf[:n], from)
}

// own has services of its own and reaches them.
func own([]string) error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	for address, dials := range map[string][]string{
		"127.0.0.1:8081": {"127.0.0.1:8081"},
		"[::1]:8081":     {"[::1]:8081"},
		":8080":          {"127.0.0.1:8080", "127.0.1.1:8080", "[::1]:8080", "0.0.0.0:8080", "[::]:8080", "localhost:8080", name + ":8080"},
		"127.0.0.1:53":   {"127.0.0.1:53"},
	} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				io.WriteString(c, "own")
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
				c.Close()
			}
		}()
		for _, to := range dials {
			fmt.Println("tcp", to, talk("tcp", to))
		}
		l.Close()
	}
	for _, address := range []string{"127.0.0.1:53", "[::1]:53", "127.0.0.1:443"} {
		u, err := net.ListenPacket("udp", address)
		if err != nil {
			return err
		}
		go func() {
			buf := make([]byte, 16)
			for {
				_, from, err := u.ReadFrom(buf)
				if err != nil {
					return
				}
				u.WriteTo([]byte("own"), from)
			}
		}()
		c, err := net.Dial("udp", address)
		if err != nil {
			return err
		}
		c.SetDeadline(time.Now().Add(patience))
		c.Write([]byte("x"))
		buf := make([]byte, 16)
		n, err := c.Read(buf)
		fmt.Println("udp", address, string(buf[:n]), err)
		c.Close()
		u.Close()
	}
	return nil
}

// gatesPort goes to the listeners without being sent there, and tries to take
// their place.
func gatesPort() error {
	for _, host := range []string{"127.0.0.1", "127.9.9.9", "::1"} {
		to := net.JoinHostPort(host, strconv.Itoa(OutletPort))
		fmt.Println("tcp", to, errnoOf(func() error {
			c, err := net.DialTimeout("tcp", to, patience)
			if err == nil {
				c.Close()
			}
			return err
		}()))
		fmt.Println("udp", to, errnoOf(datagram("udp", to)))
	}
	for _, network := range []string{"tcp4", "tcp6", "tcp", "udp4", "udp6", "udp"} {
		for _, host := range []string{"", "127.0.0.1", "::1", "8.8.8.8"} {
			if ip := net.ParseIP(host); ip != nil && strings.HasSuffix(network, "4") != (ip.To4() != nil) {
				continue
			}
			lc := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
				return raw.Control(func(fd uintptr) {
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
				})
			}}
			at := net.JoinHostPort(host, strconv.Itoa(OutletPort))
			var err error
			if network[0] == 't' {
				_, err = lc.Listen(context.Background(), network, at)
			} else {
				_, err = lc.ListenPacket(context.Background(), network, at)
			}
			fmt.Println("bind", network, at, errnoOf(err))
		}
	}
	return nil
}

// refused tries what goes nowhere.
func refused() error {
	// A service of the sandbox's own must not get it either.
	here, err := net.ListenPacket("udp", ":443")
	if err != nil {
		return err
	}
	for _, to := range []string{"8.8.8.8:443", "8.8.8.8:5353", "[2001:4860:4860::8888]:443", "198.18.0.1:3128", "224.0.0.251:5353", "255.255.255.255:67"} {
		fmt.Println("udp", to, errnoOf(datagram("udp", to)))
	}
	here.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, from, err := here.ReadFrom(make([]byte, 64)); err == nil {
		fmt.Println("arrived", n, from)
	}
	for _, k := range []struct {
		name                   string
		family, kind, protocol int
	}{
		{"ping", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_ICMP},
		{"ping6", unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6},
		{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP},
		{"raw6", unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6},
		{"gre", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_GRE},
		{"udplite", unix.AF_INET, unix.SOCK_DGRAM, unix.IPPROTO_UDPLITE},
		{"sctp", unix.AF_INET, unix.SOCK_SEQPACKET, unix.IPPROTO_SCTP},
		{"packet", unix.AF_PACKET, unix.SOCK_RAW, 0},
	} {
		fmt.Println(k.name, errnoOf(func() error {
			fd, err := unix.Socket(k.family, k.kind|unix.SOCK_NONBLOCK, k.protocol)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			echo := []byte{8, 0, 0xf7, 0xfe, 0, 0, 0, 1}
			if k.family == unix.AF_INET6 {
				echo[0] = 128
				return unix.Sendto(fd, echo, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr("2001:4860:4860::8888").As16()})
			}
			return unix.Sendto(fd, echo, 0, &unix.SockaddrInet4{Addr: [4]byte{8, 8, 8, 8}, Port: 53})
		}()))
	}
	return nil
}

// datagram sends one and gives the error of that, or of waiting for an answer.
func datagram(network, to string) error {
	c, err := net.Dial(network, to)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("x")); err != nil {
		return err
	}
	_, err = c.Read(make([]byte, 16))
	return err
}

// errnoOf names the error that the kernel gave.
func errnoOf(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return fmt.Sprint(err)
}

// many makes connections at the same time and counts those that went well.
func many(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	results := make(chan string)
	for i := range n {
		to := fmt.Sprintf("203.0.%d.%d:443", 113+i/250, i%250+1)
		go func() {
			if got, want := talk("tcp", to), to+"\nhello"; got != want {
				results <- fmt.Sprintf("%s: %q", to, got)
				return
			}
			results <- ""
		}()
	}
	for range n {
		if r := <-results; r != "" {
			err = errors.Join(err, errors.New(r))
		}
	}
	return err
}

func init() {
	insides["nested"] = func([]string) error {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), insideVariable+"=administer")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		fmt.Print(string(out))
		return err
	}
	insides["administer"] = func([]string) error {
		status, err := os.ReadFile("/proc/self/status")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(status)) {
			if set, ok := strings.CutPrefix(line, "CapEff:"); ok {
				bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
				fmt.Println("power", bits&(1<<unix.CAP_NET_ADMIN) != 0, err)
			}
		}
		fmt.Println("rules", errnoOf(toKernel(unix.NETLINK_NETFILTER, netfilter.Rules(1))))
		fmt.Println("routes", errnoOf(toKernel(unix.NETLINK_ROUTE, netfilter.Routes(false))))
		return nil
	}
}

// toKernel sends a netlink message and gives the first answer.
func toKernel(protocol int, message []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	a := answer{}
	if _, _, err := unix.Recvfrom(fd, a.b[:], unix.MSG_DONTWAIT); err != nil {
		return err
	}
	if e := a.errno(); e != 0 {
		return e
	}
	return nil
}
