package guest

import (
	"syscall"
	"time"
)

// Version is the version of the protocol that this build speaks. A Client
// accepts a Server of this and the two versions before it.
const Version = 3

const keptVersions = 2

// acceptsVersion reports whether an owner that speaks current can talk to a
// sandbox that speaks peer.
func acceptsVersion(current, peer uint16) bool {
	return peer >= 1 && peer <= current && current-peer <= keptVersions
}

// Features is a set of what an end can do beyond its version.
type Features uint64

// The features that exist.
const (
	FeatureDescriptors Features = 1 << iota // descriptors pass over this transport
	FeatureUsers                            // commands and files as other users
	FeatureClock                            // SetClock may work
	FeatureEntropy                          // AddEntropy may work
)

type frameType uint8

// Frames from the owner.
const (
	frameReset frameType = 1 + iota
	frameHello
	frameExec
	frameAttach
	frameSignal
	frameResize
	frameStatus
	frameExecs
	frameProcesses
	frameForget
	frameStdin
	frameAck
	frameFile
	frameCancel
	frameShutdown
	frameClock
	frameEntropy
	framePing
)

// Frames of both, for the data of a request.
const (
	frameChunk  frameType = 64 + iota // data; an empty one is its end
	frameCredit                       // so many bytes more may be sent
)

// Frames from inside.
const (
	frameResetDone frameType = 128 + iota
	frameResetAsk
	frameHelloDone
	frameAnswer
	frameFail
	frameEvent
	frameOutput
	frameStdinAck
)

type hello struct {
	version  uint16
	features Features
	mtu      uint32 // reserved for later versions; 0
}

func (m hello) put(b []byte) []byte {
	return putU32(putU64(putU16(b, m.version), uint64(m.features)), m.mtu)
}

func parseHello(b []byte) (m hello, err error) {
	r := reader{b: b}
	m.version, m.features, m.mtu = r.u16(), Features(r.u64()), r.u32()
	return m, r.done()
}

func putUser(b []byte, u *User) []byte {
	b = putBool(b, u != nil)
	if u != nil {
		b = putU32(putU32(putU32(b, u.UID), u.GID), uint32(len(u.Groups)))
		for _, g := range u.Groups {
			b = putU32(b, g)
		}
	}
	return b
}

func (r *reader) user() *User {
	if !r.bool() {
		return nil
	}
	u := &User{UID: r.u32(), GID: r.u32()}
	for range r.count(MaxGroups, 4) {
		u.Groups = append(u.Groups, r.u32())
	}
	return u
}

func putWindow(b []byte, w Window) []byte {
	return putU16(putU16(putU16(putU16(b, w.Rows), w.Cols), w.XPixel), w.YPixel)
}

func (r *reader) window() Window { return Window{r.u16(), r.u16(), r.u16(), r.u16()} }

// id reads the id of an execution.
func (r *reader) id() string {
	s := r.str(MaxID)
	if s == "" {
		r.bad = true
	}
	return s
}

// strs reads a list of strings that take at most *budget bytes together.
func (r *reader) strs(budget *int) []string {
	n := r.count(MaxArgs, 4)
	if n == 0 {
		return nil
	}
	list := make([]string, 0, n)
	for range n {
		s := r.str(MaxArgBytes)
		if *budget -= len(s) + 1; *budget < 0 {
			r.bad = true
			return nil
		}
		list = append(list, s)
	}
	return list
}

func putStrs(b []byte, list []string) []byte {
	b = putU32(b, uint32(len(list)))
	for _, s := range list {
		b = putStr(b, s)
	}
	return b
}

// Bits of execMsg.flags.
const (
	execStdin    = 1 << iota // feed standard input
	execTerminal             // open a terminal inside
	execFiles                // descriptors 0, 1 and 2 come with the frame, but for those in the next three bits
	execNull0                // this one is /dev/null
	execNull1
	execNull2
	execControl // descriptor 0 becomes the controlling terminal
	execAllBits = 1<<iota - 1
)

