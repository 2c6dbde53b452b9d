package run

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/starter"
)

// GateProcess is a gate's process, which serves any number of sandboxes, with
// the vault that tells it the values of their secrets.
type GateProcess struct {
	*starter.Process

	mu   sync.Mutex
	ways map[string]*Gate // by sandbox
}

// StartGateProcess starts baileyd, which find finds, as a gate. It returns at once,
// and whoever asks something of the gate waits. The gate ends with Close, and
// when this process ends, however it does.
func (h *Host) StartGateProcess(find func() (daemon string, err error)) (*GateProcess, error) {
	daemon, err := find()
	if err != nil {
		return nil, err
	}
	home, err := filepath.Abs(h.Folder.Path())
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "start the gate", "", "%w", err)
	}
	g := &GateProcess{ways: map[string]*Gate{}}
	p, err := starter.Start(starter.Options{Daemon: daemon, Home: home, Env: h.Env, VaultLost: g.vaultLost,
		Events: control.Events{Ask: g.ask, Denied: g.denied}})
	if err != nil {
		return nil, err
	}
	g.Process = p
	return g, nil
}

// Way makes the way out of one sandbox; its Close leaves the process alone.
func (g *GateProcess) Way(o GateOptions) *Gate { return &Gate{GateOptions: o, process: g} }

func (g *GateProcess) put(sandbox string, way *Gate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if way == nil {
		delete(g.ways, sandbox)
	} else {
		g.ways[sandbox] = way
	}
}

func (g *GateProcess) way(sandbox string) *Gate {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ways[sandbox]
}

func (g *GateProcess) ask(ctx context.Context, q control.Question) control.Answer {
	if w := g.way(q.Sandbox); w != nil {
		return w.asks.ask(ctx, q)
	}
	return control.Answer{}
}

func (g *GateProcess) denied(sandbox string, d control.Denial) {
	if w := g.way(sandbox); w != nil && w.Denied != nil {
		w.Denied(d)
	}
}

// vaultLost tells everybody that secrets are not put in any more.
func (g *GateProcess) vaultLost() {
	if !g.Alive() {
		return // that is told, and nothing gets out
	}
	g.mu.Lock()
	ways := slices.Collect(maps.Values(g.ways))
	g.mu.Unlock()
	for _, w := range ways {
		w.notice("the process that holds the secrets has ended: requests that need one are refused from now on")
	}
}

// Close ends the gate's process and its vault, if they live.
func (g *GateProcess) Close() {
	if g != nil {
		g.Process.Close()
	}
}
