package linux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// server serves an outlet as a gate would: a connection is told its original
// destination and then gets back what it sends, a datagram comes back with a word.
type server struct {
	tcp     net.Listener
	udp     net.PacketConn
	serving sync.WaitGroup
}

func serve(t testing.TB, out *driver.Outlet) *server {
	t.Helper()
	if out == nil {
		t.Fatal("there is no outlet")
	}
	s := &server{}
	var err error
	if s.tcp, err = net.FileListener(out.TCP); err != nil {
		t.Fatal(err)
	}
	if s.udp, err = net.FilePacketConn(out.UDP); err != nil {
		t.Fatal(err)
	}
	out.TCP.Close()
	out.UDP.Close()
	t.Cleanup(s.close)
	s.serving.Go(func() {
		for {
			c, err := s.tcp.Accept()
			if err != nil {
				return
			}
			s.serving.Go(func() {
				defer c.Close()
				dst, err := originalDst(c.(*net.TCPConn))
				if err != nil {
					fmt.Fprintln(c, err)
				} else {
					fmt.Fprintln(c, dst)
				}
				// Without the pipes that splice(2) needs, which are kept for a while.
				io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			})
		}
	})
	s.serving.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := s.udp.ReadFrom(buf)
			if err != nil {
				return
			}
			s.udp.WriteTo(append([]byte("heard "), buf[:n]...), from)
		}
	})
	return s
}

// close ends the service and waits until its connections have ended.
func (s *server) close() {
	s.tcp.Close()
	s.udp.Close()
	s.serving.Wait()
}

// originalDst asks where a redirected connection wanted to go
// (linux/netfilter_ipv4.h and netfilter_ipv6/ip6_tables.h).
func originalDst(c *net.TCPConn) (dst netip.AddrPort, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return dst, err
	}
	const soOriginalDst = 80
	var sa unix.RawSockaddrInet6
	size := uint32(unsafe.Sizeof(sa))
	level := unix.IPPROTO_IPV6
	if c.RemoteAddr().(*net.TCPAddr).IP.To4() != nil {
		level = unix.IPPROTO_IP
	}
	var errno syscall.Errno
	raw.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, uintptr(level), soOriginalDst, uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if errno != 0 {
		return dst, errno
	}
	port := sa.Port>>8 | sa.Port<<8
	if level == unix.IPPROTO_IP {
		sa4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(&sa))
		return netip.AddrPortFrom(netip.AddrFrom4(sa4.Addr), port), nil
	}
	return netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), port), nil
}

// withOutlet runs a sandbox whose outlet is served.
func withOutlet(t testing.TB, d *Driver, spec driver.Spec) (string, bailey.End) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec.Outlet = true
	spec.Entry.Stdio = [3]*os.File{nil, w, w}
	in, err := d.Create(context.Background(), spec)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	s := serve(t, in.Outlet())
	defer s.close()
	if in.Outlet() != nil {
		t.Error("the outlet is given twice")
	}
	out, err := io.ReadAll(r)
	if err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	<-in.Done()
	return string(out), in.End()
}

// levels runs a test at both.
func levels(t *testing.T, test func(t *testing.T, level bailey.Isolation)) {
	for _, level := range []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer} {
		t.Run(level.String(), func(t *testing.T) { test(t, level) })
	}
}

func outletSpec(t testing.TB, level bailey.Isolation, name string, args ...string) driver.Spec {
	spec := insideSpec(t, name, args...)
	spec.Level = level
	spec.Hostname = "inside"
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.File, Target: "/etc/hosts",
		Content: []byte("127.0.0.1 localhost\n::1 localhost\n127.0.1.1 inside\n"), Mode: 0o644})
	return spec
}

// Whatever address and port a program connects to, it is at the listener, which
// learns where the program wanted to go.
func TestConnectionsEndAtTheOutlet(t *testing.T) {
	addresses := []string{"93.184.216.34:443", "10.1.2.3:1", "169.254.169.254:80", "198.18.0.1:3128", "198.18.0.1:53", "8.8.8.8:53", "1.2.3.4:65535",
		"126.255.255.255:80", "128.0.0.1:80", "[2606:2800:220:1::1]:443", "[fdba:11e4::1]:3128", "[::2]:80", "[64:ff9b::7f00:1]:80"}
	levels(t, func(t *testing.T, level bailey.Isolation) {
		out, end := withOutlet(t, New(state(t)), outletSpec(t, level, "talk", addresses...))
		var want strings.Builder
		for _, a := range addresses {
			fmt.Fprintf(&want, "%s %s\nhello\n", a, a)
		}
		if out != want.String() || end.ExitCode != 0 {
			t.Errorf("%+v: got\n%swant\n%s", end, out, &want)
		}
	})
}

