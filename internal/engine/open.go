package engine

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/engine/ledger"
	"github.com/bailey-sandbox/bailey/internal/layers"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// engineLock is the file in the data folder that an engine holds: two would each
// take the other's sandboxes for their own.
const engineLock = "engine.lock"

// Open opens the data folder, adopts every sandbox that lives, and goes on with or
// takes back what a crash has interrupted. A data folder that another engine has
// open is an error with code busy.
func Open(ctx context.Context, opt Options) (_ *Engine, err error) {
	f, err := run.OpenFolder(opt.Home)
	if err != nil {
		return nil, err
	}
	e := &Engine{opt: opt, folder: f, keeper: opt.Keeper, clock: opt.Clock, log: opt.Log, boxes: map[string]*box{}, going: map[string]bool{}, removals: make(chan struct{}, removeAtOnce)}
	if e.clock == nil {
		e.clock = realClock{}
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.started = e.clock.Now().UTC()
	e.ctx, e.stop = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, e.shut())
		}
	}()
	if err := os.MkdirAll(filepath.Join(f.Path(), sandboxesDir), 0o700); err != nil {
		return nil, storage("open the data folder", err)
	}
	folder.Spread(filepath.Join(f.Path(), sandboxesDir))
	// Mounts name folders by path: one without links is the same for everybody.
	if e.home, err = filepath.EvalSymlinks(f.Path()); err != nil {
		return nil, storage("open the data folder", err)
	}
	if e.folder, err = run.OpenFolder(e.home); err != nil {
		return nil, err
	}
	if e.lock, err = takeLock(filepath.Join(e.home, engineLock)); err != nil {
		return nil, err
	}
	if e.db, err = state.Open(ctx, e.home); err != nil {
		return nil, err
	}
	if e.layers, err = layers.Open(e.home, layers.Options{UserXattr: os.Geteuid() != 0}); err != nil {
		return nil, err
	}
	if e.ledger, err = ledger.Open(e.home); err != nil {
		return nil, err
	}
	e.openLevels()
	if opt.Reserve > 0 {
		e.linux.Warm(opt.Reserve, true)
	}
	e.host = run.NewHost(e.folder, e.driver)
	if err := e.openParts(ctx); err != nil {
		return nil, err
	}
	if err := e.recover(ctx); err != nil {
		return nil, err
	}
	for _, opened := range e.hooks.opened {
		if err := opened(ctx); err != nil {
			return nil, err
		}
	}
	if e.keeper != nil {
		e.spawn(e.watchKeeper)
	}
	e.sweepLater()
	return e, nil
}

// watchKeeper ends every sandbox when the keeper is gone: after this engine nobody
// would hold them, and one that is frozen would not even end.
func (e *Engine) watchKeeper(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-e.keeper.Done():
	}
	e.log.Error("the keeper is gone, and every sandbox ends with it")
	e.closePools()
	for _, b := range e.list() {
		if b.begin(ctx) != nil {
			return
		}
		if g := b.generation(); g != nil && !g.ending.Load() {
			if err := e.lose(ctx, b, g, keeperGone); err != nil {
				e.log.Error("end a sandbox", "sandbox", b.id, "error", err)
			}
		}
		b.done()
	}
}

var keeperGone = bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "the keeper that held it was killed"}

// sweepLater removes, in the background, control groups that a crash has left.
func (e *Engine) sweepLater() {
	e.spawn(func(ctx context.Context) {
		if _, err := e.orphanGroups(ctx, false); err != nil && ctx.Err() == nil {
			e.log.Error("remove control groups of sandboxes that have ended", "error", err)
		}
	})
}

// keeps says whether a keeper holds what this engine leaves.
func (e *Engine) keeps() bool {
	if e.keeper == nil {
		return false
	}
	select {
	case <-e.keeper.Done():
		return false
	default:
		return true
	}
}

// Close lets go of everything. Sandboxes go on where there is a keeper, and end
// where there is none: those are lost, with their files kept.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	e.mu.Unlock()
	for _, closing := range e.hooks.closing {
		closing()
	}
	var err error
	for _, b := range e.list() {
		if berr := b.begin(ctx); berr != nil {
			err = errors.Join(err, berr)
			continue // something is being done to it: the next Open looks what became of it
		}
		if g := b.generation(); g != nil {
			err = errors.Join(err, e.leave(ctx, b, g))
		}
		// op is not given back: nobody begins anything any more.
	}
	return errors.Join(err, e.shut())
}

// leave lets go of a generation that goes on, or ends it where it could not.
func (e *Engine) leave(ctx context.Context, b *box, g *generation) error {
	r, ok := g.instance.(interface{ Release() })
	if !e.keeps() || !ok {
		return e.lose(ctx, b, g, bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "the engine that held it was closed, and there is no keeper"})
	}
	g.ending.Store(true)
	g.cancel()
	g.connect.Lock()
	if g.client != nil {
		g.client.Close()
	}
	g.connect.Unlock()
	r.Release()
	b.mu.Lock()
	if g.outlet != nil {
		g.outlet.TCP.Close()
		g.outlet.UDP.Close()
		g.outlet = nil
	}
	b.mu.Unlock()
	close(g.over)
	return nil
}

// shut closes what Open has opened.
func (e *Engine) shut() error {
	e.stop()
	e.shutGateway()
	e.tasks.Wait()
	var err error
	if e.host != nil {
		err = e.host.Wait()
	}
	e.mu.Lock()
	boxes := e.boxes
	e.boxes = map[string]*box{}
	e.mu.Unlock()
	err = errors.Join(err, e.closeVolumes(func(id string) bool { return boxes[id] != nil && boxes[id].generation() != nil }))
	for _, b := range boxes {
		err = errors.Join(err, b.close())
	}
	if e.linux != nil {
		e.linux.Close()
	}
	if e.db != nil {
		err = errors.Join(err, e.db.Close())
	}
	if e.ledger != nil {
		err = errors.Join(err, e.ledger.Close())
	}
	if e.lock != nil {
		e.lock.Close()
	}
	return err
}

// list gives all sandboxes that have not ended.
func (e *Engine) list() []*box {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := make([]*box, 0, len(e.boxes))
	for _, b := range e.boxes {
		list = append(list, b)
	}
	return list
}

// takeLock opens a file and locks it for as long as it is open. One that somebody
// else has locked is an error with code busy.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, storage("lock "+path, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, bailey.Errorf(bailey.CodeBusy, "lock "+path, "end the daemon that has it first", "somebody else holds it")
	}
	return f, nil
}

func storage(what string, err error) error {
	return bailey.Errorf(bailey.CodeStorage, what, "see that the disk has room and the data folder is yours", "%w", err)
}
