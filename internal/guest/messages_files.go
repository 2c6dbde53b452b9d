package guest

import "time"

// fileKind is what a file request asks for.
type fileKind uint8

const (
	opRead fileKind = 1 + iota
	opWrite
	opList
	opStat
	opLstat
	opMkdir
	opRename
	opRemove
	opReadlink
	opWatch
	opTarOut
	opTarIn
	opLastFile = opTarIn
	// Not file requests, but answered in the same way: a stream of records.
	opExecs     fileKind = 64
	opProcesses fileKind = 65
)

// Bits of fileMsg.flags.
const (
	fileParents = 1 << iota
	fileRecursive
	fileXattrs
	fileAllBits = 1<<iota - 1
)

// fileMsg asks for something to be done with files. Fields that a kind does
// not use are zero.
type fileMsg struct {
	op     fileKind
	flags  uint8
	path   string
	to     string
	user   *User
	owner  *User
	mode   uint32
	offset int64
	length int64
	depth  uint32
}

func (m *fileMsg) put(b []byte) []byte {
	b = putStr(putStr(append(b, byte(m.op), m.flags), m.path), m.to)
	b = putU32(putUser(putUser(b, m.user), m.owner), m.mode)
	return putU32(putI64(putI64(b, m.offset), m.length), m.depth)
}

func parseFile(b []byte) (*fileMsg, error) {
	r := reader{b: b}
	m := &fileMsg{op: fileKind(r.u8()), flags: r.u8(), path: r.str(MaxPath), to: r.str(MaxPath), user: r.user(), owner: r.user(),
		mode: r.u32(), offset: r.i64(), length: r.i64(), depth: r.u32()}
	if m.op < opRead || m.op > opLastFile || m.flags > fileAllBits || m.path == "" || m.path[0] != '/' || m.mode > 0o7777 ||
		m.offset < 0 || m.length < 0 || m.depth > MaxDepth || (m.op == opRename) != (m.to != "") || m.to != "" && m.to[0] != '/' {
		r.bad = true
	}
	return m, r.done()
}

func putInfo(b []byte, i *FileInfo) []byte {
	b = putU32(putU32(putU32(putStr(b, i.Name), i.Mode), i.UID), i.GID)
	b = putU32(putI64(putI64(b, i.Size), i.ModTime.Unix()), uint32(i.ModTime.Nanosecond()))
	return putStr(putU64(putU64(b, i.Inode), i.Links), i.Target)
}

func (r *reader) info() (i FileInfo) {
	i.Name, i.Mode, i.UID, i.GID, i.Size = r.str(MaxDepth*256), r.u32(), r.u32(), r.u32(), r.i64()
	sec, nsec := r.i64(), r.u32()
	if nsec > 999999999 || i.Size < 0 {
		r.bad = true
		return FileInfo{}
	}
	i.ModTime = time.Unix(sec, int64(nsec))
	i.Inode, i.Links, i.Target = r.u64(), r.u64(), r.str(MaxPath)
	return i
}

func putWritten(b []byte, w Written) []byte { return append(putI64(b, w.Size), w.SHA256[:]...) }

func parseWritten(b []byte) (w Written, err error) {
	r := reader{b: b}
	w.Size = r.i64()
	copy(w.SHA256[:], r.next(len(w.SHA256)))
	if w.Size < 0 {
		r.bad = true
	}
	return w, r.done()
}

func putWatch(b []byte, e WatchEvent) []byte { return putStr(append(b, byte(e.Op)), e.Path) }

func (r *reader) watch() WatchEvent {
	e := WatchEvent{WatchOp(r.u8()), r.str(MaxDepth * 256)}
	if e.Op == 0 || e.Op >= WatchOverflow<<1 {
		r.bad = true
	}
	return e
}

// maxRecord bounds one record in a stream of records.
const maxRecord = 512*256 + MaxPath
