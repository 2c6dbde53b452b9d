package guest

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	bailey "github.com/bailey-sandbox/bailey"
)

// ClientOptions say how the owner's end behaves. The zero value is right.
type ClientOptions struct {
	// Framed makes bytes go over the protocol even where descriptors could be
	// passed.
	Framed bool
}

// Client is the owner's end of the conversation with one sandbox. Its methods
// may be called by any number of goroutines at once. A Client whose transport
// failed stays failed: executions live on, and the next Client attaches to
// them.
type Client struct {
	l        *link
	passes   bool // descriptors
	nonce    uint64
	features Features
	version  uint16

	// Used by the receiving goroutine only.
	answered bool // our reset was
	open     bool

	mu    sync.Mutex
	hello chan struct{} // closed once the conversation is open
	last  uint32
	calls map[uint32]*call
	procs map[string]*proc
}

// call is a request that has not been answered.
type call struct {
	done chan struct{}
	res  result
	in   *inbound // where data goes; nil when none may come
	out  *outbound
	// take, if not nil, takes a good answer on the receiving goroutine, before
	// the frame after it. It owns the descriptors unless it fails.
	take func(payload []byte, fds []int) error
	// raw, if not nil, gets all that comes for the request as it is: see Relay.
	raw passedOn
}

// passedOn takes what comes for a request, on the receiving goroutine.
type passedOn interface {
	chunk(data []byte) error
	credit(n int) error
	answered(frame)
}

type result struct {
	payload []byte
	fds     []int
	err     error
}

// InitEnv is the environment that a driver starts bailey-init with: the Go
// runtime would otherwise take memory for every processor of the host, and
// wait for four megabytes of garbage before it collects any. One processor is
// enough for a process that only waits. Commands do not inherit it.
func InitEnv() []string { return []string{"GOMAXPROCS=1", "GOGC=50"} }

// NewClient opens a conversation over rw and takes it over. Over a *Socket
// descriptors are passed. Whatever an earlier conversation over the same
// transport left behind, half a frame included, is discarded by both ends.
//
// It fails with code protocol when what answers is not a bailey-init that this
// build can talk to, and sandbox_lost when nothing does.
func NewClient(ctx context.Context, rw io.ReadWriteCloser, opt ClientOptions) (*Client, error) {
	t, passes := transportOf(rw)
	var nonce [8]byte
	rand.Read(nonce[:])
	c := &Client{l: newLink(t, maxFrameToHost), passes: passes && !opt.Framed, nonce: binary.LittleEndian.Uint64(nonce[:]),
		hello: make(chan struct{}), calls: map[uint32]*call{}, procs: map[string]*proc{}}
	c.l.dec.onFrame = c.frame
	c.l.dec.onReset = c.reset
	c.l.dec.onLost = func(why string) {
		if c.open {
			c.l.fail(errProtocol(why))
		}
	}
	var features Features
	if c.passes {
		features = FeatureDescriptors
	}
	go c.l.write()
	go c.receive()
	b := beginFrame(appendReset(nil), frameReset, 0, 0)
	c.l.push(endFrame(putU64(b, c.nonce), len(mark)+1), nil)
	c.l.send(frameHello, 0, hello{version: Version, features: features}.put)
	select {
	case <-c.hello:
		return c, nil
	case <-c.l.done:
		return nil, c.lost("open the conversation with the sandbox")
	case <-ctx.Done():
		c.l.fail(ctx.Err())
		return nil, c.lost("open the conversation with the sandbox")
	}
}

// errProtocol marks failures that are the other end's mistake.
type errProtocol string

func (e errProtocol) Error() string { return string(e) }

func (c *Client) receive() {
	err := c.l.read()
	c.l.fail(err)
	c.mu.Lock()
	calls, procs := c.calls, c.procs
	c.calls, c.procs = nil, nil
	c.mu.Unlock()
	for _, k := range calls {
		k.finish(result{err: c.lost("finish a request to the sandbox")})
	}
	for _, p := range procs {
		if !p.live {
			continue // whoever starts it sees that the conversation is over
		}
		p.lost(c.lost("follow the command"))
	}
}

