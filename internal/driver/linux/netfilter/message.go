//go:build linux

package netfilter

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// batch is a buffer of netlink messages.
type batch struct {
	b   []byte
	seq uint32
}

// message appends one: a header, what body writes, and the length at last.
func (m *batch) message(kind, flags uint16, body func()) {
	at := len(m.b)
	m.b = append(m.b, make([]byte, unix.SizeofNlMsghdr)...)
	body()
	m.pad()
	m.seq++
	h := m.b[at:]
	binary.NativeEndian.PutUint32(h[0:], uint32(len(h)))
	binary.NativeEndian.PutUint16(h[4:], kind)
	binary.NativeEndian.PutUint16(h[6:], unix.NLM_F_REQUEST|flags)
	binary.NativeEndian.PutUint32(h[8:], m.seq)
}

// attr appends an attribute with what body writes.
func (m *batch) attr(kind uint16, body func()) {
	at := len(m.b)
	m.b = append(m.b, 0, 0, 0, 0)
	body()
	binary.NativeEndian.PutUint16(m.b[at:], uint16(len(m.b)-at))
	binary.NativeEndian.PutUint16(m.b[at+2:], kind)
	m.pad()
}

// pad fills up to a boundary of four bytes, which everything begins at.
func (m *batch) pad() {
	for len(m.b)%unix.NLMSG_ALIGNTO != 0 {
		m.b = append(m.b, 0)
	}
}

func (m *batch) raw(b ...byte) { m.b = append(m.b, b...) }

func (m *batch) bytes(kind uint16, b ...byte) { m.attr(kind, func() { m.raw(b...) }) }

func (m *batch) text(kind uint16, s string) { m.bytes(kind, append([]byte(s), 0)...) }

// big appends a number as nf_tables wants them.
func (m *batch) big(kind uint16, v uint32) {
	m.bytes(kind, binary.BigEndian.AppendUint32(nil, v)...)
}

func (m *batch) nest(kind uint16, body func()) { m.attr(kind|unix.NLA_F_NESTED, body) }
