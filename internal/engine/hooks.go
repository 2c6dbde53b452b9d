package engine

import (
	"context"
	"database/sql"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// hooks are where parts of the engine join in. They are set by openParts, before
// any sandbox is there, and called in order. A hook is called with the sandbox's
// op held unless it says otherwise: it must not take it, nor wait for a use.
type hooks struct {
	// changing are called before a sandbox's next record is written, and may change
	// it: after is not seen by anybody yet. They must not block. undo is called when
	// it could not be written.
	changing []func(b *box, before, after *record) (undo func())
	// changed are called in the transaction that writes a sandbox's next record;
	// before is nil for a new one. An error keeps it from being written.
	changed []func(ctx context.Context, tx *sql.Tx, before, after *record) error
	// told are called once it is written, and must not block: timers are set anew,
	// listeners are woken.
	told []func(b *box, before, after *record)
	// started are called when a generation's first process runs and nobody has
	// used it. An error ends it.
	started []func(ctx context.Context, g *generation) error
	// adopted are called instead for a generation that another daemon started. Of
	// a paused one bailey-init does not answer.
	adopted []func(ctx context.Context, g *generation) error
	// resumed are called when a frozen sandbox goes on.
	resumed []func(ctx context.Context, g *generation) error
	// stopped are called when a sandbox is being stopped and its processes have
	// ended: files may be sealed. They write the receipt's part about files.
	stopped []func(ctx context.Context, b *box, r *api.Receipt) error
	// restarting are called before a stopped or lost sandbox starts anew: files are
	// compared with what is known of them.
	restarting []func(ctx context.Context, b *box, r *api.Receipt) error
	// ended are called when a generation has ended, however it did, before its
	// record says so: streams end, logs are closed.
	ended []func(g *generation, end bailey.End)
	// gone are called when a sandbox is deleted, before its folder is removed.
	gone []func(ctx context.Context, b *box) error
	// busy are asked whether user processes live in a generation; one yes is enough.
	busy []func(ctx context.Context, g *generation) (bool, error)
	// acts go on with, or take back, an act that a crash has interrupted: the
	// record's roots and the folders must fit together afterwards. No generation
	// runs. By act.Kind.
	acts map[string]func(ctx context.Context, b *box, a act) error
	// used gives what goes on in each sandbox's way out; nil: nobody counts that. It
	// must be cheap.
	used func(ctx context.Context) (map[string]moved, error)
	// orphans say what of a part belongs to nobody, and unless dry remove it. They
	// are called without op.
	orphans []func(ctx context.Context, dry bool) ([]api.Orphan, error)
	// grounds give the digests of images that something stands on: they are kept.
	grounds []func(ctx context.Context) ([]string, error)
	// opened are called at the end of Open, when every sandbox has been adopted.
	opened []func(ctx context.Context) error
	// closing are called at the begin of Close.
	closing []func()
}

// openParts lets every part of the engine get ready and set its hooks. A part
// adds its line here.
func (e *Engine) openParts(ctx context.Context) error {
	for _, open := range []func(context.Context) error{e.openGateway, e.openImages, e.openVolumes, e.openMounts, e.openEvents, e.openSnapshots, e.openPorts, e.openQueue, e.openLife, e.openExecs, e.openSessions, e.openPools} {
		if err := open(ctx); err != nil {
			return err
		}
	}
	return nil
}