// lost is why the conversation is over.
func (c *Client) lost(what string) error {
	err := c.l.failure()
	var p errProtocol
	switch {
	case err == nil:
		err = errLinkClosed
	case errors.As(err, &p), errors.Is(err, errMessage), errors.Is(err, errTruncated):
		return bailey.Errorf(bailey.CodeProtocol, what, "treat the sandbox as lost", "its first process broke the protocol: %w", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, io.EOF):
		return bailey.Errorf(bailey.CodeSandboxLost, what, "start a new sandbox", "the sandbox's first process closed the connection")
	}
	return bailey.Errorf(bailey.CodeSandboxLost, what, "start a new sandbox", "the connection to the sandbox ended: %w", err)
}

// Close ends the conversation. What runs in the sandbox goes on, unless the
// sandbox lives by this connection.
func (c *Client) Close() error {
	c.l.fail(errLinkClosed)
	return nil
}

// Done is closed when the conversation is over; Err then says why.
func (c *Client) Done() <-chan struct{} { return c.l.done }

// Err is why the conversation is over, or nil.
func (c *Client) Err() error {
	if c.l.failure() == nil {
		return nil
	}
	return c.lost("talk to the sandbox")
}

// PassesDescriptors reports whether commands get their descriptors directly.
func (c *Client) PassesDescriptors() bool { return c.passes }

// PeerVersion is the protocol version of the other end, and what it can do.
func (c *Client) PeerVersion() (uint16, Features) { return c.version, c.features }

func (c *Client) reset() {
	c.l.staleFDs()
	if c.open {
		c.l.fail(errProtocol("it started the conversation anew without being asked"))
	}
	c.answered = false
}

// frame handles one frame from inside.
func (c *Client) frame(f frame) error {
	if f.nfds > 1 || f.nfds > 0 && f.typ != frameAnswer {
		return errMessage
	}
	if !c.open {
		return c.opening(f)
	}
	fds, err := c.l.take(f.nfds)
	if err != nil {
		return err
	}
	switch f.typ {
	case frameAnswer, frameFail:
		return c.answer(f, fds)
	case frameChunk:
		k := c.call(f.req)
		if k == nil {
			return nil // it was given up
		}
		if k.raw != nil {
			return k.raw.chunk(f.payload)
		}
		if k.in == nil || len(f.payload) == 0 {
			return errMessage
		}
		return k.in.feed(f.payload)
	case frameCredit:
		n, err := parseCredit(f.payload)
		if err != nil {
			return err
		}
		k := c.call(f.req)
		if k == nil {
			return nil
		}
		if k.raw != nil {
			return k.raw.credit(n)
		}
		if k.out == nil {
			return errMessage
		}
		return k.out.add(n)
	case frameOutput:
		m, err := parseBytes(f.payload)
		if err != nil || m.stream == 0 {
			return errMessage
		}
		if p := c.proc(m.id); p != nil {
			return p.output(m)
		}
		return nil
	case frameStdinAck:
		m, err := parseAck(f.payload)
		if err != nil || m.stream != 0 {
			return errMessage
		}
		if p := c.proc(m.id); p != nil {
			return p.fed.ack(m)
		}
		return nil
	case frameEvent:
		m, err := parseEvent(f.payload)
		if err != nil {
			return err
		}
		if p := c.proc(m.id); p != nil {
			p.event(m)
		}
		return nil
	}
	return errMessage
}

// opening handles frames before the conversation is open. Answers to an
// earlier owner are discarded.
func (c *Client) opening(f frame) error {
	switch {
	case f.typ == frameResetDone:
		nonce, err := parseU64(f.payload)
		if err != nil || nonce != c.nonce {
			return errMessage
		}
		c.answered = true
		return nil
	case f.typ == frameHelloDone && c.answered:
		m, err := parseHello(f.payload)
		if err != nil {
			return err
		}
		if !acceptsVersion(Version, m.version) {
			err := errProtocol("it speaks version " + strconv.Itoa(int(m.version)) + " of the protocol, and this build speaks " + strconv.Itoa(Version) +
				" and the two before it")
			c.l.fail(err)
			return err
		}
		c.version, c.features, c.open = m.version, m.features, true
		c.passes = c.passes && m.features&FeatureDescriptors != 0
		close(c.hello)
		return nil
	}
	return errMessage
}

