package way

import (
	"context"
	"os"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

// Check says what a policy asks for beside what may be reached. Nothing is opened.
func (w *Ways) Check(ctx context.Context, p control.Policy) (c control.Checked, err error) {
	for {
		gate, err := w.live(ctx)
		if err != nil {
			return c, err
		}
		if c, err = gate.Client.Check(ctx, p); err == nil || gate.Alive() || ctx.Err() != nil {
			return c, err
		}
	}
}

// Attach hands listeners over, which take the place of earlier ones: a new
// generation of a sandbox needs no new Open. The files stay the caller's.
func (w *Ways) Attach(ctx context.Context, sandbox string, tcp, udp *os.File) error {
	return w.with(ctx, sandbox, func(p *process, one *way) error {
		if err := p.Client.Attach(ctx, sandbox, tcp, udp); err != nil {
			return err
		}
		one.attached = true
		return nil
	})
}

// Detach lets go of the listeners and ends what came through them; the way stays
// open.
func (w *Ways) Detach(ctx context.Context, sandbox string) error {
	return w.with(ctx, sandbox, func(p *process, one *way) error {
		one.attached = false
		return p.Client.Detach(ctx, sandbox)
	})
}

// Update puts another policy in force. Its answer has the placeholders that the
// sandbox now has, for commands that are started from now on.
func (w *Ways) Update(ctx context.Context, sandbox string, to control.Policy) (u control.Updated, err error) {
	err = w.with(ctx, sandbox, func(p *process, one *way) error {
		if err := p.Secrets(to); err != nil {
			return err
		}
		var err error
		if u, err = p.Client.Update(ctx, sandbox, to); err != nil {
			return err
		}
		one.opening.Policy = to
		return w.keep(one, u.Saved)
	})
	return u, err
}

// Revoke takes a secret from a sandbox; forks keep theirs.
func (w *Ways) Revoke(ctx context.Context, sandbox, secret string) error {
	return w.with(ctx, sandbox, func(p *process, one *way) error {
		state, err := p.Client.Revoke(ctx, sandbox, secret)
		if err != nil {
			return err
		}
		return w.keep(one, state)
	})
}

// Close ends a sandbox's way and says what it was used for, as far as this gate
// knows; of one that is not open, nothing, without an error. Its state is saved
// before, so that a sandbox that is stopped can be opened again later; where it cannot
// be, that is the error, and the way has ended nevertheless.
func (w *Ways) Close(ctx context.Context, sandbox string) (c control.Closed, err error) {
	w.mu.Lock()
	one := w.ways[sandbox]
	w.mu.Unlock()
	if one == nil {
		return c, nil
	}
	if err := one.take(ctx); err != nil {
		return c, err
	}
	defer one.give()
	if one.closed {
		return c, nil
	}
	if p := one.in; p != nil && p.Process.Alive() { // also without its vault
		if c, err = p.Client.Close(ctx, sandbox); err == nil {
			err = w.keep(one, c.Saved)
			w.drop(one) // the gate has closed it
			return c, err
		} else if !p.Process.Alive() {
			err = nil // with the gate the way has ended
		}
	}
	if err == nil {
		w.drop(one)
	}
	return c, err
}

// Forget destroys a lineage's authority: call it when the last sandbox and the last
// snapshot of the lineage are gone, any number of times.
func (w *Ways) Forget(ctx context.Context, lineage string) error {
	if lineage == "" {
		return nil
	}
	for {
		p, err := w.live(ctx)
		if err != nil {
			return err
		}
		if err = p.Forget(ctx, lineage); err == nil || p.Alive() || ctx.Err() != nil {
			return err
		}
	}
}

// Denials gives what was refused to a sandbox since it was opened in this gate.
func (w *Ways) Denials(ctx context.Context, sandbox string) (d control.Denied, err error) {
	err = w.with(ctx, sandbox, func(p *process, _ *way) error {
		d, err = p.Client.Denials(ctx, sandbox)
		return err
	})
	return d, err
}

// Used gives what goes through the ways, by sandbox; those that have never had
// anything are left out. It is one message for all, wakes nothing and leaves no
// record. Numbers begin anew with a new gate: what differs from the last look has
// moved.
func (w *Ways) Used(ctx context.Context) (map[string]control.Usage, error) {
	for {
		p, err := w.live(ctx)
		if err != nil {
			return nil, err
		}
		used, err := p.Client.Used(ctx)
		if err == nil || p.Alive() || ctx.Err() != nil {
			return used, err
		}
	}
}

// Opened lists the sandboxes whose ways are open.
func (w *Ways) Opened() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := make([]string, 0, len(w.ways))
	for id := range w.ways {
		list = append(list, id)
	}
	return list
}

var errNames = bailey.Errorf(bailey.CodeStorage, "copy the table of names", "", "it is too large to be one")
