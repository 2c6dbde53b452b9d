//go:build linux

package netfilter

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// A link is a pair of cards: one that a cell has for its own, in a namespace in
// which there is nothing else, and its peer in the namespace of the listeners.
const (
	// LinkIndex is the index of either card in its namespace. Below it there may be
	// what a kernel's modules put into every new namespace.
	LinkIndex = 64
	// PeerName is the name of the card beside the listeners.
	PeerName = "cell0"

	vethPeer       = 1 // VETH_INFO_PEER of linux/veth.h
	addrGenMode    = 8 // IFLA_INET6_ADDR_GEN_MODE of linux/if_link.h
	noGeneratedOne = 1 // IN6_ADDR_GEN_MODE_NONE
)

// link appends a message about a card: struct ifinfomsg and what body writes.
func (m *batch) link(flags uint16, index int, up bool, body func()) {
	m.message(unix.RTM_NEWLINK, flags|unix.NLM_F_ACK, func() {
		m.info(index, up)
		body()
	})
}

func (m *batch) info(index int, up bool) {
	m.raw(unix.AF_UNSPEC, 0, 0, 0)
	m.raw(binary.NativeEndian.AppendUint32(nil, uint32(index))...)
	state := uint32(0)
	if up {
		state = unix.IFF_UP
	}
	m.raw(binary.NativeEndian.AppendUint32(nil, state)...)
	m.raw(binary.NativeEndian.AppendUint32(nil, state)...)
}

func (m *batch) number(kind uint16, v uint32) {
	m.bytes(kind, binary.NativeEndian.AppendUint32(nil, v)...)
}

// Pair makes the link: a card in the namespace of the NETLINK_ROUTE socket that it
// is sent on, and its peer in the one that descriptor peer leads to.
func Pair(name string, mtu, peer int) []byte {
	m := &batch{}
	m.link(unix.NLM_F_CREATE|unix.NLM_F_EXCL, LinkIndex, false, func() {
		m.text(unix.IFLA_IFNAME, name)
		m.number(unix.IFLA_MTU, uint32(mtu))
		m.nest(unix.IFLA_LINKINFO, func() {
			m.text(unix.IFLA_INFO_KIND, "veth")
			m.nest(unix.IFLA_INFO_DATA, func() {
				m.nest(vethPeer, func() {
					m.info(LinkIndex, false)
					m.text(unix.IFLA_IFNAME, PeerName)
					m.number(unix.IFLA_MTU, uint32(mtu))
					m.number(unix.IFLA_NET_NS_FD, uint32(peer))
				})
			})
		})
	})
	return m.b
}

// NoLinkLocal keeps the kernel from giving a card addresses of IPv6 by itself.
func NoLinkLocal() []byte {
	m := &batch{}
	m.link(0, LinkIndex, false, func() {
		m.nest(unix.IFLA_AF_SPEC, func() {
			m.nest(unix.AF_INET6, func() { m.bytes(addrGenMode, noGeneratedOne) })
		})
	})
	return m.b
}

// Up brings a card up.
func Up() []byte {
	m := &batch{}
	m.link(0, LinkIndex, true, func() {})
	return m.b
}