func (c *Client) call(req uint32) *call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[req]
}

// proc gives the execution that this end follows, once its request was
// answered. What comes before the answer was sent for whoever followed the
// execution earlier, or one that had its id.
func (c *Client) proc(id string) *proc {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.procs[id]; p != nil && p.answered {
		return p
	}
	return nil
}

func (c *Client) answer(f frame, fds []int) error {
	c.mu.Lock()
	k := c.calls[f.req]
	delete(c.calls, f.req)
	c.mu.Unlock()
	if k == nil {
		closeAll(fds)
		if f.req == 0 {
			return errMessage
		}
		return nil
	}
	if f.typ == frameFail {
		m, err := parseFail(f.payload)
		if err != nil {
			k.finish(result{err: err})
			return err
		}
		if k.raw != nil {
			k.raw.answered(f)
		}
		k.finish(result{err: &m})
		return nil
	}
	if k.raw != nil {
		closeAll(fds)
		k.raw.answered(f)
		k.finish(result{})
		return nil
	}
	if k.take != nil {
		err := k.take(f.payload, fds)
		if err != nil {
			closeAll(fds)
		}
		k.finish(result{err: err})
		return err
	}
	k.finish(result{payload: append([]byte(nil), f.payload...), fds: fds})
	return nil
}

func (k *call) finish(r result) {
	k.res = r
	if k.in != nil {
		k.in.finish(r.err)
	}
	if k.out != nil {
		k.out.finish()
	}
	close(k.done)
}

// Error makes a failure from inside an error for this end to interpret.
func (m *failMsg) Error() string { return m.step + ": " + m.text }

// begin registers a request.
func (c *Client) begin(what string, k *call) (uint32, error) {
	k.done = make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.calls == nil {
		return 0, c.lost(what)
	}
	if len(c.calls) >= MaxRequests {
		return 0, bailey.Errorf(bailey.CodeBusy, what, "wait for earlier requests", "%d requests to this sandbox are waiting", MaxRequests)
	}
	for {
		if c.last++; c.last == 0 {
			continue
		}
		if _, taken := c.calls[c.last]; !taken {
			break
		}
	}
	c.calls[c.last] = k
	return c.last, nil
}

// abandon gives a request up, and reports whether it was still waiting.
func (c *Client) abandon(req uint32) bool {
	c.mu.Lock()
	_, waiting := c.calls[req]
	delete(c.calls, req)
	c.mu.Unlock()
	if waiting {
		c.l.send(frameCancel, req, nil)
	}
	return waiting
}

// wait waits for the answer to a request.
func (c *Client) wait(ctx context.Context, req uint32, k *call) ([]byte, []int, error) {
	select {
	case <-k.done:
	case <-ctx.Done():
		if !c.abandon(req) { // it is being answered just now
			<-k.done
			closeAll(k.res.fds)
		}
		return nil, nil, ctx.Err()
	}
	return k.res.payload, k.res.fds, k.res.err
}

// do sends a request and waits for its answer.
func (c *Client) do(ctx context.Context, what string, typ frameType, put func([]byte) []byte) ([]byte, error) {
	k := &call{}
	req, err := c.begin(what, k)
	if err != nil {
		return nil, err
	}
	c.l.send(typ, req, put)
	b, fds, err := c.wait(ctx, req, k)
	closeAll(fds)
	return b, failed(what, err)
}

// doEmpty is do for an answer that has nothing in it.
func (c *Client) doEmpty(ctx context.Context, what string, typ frameType, put func([]byte) []byte) error {
	b, err := c.do(ctx, what, typ, put)
	if err == nil && len(b) != 0 {
		return c.broken(what, errMessage)
	}
	return err
}

// broken ends the conversation because of what the other end said.
func (c *Client) broken(what string, err error) error {
	c.l.fail(errProtocol(err.Error()))
	return c.lost(what)
}

