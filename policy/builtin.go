package policy

import (
	"net/netip"
	"strings"
)

// metadataNames and metadataAddresses are where clouds hand credentials to
// whoever asks from inside a machine. Sources: the documentation of AWS (also
// ECS and EKS), Google, Azure, Alibaba, Oracle, Scaleway, Equinix, Tencent.
var metadataNames = map[string]bool{
	"metadata": true, "metadata.google.internal": true, "metadata.goog": true,
	"instance-data": true, "instance-data.ec2.internal": true,
	"metadata.azure.com": true, "metadata.azure.internal": true, "metadata.platformequinix.com": true, "metadata.packet.net": true,
	"metadata.tencentyun.com": true, "metadata.oraclecloud.com": true,
}

var metadataAddresses = addresses(
	"169.254.169.254", "169.254.169.253", "169.254.170.2", "169.254.170.23", "169.254.42.42", "169.254.0.23", "169.254.10.10",
	"100.100.100.200", "168.63.129.16", "192.0.0.192",
	"fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42", "fe80::a9fe:a9fe",
)

// resolverNames and resolverAddresses are public DNS resolvers that speak DNS
// over HTTPS: through one, every name and much data can leave. They need a
// rule that names them exactly.
var resolverNames = names(`
	dns.google dns.google.com dns64.dns.google 8888.google
	cloudflare-dns.com one.one.one.one 1dot1dot1dot1.cloudflare-dns.com mozilla.cloudflare-dns.com chrome.cloudflare-dns.com
	security.cloudflare-dns.com family.cloudflare-dns.com dns64.cloudflare-dns.com
	dns.quad9.net dns9.quad9.net dns10.quad9.net dns11.quad9.net dns12.quad9.net
	doh.opendns.com dns.opendns.com doh.familyshield.opendns.com doh.sandbox.opendns.com dns.umbrella.com
	dns.adguard.com dns.adguard-dns.com dns-family.adguard.com family.adguard-dns.com unfiltered.adguard-dns.com dns-unfiltered.adguard.com
	dns.nextdns.io doh.nextdns.io chromium.dns.nextdns.io firefox.dns.nextdns.io anycast.dns.nextdns.io
	doh.cleanbrowsing.org dns.controld.com freedns.controld.com doh.dns.sb dns.sb doh.sb dot.sb
	dns.mullvad.net doh.mullvad.net base.dns.mullvad.net extended.dns.mullvad.net adblock.dns.mullvad.net
	dns.alidns.com doh.pub dns.pub doh.360.cn dns.twnic.tw odvr.nic.cz doh.libredns.gr dns.digitale-gesellschaft.ch
	doh.xfinity.com dns0.eu zero.dns0.eu kids.dns0.eu open.dns0.eu protective.joindns4.eu unfiltered.joindns4.eu
	doh.applied-privacy.net ordns.he.net doh.ffmuc.net dns.brahma.world jp.tiar.app doh.tiar.app dns.switch.ch doh.appliedprivacy.net
	anycast.uncensoreddns.org unicast.uncensoreddns.org dnsforge.de doh.tiarap.org doh.securedns.eu`)

var resolverAddresses = addresses(
	"8.8.8.8", "8.8.4.4", "2001:4860:4860::8888", "2001:4860:4860::8844",
	"1.1.1.1", "1.0.0.1", "1.1.1.2", "1.0.0.2", "1.1.1.3", "1.0.0.3", "2606:4700:4700::1111", "2606:4700:4700::1001",
	"9.9.9.9", "149.112.112.112", "9.9.9.10", "9.9.9.11", "2620:fe::fe", "2620:fe::9",
	"208.67.222.222", "208.67.220.220", "94.140.14.14", "94.140.15.15", "76.76.2.0", "76.76.10.0",
	"45.90.28.0", "45.90.30.0", "194.242.2.2", "223.5.5.5", "223.6.6.6", "119.29.29.29",
)

func names(list string) map[string]bool {
	m := map[string]bool{}
	for s := range strings.FieldsSeq(list) {
		m[s] = true
	}
	return m
}

func addresses(list ...string) map[netip.Addr]bool {
	m := map[netip.Addr]bool{}
	for _, s := range list {
		m[netip.MustParseAddr(s)] = true
	}
	return m
}

func isMetadata(h Host) bool {
	if a, literal := h.Addr(); literal {
		return metadataAddress(a)
	}
	return metadataNames[h.name]
}

// metadataAddress looks through the ways in which IPv6 carries IPv4.
func metadataAddress(a netip.Addr) bool {
	if metadataAddresses[a.WithZone("").Unmap()] {
		return true
	}
	inner, ok := embedded(a)
	return ok && metadataAddresses[inner]
}

// embedded gives the IPv4 address in a mapped (RFC 4291), NAT64 (RFC 6052, RFC
// 8215), 6to4 (RFC 3056), Teredo (RFC 4380) or IPv4-compatible one.
func embedded(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	last := netip.AddrFrom4([4]byte(b[12:]))
	switch {
	case a.Is4In6(), nat64.Contains(a), nat64Local.Contains(a), compatible.Contains(a):
		return last, true
	case sixToFour.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(a):
		for i := 12; i < 16; i++ {
			b[i] ^= 0xff
		}
		return netip.AddrFrom4([4]byte(b[12:])), true
	}
	return netip.Addr{}, false
}

var (
	nat64      = netip.MustParsePrefix("64:ff9b::/96")
	nat64Local = netip.MustParsePrefix("64:ff9b:1::/48")
	compatible = netip.MustParsePrefix("::/96")
	sixToFour  = netip.MustParsePrefix("2002::/16")
	teredo     = netip.MustParsePrefix("2001::/32")
)

func isResolver(h Host) bool {
	if a, literal := h.Addr(); literal {
		return resolverAddresses[a]
	}
	return resolverNames[h.name]
}

// AllowsAddress says whether the gate may dial addr for rule: the gate's own
// classification has found that it is not a public address. Only a rule that
// names the range allows it, under internal, or under addresses as one address
// or an internal range; metadata services never.
func (r *Rule) AllowsAddress(addr netip.Addr) bool {
	if r == nil || !addr.IsValid() || addr.Zone() != "" || metadataAddress(addr) {
		return false
	}
	a := addr.Unmap()
	if inner, ok := embedded(a); ok && !containsAddr(r.Internal, inner) {
		return false
	}
	if containsAddr(r.Internal, a) {
		return true
	}
	for _, p := range r.addresses {
		if p.Contains(a) && (p.IsSingleIP() || internal(p)) {
			return true
		}
	}
	return false
}

// internalRanges are what private networks and machines use (RFC 1918, RFC
// 4193, RFC 6598, loopback and link-local).
var internalRanges = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fc00::/7"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("::1/128"),
}

// internal tells that a rule that names p has an internal network in mind.
func internal(p netip.Prefix) bool {
	for _, r := range internalRanges {
		if r.Contains(p.Addr()) && p.Bits() >= r.Bits() {
			return true
		}
	}
	return false
}
