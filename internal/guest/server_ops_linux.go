//go:build linux && (amd64 || arm64)

package guest

import (
	"context"
	"io"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// fileOp is one request that runs beside the conversation. Data to the owner
// goes through Write and data from it through Read; each side sends at most
// window bytes ahead of what the other has taken.
type fileOp struct {
	c   *session
	req uint32
	m   *fileMsg
	ctx context.Context
	end context.CancelFunc

	mu       sync.Mutex
	changed  sync.Cond
	credit   int // bytes that may be sent
	in       [][]byte
	held     int // bytes in in
	taken    int // bytes taken since credit was last given
	eof      bool
	canceled bool
}

// startOp starts a request.
func (c *session) startOp(req uint32, m *fileMsg) error {
	op := &fileOp{c: c, req: req, m: m, credit: window}
	op.changed.L = &op.mu
	op.ctx, op.end = context.WithCancel(context.Background())
	c.mu.Lock()
	_, twice := c.ops[req]
	full := c.running >= MaxFileOps
	if !twice && !full {
		c.ops[req] = op
		c.running++
	}
	c.mu.Unlock()
	if twice {
		return errMessage
	}
	if full {
		c.fail(req, failMsg{kind: failBusy, text: "too many requests at once"})
		return nil
	}
	go op.run()
	return nil
}

// opFrame handles a frame of a running request. One for a request that has
// just ended is no mistake.
func (c *session) opFrame(f frame) error {
	c.mu.Lock()
	op := c.ops[f.req]
	c.mu.Unlock()
	switch f.typ {
	case frameCancel:
		if len(f.payload) != 0 {
			return errMessage
		}
		if op != nil {
			op.cancel()
		}
		return nil
	case frameCredit:
		n, err := parseCredit(f.payload)
		if err != nil {
			return err
		}
		if op != nil {
			return op.addCredit(n)
		}
		return nil
	}
	if op == nil {
		return nil
	}
	return op.feed(f.payload)
}

func (op *fileOp) addCredit(n int) error {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.credit += n; op.credit > window {
		return errMessage
	}
	op.changed.Broadcast()
	return nil
}

func (op *fileOp) feed(p []byte) error {
	op.mu.Lock()
	defer op.mu.Unlock()
	if op.eof || len(p) > maxChunk || op.held+op.taken+len(p) > window {
		return errMessage
	}
	if len(p) == 0 {
		op.eof = true
	} else if !op.canceled {
		op.in = append(op.in, append([]byte(nil), p...))
		op.held += len(p)
	}
	op.changed.Broadcast()
	return nil
}

func (op *fileOp) cancel() {
	op.mu.Lock()
	op.canceled = true
	op.in, op.held = nil, 0
	op.changed.Broadcast()
	op.mu.Unlock()
	op.end()
}

var errCanceled = &failure{kind: failErrno, errno: uint16(syscall.ECANCELED), step: "request", text: "it was canceled"}

// Read implements io.Reader over what the owner sends.
func (op *fileOp) Read(p []byte) (int, error) {
	op.mu.Lock()
	for len(op.in) == 0 && !op.eof && !op.canceled {
		op.changed.Wait()
	}
	if op.canceled {
		op.mu.Unlock()
		return 0, errCanceled
	}
	if len(op.in) == 0 {
		op.mu.Unlock()
		return 0, io.EOF
	}
	n := copy(p, op.in[0])
	if op.in[0] = op.in[0][n:]; len(op.in[0]) == 0 {
		op.in[0] = nil
		op.in = op.in[1:]
	}
	op.held -= n
	op.taken += n
	give := 0
	if op.taken >= window/4 || op.held == 0 {
		give, op.taken = op.taken, 0
	}
	op.mu.Unlock()
	if give > 0 {
		op.send(func() {
			op.c.l.send(frameCredit, op.req, func(b []byte) []byte { return putU32(b, uint32(give)) })
		})
	}
	return n, nil
}

// send sends something, unless the request was given up: its number may mean another
// one's by now.
func (op *fileOp) send(now func()) {
	op.mu.Lock()
	defer op.mu.Unlock()
	if !op.canceled {
		now()
	}
}

// Write implements io.Writer to the owner.
func (op *fileOp) Write(p []byte) (int, error) {
	done := 0
	for len(p) > 0 {
		op.mu.Lock()
		for op.credit == 0 && !op.canceled {
			op.changed.Wait()
		}
		n := min(len(p), op.credit, maxChunk)
		op.credit -= n
		canceled := op.canceled
		op.mu.Unlock()
		if canceled {
			return done, errCanceled
		}
		if err := op.c.l.pace(); err != nil {
			return done, err
		}
		op.send(func() {
			op.c.l.send(frameChunk, op.req, func(b []byte) []byte { return append(b, p[:n]...) })
		})
		p, done = p[n:], done+n
	}
	return done, nil
}

// record sends one record of a stream of records.
func (op *fileOp) record(put func([]byte) []byte) error {
	b := put(make([]byte, 4, 128))
	copy(b, putU32(nil, uint32(len(b)-4)))
	_, err := op.Write(b)
	return err
}

// run does the request and answers it.
func (op *fileOp) run() {
	var answer func([]byte) []byte
	err := op.become()
	if err == nil {
		answer, err = op.do()
	}
	op.end()
	op.c.mu.Lock()
	defer op.c.mu.Unlock()
	op.c.running--
	if op.c.ops[op.req] != op {
		return // of a conversation that is over: the number means something else by now
	}
	delete(op.c.ops, op.req)
	if err != nil {
		op.c.fail(op.req, failureOf(err))
		return
	}
	op.c.l.send(frameAnswer, op.req, answer)
}

// become makes this thread reach files as the request's user. The goroutine
// stays on the thread, which ends with it, so no other ever runs as that user;
// and the process's own ids stay, so that user gains no right over the process.
func (op *fileOp) become() error {
	u := op.m.user
	if u == nil || op.c.s.isSelf(u) {
		return nil
	}
	runtime.LockOSThread()
	// The raw calls are for this thread alone; those of package syscall are for
	// all threads.
	groups := append(make([]uint32, 0, 1+len(u.Groups)), u.Groups...)
	if _, _, e := syscall.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0); e != 0 {
		return stepErr("setgroups", e)
	}
	// setfsgid and setfsuid report no errors: they give the id before the call.
	for _, call := range [...]struct {
		name string
		nr   uintptr
		id   uint32
	}{{"setfsgid", unix.SYS_SETFSGID, u.GID}, {"setfsuid", unix.SYS_SETFSUID, u.UID}} {
		syscall.RawSyscall(call.nr, uintptr(call.id), 0, 0)
		if now, _, _ := syscall.RawSyscall(call.nr, ^uintptr(0), 0, 0); uint32(now) != call.id {
			return stepErr(call.name, syscall.EPERM)
		}
	}
	return nil
}

