//go:build linux

package netfilter

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// stageVariable says that the test program is in a network namespace of its
// own, and what it sends there.
const stageVariable = "BAILEY_NETFILTER_STAGE"

func TestMain(m *testing.M) {
	if what := os.Getenv(stageVariable); what != "" {
		runtime.LockOSThread() // it changes the thread's namespace
		if err := stage(what); err != nil {
			os.Stdout.WriteString("failed: " + err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// send gives a message to the kernel and takes its first answer.
func send(protocol int, message []byte) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, message, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
	if err != nil {
		return err
	}
	if n < unix.SizeofNlMsghdr+4 || binary.NativeEndian.Uint16(buf[4:]) != unix.NLMSG_ERROR {
		return unix.EBADMSG
	}
	if e := -int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); e != 0 {
		return unix.Errno(e)
	}
	// One message, one answer.
	if _, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT); err != unix.EAGAIN {
		return unix.EBADMSG
	}
	return nil
}

func stage(what string) error {
	if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
		return err
	}
	routes := func() error {
		if err := send(unix.NETLINK_ROUTE, Routes(false)); err != nil {
			return err
		}
		return send(unix.NETLINK_ROUTE, Routes(true))
	}
	switch what {
	case "good":
		if err := routes(); err != nil {
			return err
		}
		if err := send(unix.NETLINK_NETFILTER, Rules(64053)); err != nil {
			return err
		}
	case "twice":
		routes()
		return routes()
	case "link":
		return link(routes)
	default: // a part that this kernel does not have
		return send(unix.NETLINK_NETFILTER, bytes.Replace(Rules(64053), []byte(what), []byte(strings.Repeat("x", len(what))), 1))
	}
	for _, args := range [][]string{
		{"ip", "route", "show", "table", "local", "type", "local", "proto", "static"},
		{"ip", "-6", "route", "show", "table", "local", "proto", "static"},
		{"nft", "--stateless", "list", "ruleset"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
		if err := cmd.Run(); err != nil {
			return err
		}
	}
	return nil
}

// inNamespace runs a stage as the owner of a new network namespace.
func inNamespace(t *testing.T, what string) string {
	t.Helper()
	testneeds.Tool(t, "ip")
	testneeds.Tool(t, "nft")
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), stageVariable+"="+what)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	if os.Geteuid() != 0 {
		testneeds.Host(t, testneeds.UserNS)
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil && !strings.HasPrefix(string(out), "failed: ") {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// What the kernel and its own tools make of the messages.
func TestMessagesMeanWhatTheySay(t *testing.T) {
	const want = `local default dev lo scope host src 127.0.0.1 
local default dev lo src ::1 metric 1024 pref medium
table inet bailey {
	chain local {
		type filter hook output priority raw; policy accept;
		ip daddr 127.0.0.0/8 tcp sport != 64053 tcp dport != 64053 notrack
		ip daddr 127.0.0.0/8 udp sport != 64053 udp dport != 64053 notrack
		ip6 daddr ::1 tcp sport != 64053 tcp dport != 64053 notrack
		ip6 daddr ::1 udp sport != 64053 udp dport != 64053 notrack
	}

	chain redirect {
		type nat hook output priority -100; policy accept;
		ip daddr 127.0.0.0/8 accept
		ip6 daddr ::1 accept
		meta l4proto tcp counter redirect to :64053
		udp dport 53 counter redirect to :64053
	}

	chain leave {
		type filter hook output priority filter; policy drop;
		ct state established,related accept
		tcp dport 64053 ct status ! dnat counter reject with tcp reset
		udp dport 64053 ct status ! dnat counter reject
		ip daddr 127.0.0.0/8 accept
		ip6 daddr ::1 accept
		counter reject
	}
}
`
	if got := inNamespace(t, "good"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The first answer tells of a failure anywhere in the transaction.
func TestFailuresAreAnswered(t *testing.T) {
	for what, want := range map[string]string{
		"twice":   unix.EEXIST.Error(),
		"notrack": unix.ENOENT.Error(), // in the first chain
		"redir":   unix.ENOENT.Error(),
		"reject":  unix.ENOENT.Error(), // the last rules
		"nat":     unix.ENOENT.Error(), // a kind of chain
	} {
		if got := inNamespace(t, what); got != "failed: "+want+"\n" {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

// link makes a link to another namespace, and sets up this end of it with all the
// messages that there are for either.
func link(routes func() error) error {
	if err := routes(); err != nil {
		return err
	}
	if err := send(unix.NETLINK_NETFILTER, Rules(64053)); err != nil {
		return err
	}
	if err := send(unix.NETLINK_NETFILTER, LinkRules(64053)); err != nil {
		return err
	}
	here, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	far, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Setns(here, unix.CLONE_NEWNET); err != nil {
		return err
	}
	for _, m := range [][]byte{Pair("eth9", 1400, far), NoLinkLocal(), Up(), Address(netip.MustParsePrefix("192.0.2.2/30")),
		Address(netip.MustParsePrefix("fdba::2/126")), Gateway(netip.MustParseAddr("192.0.2.1")), Gateway(netip.MustParseAddr("fdba::1")),
		Beyond(netip.MustParseAddr("192.0.2.1")), Beyond(netip.MustParseAddr("fdba::1"))} {
		if err := send(unix.NETLINK_ROUTE, m); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"ip", "-brief", "link", "show", "eth9"}, {"ip", "-brief", "addr", "show", "eth9"}, {"ip", "route", "show", "default"}, {"ip", "-6", "route", "show", "default"},
		{"ip", "route", "show", "table", "local", "type", "unicast"}, {"ip", "-6", "route", "show", "table", "local", "type", "unicast"},
		{"nft", "--stateless", "list", "chain", "inet", "bailey", "arrive"}, {"nft", "--stateless", "list", "chain", "inet", "bailey", "admit"},
		{"nft", "--stateless", "list", "chain", "inet", "bailey", "forward"}, {"nft", "--stateless", "list", "chain", "inet", "bailey", "leave"},
	} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stdout
		if err := cmd.Run(); err != nil {
			return err
		}
	}
	return nil
}

func TestLinkMessages(t *testing.T) {
	got := inNamespace(t, "link")
	for _, want := range []string{
		"192.0.2.2/30 fdba::2/126 \n", // and none that the kernel has made up
		"default via 192.0.2.1 dev eth9 proto static", "default via fdba::1 dev eth9 proto static",
		"\n192.0.2.1 dev eth9 proto static scope link", "\nfdba::1 dev eth9 proto static",
		`	chain arrive {
		type nat hook prerouting priority dstnat; policy accept;
		iif "eth9" meta l4proto tcp counter redirect to :64053
		iif "eth9" udp dport 53 counter redirect to :64053
	}
`, `	chain admit {
		type filter hook input priority filter; policy accept;
		iif "eth9" ct state established,related accept
		iif "eth9" ct status dnat accept
		iif "eth9" icmpv6 type nd-neighbor-solicit accept
		iif "eth9" icmpv6 type nd-neighbor-advert accept
		iif "eth9" counter reject
	}
`, `	chain forward {
		type filter hook forward priority filter; policy drop;
		counter reject
	}
`, `	chain leave {
		type filter hook output priority filter; policy drop;
		oif "eth9" icmpv6 type nd-neighbor-advert accept
		oif "eth9" icmpv6 type nd-neighbor-solicit accept
		ct state established,related accept
`} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}
