//go:build linux

package netfilter

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Table is the name of the table, of family inet.
const Table = "bailey"

// Rules gives the messages of the table that Routes needs beside it, as one
// transaction for a NETLINK_NETFILTER socket. All packets of a namespace that
// has only lo pass the hook output, and so these chains:
//
//   - local, before connections are tracked: what goes from one loopback address to
//     another is not, unless it comes from the listeners. A sandbox's own
//     services cost no entries of the kernel's table then.
//   - redirect: TCP to any other address, and UDP to port 53 of it, goes to port
//     at the loopback address of its family.
//   - leave: what still has no loopback address as its destination is counted and
//     refused, and so is what names port without having been redirected:
//     the listeners hear of nothing but destinations. A refusal is an error of
//     the system call for a datagram and a reset for TCP, never a wait.
//
// The kernel answers with one acknowledgement if all of it is in force. If the
// first answer is an error, nothing is. Nothing leaks without the rules either:
// a packet has nowhere to go but lo.
func Rules(port uint16) []byte {
	m := &batch{}
	control := func(kind uint16) {
		m.message(kind, 0, func() { m.raw(unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES) })
	}
	control(unix.NFNL_MSG_BATCH_BEGIN)
	m.table(unix.NFT_MSG_NEWTABLE, 0, func() { m.text(unix.NFTA_TABLE_NAME, Table) })

	m.chain("local", "filter", priorityRaw, accept)
	for _, loopback := range []func(*rule){toLoopback4, toLoopback6} {
		for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			m.rule("local", 0, loopback, isProtocol(protocol), port16(sourcePort, notEqual, port), port16(destinationPort, notEqual, port), (*rule).notrack)
		}
	}
	m.chain("redirect", "nat", priorityDestination, accept)
	m.rule("redirect", 0, toLoopback4, (*rule).accept)
	m.rule("redirect", 0, toLoopback6, (*rule).accept)
	m.rule("redirect", 0, isProtocol(unix.IPPROTO_TCP), (*rule).counter, redirect(port))
	m.rule("redirect", 0, isProtocol(unix.IPPROTO_UDP), port16(destinationPort, equal, 53), (*rule).counter, redirect(port))

	m.chain("leave", "filter", priorityFilter, drop)
	m.rule("leave", 0, stateIsOneOf(stateEstablished|stateRelated), (*rule).accept)
	m.rule("leave", 0, isProtocol(unix.IPPROTO_TCP), port16(destinationPort, equal, port), notRedirected, (*rule).counter, (*rule).reset)
	m.rule("leave", 0, isProtocol(unix.IPPROTO_UDP), port16(destinationPort, equal, port), notRedirected, (*rule).counter, (*rule).unreachable)
	m.rule("leave", 0, toLoopback4, (*rule).accept)
	m.rule("leave", 0, toLoopback6, (*rule).accept)
	m.rule("leave", unix.NLM_F_ACK, (*rule).counter, (*rule).unreachable)
	control(unix.NFNL_MSG_BATCH_END)
	return m.b
}

// Priorities of hooks (linux/netfilter_ipv4.h, NF_IP_PRI_*).
const (
	priorityRaw         = -300
	priorityDestination = -100
	priorityFilter      = 0
)

const (
	drop   = 0 // NF_DROP
	accept = 1 // NF_ACCEPT

	equal    = unix.NFT_CMP_EQ
	notEqual = unix.NFT_CMP_NEQ

	sourcePort      = 0 // where ports are in a header of TCP and UDP
	destinationPort = 2

	stateEstablished = 1 << 1 // NF_CT_STATE_BIT(IP_CT_ESTABLISHED)
	stateRelated     = 1 << 2 // NF_CT_STATE_BIT(IP_CT_RELATED)
	statusRedirected = 1 << 5 // IPS_DST_NAT

	hookOutput = 3 // NF_INET_LOCAL_OUT
)

// table appends a message about the table.
func (m *batch) table(kind, flags uint16, body func()) {
	m.message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_CREATE|flags, func() {
		m.raw(unix.NFPROTO_INET, unix.NFNETLINK_V0, 0, 0)
		body()
	})
}

// chain appends a chain for what programs of the namespace send.
func (m *batch) chain(name, kind string, priority int32, policy uint32) {
	m.chainAt(name, kind, hookOutput, priority, policy)
}

func (m *batch) chainAt(name, kind string, hook uint32, priority int32, policy uint32) {
	m.table(unix.NFT_MSG_NEWCHAIN, 0, func() {
		m.text(unix.NFTA_CHAIN_TABLE, Table)
		m.text(unix.NFTA_CHAIN_NAME, name)
		m.nest(unix.NFTA_CHAIN_HOOK, func() {
			m.big(unix.NFTA_HOOK_HOOKNUM, hook)
			m.big(unix.NFTA_HOOK_PRIORITY, uint32(priority))
		})
		m.big(unix.NFTA_CHAIN_POLICY, policy)
		m.text(unix.NFTA_CHAIN_TYPE, kind)
	})
}

// rule is a rule that is being written: its expressions.
type rule struct{ m *batch }

// rule appends a rule to a chain.
func (m *batch) rule(chain string, flags uint16, parts ...func(*rule)) {
	m.put(chain, unix.NLM_F_APPEND|flags, parts...)
}

// put makes a rule the first of a chain, or with NLM_F_APPEND the last.
func (m *batch) put(chain string, flags uint16, parts ...func(*rule)) {
	m.table(unix.NFT_MSG_NEWRULE, flags, func() {
		m.text(unix.NFTA_RULE_TABLE, Table)
		m.text(unix.NFTA_RULE_CHAIN, chain)
		m.nest(unix.NFTA_RULE_EXPRESSIONS, func() {
			r := &rule{m}
			for _, part := range parts {
				part(r)
			}
		})
	})
}