// A question to any name server is answered by the gate, and the answer comes
// from where the question went.
func TestQuestionsEndAtTheOutlet(t *testing.T) {
	addresses := []string{"8.8.8.8:53", "198.18.0.1:53", "169.254.169.253:53", "[fdba:11e4::1]:53", "[2001:4860:4860::8888]:53"}
	levels(t, func(t *testing.T, level bailey.Isolation) {
		out, end := withOutlet(t, New(state(t)), outletSpec(t, level, "ask", addresses...))
		var want strings.Builder
		for _, a := range addresses {
			fmt.Fprintf(&want, "%s heard a, heard b from %s\n", a, a)
		}
		if out != want.String() || end.ExitCode != 0 {
			t.Errorf("%+v: got\n%swant\n%s", end, out, &want)
		}
	})
}

// What a sandbox serves for itself is its own affair.
func TestOwnServicesStayInside(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		out, end := withOutlet(t, New(state(t)), outletSpec(t, level, "own"))
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != 13 || end.ExitCode != 0 {
			t.Errorf("%+v", end)
		}
		for _, line := range lines {
			if !strings.HasSuffix(line, " own") && !strings.HasSuffix(line, " own <nil>") {
				t.Errorf("%q", line)
			}
		}
	})
}

// The listeners hear of redirected connections only, and nothing inside takes
// their place.
func TestTheOutletsPortIsClosed(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		spec := outletSpec(t, level, "port")
		out, end := withOutlet(t, New(state(t)), spec)
		if end.ExitCode != 0 {
			t.Errorf("%+v", end)
		}
		seen := 0
		for line := range strings.Lines(out) {
			line = strings.TrimSpace(line)
			ok := false
			switch line[:3] {
			case "tcp":
				ok = strings.HasSuffix(line, " ECONNREFUSED")
			case "udp":
				ok = strings.HasSuffix(line, " EPERM") || strings.HasSuffix(line, " ECONNREFUSED")
			case "bin":
				ok = strings.HasSuffix(line, " EADDRINUSE")
			}
			if !ok {
				t.Errorf("%q", line)
			}
			seen++
		}
		if seen != 6+14 {
			t.Errorf("%d lines: %s", seen, out)
		}
	})
}

// What is neither TCP nor a question for a name goes nowhere, and the program
// learns it at once.
func TestEverythingElseIsRefused(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		for _, omit := range [][]Protection{nil, {NoCaps, NoSeccomp}} {
			opt := state(t)
			opt.Omit = omit // with raw sockets, where capabilities help to get them
			out, end := withOutlet(t, New(opt), outletSpec(t, level, "refused"))
			seen := 0
			for line := range strings.Lines(out) {
				fields := strings.Fields(line)
				ok := false
				switch fields[len(fields)-1] {
				case "EPERM", "EACCES", "ENETUNREACH", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT", "ECONNREFUSED":
					ok = true
				case "EINVAL": // a packet socket that has no interface
					ok = fields[0] == "packet"
				}
				if !ok {
					t.Errorf("without %v: %q", omit, line)
				}
				seen++
			}
			if seen != 14 || end.ExitCode != 0 {
				t.Errorf("%+v: %s", end, out)
			}
		}
	})
}

func TestManyConnectionsAtOnce(t *testing.T) {
	d := New(state(t))
	d.Warm(1, false) // as root: the namespaces were made before
	defer d.Close()
	for range 2 {
		if out, end := withOutlet(t, d, outletSpec(t, bailey.IsolationProcess, "many", "200")); out != "" || end.ExitCode != 0 {
			t.Errorf("%+v: %s", end, out)
		}
	}
}