// bytesPointer gives b's address for a raw system call in the same expression.
func bytesPointer(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// do does the request. It gives what to append to the answer, or nil.
func (op *fileOp) do() (func([]byte) []byte, error) {
	m := op.m
	switch m.op {
	case opExecs:
		list, err := op.c.s.statuses("")
		for i := 0; err == nil && i < len(list); i++ {
			err = op.record(func(b []byte) []byte { return putStatus(b, &list[i]) })
		}
		return nil, err
	case opProcesses:
		list, err := op.c.s.scan()
		for i := 0; err == nil && i < len(list); i++ {
			err = op.record(func(b []byte) []byte { return putProcess(b, &list[i]) })
		}
		return nil, err
	case opRead:
		return nil, op.readFile()
	case opWrite:
		w, err := op.writeFile()
		return func(b []byte) []byte { return putWritten(b, w) }, err
	case opList:
		return nil, op.list()
	case opStat, opLstat:
		i, err := op.c.s.stat(m.path, m.op == opStat)
		return func(b []byte) []byte { return putInfo(b, &i) }, err
	case opMkdir:
		return nil, op.c.s.mkdir(m.path, m.mode, m.flags&fileParents != 0)
	case opRename:
		return nil, op.c.s.rename(m.path, m.to)
	case opRemove:
		return nil, op.remove()
	case opReadlink:
		target, err := op.c.s.readlink(m.path)
		return func(b []byte) []byte { return putStr(b, target) }, err
	case opWatch:
		return nil, op.watch()
	case opTarOut:
		return nil, op.tarOut()
	case opTarIn:
		return nil, op.tarIn()
	}
	return nil, &failure{kind: failUsage, text: "there is no such request"}
}
