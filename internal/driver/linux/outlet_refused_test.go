package linux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/netfilter"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// What the kernel refuses stops the sandbox, with its reason, before anything runs inside.
func TestOutletFailsClosed(t *testing.T) {
	testneeds.Root(t, "network namespaces of an ordinary user are made by the sandbox")
	for _, tc := range []struct {
		name, why string
		code      bailey.Code
		spoil     func(t *testing.T)
	}{
		{"a route is there", "all addresses of IPv4: file exists", bailey.CodeNotAvailable, func(t *testing.T) {
			done(t, toKernel(unix.NETLINK_ROUTE, netfilter.Routes(false)))
		}},
		{"a route of IPv6 is there", "all addresses of IPv6: file exists", bailey.CodeNotAvailable, func(t *testing.T) {
			done(t, toKernel(unix.NETLINK_ROUTE, netfilter.Routes(true)))
		}},
		// The reason is "operation not supported" or, before Linux 6.4, "file exists".
		{"chains are there already", "redirect the sandbox's connections: ", bailey.CodeNotAvailable, func(t *testing.T) {
			names := strings.NewReplacer("leave\x00", "local\x00", "local\x00", "leave\x00")
			done(t, toKernel(unix.NETLINK_NETFILTER, []byte(names.Replace(string(netfilter.Rules(1))))))
		}},
		{"the port is taken", "address already in use", bailey.CodeSetupFailed, func(t *testing.T) {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Close(fd) })
			if err := unix.Bind(fd, &unix.SockaddrInet4{Port: OutletPort}); err != nil {
				t.Fatal(err)
			}
			if err := unix.Listen(fd, 1); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := New(state(t))
			d.Warm(1, false)
			defer d.Close()
			made := <-d.pool.made
			if made.err != nil {
				t.Fatal(made.err)
			}
			inNetwork(t, made.id.net, tc.spoil)
			d.pool.made <- made
			dir := t.TempDir()
			spec := smallSpec(t, "touch", "/ran/here")
			spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Bind, Source: dir, Target: "/ran", IsDir: true, HostIDs: true})
			spec.Outlet = true
			_, err := d.Create(context.Background(), spec)
			if bailey.CodeOf(err) != tc.code || !strings.Contains(fmt.Sprint(err), tc.why) {
				t.Errorf("%v, want %s %q", err, tc.code, tc.why)
			}
			var be *bailey.Error
			if !errors.As(err, &be) || be.Fix == "" {
				t.Errorf("there is no fix: %v", err)
			}
			if list, _ := os.ReadDir(dir); len(list) > 0 {
				t.Error("the command ran")
			}
		})
	}
}

// inNetwork calls f in another network namespace.
func inNetwork(t *testing.T, ns *os.File, f func(t *testing.T)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			t.Error(err)
			return
		}
		f(t)
	}()
	<-done
}

func done(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Root of a user namespace made inside has all capabilities there, and none
// over the network namespace that it is still in.
func TestNestedSandboxesDoNotAdministerTheOutlet(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		opt := state(t)
		opt.Omit = []Protection{"seccomp.socket-families"} // which stops it as well
		spec := outletSpec(t, level, "nested")
		spec.NestedSandboxes = true
		if level == bailey.IsolationProcess {
			spec.User.UID, spec.User.GID = 1000, 1000 // root would need a capability to map itself
		}
		if out, end := withOutlet(t, New(opt), spec); out != "power true <nil>\nrules EPERM\nroutes EPERM\n" || end.ExitCode != 0 {
			t.Errorf("%+v: %s", end, out)
		}
	})
}

// No sandbox has power over its network namespace, at any level.
func TestNobodyAdministersTheNetwork(t *testing.T) {
	for _, nested := range []bool{false, true} {
		for _, level := range []bailey.Isolation{bailey.IsolationProcess, bailey.IsolationContainer} {
			if caps := capsFor(driver.Spec{Level: level, NestedSandboxes: nested}); caps&(1<<unix.CAP_NET_ADMIN|1<<unix.CAP_SYS_ADMIN|1<<unix.CAP_NET_RAW) != 0 {
				t.Errorf("%s keeps %#x", level, caps)
			}
		}
	}
}