// expr appends an expression. Everything is compared in the first register.
func (r *rule) expr(name string, data func()) {
	r.m.nest(unix.NFTA_LIST_ELEM, func() {
		r.m.text(unix.NFTA_EXPR_NAME, name)
		r.m.nest(unix.NFTA_EXPR_DATA, data)
	})
}

func (r *rule) meta(key uint32) {
	r.expr("meta", func() {
		r.m.big(unix.NFTA_META_DREG, unix.NFT_REG_1)
		r.m.big(unix.NFTA_META_KEY, key)
	})
}

func (r *rule) payload(base, offset, length uint32) {
	r.expr("payload", func() {
		r.m.big(unix.NFTA_PAYLOAD_DREG, unix.NFT_REG_1)
		r.m.big(unix.NFTA_PAYLOAD_BASE, base)
		r.m.big(unix.NFTA_PAYLOAD_OFFSET, offset)
		r.m.big(unix.NFTA_PAYLOAD_LEN, length)
	})
}

func (r *rule) compare(op uint32, value ...byte) {
	r.expr("cmp", func() {
		r.m.big(unix.NFTA_CMP_SREG, unix.NFT_REG_1)
		r.m.big(unix.NFTA_CMP_OP, op)
		r.m.nest(unix.NFTA_CMP_DATA, func() { r.m.bytes(unix.NFTA_DATA_VALUE, value...) })
	})
}

// mask keeps some bits of the register.
func (r *rule) mask(bits ...byte) {
	r.expr("bitwise", func() {
		r.m.big(unix.NFTA_BITWISE_SREG, unix.NFT_REG_1)
		r.m.big(unix.NFTA_BITWISE_DREG, unix.NFT_REG_1)
		r.m.big(unix.NFTA_BITWISE_LEN, uint32(len(bits)))
		r.m.nest(unix.NFTA_BITWISE_MASK, func() { r.m.bytes(unix.NFTA_DATA_VALUE, bits...) })
		r.m.nest(unix.NFTA_BITWISE_XOR, func() { r.m.bytes(unix.NFTA_DATA_VALUE, make([]byte, len(bits))...) })
	})
}

// connection loads what the kernel knows of the packet's connection.
func (r *rule) connection(key uint32) {
	r.expr("ct", func() {
		r.m.big(unix.NFTA_CT_DREG, unix.NFT_REG_1)
		r.m.big(unix.NFTA_CT_KEY, key)
	})
}

func toLoopback4(r *rule) {
	r.meta(unix.NFT_META_NFPROTO)
	r.compare(equal, unix.NFPROTO_IPV4)
	r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 16, 1) // the first byte of the destination: 127.0.0.0/8
	r.compare(equal, 127)
}

func toLoopback6(r *rule) {
	r.meta(unix.NFT_META_NFPROTO)
	r.compare(equal, unix.NFPROTO_IPV6)
	r.payload(unix.NFT_PAYLOAD_NETWORK_HEADER, 24, 16)
	r.compare(equal, append(make([]byte, 15), 1)...)
}

func isProtocol(p byte) func(*rule) {
	return func(r *rule) {
		r.meta(unix.NFT_META_L4PROTO)
		r.compare(equal, p)
	}
}

func port16(offset, op uint32, port uint16) func(*rule) {
	return func(r *rule) {
		r.payload(unix.NFT_PAYLOAD_TRANSPORT_HEADER, offset, 2)
		r.compare(op, binary.BigEndian.AppendUint16(nil, port)...)
	}
}

func stateIsOneOf(states uint32) func(*rule) {
	return func(r *rule) {
		r.connection(unix.NFT_CT_STATE)
		r.mask(binary.NativeEndian.AppendUint32(nil, states)...)
		r.compare(notEqual, 0, 0, 0, 0)
	}
}

func notRedirected(r *rule) {
	r.connection(unix.NFT_CT_STATUS)
	r.mask(binary.NativeEndian.AppendUint32(nil, statusRedirected)...)
	r.compare(equal, 0, 0, 0, 0)
}

func (r *rule) counter() { r.expr("counter", func() {}) }
func (r *rule) notrack() { r.expr("notrack", func() {}) }

func (r *rule) accept() {
	r.expr("immediate", func() {
		r.m.big(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_VERDICT)
		r.m.nest(unix.NFTA_IMMEDIATE_DATA, func() {
			r.m.nest(unix.NFTA_DATA_VERDICT, func() { r.m.big(unix.NFTA_VERDICT_CODE, accept) })
		})
	})
}

func redirect(port uint16) func(*rule) {
	return func(r *rule) {
		r.expr("immediate", func() {
			r.m.big(unix.NFTA_IMMEDIATE_DREG, unix.NFT_REG_1)
			r.m.nest(unix.NFTA_IMMEDIATE_DATA, func() {
				r.m.bytes(unix.NFTA_DATA_VALUE, binary.BigEndian.AppendUint16(nil, port)...)
			})
		})
		r.expr("redir", func() { r.m.big(unix.NFTA_REDIR_REG_PROTO_MIN, unix.NFT_REG_1) })
	}
}

func (r *rule) reset() {
	r.expr("reject", func() { r.m.big(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_TCP_RST) })
}

func (r *rule) unreachable() {
	r.expr("reject", func() {
		r.m.big(unix.NFTA_REJECT_TYPE, unix.NFT_REJECT_ICMPX_UNREACH)
		r.m.bytes(unix.NFTA_REJECT_ICMP_CODE, unix.NFT_REJECT_ICMPX_PORT_UNREACH)
	})
}