// The command is handed nothing of what its way out was made with, and nothing
// of it stays here.
func TestOutletLeavesNoDescriptors(t *testing.T) {
	d := New(state(t))
	inside := func() {
		if out, end := withOutlet(t, d, outletSpec(t, bailey.IsolationProcess, "descriptors")); out != "" || end.ExitCode != 0 {
			t.Errorf("%+v: %s", end, out)
		}
	}
	untaken := func() {
		spec := smallSpec(t, "true")
		spec.Outlet = true
		in, err := d.Create(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		in.Destroy(context.Background())
		if in.Outlet() != nil {
			t.Error("a sandbox that is gone has an outlet")
		}
	}
	inside()
	untaken()
	runtime.GC()
	before := openDescriptors(t)
	for range 5 {
		inside()
		untaken()
	}
	if after := openDescriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// A sandbox that asks for no outlet has none, and no network.
func TestNoOutletUnasked(t *testing.T) {
	spec := insideSpec(t, "talk", "192.0.2.1:80", "[2001:db8::1]:80")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec.Entry.Stdio[1] = w
	in, err := New(state(t)).Create(context.Background(), spec)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	if in.Outlet() != nil {
		t.Error("there is an outlet")
	}
	out, _ := io.ReadAll(r)
	if strings.Count(string(out), "network is unreachable")+strings.Count(string(out), "cannot assign requested address") != 2 {
		t.Errorf("%s", out)
	}
}

// Connections that nobody serves wait, and end with the sandbox.
func TestOutletThatNobodyServes(t *testing.T) {
	for _, taken := range []bool{false, true} {
		spec := insideSpec(t, "wait")
		spec.Outlet = true
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		spec.Entry.Stdio[1] = w
		in, err := New(state(t)).Create(context.Background(), spec)
		w.Close()
		if err != nil {
			t.Fatal(err)
		}
		if taken {
			out := in.Outlet()
			defer out.TCP.Close()
			defer out.UDP.Close()
		}
		line, err := bufio.NewReader(r).ReadString('\n')
		if line != "connected\n" {
			t.Errorf("%q %v", line, err)
		}
		select {
		case <-in.Done():
			t.Errorf("it has ended: %+v", in.End())
		default:
		}
		in.Kill(bailey.EndUser)
		<-in.Done()
		if err := in.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// A gate that goes away leaves nothing open: what waited is reset, and new
// connections are refused.
func TestOutletWithoutAGate(t *testing.T) {
	spec := insideSpec(t, "lines")
	spec.Outlet = true
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	defer outR.Close()
	spec.Entry.Stdio = [3]*os.File{inR, outW, outW}
	in, err := New(state(t)).Create(context.Background(), spec)
	inR.Close()
	outW.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	lines := bufio.NewReader(outR)
	s := serve(t, in.Outlet())
	say := func() string {
		io.WriteString(inW, "x\n")
		line, _ := lines.ReadString('\n')
		return strings.TrimSpace(line)
	}
	if got := say(); got != "192.0.2.1:80" {
		t.Errorf("served: %q", got)
	}
	lines.ReadString('\n') // hello
	s.close()
	if got := say(); !strings.Contains(got, "connection refused") && !strings.Contains(got, "connection reset") {
		t.Errorf("without a gate: %q", got)
	}
	inW.Close()
	<-in.Done()
}

func TestOutletAndPause(t *testing.T) {
	d := New(state(t))
	spec := insideSpec(t, "lines")
	spec.Outlet = true
	inR, inW, _ := os.Pipe()
	outR, outW, _ := os.Pipe()
	defer outR.Close()
	defer inW.Close()
	spec.Entry.Stdio = [3]*os.File{inR, outW, outW}
	in, err := d.Create(context.Background(), spec)
	inR.Close()
	outW.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	serve(t, in.Outlet())
	if err := in.Pause(context.Background()); err != nil {
		if bailey.CodeOf(err) == bailey.CodeInternal {
			t.Fatal(err)
		}
		testneeds.Host(t, testneeds.Cgroups)
		t.Fatal(err)
	}
	io.WriteString(inW, "x\n")
	if err := in.Resume(context.Background()); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(outR).ReadString('\n'); line != "192.0.2.1:80\n" {
		t.Errorf("%q %v", line, err)
	}
}

// A terminal and an outlet come over the same channel.
func TestOutletAndTerminal(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		spec := outletSpec(t, level, "talk", "192.0.2.1:80")
		spec.Outlet = true
		spec.Entry.Terminal = &driver.WindowSize{Rows: 24, Cols: 80}
		in, err := New(state(t)).Create(context.Background(), spec)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Destroy(context.Background())
		serve(t, in.Outlet())
		out, _ := io.ReadAll(in.Terminal()) // ends with EIO
		in.Terminal().Close()
		if !strings.Contains(string(out), "192.0.2.1:80 192.0.2.1:80\r\nhello") {
			t.Errorf("%q", out)
		}
	})
}

// A sandbox that stays speaks to its owner over the channel that brought the
// listeners. The program here is an agent that sends back what it reads.
func TestOutletAndAgent(t *testing.T) {
	spec := smallSpec(t)
	spec.Outlet = true
	spec.Entry.Agent = "/usr/bin/cat"
	in, err := New(state(t)).Create(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	out := in.Outlet()
	if out == nil || in.Agent() == nil {
		t.Fatal(out, in.Agent())
	}
	out.TCP.Close()
	out.UDP.Close()
}
