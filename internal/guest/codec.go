package guest

import (
	"encoding/binary"
	"errors"
	"strings"
)

// errMessage is any message that does not have the shape its type promises.
var errMessage = errors.New("a message that makes no sense")

// Numbers are little-endian; strings and byte strings have a 32-bit length.

func putU16(b []byte, v uint16) []byte { return binary.LittleEndian.AppendUint16(b, v) }
func putU32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }
func putU64(b []byte, v uint64) []byte { return binary.LittleEndian.AppendUint64(b, v) }
func putI64(b []byte, v int64) []byte  { return binary.LittleEndian.AppendUint64(b, uint64(v)) }
func putStr(b []byte, s string) []byte { return append(putU32(b, uint32(len(s))), s...) }
func putBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// reader takes a message apart. After the first thing that is wrong it gives
// zeros, and done reports it.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) next(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) u8() uint8 {
	if p := r.next(1); p != nil {
		return p[0]
	}
	return 0
}

func (r *reader) bool() bool {
	v := r.u8()
	if v > 1 {
		r.bad = true
	}
	return v == 1
}

func (r *reader) u16() uint16 {
	if p := r.next(2); p != nil {
		return binary.LittleEndian.Uint16(p)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if p := r.next(4); p != nil {
		return binary.LittleEndian.Uint32(p)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if p := r.next(8); p != nil {
		return binary.LittleEndian.Uint64(p)
	}
	return 0
}

func (r *reader) i64() int64 { return int64(r.u64()) }

// count reads a number of elements, each of which takes at least size bytes of
// what is left, so that no number makes the caller take memory it cannot need.
func (r *reader) count(max, size int) int {
	n := r.u32()
	if r.bad || n > uint32(max) || int(n)*size > len(r.b) {
		r.bad = true
		return 0
	}
	return int(n)
}

// str reads a string of at most max bytes, without NUL.
func (r *reader) str(max int) string {
	n := r.u32()
	if n > uint32(max) {
		r.bad = true
		return ""
	}
	s := string(r.next(int(n)))
	if strings.IndexByte(s, 0) >= 0 {
		r.bad = true
		return ""
	}
	return s
}

// rest takes all that is left, at most max bytes.
func (r *reader) rest(max int) []byte {
	if len(r.b) > max {
		r.bad = true
		return nil
	}
	return r.next(len(r.b))
}

// done reports whether the message was read to its end and was right.
func (r *reader) done() error {
	if r.bad || len(r.b) != 0 {
		return errMessage
	}
	return nil
}
