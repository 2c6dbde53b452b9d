package names

import (
	"encoding/binary"

	"github.com/miekg/dns"
)

const (
	// maxQuery is the longest query that is read, in bytes. One question and its
	// options need a tenth of it.
	maxQuery = 4096
	// payload is the size of UDP answers that the gate offers (DNS flag day 2020).
	payload = 1232
	// headerSize is that of the fixed part of a message, in bytes.
	headerSize = 12
)

// parse reads a query. Without ok there is to be no answer, since it is none or
// too short to be answered. Otherwise q is at least what an answer's header
// needs, and rcode says what is wrong with the rest.
func parse(b []byte) (q *dns.Msg, rcode int, ok bool) {
	if len(b) < headerSize {
		return nil, 0, false
	}
	bits := binary.BigEndian.Uint16(b[2:])
	q = &dns.Msg{MsgHdr: dns.MsgHdr{
		Id: binary.BigEndian.Uint16(b), Opcode: int(bits>>11) & 0xf, RecursionDesired: bits&(1<<8) != 0,
	}}
	if bits&(1<<15) != 0 {
		return nil, 0, false // an answer: to answer it could go on for ever
	}
	if q.Opcode != dns.OpcodeQuery {
		return q, dns.RcodeNotImplemented, true
	}
	// One question (RFC 9619), nothing that answers; the counts are looked at
	// before anything is unpacked.
	if len(b) > maxQuery || bits&(1<<9) != 0 ||
		binary.BigEndian.Uint16(b[4:]) != 1 || binary.BigEndian.Uint16(b[6:]) != 0 || binary.BigEndian.Uint16(b[8:]) != 0 ||
		binary.BigEndian.Uint16(b[10:]) > 2 {
		return q, dns.RcodeFormatError, true
	}
	full := &dns.Msg{}
	if err := full.Unpack(b); err != nil || len(full.Question) != 1 {
		return q, dns.RcodeFormatError, true
	}
	if o := full.IsEdns0(); o != nil && o.Version() != 0 {
		return full, dns.RcodeBadVers, true
	}
	if full.Question[0].Qclass != dns.ClassINET {
		return full, dns.RcodeRefused, true
	}
	return full, dns.RcodeSuccess, true
}

// reply begins the answer to q.
func reply(q *dns.Msg, rcode int) *dns.Msg {
	m := &dns.Msg{MsgHdr: dns.MsgHdr{
		Id: q.Id, Response: true, Opcode: q.Opcode, RecursionDesired: q.RecursionDesired, RecursionAvailable: true, Rcode: rcode,
	}}
	m.Question = q.Question
	m.Compress = true
	return m
}

// pack makes the bytes of answer m, with the extended error where the client
// speaks EDNS (RFC 6891), no longer than it takes: what does not fit is left
// out and marked, so that it asks again over TCP.
func pack(q *dns.Msg, extended *dns.EDNS0_EDE, m *dns.Msg, tcp bool) []byte {
	size := dns.MinMsgSize
	if o := q.IsEdns0(); o != nil {
		size = max(size, min(payload, int(o.UDPSize())))
		own := &dns.OPT{Hdr: dns.RR_Header{Name: ".", Rrtype: dns.TypeOPT}}
		own.SetUDPSize(payload)
		if extended != nil {
			own.Option = append(own.Option, extended)
		}
		m.Extra = append(m.Extra, own)
	} else if m.Rcode > 0xf {
		m.Rcode = dns.RcodeFormatError
	}
	b, err := m.Pack()
	if err == nil && !tcp && len(b) > size && extended != nil {
		// The text is a help, not the answer.
		m.Extra = m.Extra[:len(m.Extra)-1]
		m.SetEdns0(payload, false)
		b, err = m.Pack()
	}
	if err == nil && !tcp && len(b) > size {
		m.Truncate(size)
		b, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return b
}
