//go:build linux && (amd64 || arm64)

package guest

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey/internal/guest/vfork"
	"golang.org/x/sys/unix"
)

// ServerOptions say how the end inside behaves.
type ServerOptions struct {
	// Root is the folder that file requests are confined to; "/" when empty.
	// Commands always see the process's own root.
	Root string
	// ReapAll makes the server reap every child of the process and end every
	// process of its pid namespace on Shutdown: for the first process.
	ReapAll bool
	// Files is the limit on open files of commands that name none. Zero: that
	// of the process, which the Go runtime raised.
	Files unix.Rlimit
}

// ErrShutdown is what Serve returns after the owner asked for the end.
var ErrShutdown = errors.New("the owner asked for the end")

// Server is the end of the protocol inside the sandbox. It outlives its
// connections: executions and their output are there for the next one.
type Server struct {
	opt  ServerOptions
	root int // descriptor of Root
	null int // /dev/null, or the reading end of an empty pipe
	chld chan os.Signal

	mu    sync.Mutex // also held from a clone until the child is known, and while reaping
	idle  sync.Cond  // signalled when there is no child left
	execs map[string]*execution
	byPid map[int]*execution
	ended []string // ids of ended executions, oldest first
	seq   uint64
	child vfork.Script
	quit  bool

	memory thrift
}

// NewServer prepares a server and starts its reaper.
func NewServer(opt ServerOptions) (*Server, error) {
	if opt.Root == "" {
		opt.Root = "/"
	}
	root, err := unix.Open(opt.Root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open root", err)
	}
	s := &Server{opt: opt, root: root, execs: map[string]*execution{}, byPid: map[int]*execution{}, chld: make(chan os.Signal, 1)}
	s.idle.L = &s.mu
	if s.null, err = openNull(); err != nil {
		unix.Close(root)
		return nil, err
	}
	if opt.ReapAll {
		// Orphans of a sandbox whose first process is another one come here too.
		unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	}
	signal.Notify(s.chld, syscall.SIGCHLD)
	go s.reaper()
	return s, nil
}

// openNull opens what a command reads that has no input.
func openNull() (int, error) {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err == nil {
		return fd, nil
	}
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return -1, os.NewSyscallError("pipe", err)
	}
	unix.Close(p[1])
	return p[0], nil
}

// Close ends the reaper and what the server holds. Executions are not ended:
// Shutdown does that.
func (s *Server) Close() {
	signal.Stop(s.chld)
	close(s.chld)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.execs {
		e.release()
	}
	unix.Close(s.root)
	unix.Close(s.null)
}

// session is one connection.
type session struct {
	s      *Server
	l      *link
	able   bool // the transport passes descriptors
	passes bool // and the owner wants it

	open    bool // HELLO was exchanged since the last reset
	mu      sync.Mutex
	ops     map[uint32]*fileOp // of this conversation
	running int                // those of earlier ones included
}

// Serve talks to the owner over rw until the transport ends or the owner asks
// for the end (ErrShutdown). It may be called again with another transport,
// one at a time.
func (s *Server) Serve(rw io.ReadWriteCloser) error {
	t, able := transportOf(rw)
	c := &session{s: s, l: newLink(t, maxFrameToGuest), able: able, ops: map[uint32]*fileOp{}}
	c.l.dec.onFrame = c.frame
	c.l.dec.onReset = c.reset
	c.l.dec.onLost = func(string) {
		c.open = false
		c.detach()
		c.l.push(endFrame(beginFrame(appendReset(nil), frameResetAsk, 0, 0), len(mark)+1), nil)
	}
	go c.l.write()
	err := c.l.read()
	c.l.fail(err)
	c.detach()
	if e := c.l.failure(); errors.Is(e, ErrShutdown) {
		return e
	}
	return err
}

// detach ends what belongs to the conversation, not to the sandbox.
func (c *session) detach() {
	c.mu.Lock()
	ops := c.ops
	c.ops = map[uint32]*fileOp{}
	c.mu.Unlock()
	for _, op := range ops {
		op.cancel()
	}
	c.s.mu.Lock()
	for _, e := range c.s.execs {
		e.detach(c.l)
	}
	c.s.mu.Unlock()
}

func (c *session) reset() {
	c.open = false
	c.l.staleFDs()
	c.detach()
	c.l.drop()
}

