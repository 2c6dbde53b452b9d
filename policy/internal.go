package policy

import "net/netip"

// Internal says whether a rule lets something be reached whose address is not a
// public one: where whoever writes the policy is not who runs the gate, that is
// more than the internet.
func (p *Policy) Internal() bool {
	for _, r := range p.rules {
		if r.Action == Deny {
			continue
		}
		if len(r.Internal) > 0 {
			return true
		}
		for _, a := range r.addresses {
			if internal(a) || a.IsSingleIP() && !public(a.Addr()) {
				return true
			}
		}
	}
	return false
}

// public says that an address is plainly one of the internet. What only looks like
// one, because another is inside it, is not.
func public(a netip.Addr) bool {
	if _, ok := embedded(a); ok || !a.IsGlobalUnicast() || a.IsPrivate() || metadataAddress(a) {
		return false
	}
	for _, r := range notPublic {
		if r.Contains(a) {
			return false
		}
	}
	return !internal(netip.PrefixFrom(a, a.BitLen()))
}

// notPublic are ranges that are neither private nor anybody's (RFC 6890).
var notPublic = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("192.0.0.0/24"), netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("fec0::/10"),
}
