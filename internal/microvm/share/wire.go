package share

import (
	"bytes"
	"encoding/binary"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// The operations, as the kernel numbers them.
const (
	opLookup      = 1
	opForget      = 2
	opGetattr     = 3
	opSetattr     = 4
	opReadlink    = 5
	opSymlink     = 6
	opMknod       = 8
	opMkdir       = 9
	opUnlink      = 10
	opRmdir       = 11
	opRename      = 12
	opLink        = 13
	opOpen        = 14
	opRead        = 15
	opWrite       = 16
	opStatfs      = 17
	opRelease     = 18
	opFsync       = 20
	opSetxattr    = 21
	opGetxattr    = 22
	opListxattr   = 23
	opRemovexattr = 24
	opFlush       = 25
	opInit        = 26
	opOpendir     = 27
	opReaddir     = 28
	opReleasedir  = 29
	opFsyncdir    = 30
	opCreate      = 35
	opInterrupt   = 36
	opDestroy     = 38
	opBatchForget = 42
	opFallocate   = 43
	opReaddirplus = 44
	opRename2     = 45
	opLseek       = 46
)

const (
	headerIn  = 40
	headerOut = 16
	// MaxWrite is the most data of one request; MaxMessage the longest message.
	MaxWrite   = 256 << 10
	MaxMessage = MaxWrite + 4096 + 4096
	maxName    = 255
)

var errMessage = errors.New("a file request that makes no sense")

// request is one message of the other kernel.
type request struct {
	op       uint32
	unique   uint64
	node     uint64
	uid, gid uint32
	body     []byte
	bad      bool
}

// nextRequest takes the first one of what has arrived, and its length; nil while it
// is not whole.
func nextRequest(b []byte) (*request, int, error) {
	if len(b) < headerIn {
		return nil, 0, nil
	}
	n := binary.LittleEndian.Uint32(b)
	if n < headerIn || n > MaxMessage {
		return nil, 0, errMessage
	}
	if len(b) < int(n) {
		return nil, 0, nil
	}
	return &request{op: binary.LittleEndian.Uint32(b[4:]), unique: binary.LittleEndian.Uint64(b[8:]), node: binary.LittleEndian.Uint64(b[16:]),
		uid: binary.LittleEndian.Uint32(b[24:]), gid: binary.LittleEndian.Uint32(b[28:]), body: b[headerIn:n:n]}, int(n), nil
}

// u32 and the others take the next part of the body; what is too short is bad.
func (q *request) u32() uint32 {
	if len(q.body) < 4 {
		q.bad, q.body = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint32(q.body)
	q.body = q.body[4:]
	return v
}

func (q *request) u64() uint64 {
	if len(q.body) < 8 {
		q.bad, q.body = true, nil
		return 0
	}
	v := binary.LittleEndian.Uint64(q.body)
	q.body = q.body[8:]
	return v
}

// text takes what a NUL byte ends.
func (q *request) text() string {
	s, rest, ok := bytes.Cut(q.body, []byte{0})
	if !ok {
		q.bad = true
	}
	q.body = rest
	return string(s)
}

// name takes one component of a path.
func (q *request) name() string {
	s := q.text()
	if s == "" || s == "." || s == ".." || len(s) > maxName || bytes.IndexByte([]byte(s), '/') >= 0 {
		q.bad = true
		return ""
	}
	return s
}

// answer is what goes back.
type answer struct{ b []byte }

func newAnswer(unique uint64) *answer {
	a := &answer{make([]byte, headerOut, headerOut+128)}
	binary.LittleEndian.PutUint64(a.b[8:], unique)
	return a
}

func (a *answer) u16(v uint16)   { a.b = binary.LittleEndian.AppendUint16(a.b, v) }
func (a *answer) u32(v uint32)   { a.b = binary.LittleEndian.AppendUint32(a.b, v) }
func (a *answer) u64(v uint64)   { a.b = binary.LittleEndian.AppendUint64(a.b, v) }
func (a *answer) bytes(p []byte) { a.b = append(a.b, p...) }

// finish sets the length, and the error in place of all else.
func (a *answer) finish(err error) []byte {
	if err != nil {
		a.b = a.b[:headerOut]
		binary.LittleEndian.PutUint32(a.b[4:], uint32(-int32(errnoOf(err))))
	}
	binary.LittleEndian.PutUint32(a.b, uint32(len(a.b)))
	return a.b
}

func errnoOf(err error) syscall.Errno {
	var e syscall.Errno
	if errors.As(err, &e) && e > 0 && e < 512 {
		return e
	}
	return unix.EIO
}

// attr appends what stat tells.
func (a *answer) attr(st *unix.Stat_t) {
	for _, v := range [...]uint64{st.Ino, uint64(st.Size), uint64(st.Blocks), uint64(st.Atim.Sec), uint64(st.Mtim.Sec), uint64(st.Ctim.Sec)} {
		a.u64(v)
	}
	for _, v := range [...]uint32{uint32(st.Atim.Nsec), uint32(st.Mtim.Nsec), uint32(st.Ctim.Nsec), st.Mode, uint32(st.Nlink), st.Uid, st.Gid, uint32(st.Rdev), uint32(st.Blksize), 0} {
		a.u32(v)
	}
}

// entry appends what a name stands for.
func (a *answer) entry(n *node, st *unix.Stat_t) {
	a.u64(n.id)
	a.u64(0)
	v := n.valid()
	a.u64(v)
	a.u64(v)
	a.u32(0)
	a.u32(0)
	a.attr(st)
}