type execMsg struct {
	id      string
	flags   uint16
	argv    []string
	env     []string
	dir     string
	user    *User
	umask   uint32
	rlimits []Rlimit
	window  Window
	timeout time.Duration
	grace   time.Duration
}

func (m *execMsg) put(b []byte) []byte {
	b = putStr(b, m.id)
	b = putU16(b, m.flags)
	b = putStrs(putStrs(b, m.argv), m.env)
	b = putU32(putUser(putStr(b, m.dir), m.user), m.umask)
	b = putU32(b, uint32(len(m.rlimits)))
	for _, l := range m.rlimits {
		b = putU64(putU64(putU32(b, l.Resource), l.Soft), l.Hard)
	}
	return putI64(putI64(putWindow(b, m.window), int64(m.timeout)), int64(m.grace))
}

func parseExec(b []byte) (*execMsg, error) {
	r := reader{b: b}
	m := &execMsg{id: r.id(), flags: r.u16()}
	budget := MaxArgBytes
	m.argv, m.env = r.strs(&budget), r.strs(&budget)
	m.dir, m.user, m.umask = r.str(MaxPath), r.user(), r.u32()
	for range r.count(MaxRlimits, 20) {
		m.rlimits = append(m.rlimits, Rlimit{r.u32(), r.u64(), r.u64()})
	}
	m.window, m.timeout, m.grace = r.window(), time.Duration(r.i64()), time.Duration(r.i64())
	if len(m.argv) == 0 || m.argv[0] == "" || m.dir == "" || m.dir[0] != '/' || m.umask > 0o777 || m.timeout < 0 || m.grace < 0 || m.flags > execAllBits ||
		m.flags&execTerminal != 0 && m.flags&execFiles != 0 {
		r.bad = true
	}
	return m, r.done()
}

type attachMsg struct {
	id      string
	offsets [2]int64
	// nulls, with descriptors, are the bits execNull0 to execNull2 of those that do
	// not come; since version 3.
	nulls uint16
}

func (m attachMsg) put(b []byte) []byte {
	return putI64(putI64(putStr(b, m.id), m.offsets[0]), m.offsets[1])
}

// putNulls is put for a frame with descriptors.
func (m attachMsg) putNulls(b []byte) []byte { return putU16(m.put(b), m.nulls) }

func parseAttach(b []byte, nfds int) (m attachMsg, err error) {
	r := reader{b: b}
	m.id, m.offsets = r.id(), [2]int64{r.i64(), r.i64()}
	if m.offsets[0] < 0 || m.offsets[1] < 0 {
		r.bad = true
	}
	if nfds > 0 {
		m.nulls = r.u16()
		if m.nulls&^(execNull0|execNull1|execNull2) != 0 || passedFiles(m.nulls) != nfds {
			r.bad = true
		}
	}
	return m, r.done()
}

// passedFiles counts the descriptors that come where flags name those that do not.
func passedFiles(flags uint16) (n int) {
	for _, bit := range [...]uint16{execNull0, execNull1, execNull2} {
		if flags&bit == 0 {
			n++
		}
	}
	return n
}

func putEnd(b []byte, e *ExecEnd) []byte {
	b = putBool(b, e != nil)
	if e == nil {
		return b
	}
	b = append(putU32(b, uint32(e.ExitCode)), byte(e.Signal))
	b = putBool(putBool(b, e.CoreDumped), e.TimedOut)
	for _, v := range [...]int64{int64(e.Usage.User), int64(e.Usage.System), e.Usage.MaxRSS, int64(e.Elapsed), e.Output[0], e.Output[1]} {
		b = putI64(b, v)
	}
	return b
}

