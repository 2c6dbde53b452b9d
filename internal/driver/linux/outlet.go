package linux

import (
	"encoding/binary"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/netfilter"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// OutletPort is where the listeners of an outlet are, inside. It lies above the
// ports that the kernel gives to clients, and programs inside cannot have it.
const OutletPort = 64053

const (
	tcpTag = 'o'
	udpTag = 'u'

	// outletBacklog is how many connections of a sandbox wait for the gate. The
	// kernel's own bound is net.core.somaxconn, 4096 by default since Linux 5.4.
	outletBacklog = 4096
)

// outlet is a sandbox's way out while its script is written and run: the
// kernel's answers to what the child asks of it. Everything is done by the
// child, in the network namespace and while it still has power over it: the same
// steps serve namespaces that root has made in advance and those that the child
// of an ordinary user has made itself, and a sandbox without an outlet pays
// nothing.
type outlet struct {
	v6 bool
	// asked holds, by the name of a step, what it has to do with the kernel.
	asked map[string]*answer
}

// answer is what the kernel says to one message: a header and an error
// (struct nlmsgerr of linux/netlink.h).
type answer struct {
	b   [1024]byte
	fix string // what to do when it is an error
}

// What to do where the kernel lacks something.
const (
	fixRoutes = "use a kernel with routing by tables (CONFIG_IP_MULTIPLE_TABLES)"
	fixIPv6   = "let new network namespaces have IPv6 (net.ipv6.conf.all.disable_ipv6=0), or start the kernel without any (ipv6.disable=1)"
	fixRules  = "use a kernel with nf_tables and its parts ct, nat, redirect and reject (CONFIG_NF_TABLES_INET, NFT_CT, NFT_NAT, NFT_REDIR, NFT_REJECT_INET); as modules they must be loadable: modprobe nf_tables"
	fixRights = "let Bailey administer the network namespaces that it makes (CAP_NET_ADMIN)"
)

const answerError = unix.SizeofNlMsghdr // where the errno is, as a negative number

// noAnswer stands where the errno comes until there is one.
const noAnswer = 1

// errno gives the kernel's error, 0 without one.
func (a *answer) errno() syscall.Errno {
	return syscall.Errno(max(0, -int32(binary.NativeEndian.Uint32(a.b[answerError:]))))
}

// hostIPv6 says whether this kernel speaks IPv6. Where it does not, nothing
// inside can either, and there is nothing to close.
var hostIPv6 = sync.OnceValue(func() bool {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	unix.Close(fd)
	return true
})

// outlet makes the network namespace lead to two listeners and hands these to
// the owner. It begins after lo is up and must be done before rights are given up.
//
// Nothing inside can change this. As root, the namespace belongs to the host.
// Otherwise it belongs to the sandbox's user namespace, in which no process has
// CAP_NET_ADMIN or can get it: it is dropped from the bounding set, and a user
// namespace made inside has power only over network namespaces made in there.
// And if the rules were gone, nothing would leak: there is no interface but lo.
func (b *builder) outlet(control int) *outlet {
	o := &outlet{v6: hostIPv6(), asked: map[string]*answer{}}
	if o.v6 {
		// A host that turns IPv6 off for new interfaces does so for lo of new
		// namespaces, too. Where this is not enough the routes fail below.
		for _, name := range []string{"all", "lo"} {
			b.sysctl("net/ipv6/conf/"+name+"/disable_ipv6", "0")
		}
	}
	routes := b.netlink(o, "speak to the kernel about routes", unix.NETLINK_ROUTE, fixRoutes)
	b.ask(o, routes, "give the sandbox all addresses of IPv4", netfilter.Routes(false), fixRoutes)
	if o.v6 {
		b.ask(o, routes, "give the sandbox all addresses of IPv6", netfilter.Routes(true), fixIPv6)
	}
	b.Do("close netlink", unix.SYS_CLOSE, spawn.From(routes))
	rules := b.netlink(o, "speak to the kernel about nftables", unix.NETLINK_NETFILTER, fixRules)
	b.ask(o, rules, "redirect the sandbox's connections", netfilter.Rules(OutletPort), fixRules)
	b.Do("close netlink", unix.SYS_CLOSE, spawn.From(rules))
	// The kernel bounds the connections that it tracks for each namespace, so a
	// sandbox takes none of another's. That its own do not fill up with those that
	// have ended, they are forgotten sooner than by default (120, 120, 30 and 120 s).
	for _, t := range [][2]string{{"tcp_timeout_time_wait", "10"}, {"tcp_timeout_fin_wait", "30"}, {"udp_timeout", "10"}, {"udp_timeout_stream", "30"}} {
		b.sysctl("net/netfilter/nf_conntrack_"+t[0], t[1])
	}
	b.listener(o, "TCP", unix.SOCK_STREAM, tcpTag, control)
	b.listener(o, "UDP", unix.SOCK_DGRAM, udpTag, control)
	return o
}

// sysctl writes a setting of the child's network namespace, where it is there
// and may be written.
func (b *builder) sysctl(name, value string) {
	fd := b.Do("open "+name, unix.SYS_OPENAT, noFD, b.Str("/proc/sys/"+name), spawn.Int(unix.O_WRONLY|unix.O_CLOEXEC), zero).
		IgnoreAll().ElseSkip(2).Result()
	b.Do("write "+name, unix.SYS_WRITE, spawn.From(fd), b.Bytes([]byte(value)), spawn.Int(len(value))).IgnoreAll()
	b.Do("close "+name, unix.SYS_CLOSE, spawn.From(fd))
}

func (b *builder) netlink(o *outlet, what string, protocol int, fix string) spawn.Slot {
	o.asked[what] = &answer{fix: fix}
	return b.Do(what, unix.SYS_SOCKET, spawn.Int(unix.AF_NETLINK), spawn.Int(unix.SOCK_RAW|unix.SOCK_CLOEXEC), spawn.Int(protocol)).Result()
}

// ask sends a message and stops the script unless the kernel's first answer is
// that it was done. The kernel answers before the call returns.
//
// A script has no comparison but those that calls make: futex(2) waits only while a
// word has the expected value. With a timeout of zero that is ETIMEDOUT for no error,
// and EAGAIN for any other.
func (b *builder) ask(o *outlet, fd spawn.Slot, what string, message []byte, fix string) {
	a := &answer{fix: fix}
	binary.NativeEndian.PutUint32(a.b[answerError:], noAnswer)
	o.asked[what] = a
	b.Do(what, unix.SYS_SENDTO, spawn.From(fd), b.Bytes(message), spawn.Int(len(message)), zero, zero, zero)
	b.Do(what, unix.SYS_RECVFROM, spawn.From(fd), b.Pointer(unsafe.Pointer(&a.b)), spawn.Int(len(a.b)), spawn.Int(unix.MSG_DONTWAIT), zero, zero)
	const futexWaitPrivate = 0 | 128
	b.Do(what, unix.SYS_FUTEX, b.Pointer(unsafe.Pointer(&a.b[answerError])), spawn.Int(futexWaitPrivate), zero,
		b.Pointer(unsafe.Pointer(&unix.Timespec{}))).Ignore(unix.ETIMEDOUT)
}

// listener makes a socket of both families at the outlet's port.
func (b *builder) listener(o *outlet, what string, kind int, tag byte, control int) {
	family := unix.AF_INET
	address := binary.NativeEndian.AppendUint16(nil, unix.AF_INET)
	address = binary.BigEndian.AppendUint16(address, OutletPort)
	if o.v6 {
		family = unix.AF_INET6
		binary.NativeEndian.PutUint16(address, unix.AF_INET6)
		address = append(address, make([]byte, unix.SizeofSockaddrInet6-4)...)
	} else {
		address = append(address, make([]byte, unix.SizeofSockaddrInet4-4)...)
	}
	h := newHandover(tag)
	fd := h.from(b.Do("make the outlet's "+what+" socket", unix.SYS_SOCKET, spawn.Int(family), spawn.Int(kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), zero))
	if o.v6 {
		off := make([]byte, 4)
		b.Do("open the "+what+" socket to IPv4", unix.SYS_SETSOCKOPT, fd, spawn.Int(unix.IPPROTO_IPV6), spawn.Int(unix.IPV6_V6ONLY), b.Bytes(off), spawn.Int(len(off)))
	}
	b.Do("bind the outlet's "+what+" socket", unix.SYS_BIND, fd, b.Bytes(address), spawn.Int(len(address)))
	if kind == unix.SOCK_STREAM {
		b.Do("listen at the outlet", unix.SYS_LISTEN, fd, spawn.Int(outletBacklog))
	}
	b.send("hand out the outlet's "+what+" socket", control, h)
}

// take receives the listeners from a child that has come to its end.
func (o *outlet) take(control int) (*driver.Outlet, error) {
	tcp, err := receive(control, tcpTag)
	if err != nil {
		return nil, err
	}
	udp, err := receive(control, udpTag)
	if err != nil {
		unix.Close(tcp)
		return nil, err
	}
	return &driver.Outlet{TCP: os.NewFile(uintptr(tcp), "outlet"), UDP: os.NewFile(uintptr(udp), "outlet-udp")}, nil
}

// explain makes an Error of a failed step of the outlet, nil if it is none. A
// sandbox with a network that cannot be had here is not made without its walls
// instead.
func (o *outlet) explain(se *spawn.StepError) error {
	a := o.asked[se.Step]
	if a == nil {
		return nil
	}
	why, fix := se.Errno, a.fix
	if e := a.errno(); e != 0 {
		why = e
	}
	if why == unix.EPERM {
		fix = fixRights
	}
	return bailey.Errorf(bailey.CodeNotAvailable, "give the sandbox a way to the gate", fix+"; or run it without a network", "%s: %w", se.Step, why)
}