// Address gives a card an address, which is good at once.
func Address(a netip.Prefix) []byte {
	m := &batch{}
	family, ip := familyOf(a.Addr())
	m.message(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, func() {
		// struct ifaddrmsg
		m.raw(family, byte(a.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE)
		m.raw(binary.NativeEndian.AppendUint32(nil, LinkIndex)...)
		m.bytes(unix.IFA_LOCAL, ip...)
		m.bytes(unix.IFA_ADDRESS, ip...)
		m.number(unix.IFA_FLAGS, unix.IFA_F_NODAD|unix.IFA_F_PERMANENT)
	})
	return m.b
}

// Gateway makes the other end of the link the way to everything.
func Gateway(a netip.Addr) []byte {
	m := &batch{}
	family, ip := familyOf(a)
	m.route(family, 0, unix.RT_TABLE_MAIN, unix.RT_SCOPE_UNIVERSE, func() { m.bytes(unix.RTA_GATEWAY, ip...) })
	return m.b
}

// Beyond says that one address, which Routes would make one of the namespace's own,
// is at the other end of the link. It stands in the same table and is narrower.
func Beyond(a netip.Addr) []byte {
	m := &batch{}
	family, ip := familyOf(a)
	m.route(family, byte(a.BitLen()), unix.RT_TABLE_LOCAL, unix.RT_SCOPE_LINK, func() { m.bytes(unix.RTA_DST, ip...) })
	return m.b
}

// route appends a route over the card.
func (m *batch) route(family, bits, table, scope byte, body func()) {
	m.message(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, func() {
		m.raw(family, bits, 0, 0, table, unix.RTPROT_STATIC, scope, unix.RTN_UNICAST, 0, 0, 0, 0)
		body()
		m.number(unix.RTA_OIF, LinkIndex)
	})
}

func familyOf(a netip.Addr) (byte, []byte) {
	if a.Is4() {
		return unix.AF_INET, a.AsSlice()
	}
	return unix.AF_INET6, a.AsSlice()
}

// LinkRules gives the chains for what comes in over the link, to be sent after
// Rules:
//
//   - arrive: TCP to any address, and UDP to port 53 of it, goes to port.
//   - admit: of all that comes over the link only this is heard, and what IPv6 needs
//     to find a neighbour, which may leave, too. All else is counted and refused. There is nowhere to
//     forward it to: every address is the namespace's own, but the sandbox's.
func LinkRules(port uint16) []byte {
	m := &batch{}
	control := func(kind uint16) {
		m.message(kind, 0, func() { m.raw(unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES) })
	}
	control(unix.NFNL_MSG_BATCH_BEGIN)
	m.chainAt("arrive", "nat", hookPrerouting, priorityDestination, accept)
	m.rule("arrive", 0, overLink, isProtocol(unix.IPPROTO_TCP), (*rule).counter, redirect(port))
	m.rule("arrive", 0, overLink, isProtocol(unix.IPPROTO_UDP), port16(destinationPort, equal, 53), (*rule).counter, redirect(port))

	m.chainAt("admit", "filter", hookInput, priorityFilter, accept)
	m.rule("admit", 0, overLink, stateIsOneOf(stateEstablished|stateRelated), (*rule).accept)
	m.rule("admit", 0, overLink, wasRedirected, (*rule).accept)
	m.rule("admit", 0, overLink, isNeighbour(neighbourSolicitation), (*rule).accept)
	m.rule("admit", 0, overLink, isNeighbour(neighbourAdvertisement), (*rule).accept)
	m.rule("admit", 0, overLink, (*rule).counter, (*rule).unreachable)

	m.put("leave", 0, intoLink, isNeighbour(neighbourSolicitation), (*rule).accept)
	m.put("leave", 0, intoLink, isNeighbour(neighbourAdvertisement), (*rule).accept)

	m.chainAt("forward", "filter", hookForward, priorityFilter, drop)
	m.rule("forward", unix.NLM_F_ACK, (*rule).counter, (*rule).unreachable)
	control(unix.NFNL_MSG_BATCH_END)
	return m.b
}

const (
	hookPrerouting = 0 // NF_INET_PRE_ROUTING
	hookInput      = 1 // NF_INET_LOCAL_IN
	hookForward    = 2 // NF_INET_FORWARD

	neighbourSolicitation  = 135 // RFC 4861
	neighbourAdvertisement = 136
)

func overLink(r *rule) {
	r.meta(unix.NFT_META_IIF)
	r.compare(equal, binary.NativeEndian.AppendUint32(nil, LinkIndex)...)
}

func intoLink(r *rule) {
	r.meta(unix.NFT_META_OIF)
	r.compare(equal, binary.NativeEndian.AppendUint32(nil, LinkIndex)...)
}

func wasRedirected(r *rule) {
	r.connection(unix.NFT_CT_STATUS)
	r.mask(binary.NativeEndian.AppendUint32(nil, statusRedirected)...)
	r.compare(notEqual, 0, 0, 0, 0)
}

func isNeighbour(kind byte) func(*rule) {
	return func(r *rule) {
		isProtocol(unix.IPPROTO_ICMPV6)(r)
		r.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, 0, 1)
		r.compare(equal, kind)
	}
}
