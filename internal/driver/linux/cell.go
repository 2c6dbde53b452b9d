package linux

import (
	"net/netip"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/landlock"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/netfilter"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// A cell is a container whose programs build another sandbox in it (driver.Cell).
// They are root inside and keep the rights that this takes, all of them over what
// belongs to the cell's own user namespace: mount namespaces that they make
// themselves, and the network namespace of the card. What surrounds them is the
// rest of the container: files, ids, the listeners as the only way out, control
// group, filter of system calls.

// cellCaps are what a cell's first process keeps on top of containerCaps.
var cellCaps = []uintptr{
	unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_DAC_READ_SEARCH,
	unix.CAP_MKNOD, unix.CAP_SYS_RESOURCE, unix.CAP_AUDIT_WRITE,
}

// checkCell refuses cells that cannot be.
func checkCell(spec driver.Spec) error {
	bad := func(format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, "create the sandbox", "", format, args...)
	}
	switch c := spec.Cell; {
	case c == nil:
		return nil
	case spec.Level != bailey.IsolationContainer:
		return bad("a cell is a container, not a sandbox of level %s", spec.Level)
	case c.Link && !spec.Outlet:
		return bad("a cell's card leads to an outlet, and there is none")
	}
	for _, a := range spec.Cell.Args {
		if strings.IndexByte(a, 0) >= 0 {
			return bad("%q has a NUL byte in it", a)
		}
	}
	return nil
}

// cellUser says whether a cell can be made with the ids there are: its first
// process is root, also where the sandbox's user is somebody else.
func (id *identity) cellUser(spec driver.Spec) error {
	if spec.Cell == nil || id.rooted() || id.joined || spec.User.UID == 0 && spec.User.GID == 0 {
		return nil
	}
	return bailey.Errorf(bailey.CodeNotAvailable, "run as another user than root", "give yourself subordinate ids (/etc/subuid and /etc/subgid, with the package uidmap), or run it as root inside",
		"this user has one id, which is root's inside a sandbox of this level")
}

// cellDomain is the second wall of a cell. It says nothing of files: who is in a
// domain that does may not mount.
func (b *builder) cellDomain() {
	plan := landlock.New(landlockABI(), landlock.Config{SignalScope: true, AbstractScope: true})
	b.restrict(plan)
}

// newLinkNS makes the network namespace of a rooted cell's card: it has to belong
// to the cell's user namespace, while the one of the listeners belongs to the host.
func (id *identity) newLinkNS() (*os.File, error) {
	s := &spawn.Script{}
	s.Do("enter the user namespace", unix.SYS_SETNS, spawn.Uint(id.ns.Fd()), spawn.Int(unix.CLONE_NEWUSER))
	s.Do("make a network namespace", unix.SYS_UNSHARE, spawn.Int(unix.CLONE_NEWNET))
	user, net, err := hold(s, 0, func(int) error { return nil }, true)
	runtime.KeepAlive(id)
	if err != nil {
		return nil, err
	}
	user.Close()
	return net, nil
}

// link makes the cell's card, and goes to live where it is. The outlet must have
// been made. The namespace left behind has the listeners, the other end of the card
// and no process.
func (b *builder) link(o *outlet) {
	rules := b.netlink(o, "speak to the kernel about nftables", unix.NETLINK_NETFILTER, fixRules)
	b.ask(o, rules, "redirect what comes over the cell's link", netfilter.LinkRules(OutletPort), fixRules)
	b.Do("close netlink", unix.SYS_CLOSE, spawn.From(rules))
	// Whatever the host's defaults are, nothing is to be forwarded.
	b.sysctl("net/ipv4/ip_forward", "0")

	far := b.netlink(o, "speak to the kernel about the gate's end of the link", unix.NETLINK_ROUTE, fixRoutes)
	here := b.Do("open the listeners' network namespace", unix.SYS_OPENAT, noFD, b.Str("/proc/self/ns/net"), spawn.Int(unix.O_RDONLY|unix.O_CLOEXEC), zero).Result()
	number := b.number(here)
	if b.id.link != nil {
		b.Do("enter the card's network namespace", unix.SYS_SETNS, spawn.Uint(b.id.link.Fd()), spawn.Int(unix.CLONE_NEWNET))
	} else {
		b.Do("make the card's network namespace", unix.SYS_UNSHARE, spawn.Int(unix.CLONE_NEWNET))
	}
	b.loopback()
	near := b.netlink(o, "speak to the kernel about the cell's card", unix.NETLINK_ROUTE, fixRoutes)
	b.ask(o, near, "make the cell's card", netfilter.Pair(driver.LinkName, driver.LinkMTU, number), fixLink)
	if o.v6 {
		for _, name := range []string{"all", driver.LinkName} {
			b.sysctl("net/ipv6/conf/"+name+"/disable_ipv6", "0")
		}
	}
	for _, end := range []struct {
		what   string
		fd     spawn.Slot
		v4, v6 netip.Prefix
	}{{"the cell's card", near, driver.LinkAddr4, driver.LinkAddr6}, {"the gate's end of the link", far, driver.LinkGate4, driver.LinkGate6}} {
		if o.v6 {
			b.ask(o, end.fd, "keep addresses off "+end.what, netfilter.NoLinkLocal(), fixIPv6)
		}
		b.ask(o, end.fd, "bring up "+end.what, netfilter.Up(), fixLink)
		b.ask(o, end.fd, "give an address to "+end.what, netfilter.Address(end.v4), fixLink)
		if o.v6 {
			b.ask(o, end.fd, "give an address of IPv6 to "+end.what, netfilter.Address(end.v6), fixIPv6)
		}
	}
	b.ask(o, near, "lead the cell's card to the gate", netfilter.Gateway(driver.LinkGate4.Addr()), fixRoutes)
	b.ask(o, far, "find the cell's card", netfilter.Beyond(driver.LinkAddr4.Addr()), fixRoutes)
	if o.v6 {
		b.ask(o, near, "lead the cell's card to the gate with IPv6", netfilter.Gateway(driver.LinkGate6.Addr()), fixIPv6)
		b.ask(o, far, "find the cell's card with IPv6", netfilter.Beyond(driver.LinkAddr6.Addr()), fixIPv6)
	}
	for _, fd := range []spawn.Slot{near, far, here} {
		b.Do("close netlink", unix.SYS_CLOSE, spawn.From(fd))
	}
	b.Do("close the listeners' network namespace", unix.SYS_CLOSE, spawn.Int(number))
}

const fixLink = "use a kernel with virtual Ethernet pairs (CONFIG_VETH); as a module it must be loadable: modprobe veth"

// below gives the places of a root that lie in the root file system of a cell that
// is at target, with their places there.
func below(r driver.Root, target string) (inner driver.Root) {
	for _, p := range r.Places {
		if rest, ok := strings.CutPrefix(p.Target, target+"/"); ok {
			p.Target = path.Join("/", rest)
			inner.Places = append(inner.Places, p)
		}
	}
	return inner
}
