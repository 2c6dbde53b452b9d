package engine

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// rearrange ends the generation of a sandbox if one runs, has f change the folders
// that its roots stand on, and lets the sandbox go on as it was: one that ran is
// started again in the background, at the latest when it is used. The caller holds
// op and has made sure that no user process is alive whose end would matter.
//
// The record says a before anything is done. f gives the change of the record that
// makes it true, which is written together with the end of a. When f fails it has
// taken back what it did. After a crash in between, hooks.acts[a.Kind] is called
// instead, and must bring record and folders together, one way or the other.
//
// What f finds: nobody uses the sandbox, no mount of its roots is left, every
// root's folder upper is there and may be renamed away or replaced: one that is
// missing is made empty, as its ground looks, when the next generation starts.
func (e *Engine) rearrange(ctx context.Context, b *box, a act, f func(ctx context.Context) (func(*record), error)) error {
	if err := e.mend(ctx, b); err != nil {
		return err
	}
	states := []api.State{api.StateRunning, api.StateStopped, api.StateLost}
	if r := b.record(); !slices.Contains(states, r.Sandbox.State) {
		return bailey.Errorf(bailey.CodeConflict, "change the files of the sandbox "+b.id, "resume it first", "it is %s", r.Sandbox.State)
	}
	reopen, err := b.drain(ctx)
	if err != nil {
		return err
	}
	defer reopen()
	if err := e.update(ctx, b, func(r *record) { r.Act = &a }); err != nil {
		return err
	}
	// From here on it is seen to its end, whoever waits.
	ctx = context.WithoutCancel(ctx)
	ran := b.generation()
	if ran != nil {
		letGo := e.keepMounts(ran, b.record())
		defer letGo()
		if err := e.end(ctx, b, ran, bailey.End{Reason: bailey.EndUser, Detail: "its files were rearranged (" + a.Kind + ")"}); err != nil {
			// Nothing was rearranged: a later start must not end what runs then for it.
			return errors.Join(err, e.update(ctx, b, func(r *record) { r.Act = nil }))
		}
	}
	err = e.mountDisk(b)
	var change func(*record)
	if err == nil {
		change, err = f(ctx)
	}
	werr := e.update(ctx, b, func(r *record) {
		r.Act, r.Driver = nil, nil
		if err == nil && change != nil {
			change(r)
		}
		b.refresh(r)
	})
	if err == nil {
		err = werr
	}
	if ran != nil && werr == nil {
		e.spawn(func(ctx context.Context) {
			if u, err := e.awaken(ctx, b); err == nil {
				u.release()
			}
		})
	}
	return err
}

// unfinished says that an act on a sandbox's roots was begun and is not over: only the
// next start of the daemon brings them together.
func unfinished(what string, a *act) error {
	return bailey.Errorf(bailey.CodeConflict, what, "start the daemon again, which goes on with it, or delete the sandbox", "something was begun on its files and is not over (%s)", a.Kind)
}

// refresh notes which roots have nothing over their chain any more.
func (b *box) refresh(r *record) {
	for i, root := range r.Roots {
		if _, err := os.Lstat(b.upper(root.N)); errors.Is(err, fs.ErrNotExist) {
			r.Roots[i].Fresh = true
		}
	}
}

// busy says whether user processes live in the generation: then its end would be
// noticed. The caller holds op or a use.
func (e *Engine) busy(ctx context.Context, g *generation) (bool, error) {
	for _, busy := range e.hooks.busy {
		if yes, err := busy(ctx, g); yes || err != nil {
			return yes, err
		}
	}
	client, err := g.speak(ctx)
	if err != nil {
		return false, err
	}
	list, err := client.Processes(ctx)
	return len(list) > 1, err // bailey-init is among them
}
