package dial

import (
	"encoding/binary"
	"net/netip"

	"github.com/bailey-sandbox/bailey/internal/gate/names"
)

// Classes with a meaning of their own. The others name a range of the IANA
// special-purpose address registries, and a rule may open them.
const (
	Public   = ""         // may be reached
	Metadata = "metadata" // a cloud's metadata service: never
	Gate     = "gate"     // a synthetic address or one of the gate's: never
	Host     = "host"     // one of this host's own
)

// class is a range and what it is called.
type class struct {
	prefix netip.Prefix
	name   string
}

// metadata are the addresses at which clouds give credentials to whoever asks
// from the host: AWS and those that copied it (169.254.169.254, fd00:ec2::254),
// its container and pod identities (169.254.170.2, 169.254.170.23,
// fd00:ec2::23), Google (fd20:ce::254), Azure's fabric (168.63.129.16), Alibaba
// (100.100.100.200), Oracle (192.0.0.192), Tencent (169.254.0.23), Scaleway
// (169.254.42.42, fd00:42::42), OpenStack (fe80::a9fe:a9fe).
var metadata = prefixes("169.254.169.0/24", "169.254.170.0/24", "169.254.0.23/32", "169.254.42.42/32", "168.63.129.16/32",
	"100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::/32", "fd20:ce::/32", "fd00:42::42/128", "fe80::a9fe:a9fe/128")

// special4 and special6 are the IANA IPv4 and IPv6 special-purpose address
// registries (RFC 6890 and its updates), as of 2026, without what they call
// globally reachable, and with multicast and what is not given out. The first
// that fits counts.
var special4 = classes(
	"0.0.0.0/8", "this network",
	"10.0.0.0/8", "private",
	"100.64.0.0/10", "carrier NAT",
	"127.0.0.0/8", "loopback",
	"169.254.0.0/16", "link-local",
	"172.16.0.0/12", "private",
	"192.0.0.0/24", "IETF protocols",
	"192.0.2.0/24", "documentation",
	"192.88.99.0/24", "6to4 relay",
	"192.168.0.0/16", "private",
	"198.18.0.0/15", "benchmark",
	"198.51.100.0/24", "documentation",
	"203.0.113.0/24", "documentation",
	"224.0.0.0/4", "multicast",
	"255.255.255.255/32", "broadcast",
	"240.0.0.0/4", "reserved",
)

var special6 = classes(
	"::/128", "unspecified",
	"::1/128", "loopback",
	"::ffff:0:0/96", "IPv4-mapped",
	"::/96", "IPv4-compatible",
	"::ffff:0:0:0/96", "IPv4-translated",
	"64:ff9b:1::/48", "local NAT64",
	"100::/64", "discard",
	"100:0:0:1::/64", "dummy",
	"2001::/32", "Teredo",
	"2001::/23", "IETF protocols",
	"2001:db8::/32", "documentation",
	"2002::/16", "6to4",
	"3fff::/20", "documentation",
	"5f00::/16", "segment routing",
	"fc00::/7", "unique local",
	"fe80::/10", "link-local",
	"fec0::/10", "site-local",
	"ff00::/8", "multicast",
)

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	unicast   = netip.MustParsePrefix("2000::/3") // all that is given out so far
	teredo    = netip.MustParsePrefix("2001::/32")
	sixToFour = netip.MustParsePrefix("2002::/16")
	// lastFour are the ranges whose last 32 bits are an IPv4 address.
	lastFour = prefixes("64:ff9b::/96", "64:ff9b:1::/48", "::/96", "::ffff:0:0:0/96")
)

// Classify names the range that an address lies in: Public, Metadata, Gate or
// that of a registry. Where an IPv6 address leads to an IPv4 one, that counts
// as well. The host's own addresses are not known here.
func Classify(a netip.Addr) string {
	if !a.IsValid() || a.Zone() != "" {
		return "scoped"
	}
	a = a.Unmap()
	for _, b := range leadsTo(a) {
		if within(metadata, b) {
			return Metadata
		}
		if names.Synthetic(b) {
			return Gate
		}
	}
	if a.Is4() {
		return find(special4, a)
	}
	if nat64.Contains(a) { // globally reachable, as far as what it stands for is
		return find(special4, last32(a))
	}
	if c := find(special6, a); c != Public {
		return c
	}
	if !unicast.Contains(a) {
		return "not assigned"
	}
	return Public
}

// leadsTo gives an address and the IPv4 ones that are written in it, by which a
// translator or a tunnel would reach them: NAT64 (RFC 6052, RFC 8215), 6to4 (RFC
// 3056), Teredo (RFC 4380: server, and client with its bits turned) and what has
// gone out of use.
func leadsTo(a netip.Addr) []netip.Addr {
	all := []netip.Addr{a}
	if a.Is4() {
		return all
	}
	b := a.As16()
	switch {
	case sixToFour.Contains(a):
		all = append(all, netip.AddrFrom4([4]byte(b[2:6])))
	case teredo.Contains(a):
		all = append(all, netip.AddrFrom4([4]byte(b[4:8])), netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}))
	case within(lastFour, a):
		all = append(all, last32(a))
	}
	return all
}

func last32(a netip.Addr) netip.Addr {
	b := a.As16()
	var four [4]byte
	binary.BigEndian.PutUint32(four[:], binary.BigEndian.Uint32(b[12:]))
	return netip.AddrFrom4(four)
}

func find(list []class, a netip.Addr) string {
	for _, c := range list {
		if c.prefix.Contains(a) {
			return c.name
		}
	}
	return Public
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

func prefixes(text ...string) (list []netip.Prefix) {
	for _, t := range text {
		list = append(list, netip.MustParsePrefix(t))
	}
	return list
}

func classes(pairs ...string) (list []class) {
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, class{netip.MustParsePrefix(pairs[i]), pairs[i+1]})
	}
	return list
}
