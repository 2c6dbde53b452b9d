//go:build linux && (amd64 || arm64)

package guest

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// Relay stands between an owner that passes descriptors and a bailey-init that can be
// reached by bytes alone, such as one behind a kernel of its own. To the owner it is what
// bailey-init is over a Socket; what is inside it takes for hostile, as a Client does.
//
// An execution's descriptors stay here, and its bytes go between them and frames: output is
// acknowledged to the inside once it is written, input is read as far as the inside takes it,
// and each stream waits for nobody but its own reader. So an execution goes on while no owner is there,
// as long as somebody keeps the other ends. A terminal's master is that of a terminal made
// here, without modes of its own, before the one that the command has. The end of an execution is
// told once all that its main process has printed is in the owner's hands, or the owner has
// taken nothing for two seconds.
//
// All other requests go through as they are, with numbers of the relay's own.
type Relay struct {
	c      *Client
	memory thrift
	ending atomic.Bool // the owner asked for the end

	mu    sync.Mutex
	execs map[string]*relayed
	told  []string // ids of those whose end was told, oldest first
	pumps int
	quiet sync.Cond // signalled when there is no pump left
}

// ErrInside is what Relay.Serve returns when the conversation with the inside is over.
var ErrInside = errors.New("the conversation with the inside is over")

// NewRelay makes a relay before the bailey-init that c speaks with. c passes no descriptors.
func NewRelay(c *Client) *Relay {
	r := &Relay{c: c, execs: map[string]*relayed{}}
	r.quiet.L = &r.mu
	return r
}

// Inside is the conversation with the inside, in which the relay's process may start
// executions of its own.
func (r *Relay) Inside() *Client { return r.c }

// Ending reports whether the owner has asked for the end (Client.Shutdown), so that the
// inside may close the conversation.
func (r *Relay) Ending() bool { return r.ending.Load() }

// Serve talks to the owner over rw until it ends, or with ErrInside the conversation with
// the inside does. One call at a time; what runs goes on.
func (r *Relay) Serve(rw io.ReadWriteCloser) error {
	t, able := transportOf(rw)
	o := &ownerSession{r: r, l: newLink(t, maxFrameToGuest), able: able}
	o.l.dec.onFrame = o.frame
	o.l.dec.onReset = o.reset
	o.l.dec.onLost = func(string) {
		o.open = false
		o.forget()
		o.l.push(endFrame(beginFrame(appendReset(nil), frameResetAsk, 0, 0), len(mark)+1), nil)
	}
	go o.l.write()
	over := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-r.c.Done():
			r.flush(flushWithin)
			o.l.drain(time.Second)
			o.l.fail(ErrInside)
		case <-over:
		}
	}()
	err := o.l.read()
	o.l.fail(err)
	close(over)
	<-gone
	o.forget()
	if e := o.l.failure(); errors.Is(e, ErrInside) {
		return e
	}
	return err
}

// flushWithin is how long output that has come may take to be written once nothing more
// can come.
const flushWithin = time.Second

// flush waits until what has come of output is written, at most for d.
func (r *Relay) flush(d time.Duration) {
	late := false
	t := time.AfterFunc(d, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		late = true
		r.quiet.Broadcast()
	})
	defer t.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.pumps > 0 && !late {
		r.quiet.Wait()
	}
}

// pumping counts those who move output.
func (r *Relay) pumping(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pumps += n; r.pumps == 0 {
		r.quiet.Broadcast()
	}
}

// Close lets go of all executions' descriptors. The conversation inside stays.
func (r *Relay) Close() {
	r.mu.Lock()
	var all []*relayed
	for _, x := range r.execs {
		all = append(all, x)
	}
	r.execs, r.told = map[string]*relayed{}, nil
	r.mu.Unlock()
	for _, x := range all {
		x.release()
	}
}

func (r *Relay) find(id string) *relayed {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.execs[id]
}

// ownerSession is the conversation with the owner.
type ownerSession struct {
	r    *Relay
	l    *link
	able bool // the transport passes descriptors

	// Used by the receiving goroutine only.
	open   bool // HELLO was exchanged since the last reset
	passes bool

	mu    sync.Mutex
	epoch int // counts resets: what belongs to an earlier one is sent to nobody
	ops   map[uint32]*passed
	files int // those of ops that carry data
}

func (o *ownerSession) reset() {
	o.open = false
	o.l.staleFDs()
	o.forget()
	o.l.drop()
}

// forget gives up what belongs to the conversation. Executions go on.
func (o *ownerSession) forget() {
	o.mu.Lock()
	o.epoch++
	ops := o.ops
	o.ops, o.files = map[uint32]*passed{}, 0
	o.mu.Unlock()
	for _, p := range ops {
		o.r.c.abandon(p.inner)
	}
}

// to is whom something is for: an owner's conversation between two resets.
type to struct {
	o     *ownerSession
	epoch int
}

func (o *ownerSession) now() to {
	o.mu.Lock()
	defer o.mu.Unlock()
	return to{o, o.epoch}
}

// send sends a frame, unless the conversation is another by now. It takes the descriptors
// over.
func (t to) send(typ frameType, req uint32, fds []int, put func([]byte) []byte) {
	if t.o == nil {
		closeAll(fds)
		return
	}
	t.o.mu.Lock()
	defer t.o.mu.Unlock()
	if t.o.epoch != t.epoch {
		closeAll(fds)
		return
	}
	t.o.l.sendFDs(typ, req, fds, put)
}

func (t to) fail(req uint32, m failMsg) { t.send(frameFail, req, nil, m.put) }

// frame handles one frame from the owner. An error makes this end discard everything up to
// the next reset, and ask for it.
func (o *ownerSession) frame(f frame) error {
	if f.nfds > 0 && f.typ != frameExec && f.typ != frameAttach {
		return errMessage
	}
	switch f.typ {
	case frameReset:
		nonce, err := parseU64(f.payload)
		if err != nil || o.open {
			return errMessage
		}
		b := beginFrame(appendReset(nil), frameResetDone, 0, 0)
		o.l.push(endFrame(putU64(b, nonce), len(mark)+1), nil)
		return nil
	case frameHello:
		m, err := parseHello(f.payload)
		if err != nil || o.open || m.version == 0 {
			return errMessage
		}
		_, features := o.r.c.PeerVersion()
		features &^= FeatureDescriptors
		if o.able {
			features |= FeatureDescriptors
		}
		o.open, o.passes = true, o.able && m.features&FeatureDescriptors != 0
		o.l.send(frameHelloDone, 0, hello{version: Version, features: features}.put)
		return nil
	}
	if !o.open {
		return errMessage
	}
	o.r.memory.touch()
	o.r.c.l.pace() // an inside that does not read holds its owner, as a socket would
	switch f.typ {
	case frameExec:
		return o.exec(f)
	case frameAttach:
		return o.attach(f)
	case frameStdin:
		if m, err := parseBytes(f.payload); err != nil || m.stream != 0 {
			return errMessage
		}
		return nil // for an execution that it does not feed this way
	case frameAck:
		if m, err := parseAck(f.payload); err != nil || m.stream == 0 {
			return errMessage
		}
		return nil // likewise
	}
	return o.request(f)
}
