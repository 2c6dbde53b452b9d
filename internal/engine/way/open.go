package way

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// way is one sandbox's.
type way struct {
	used atomic.Int64 // when something was last done with it

	turn     chan struct{} // has one element while something is done with it
	opening  Opening       // as the next gate opens it
	in       *process      // the gate that it is open in, or nil
	attached bool          // it has listeners
	closed   bool
}

// take takes the turn, for whoever waits no longer than ctx: opening a way again can
// take as long as a secret's command. give gives it back.
func (o *way) take(ctx context.Context) error {
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return bailey.Errorf(bailey.CodeNotAvailable, "use a sandbox's way out", "try again", "something else is being done with it: %w", context.Cause(ctx))
	}
}

func (o *way) give() { <-o.turn }

// within is how long opening a way again may take: a secret's command is part of it.
const within = time.Minute

// Open opens a sandbox's way out. Nothing is served before Attach. It is
// remembered, and opened again with its listeners when the gate dies, until Close. One that
// is open is an error with code conflict.
func (w *Ways) Open(ctx context.Context, o Opening) (*Opened, error) {
	o.Ask.Possible = true
	one := &way{opening: o, turn: make(chan struct{}, 1)}
	one.turn <- struct{}{}
	defer one.give()
	w.mu.Lock()
	if w.ways[o.Sandbox] != nil {
		w.mu.Unlock()
		return nil, bailey.Errorf(bailey.CodeConflict, "open a way out for "+o.Sandbox, "", "it has one")
	}
	w.ways[o.Sandbox] = one
	w.mu.Unlock()
	w.saves.begin(o.Sandbox)
	opened, err := w.open(ctx, one)
	if err != nil {
		w.withdraw(o.Sandbox)
		w.drop(one)
		return nil, err
	}
	out := &Opened{Policy: opened.Policy, Env: slices.Concat(run.ProxyVariables(), opened.Env), Placeholders: opened.Placeholders,
		Saved: opened.Saved, Descriptions: opened.Descriptions, Notes: opened.Notes}
	for _, f := range opened.Files {
		out.Files = append(out.Files, File{f.Path, f.Mode, f.Content})
	}
	return out, nil
}

// withdraw takes back what the gate may have opened after nobody waited for it.
func (w *Ways) withdraw(sandbox string) {
	ctx, cancel := context.WithTimeout(w.life, 5*time.Second)
	defer cancel()
	w.mu.Lock()
	p := w.process
	w.mu.Unlock()
	if p != nil {
		p.Client.Close(ctx, sandbox) // mostly there is none
	}
}

// open does it in whatever gate lives.
func (w *Ways) open(ctx context.Context, one *way) (*control.Opened, error) {
	for {
		p, err := w.live(ctx)
		if err != nil {
			return nil, err
		}
		opened, err := w.openIn(ctx, p, one)
		if err == nil || p.Alive() || ctx.Err() != nil {
			return opened, err
		}
	}
}

// openIn does it in that gate. The caller has its turn.
func (w *Ways) openIn(ctx context.Context, p *process, one *way) (*control.Opened, error) {
	o := &one.opening
	var names *os.File
	if o.Names != "" {
		var err error
		if names, err = os.OpenFile(o.Names, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return nil, bailey.Errorf(bailey.CodeStorage, "open the sandbox's table of names", "", "%w", err)
		}
		defer names.Close()
	}
	asked := control.Open{Sandbox: o.Sandbox, Lineage: o.Lineage, Session: o.Session, Level: o.Level.String(), Policy: o.Policy, Ask: o.Ask, Saved: o.Saved}
	opened, err := p.Open(ctx, asked, o.Root, names)
	if bailey.CodeOf(err) == bailey.CodeConflict { // an answer that was not waited for
		if _, err = p.Client.Close(ctx, o.Sandbox); err == nil {
			opened, err = p.Open(ctx, asked, o.Root, names)
		}
	}
	if err != nil {
		return nil, err
	}
	one.in, o.Saved = p, opened.Saved
	one.used.Store(time.Now().UnixNano())
	return opened, nil
}

// ensure opens a way in this gate, with its listeners, if it is not. The caller
// has its turn.
func (w *Ways) ensure(ctx context.Context, p *process, one *way) (err error) {
	if one.closed {
		return noWay(one.opening.Sandbox)
	}
	if one.in == p {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	id := one.opening.Sandbox
	one.opening.Saved = w.saves.newest(id, one.opening.Saved)
	_, err = w.openIn(ctx, p, one)
	if err == nil && one.attached && w.options.Listeners != nil {
		var tcp, udp *os.File
		if tcp, udp, err = w.options.Listeners(ctx, id); err == nil && tcp != nil {
			err = p.Client.Attach(ctx, id, tcp, udp)
		}
		for _, f := range []*os.File{tcp, udp} {
			if f != nil {
				f.Close()
			}
		}
		if err != nil { // open, and of no use
			one.in = nil
			_, cerr := p.Client.Close(ctx, id)
			err = errors.Join(err, cerr)
		}
	}
	if err != nil && p.Alive() && w.life.Err() == nil && w.options.Broken != nil {
		w.options.Broken(id, err)
	}
	return err
}

// with does something with a way in the gate that lives; when that dies meanwhile,
// in the next one: it must not matter that it was done before.
func (w *Ways) with(ctx context.Context, sandbox string, do func(p *process, one *way) error) error {
	w.mu.Lock()
	one := w.ways[sandbox]
	w.mu.Unlock()
	if one == nil {
		return noWay(sandbox)
	}
	if err := one.take(ctx); err != nil {
		return err
	}
	defer one.give()
	one.used.Store(time.Now().UnixNano())
	for {
		p, err := w.live(ctx)
		if err != nil {
			return err
		}
		if err = w.ensure(ctx, p, one); err == nil {
			err = do(p, one)
		}
		if err == nil || p.Alive() || ctx.Err() != nil {
			return err
		}
	}
}

func noWay(sandbox string) error {
	return bailey.Errorf(bailey.CodeNotFound, "use a sandbox's way out", "", "%s has none", sandbox)
}

// drop forgets a way.
func (w *Ways) drop(one *way) {
	one.closed = true
	w.mu.Lock()
	delete(w.ways, one.opening.Sandbox)
	w.mu.Unlock()
	w.saves.end(one.opening.Sandbox)
}

// keep takes on the state of a way that an answer has brought, and has it saved.
func (w *Ways) keep(one *way, state json.RawMessage) error {
	one.opening.Saved = w.saves.newest(one.opening.Sandbox, state)
	return w.saves.save(one.opening.Sandbox, state)
}