// failed turns a failure from inside into an error for people.
func failed(what string, err error) error {
	var m *failMsg
	if !errors.As(err, &m) {
		return err
	}
	errno := syscall.Errno(m.errno)
	why := ""
	if m.text != "" {
		why = " (" + strconv.QuoteToGraphic(m.text) + ")"
	}
	switch m.kind {
	case failNotStarted:
		cause := &NotStarted{Step: m.step, Errno: errno}
		switch {
		case m.step != "execve":
			return bailey.Errorf(bailey.CodeSetupFailed, what, "", "a step before its start failed inside the sandbox: %w", cause)
		case errno == syscall.ENOENT || errno == syscall.ENOTDIR:
			return bailey.Errorf(bailey.CodeCommandNotFound, what, "check its name and PATH inside the sandbox", "it does not exist there: %w", cause)
		default:
			return bailey.Errorf(bailey.CodeCommandNotExecutable, what, "check its mode and its format", "it cannot be executed: %w", cause)
		}
	case failNotFound:
		return bailey.Errorf(bailey.CodeNotFound, what, "", "the sandbox knows no execution of this id")
	case failBusy:
		return bailey.Errorf(bailey.CodeBusy, what, "wait for earlier requests", "the sandbox is busy%s", why)
	case failUsage:
		return bailey.Errorf(bailey.CodeUsage, what, "", "the sandbox refused the request%s", why)
	case failConflict:
		return bailey.Errorf(bailey.CodeConflict, what, "", "the sandbox refused the request%s", why)
	}
	code := bailey.CodeStorage
	switch errno {
	case syscall.ENOENT, syscall.ENOTDIR, syscall.ESRCH:
		code = bailey.CodeNotFound
	case syscall.EPERM, syscall.EACCES, syscall.ENOSYS:
		code = bailey.CodeNotAvailable
	case syscall.EINVAL, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EISDIR:
		code = bailey.CodeUsage
	case syscall.EEXIST, syscall.ENOTEMPTY:
		code = bailey.CodeConflict
	case syscall.EAGAIN, syscall.EBUSY:
		code = bailey.CodeBusy
	}
	return bailey.Errorf(code, what, "", "%s failed inside the sandbox%s: %w", strconv.Quote(m.step), why, errno)
}

// Ping waits until the other end has answered: it is alive, and has handled
// all that was sent before.
func (c *Client) Ping(ctx context.Context) error {
	return c.doEmpty(ctx, "reach the sandbox's first process", framePing, nil)
}

// Shutdown ends every process in the sandbox, SIGTERM first if grace is not 0
// (at most an hour), puts what they wrote on disk, and ends the conversation
// and bailey-init.
func (c *Client) Shutdown(ctx context.Context, grace time.Duration) error {
	if grace < 0 || grace > time.Hour {
		return bailey.Errorf(bailey.CodeUsage, "shut the sandbox down", "use 0 to 1h", "a grace of %s is out of range", grace)
	}
	return c.doEmpty(ctx, "shut the sandbox down", frameShutdown, func(b []byte) []byte { return putU64(b, uint64(grace)) })
}

// SetClock sets the sandbox's wall clock after a restore. It fails with code
// not_available, and EPERM as cause, where the clock is not the sandbox's own.
func (c *Client) SetClock(ctx context.Context, t time.Time) error {
	return c.doEmpty(ctx, "set the sandbox's clock", frameClock, func(b []byte) []byte { return putU64(b, uint64(t.UnixNano())) })
}

// AddEntropy gives the sandbox's kernel random bytes, 1 to 512, after a
// restore. It fails as SetClock does.
func (c *Client) AddEntropy(ctx context.Context, p []byte) error {
	if len(p) == 0 || len(p) > 512 {
		return bailey.Errorf(bailey.CodeUsage, "add entropy", "give 1 to 512 bytes", "%d bytes are out of range", len(p))
	}
	return c.doEmpty(ctx, "add entropy", frameEntropy, func(b []byte) []byte { return append(b, p...) })
}

// dup copies a descriptor for sending; the link closes it once sent.
func dup(f *os.File) (int, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	nfd, derr := -1, error(nil)
	if err := raw.Control(func(fd uintptr) { nfd, derr = dupFD(fd) }); err != nil {
		return -1, err
	}
	return nfd, derr
}