func (r *reader) end() *ExecEnd {
	if !r.bool() {
		return nil
	}
	e := &ExecEnd{ExitCode: int(r.u32()), Signal: syscall.Signal(r.u8()), CoreDumped: r.bool(), TimedOut: r.bool()}
	e.Usage = Usage{time.Duration(r.i64()), time.Duration(r.i64()), r.i64()}
	e.Elapsed, e.Output = time.Duration(r.i64()), [2]int64{r.i64(), r.i64()}
	if e.ExitCode < 0 || e.ExitCode > 255 || e.Signal > 64 || e.Usage.User < 0 || e.Usage.System < 0 || e.Usage.MaxRSS < 0 || e.Elapsed < 0 ||
		e.Output[0] < -1 || e.Output[1] < -1 {
		r.bad = true
	}
	return e
}

// execReply answers frameExec and frameAttach.
type execReply struct {
	existing bool
	terminal bool
	streams  uint8 // bits: stdin, stdout, stderr go over this protocol
	pid      uint32
	state    State
	base     [2]int64 // the first byte of stdout and stderr that is still there
	stdin    int64    // bytes of input received so far
	end      *ExecEnd
	written  int64 // bytes of input that the command's pipe has taken; since version 2
	shut     bool  // no more input is taken; since version 2
}

func (m *execReply) put(b []byte) []byte {
	b = append(putBool(putBool(b, m.existing), m.terminal), m.streams)
	b = append(putU32(b, m.pid), byte(m.state))
	b = putEnd(putI64(putI64(putI64(b, m.base[0]), m.base[1]), m.stdin), m.end)
	return putBool(putI64(b, m.written), m.shut)
}

func parseExecReply(b []byte, version uint16) (*execReply, error) {
	r := reader{b: b}
	m := &execReply{existing: r.bool(), terminal: r.bool(), streams: r.u8(), pid: r.u32(), state: State(r.u8())}
	m.base, m.stdin, m.end = [2]int64{r.i64(), r.i64()}, r.i64(), r.end()
	if m.written = m.stdin; version >= 2 {
		m.written, m.shut = r.i64(), r.bool()
	}
	if m.streams > 7 || m.pid > 1<<22 || m.state < StateRunning || m.state > StateEnded || (m.end != nil) != (m.state == StateEnded) ||
		m.base[0] < 0 || m.base[1] < 0 || m.written < 0 || m.stdin < m.written || m.stdin-m.written > MaxStdin {
		r.bad = true
	}
	return m, r.done()
}

type signalMsg struct {
	id    string
	sig   uint8
	scope Scope
}

func (m signalMsg) put(b []byte) []byte { return append(putStr(b, m.id), m.sig, byte(m.scope)) }

func parseSignal(b []byte) (m signalMsg, err error) {
	r := reader{b: b}
	m = signalMsg{r.id(), r.u8(), Scope(r.u8())}
	if m.sig > 64 || m.scope > ScopeAll {
		r.bad = true
	}
	return m, r.done()
}

type resizeMsg struct {
	id     string
	window Window
}

func (m resizeMsg) put(b []byte) []byte { return putWindow(putStr(b, m.id), m.window) }

func parseResize(b []byte) (m resizeMsg, err error) {
	r := reader{b: b}
	m = resizeMsg{r.id(), r.window()}
	return m, r.done()
}

func parseID(b []byte) (string, error) {
	r := reader{b: b}
	id := r.id()
	return id, r.done()
}

// bytesMsg carries bytes of one stream of an execution: input to it (stream
// 0), or its output (stream 1 and 2).
type bytesMsg struct {
	id     string
	stream uint8
	eof    bool
	offset int64
	data   []byte
}

func (m *bytesMsg) put(b []byte) []byte {
	b = putBool(append(putStr(b, m.id), m.stream), m.eof)
	return append(putI64(b, m.offset), m.data...)
}

func parseBytes(b []byte) (m bytesMsg, err error) {
	r := reader{b: b}
	m.id, m.stream, m.eof, m.offset = r.id(), r.u8(), r.bool(), r.i64()
	m.data = r.rest(maxChunk)
	if m.stream > 2 || m.offset < 0 || m.offset > 1<<62 {
		r.bad = true
	}
	return m, r.done()
}

// ackMsg acknowledges the bytes of one stream below offset.
type ackMsg struct {
	id     string
	stream uint8
	closed bool // input: nobody reads it any more
	offset int64
}