// frame handles one frame from the owner. An error makes the server discard
// everything up to the next reset, and ask for it.
func (c *session) frame(f frame) error {
	if f.nfds > 0 && f.typ != frameExec && f.typ != frameAttach {
		return errMessage
	}
	switch f.typ {
	case frameReset:
		nonce, err := parseU64(f.payload)
		if err != nil || c.open {
			return errMessage
		}
		b := beginFrame(appendReset(nil), frameResetDone, 0, 0)
		c.l.push(endFrame(putU64(b, nonce), len(mark)+1), nil)
		return nil
	case frameHello:
		m, err := parseHello(f.payload)
		if err != nil || c.open || m.version == 0 {
			return errMessage
		}
		features := FeatureUsers | FeatureClock | FeatureEntropy
		if c.able {
			features |= FeatureDescriptors
		}
		c.open, c.passes = true, c.able && m.features&FeatureDescriptors != 0
		c.l.send(frameHelloDone, 0, hello{version: Version, features: features}.put)
		return nil
	}
	if !c.open {
		return errMessage
	}
	if c.s.opt.ReapAll {
		c.s.memory.touch()
	}
	switch f.typ {
	case frameExec:
		return c.exec(f)
	case frameAttach:
		fds, err := c.l.take(f.nfds)
		if err != nil {
			return err
		}
		closeAll(fds)
		m, err := parseAttach(f.payload, f.nfds)
		if err != nil {
			return err
		}
		if f.nfds > 0 {
			c.fail(f.req, failMsg{kind: failConflict, text: "it has the descriptors that it was started with"})
			return nil
		}
		return c.attach(f.req, m)
	case frameStdin:
		m, err := parseBytes(f.payload)
		if err != nil {
			return err
		}
		if e := c.s.find(m.id); e != nil {
			return e.stdin(c.l, m)
		}
	case frameAck:
		m, err := parseAck(f.payload)
		if err != nil || m.stream == 0 {
			return errMessage
		}
		if e := c.s.find(m.id); e != nil {
			return e.ack(m)
		}
	case frameSignal:
		m, err := parseSignal(f.payload)
		if err != nil {
			return err
		}
		c.answerErr(f.req, c.s.signal(m))
	case frameResize:
		m, err := parseResize(f.payload)
		if err != nil {
			return err
		}
		c.answerErr(f.req, c.s.resize(m))
	case frameStatus:
		id, err := parseID(f.payload)
		if err != nil {
			return err
		}
		c.status(f.req, id)
	case frameExecs, frameProcesses:
		if len(f.payload) != 0 {
			return errMessage
		}
		return c.startOp(f.req, &fileMsg{op: map[frameType]fileKind{frameExecs: opExecs, frameProcesses: opProcesses}[f.typ]})
	case frameForget:
		id, err := parseID(f.payload)
		if err != nil {
			return err
		}
		c.answerErr(f.req, c.s.forget(id))
	case frameFile:
		m, err := parseFile(f.payload)
		if err != nil {
			return err
		}
		return c.startOp(f.req, m)
	case frameChunk, frameCredit, frameCancel:
		return c.opFrame(f)
	case frameShutdown:
		v, err := parseU64(f.payload)
		if err != nil || v > uint64(time.Hour) {
			return errMessage
		}
		go c.shutdown(f.req, time.Duration(v))
	case frameClock:
		v, err := parseU64(f.payload)
		if err != nil {
			return err
		}
		c.answerErr(f.req, setClock(int64(v)))
	case frameEntropy:
		if len(f.payload) == 0 || len(f.payload) > maxEntropy {
			return errMessage
		}
		c.answerErr(f.req, addEntropy(f.payload))
	case framePing:
		if len(f.payload) != 0 {
			return errMessage
		}
		c.l.send(frameAnswer, f.req, nil)
	default:
		return errMessage
	}
	return nil
}

// fail answers a request with a failure.
func (c *session) fail(req uint32, m failMsg) { c.l.send(frameFail, req, m.put) }

// answerErr answers a request that gives nothing but success or failure.
func (c *session) answerErr(req uint32, err error) {
	if err == nil {
		c.l.send(frameAnswer, req, nil)
		return
	}
	c.fail(req, failureOf(err))
}

// failure is an error that travels as a failMsg.
type failure failMsg

func (f *failure) Error() string { return f.step + ": " + f.text }

// stepErr is a failed system call.
func stepErr(step string, err error) error {
	if err == nil {
		return nil
	}
	var e syscall.Errno
	if !errors.As(err, &e) {
		e = syscall.EIO
	}
	return &failure{kind: failErrno, errno: uint16(e), step: step}
}

func failureOf(err error) failMsg {
	var f *failure
	if errors.As(err, &f) {
		return failMsg(*f)
	}
	var e syscall.Errno
	if errors.As(err, &e) {
		return failMsg{kind: failErrno, errno: uint16(e), step: "request"}
	}
	text := err.Error()
	return failMsg{kind: failErrno, errno: uint16(syscall.EIO), step: "request", text: text[:min(len(text), maxText)]}
}

var errNoExec = &failure{kind: failNotFound}

func (s *Server) find(id string) *execution {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.execs[id]
}

const maxEntropy = 512

// setClock sets the wall clock to nanoseconds since 1970. It needs
// CAP_SYS_TIME, which only a sandbox with a kernel of its own has.
func setClock(ns int64) error {
	ts := unix.NsecToTimespec(ns)
	return stepErr("clock_settime", unix.ClockSettime(unix.CLOCK_REALTIME, &ts))
}
