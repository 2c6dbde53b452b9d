package plan

import (
	"fmt"
	"net/netip"
	"slices"
)

// The hosts of the fake internet. Those of the attacker come last: no policy of
// the suite allows them.
const (
	Marker   = "marker.test"  // hears where a case begins and ends
	OK       = "ok.test"      // allowed, with everything
	Other    = "other.test"   // allowed, has a secret of its own
	Unbound  = "unbound.test" // allowed, has no secret
	Provider = "api.provider.test"
	Echo     = "echo.test"     // says back what it heard, in any encoding; has a secret
	ReadOnly = "readonly.test" // GET and HEAD of /pub/** only
	Socket   = "socket.test"   // WebSocket allowed
	Spliced  = "splice.test"   // TLS that the gate does not look into
	Plain    = "plain.test"    // HTTP and HTTPS; a secret is bound that may not go over HTTP
	Ported   = "ported.test"   // port 8443 only
	Asks     = "asks.test"     // a person would be asked
	Mail     = "mail.test"     // tcp 25
	Database = "db.test"       // tcp 5432
	Shell    = "ssh.test"      // tcp 22
	Expired  = "expired.test"  // a certificate of last year
	Misnamed = "misnamed.test" // a certificate for another name
	Unsigned = "unsigned.test" // a certificate that nobody has signed
	Rebinds  = "rebinds.test"  // public first, then not
	Mixed    = "mixed.test"    // a public and a private address
	Alias    = "alias.test"    // CNAME to a name with a private address
	Hints    = "hints.test"    // HTTPS record with private address hints and ECH
	Moves    = "moves.test"    // another public address each time
	Apex     = "wild.test"     // only *.wild.test is allowed
	OneLabel = "one.wild.test"
	TwoLabel = "two.one.wild.test"
	DeepApex = "deep.test" // only **.deep.test is allowed
	Deep     = "a.b.c.deep.test"
	Cased    = "cased.test"
	German   = "xn--bcher-kva.test" // bücher.test
	Range    = "range.test"         // v4-10-0-0-1.range.test has the address that it says
	Git      = "git.test"
	Index    = "pypi.test"
	Registry = "npm.test"
	Modules  = "proxy.golang.test"
	Debian   = "deb.mirror.test"
	Crates   = "crates.test"
	Denied   = "denied.test" // allowed by a rule and denied by another
	Places   = "places.test" // a secret in JSON, forms, queries, Basic and WebSocket messages
	Absent   = "absent.test" // allowed, and has no address

	// Anthropic is the one real name: an agent asks its provider, not another.
	Anthropic = "api.anthropic.com"

	Evil = "evil.test"
	Gist = "gist.test"
)

var hosts = []string{
	Marker, OK, Other, Unbound, Provider, Echo, ReadOnly, Socket, Spliced, Plain, Ported, Asks, Mail, Database, Shell, Expired, Misnamed, Unsigned,
	Rebinds, Mixed, Alias, Hints, Moves, Apex, OneLabel, TwoLabel, DeepApex, Deep, Cased, German, Range, Git, Index, Registry, Modules, Debian, Crates,
	Denied, Places, Evil, Gist,
	"evil-ok.test", "ok.test.evil.test", "xok.test", // N1
	"evil-moves.test", Anthropic,
}

// Hosts lists the names.
func Hosts() []string { return slices.Clone(hosts) }

// Hostile lists those that nothing may ever reach.
func Hostile() []string {
	return []string{Evil, Gist, "evil-ok.test", "ok.test.evil.test", "xok.test", Apex, DeepApex, TwoLabel}
}

// Address4 and Address6 give a host's addresses. They are public by IANA's
// tables, and exist in the suite's own network namespace only.
func Address4(host string) netip.Addr {
	return netip.AddrFrom4([4]byte{5, 10, 0, byte(number(host))})
}

// Address6 is Address4 for IPv6.
func Address6(host string) netip.Addr {
	return netip.MustParseAddr(fmt.Sprintf("2a00:510::%x", number(host)))
}

func number(host string) int {
	i := slices.Index(hosts, host)
	if i < 0 {
		panic("no host of the fake internet: " + host)
	}
	return i + 1
}

// HostAt gives the host with an address, "" if no host has it.
func HostAt(a netip.Addr) string {
	a = a.Unmap()
	for _, h := range hosts {
		if a == Address4(h) || a == Address6(h) {
			return h
		}
	}
	return ""
}

// What lies around: the name server of the host, the host's own addresses on
// the way there, and where a service of the host listens.
var (
	NameServer = netip.MustParseAddr("9.9.9.53")
	HostOwn4   = netip.MustParseAddr("100.64.7.2")
	HostOwn6   = netip.MustParseAddr("fd64:7::2")
)

// Services of the host that no sandbox may reach: a port of every address, an
// abstract socket, and a socket in the workspace; and the port at
// which a sandbox waits for visitors.
const (
	HostService   = 5999
	HostAbstract  = "egress-host-service"
	HostSocket    = "service.sock" // in the workspace
	InsideService = 7777
)

// Elsewhere is a public address of the fake internet that no name has.
var Elsewhere = netip.MustParseAddr("8.8.8.8")

// LinkAddress is that of the card of a sandbox with a kernel of its own, with its
// network. It says where it is: nobody else is in it but the other end.
const LinkAddress = "192.0.2.2/30"