// What an outlet adds to the making of a sandbox.
func BenchmarkCreateWithOutlet(b *testing.B) {
	d := New(state(b))
	d.Warm(2, true)
	defer d.Close()
	for b.Loop() {
		spec := smallSpec(b, "/bin/echo", "hi")
		spec.Outlet = true
		run(b, d, spec)
	}
}

// A host that turns IPv6 off for new network namespaces does not turn it off
// for sandboxes, whose own it is.
func TestOutletWhereIPv6IsTurnedOff(t *testing.T) {
	testneeds.Root(t, "network namespaces of an ordinary user are made by the sandbox")
	d := New(state(t))
	d.Warm(1, false)
	defer d.Close()
	made := <-d.pool.made
	if made.err != nil {
		t.Fatal(made.err)
	}
	inNetwork(t, made.id.net, func(t *testing.T) {
		for _, name := range []string{"all", "default", "lo"} {
			done(t, os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0))
		}
	})
	d.pool.made <- made
	if out, end := withOutlet(t, d, outletSpec(t, bailey.IsolationProcess, "talk", "[2001:db8::1]:80")); out != "[2001:db8::1]:80 [2001:db8::1]:80\nhello\n" {
		t.Errorf("%+v: %s", end, out)
	}
}

// Where the kernel has no IPv6, there is an outlet all the same.
func TestOutletWithoutIPv6(t *testing.T) {
	had := hostIPv6
	hostIPv6 = func() bool { return false }
	defer func() { hostIPv6 = had }()
	levels(t, func(t *testing.T, level bailey.Isolation) {
		out, end := withOutlet(t, New(state(t)), outletSpec(t, level, "talk", "192.0.2.1:80", "[2001:db8::1]:80"))
		if !strings.HasPrefix(out, "192.0.2.1:80 192.0.2.1:80\nhello\n[2001:db8::1]:80 dial tcp ") || end.ExitCode != 0 {
			t.Errorf("%+v: %s", end, out)
		}
		if out, end := withOutlet(t, New(state(t)), outletSpec(t, level, "ask", "192.0.2.1:53")); out != "192.0.2.1:53 heard a, heard b from 192.0.2.1:53\n" {
			t.Errorf("%+v: %s", end, out)
		}
	})
	if c := New(state(t)).Probe(context.Background(), bailey.IsolationProcess); c.Egress != driver.EgressTransparent || !strings.Contains(c.EgressWhy, "IPv6") {
		t.Errorf("%+v", c)
	}
}

// A kernel without nftables is a reason not to start, and Probe says so.
func TestOutletNeedsNftables(t *testing.T) {
	const noNftables = "speak to the kernel about nftables: protocol not supported"
	result := make(chan error)
	var c driver.Capabilities
	spec := smallSpec(t, "true")
	spec.Outlet = true
	d := New(state(t))
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends, and its filter with it
		if err := refuseNetfilter(); err != nil {
			result <- err
			return
		}
		_, err := d.Create(context.Background(), spec)
		c = d.Probe(context.Background(), bailey.IsolationProcess)
		result <- err
	}()
	err := <-result
	var be *bailey.Error
	if bailey.CodeOf(err) != bailey.CodeNotAvailable || !errors.As(err, &be) || be.Why != noNftables || !strings.Contains(be.Fix, "modprobe nf_tables") {
		t.Errorf("%v", err)
	}
	if !c.Available || c.Egress != "" || c.EgressWhy != noNftables || !strings.Contains(c.EgressFix, "modprobe nf_tables") {
		t.Errorf("%+v", c)
	}
}

// refuseNetfilter makes this thread, and whom it starts, live on a kernel that
// has no such protocol of netlink.
func refuseNetfilter() error {
	const number, family, protocol = 0, 16, 32 // offsets in struct seccomp_data, of the lower halves
	equal := func(offset, value uint32, otherwise uint8) []unix.SockFilter {
		return []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset},
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: value, Jf: otherwise},
		}
	}
	program := slices.Concat(equal(number, unix.SYS_SOCKET, 5), equal(family, unix.AF_NETLINK, 3), equal(protocol, unix.NETLINK_NETFILTER, 1), []unix.SockFilter{
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	})
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}
