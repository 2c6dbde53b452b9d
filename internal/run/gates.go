package run

import (
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
)

// Gates are the gate of a program that has many sandboxes: one process serves all
// of them.
type Gates struct {
	host *Host
	find func() (daemon string, err error)

	mu      sync.Mutex
	process *GateProcess
	closed  bool
}

// NewGates starts nothing yet. find finds baileyd.
func (h *Host) NewGates(find func() (daemon string, err error)) *Gates {
	return &Gates{host: h, find: find}
}

// Way makes the way out of a sandbox. Where the gate has died, another is started:
// the sandboxes that it had stay without a way out.
func (g *Gates) Way(o GateOptions) (*Gate, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "start a gate", "", "the client was closed")
	}
	if g.process == nil || !g.process.Alive() {
		g.process.Close()
		p, err := g.host.StartGateProcess(g.find)
		if err != nil {
			return nil, err
		}
		g.process = p
	}
	return g.process.Way(o), nil
}

// Close ends it.
func (g *Gates) Close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	g.process.Close()
}

// trustRoot describes the root file system into which a gate's authority is
// installed; the zero Root is the host's files.
func trustRoot(req Request) (root rootfiles.Root) {
	if r := req.Rootfs; r != nil && req.Level.OwnRoot() {
		root.Layers = r.Layers
		for _, bind := range r.Binds {
			root.Binds = append(root.Binds, rootfiles.Bind{Source: bind.Source, Target: bind.Target})
		}
	}
	return root
}
