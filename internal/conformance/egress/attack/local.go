package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

func field(name, value string) hpack.HeaderField { return hpack.HeaderField{Name: name, Value: value} }

func init() {
	cases["U1"] = func(c *attempt) {
		paths := []string{"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/dbus/system_bus_socket", "/tmp/.X11-unix/X0",
			os.Getenv("SSH_AUTH_SOCK"), plan.HostSocket}
		for _, p := range paths {
			if p != "" {
				c.note("%s: %v", p, unixSocket(p, c.Bad))
			}
		}
		c.allowed(plan.OK)
	}
	cases["U2"] = func(c *attempt) {
		var params [120]byte
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 8, uintptr(unsafe.Pointer(&params)), 0)
		var err error
		if errno == 0 {
			unix.Close(int(fd))
			err = errors.New("a ring was made")
		}
		c.twin("no io_uring", err)
		c.allowed(plan.OK)
	}
	cases["U3"] = func(c *attempt) {
		c.note("abstract: %v", unixSocket("@"+plan.HostAbstract, c.Bad))
		fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			for _, cid := range []uint32{0, 1, 2} {
				err = errors.Join(err, unix.Connect(fd, &unix.SockaddrVM{CID: cid, Port: plan.HostService}))
			}
			unix.Close(fd)
		}
		c.note("vsock: %v", err)
		c.allowed(plan.OK)
	}
	cases["U4"] = func(c *attempt) {
		for _, a := range []string{"127.0.0.1", "127.0.0.53", "::1"} {
			c.note("%s: %v", a, second(raw(at(a, plan.HostService), c.Bad)))
		}
		for _, a := range []string{"10.0.2.2", "172.17.0.1", "192.168.65.2", "192.168.127.254"} {
			c.act()
			c.note("%s: %v", a, second(raw(at(a, plan.HostService), c.Bad)))
		}
		for _, name := range []string{"host.docker.internal", "gateway.docker.internal", "host.containers.internal", "localhost", "localhost.localdomain", "egress-host"} {
			c.act()
			c.tunnel(fmt.Sprintf("%s:%d", name, plan.HostService), name)
		}
		c.allowed(plan.OK)
	}
	cases["U5"] = func(c *attempt) {
		// Nobody outside can come in: there is no interface but the loopback, and where
		// the sandbox has a kernel of its own the card that leads to the gate.
		links, err := net.Interfaces()
		if err == nil {
			for _, l := range links {
				if a, _ := l.Addrs(); l.Flags&net.FlagLoopback == 0 && !strings.Contains(fmt.Sprint(a), plan.LinkAddress) {
					err = fmt.Errorf("interfaces: %v, %v", links, a)
				}
			}
		}
		c.twin("only the loopback", err)
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", plan.InsideService))
		if err == nil {
			l.(*net.TCPListener).SetDeadline(time.Now().Add(300 * time.Millisecond))
			if conn, err := l.Accept(); err == nil {
				c.twin("nobody comes", fmt.Errorf("%v did", conn.RemoteAddr()))
			}
			l.Close()
		}
		// Its own services are its own.
		own, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			go func() {
				if conn, err := own.Accept(); err == nil {
					conn.Write([]byte("own"))
					conn.Close()
				}
			}()
			var s string
			s, err = raw(own.Addr().(*net.TCPAddr).AddrPort(), "x")
			if err == nil && s != "own" {
				err = errors.New(s)
			}
			own.Close()
		}
		c.twin("a service of its own on its loopback", err)
		c.allowed(plan.OK)
	}
	cases["A4"] = func(c *attempt) {
		// One rule allows the host, a later one denies it.
		c.act()
		c.tunnel(plan.Denied+":443", plan.Denied)
		c.allowed(plan.OK)
	}
	cases["A10"] = func(c *attempt) {
		// No descriptor and no socket leads to the gate's control.
		fds, _ := filepath.Glob("/proc/self/fd/*")
		for _, fd := range fds {
			if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, "socket:") {
				var st unix.Stat_t
				var n int
				fmt.Sscan(filepath.Base(fd), &n)
				if unix.Fstat(n, &st) == nil && n > 2 {
					if sa, err := unix.Getsockname(n); err == nil {
						if _, unixDomain := sa.(*unix.SockaddrUnix); unixDomain {
							c.twin("no control socket", fmt.Errorf("descriptor %d is %s", n, to))
						}
					}
				}
			}
		}
		b, err := os.ReadFile("/proc/net/unix")
		if err == nil {
			c.received(string(b))
		}
		c.allowed(plan.OK)
	}
	cases["A14"] = func(c *attempt) {
		// As many connections as the limit of descriptors lets one have, to where
		// they may go and to where not.
		var held []net.Conn
		for i := range 600 {
			conn, err := dial(plan.OK, []int{443, 80, 8443}[i%3])
			if err != nil {
				c.note("connection %d: %v", i, err)
				break
			}
			held = append(held, conn)
		}
		c.Most += len(held)
		for _, conn := range held {
			conn.Close()
		}
		c.allowed(plan.OK)
	}
	cases["K1"] = func(c *attempt) {
		seen := 0
		var found []string
		dirs := []string{"/etc", "/run", "/tmp", "/var/tmp", os.Getenv("HOME"), filepath.Dir(os.Getenv("SSL_CERT_FILE"))}
		for _, e := range os.Environ() {
			if _, v, _ := strings.Cut(e, "="); strings.HasPrefix(v, "/") {
				dirs = append(dirs, v)
			}
			if strings.Contains(e, "PRIVATE KEY") {
				found = append(found, e)
			}
		}
		for _, dir := range dirs {
			filepath.WalkDir(dir, func(p string, e os.DirEntry, err error) error {
				if err != nil || !e.Type().IsRegular() || seen > 20000 {
					return nil
				}
				seen++
				if fi, err := e.Info(); err != nil || fi.Size() > 1<<20 {
					return nil
				}
				if b, err := os.ReadFile(p); err == nil && strings.Contains(string(b), "PRIVATE KEY-----\n") && !strings.Contains(p, "/ssl/private/") {
					found = append(found, p)
				}
				return nil
			})
		}
		var err error
		if len(found) > 0 {
			err = fmt.Errorf("%q", found)
		}
		c.note("%d files", seen)
		c.twin("no private key", err)
		c.allowed(plan.OK)
	}
	cases["K3"] = func(c *attempt) {
		for i := range 150 {
			name := fmt.Sprintf("n%d.%s", i, plan.DeepApex)
			conn, err := dial(name, 443)
			if err != nil {
				c.note("%s: %v", name, err)
				break
			}
			if t, err := secure(conn, name); err != nil {
				c.note("%s: %v", name, err)
			} else {
				t.Close()
			}
			conn.Close()
		}
		c.Most += 150
		c.allowed(plan.Deep)
	}
	cases["K6"] = func(c *attempt) {
		c.received(strings.Join(os.Environ(), "\n"))
		var err error
		for _, e := range os.Environ() {
			name, value, _ := strings.Cut(e, "=")
			if strings.HasPrefix(name, "BAILEY_") && strings.Contains(strings.ToUpper(name), "TOKEN") || strings.Contains(value, "127.0.0.1:") && strings.Contains(value, "@") {
				err = fmt.Errorf("%s", name)
			}
		}
		c.twin("no key of Bailey's", err)
		c.allowed(plan.OK)
	}
	cases["T55"] = func(c *attempt) {
		c.act()
		a, err := c.plain(plan.OK, get(plan.Evil, "/?c="+c.Bad))
		for _, want := range []string{"reason", "why", "how_to_ask", "what"} {
			if !strings.Contains(a.body, `"`+want+`"`) {
				err = errors.Join(err, fmt.Errorf("no %s in %q", want, a.body))
			}
		}
		c.twin("the denial says what, why and how to ask", err)
		c.allowed(plan.OK)
	}
	cases["T51"] = func(c *attempt) {
		for i := range 4 {
			a, err := c.plain(plan.Moves, get(plan.Moves, "/?c="+c.Good))
			c.twin(fmt.Sprintf("call %d", i), errors.Join(err, a.ok()))
		}
		c.act()
		c.note("%v", second(c.plain(plan.Moves, get("evil-moves.test", "/?c="+c.Bad))))
		c.act()
		c.tunnel("evil-moves.test:443", "evil-moves.test")
	}
}

func unixSocket(path, text string) error {
	conn, err := net.DialTimeout("unix", path, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience / 4))
	_, err = conn.Write([]byte(text))
	return err
}