func (m ackMsg) put(b []byte) []byte {
	return putI64(putBool(append(putStr(b, m.id), m.stream), m.closed), m.offset)
}

func parseAck(b []byte) (m ackMsg, err error) {
	r := reader{b: b}
	m = ackMsg{r.id(), r.u8(), r.bool(), r.i64()}
	if m.stream > 2 || m.offset < 0 {
		r.bad = true
	}
	return m, r.done()
}

type eventMsg struct {
	id   string
	kind EventKind
	sig  uint8
	end  *ExecEnd
}

func (m *eventMsg) put(b []byte) []byte {
	return putEnd(append(putStr(b, m.id), byte(m.kind), m.sig), m.end)
}

func parseEvent(b []byte) (m eventMsg, err error) {
	r := reader{b: b}
	m = eventMsg{r.id(), EventKind(r.u8()), r.u8(), r.end()}
	if m.kind < EventStopped || m.kind > EventEnded || m.sig > 64 || (m.end != nil) != (m.kind == EventEnded) {
		r.bad = true
	}
	return m, r.done()
}

// putStatus appends one record of frameStatus and frameExecs.
func putStatus(b []byte, s *ExecStatus) []byte {
	b = append(putStr(b, s.ID), byte(s.State))
	return putEnd(putU32(putU32(b, uint32(s.Pid)), uint32(s.Left)), s.End)
}

func (r *reader) status() (s ExecStatus) {
	s.ID, s.State, s.Pid, s.Left, s.End = r.id(), State(r.u8()), int(r.u32()), int(r.u32()), r.end()
	if s.State < StateRunning || s.State > StateEnded || (s.End != nil) != (s.State == StateEnded) || s.Pid > 1<<22 || s.Left > 1<<22 {
		r.bad = true
	}
	if s.End != nil {
		code := s.End.ExitCode
		if s.End.Signal != 0 {
			code = 128 + int(s.End.Signal)
		}
		s.ExitCode = &code
	}
	return s
}

const maxCommand = 64

func putProcess(b []byte, p *ProcessInfo) []byte {
	for _, v := range [...]int{p.Pid, p.Parent, p.Group, p.Session} {
		b = putU32(b, uint32(v))
	}
	return putStr(putStr(putU32(append(b, p.State), p.UID), p.Exec), p.Command)
}

func (r *reader) process() (p ProcessInfo) {
	for _, v := range [...]*int{&p.Pid, &p.Parent, &p.Group, &p.Session} {
		if *v = int(r.u32()); *v > 1<<22 {
			r.bad = true
		}
	}
	p.State, p.UID, p.Exec, p.Command = r.u8(), r.u32(), r.str(MaxID), r.str(maxCommand)
	return p
}

// failKind says how a request failed.
type failKind uint8

const (
	failErrno      failKind = 1 + iota // a system call: step and errno
	failNotStarted                     // the command could not be started: step and errno
	failNotFound                       // no such execution
	failBusy                           // too much at once
	failUsage                          // the request itself
	failConflict                       // the id belongs to something else
	failLast       = failConflict
)

type failMsg struct {
	kind  failKind
	errno uint16
	step  string
	text  string
}

func (m *failMsg) put(b []byte) []byte {
	return putStr(putStr(putU16(append(b, byte(m.kind)), m.errno), m.step), m.text)
}

func parseFail(b []byte) (m failMsg, err error) {
	r := reader{b: b}
	m = failMsg{failKind(r.u8()), r.u16(), r.str(64), r.str(maxText)}
	if m.kind < failErrno || m.kind > failLast || m.errno > 4095 {
		r.bad = true
	}
	return m, r.done()
}

// numbers are the payloads that are just numbers.
func parseU64(b []byte) (uint64, error) {
	r := reader{b: b}
	v := r.u64()
	return v, r.done()
}

func parseCredit(b []byte) (int, error) {
	r := reader{b: b}
	v := r.u32()
	if v > window {
		r.bad = true
	}
	return int(v), r.done()
}
