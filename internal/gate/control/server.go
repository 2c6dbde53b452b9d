package control

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"

	"github.com/bailey-sandbox/bailey"
)

// Gate is what a gate's process does with what it is asked. Its methods are
// called at the same time for different sandboxes.
type Gate interface {
	Check(ctx context.Context, p Policy) (Checked, error)
	// Open takes names over, whatever it answers; it may be nil.
	Open(ctx context.Context, o Open, names *os.File) (*Opened, error)
	// Attach takes the files over, whatever it answers.
	Attach(ctx context.Context, sandbox string, tcp, udp *os.File) error
	Detach(ctx context.Context, sandbox string) error
	Update(ctx context.Context, sandbox string, p Policy) (Updated, error)
	Revoke(ctx context.Context, sandbox, secret string) (json.RawMessage, error)
	Used(ctx context.Context) map[string]Usage
	Close(ctx context.Context, sandbox string) (Closed, error)
}

// Peer is the gate's end.
type Peer struct {
	link *link
	gate Gate

	mu   sync.Mutex
	seen map[string]*denials // by sandbox
}

// NewPeer takes conn over, the gate's end of a Pair.
func NewPeer(conn *os.File) (*Peer, error) {
	l, err := newLink(conn)
	if err != nil {
		return nil, err
	}
	p := &Peer{link: l, seen: map[string]*denials{}}
	l.handle = p.handle
	l.event = func(op string, _ json.RawMessage) error {
		return bailey.Errorf(bailey.CodeProtocol, "understand the starter", "", "it said %q", op)
	}
	return p, nil
}

// Serve answers requests by g until the connection is over. The caller then
// ends everything that g has open.
func (p *Peer) Serve(g Gate) error {
	p.gate = g
	return p.link.serve()
}

// Done is closed when the connection is over.
func (p *Peer) Done() <-chan struct{} { return p.link.done }

// Denied tells the starter of a denial. One that came before is only counted,
// so that a sandbox cannot flood its owner.
func (p *Peer) Denied(d Denial) {
	p.mu.Lock()
	s := p.seen[d.Sandbox]
	if s == nil {
		p.mu.Unlock()
		return
	}
	fresh := s.add(d)
	p.mu.Unlock()
	if fresh {
		if err := p.link.tell(opDenied, d); err != nil {
			p.link.fail(err)
		}
	}
}

// Saved tells the starter what Open.Saved of a sandbox is from now on.
func (p *Peer) Saved(sandbox string, saved json.RawMessage) {
	if err := p.link.tell(opSaved, named{Sandbox: sandbox, Saved: saved}); err != nil {
		p.link.fail(err)
	}
}

// Ask puts a question to the starter. An error or the zero Answer is none.
func (p *Peer) Ask(ctx context.Context, q Question) (Answer, error) {
	var a Answer
	_, err := p.link.call(ctx, opAsk, q, nil, &a)
	return a, err
}

func (p *Peer) handle(ctx context.Context, op string, body json.RawMessage, files []*os.File) (any, []*os.File, error) {
	if op != opAttach && op != opOpen {
		defer closeFiles(files)
	}
	switch op {
	case opCheck:
		var asked Policy
		if err := strict(body, &asked); err != nil {
			return nil, nil, malformed(err)
		}
		checked, err := p.gate.Check(ctx, asked)
		return checked, nil, err
	case opOpen:
		var o Open
		if err := strict(body, &o); err != nil {
			closeFiles(files)
			return nil, nil, malformed(err)
		}
		return p.open(ctx, o, files)
	case opUsed:
		return p.gate.Used(ctx), nil, nil
	}
	var n named
	err := strict(body, &n)
	if err == nil && n.Sandbox == "" {
		err = errUnnamed
	}
	if err != nil {
		closeFiles(files)
		return nil, nil, malformed(err)
	}
	switch op {
	case opAttach:
		if len(files) != 2 {
			closeFiles(files)
			return nil, nil, malformed(errListeners)
		}
		return struct{}{}, nil, p.gate.Attach(ctx, n.Sandbox, files[0], files[1])
	case opDetach:
		return struct{}{}, nil, p.gate.Detach(ctx, n.Sandbox)
	case opUpdate:
		if n.Policy == nil {
			return nil, nil, malformed(errNoPolicy)
		}
		u, err := p.gate.Update(ctx, n.Sandbox, *n.Policy)
		return u, nil, err
	case opRevoke:
		saved, err := p.gate.Revoke(ctx, n.Sandbox, n.Secret)
		return named{Saved: saved}, nil, err
	case opDenials:
		return p.denials(n.Sandbox, false), nil, nil
	case opClose:
		c, err := p.gate.Close(ctx, n.Sandbox)
		if err == nil {
			more := c.Further
			c.Denied = p.denials(n.Sandbox, true)
			c.Further += more
		}
		return c, nil, err
	}
	return nil, nil, bailey.Errorf(bailey.CodeProtocol, "understand the starter", "", "it asked for %q", op)
}

// denials gives those of a sandbox, and with last forgets them.
func (p *Peer) denials(sandbox string, last bool) Denied {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.seen[sandbox]
	if s == nil {
		return Denied{}
	}
	if last {
		delete(p.seen, sandbox)
	}
	return Denied{slices.Clone(s.list), s.further}
}

func (p *Peer) open(ctx context.Context, o Open, came []*os.File) (any, []*os.File, error) {
	var names *os.File
	contents := came
	if o.Names && len(came) > 0 {
		names, contents = came[0], came[1:]
	}
	err := unpack(o.Root.Bundles, contents)
	closeFiles(contents)
	switch {
	case o.Sandbox == "":
		err = errUnnamed
	case o.Names && names == nil:
		err = errNoNames
	}
	if err != nil {
		if names != nil {
			names.Close()
		}
		return nil, nil, malformed(err)
	}
	p.mu.Lock()
	if p.seen[o.Sandbox] != nil {
		p.mu.Unlock()
		if names != nil {
			names.Close()
		}
		return nil, nil, bailey.Errorf(bailey.CodeConflict, "open a way out for "+o.Sandbox, "", "it has one")
	}
	p.seen[o.Sandbox] = &denials{}
	p.mu.Unlock()
	opened, err := p.gate.Open(ctx, o, names)
	var files []*os.File
	if err == nil {
		files, err = pack(opened.Files)
	}
	if err != nil {
		p.mu.Lock()
		delete(p.seen, o.Sandbox)
		p.mu.Unlock()
		return nil, nil, err
	}
	return opened, files, nil
}
