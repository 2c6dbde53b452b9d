package engine

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// keptMemory is the memory of a stopped sandbox. It fits the files that were sealed
// with it, and nothing else: whoever gives the sandbox other files drops it.
type keptMemory struct {
	Dir string `json:"dir"` // its folder, in the sandbox's
	Run int64  `json:"run"` // generation.n of the one that goes on
	// Outlet: it has a network card, of which its kernel knows.
	Outlet bool `json:"outlet,omitempty"`
	driver.Memory
}

// memoryPrefix is what folders of memory are called, in a sandbox's folder. Those that
// its record does not name are left from a crash.
const memoryPrefix = "memory-"

// leftWhole bounds the wait for what commands have printed before their sandbox's
// memory was put on disk: the pipes' writers have gone by then.
const leftWhole = 10 * time.Second

// suspends says whether a generation's memory can be put on disk.
func (g *generation) suspends() bool {
	_, can := g.instance.(driver.Suspender)
	return can
}

// suspend puts the memory of a generation that suspends on disk, which ends it, and writes that down:
// only then it is kept. After an error ran says whether the generation runs on. The
// caller holds op, and has written that the sandbox is stopping.
func (e *Engine) suspend(ctx context.Context, b *box, g *generation) (ran bool, err error) {
	if err := g.instance.Resume(ctx); err != nil { // one that is frozen cannot be written down
		return true, err
	}
	g.ending.Store(true)
	held := e.holdExecs(g)
	m := &keptMemory{Dir: memoryPrefix + newID(), Run: g.n, Outlet: b.way != nil}
	dir := filepath.Join(b.dir, m.Dir)
	if err = os.Mkdir(dir, 0o700); err == nil {
		e.trace("suspend")
		m.Memory, err = g.instance.(driver.Suspender).Suspend(ctx, dir)
	}
	if err == nil {
		// Whoever restores it is nobody on this host, and sees this folder alone.
		err = os.Chmod(dir, 0o755)
	}
	if err == nil {
		e.trace("suspended")
		within, cancel := context.WithTimeout(ctx, leftWhole)
		defer cancel()
		for _, x := range held {
			x.drained(within)
		}
		if err = e.update(ctx, b, func(r *record) { r.Memory = m }); err == nil {
			return false, nil
		}
	}
	err = errors.Join(err, folder.RemoveTree(dir))
	if over, _ := ended(g); over {
		return false, err
	}
	g.ending.Store(false)
	if _, serr := g.speak(ctx); serr != nil {
		return false, errors.Join(err, serr)
	}
	return true, errors.Join(err, e.resumeExecs(ctx, g))
}

// recoverSuspending puts the memory of an adopted generation on disk where a death came in
// between. ran says that it could not, and that the generation is in force again.
func (e *Engine) recoverSuspending(ctx context.Context, b *box, g *generation, a act) (ran bool, err error) {
	var plan sealing
	if a.Kind != actSeal || json.Unmarshal(a.Data, &plan) != nil || !plan.Memory || b.record().Memory != nil {
		return false, nil
	}
	if over, _ := ended(g); over || !g.suspends() {
		return false, nil
	}
	ran, err = e.suspend(ctx, b, g)
	if err != nil {
		e.log.Error("keep the memory of a sandbox", "sandbox", b.id, "error", err)
	}
	if !ran {
		return false, nil
	}
	err = e.transition(ctx, b, api.StateRunning, func(r *record) { r.From, r.Act = "", nil })
	return true, errors.Join(err, e.recoverFrozen(ctx, b, g))
}

// wakeMemory tells a generation that goes on from memory what has changed meanwhile: the
// time, and that its random numbers must not be those of another one.
func wakeMemory(ctx context.Context, client *guest.Client) error {
	seed := make([]byte, 64)
	rand.Read(seed)
	for _, err := range []error{client.AddEntropy(ctx, seed), client.SetClock(ctx, time.Now())} {
		// A kernel that takes both from the host's has nothing to be told, and may not
		// even know the request.
		if err != nil && bailey.CodeOf(err) != bailey.CodeNotAvailable && !errors.Is(err, unix.ENOTTY) {
			return err
		}
	}
	return nil
}

// clearAhead makes the writable places of a sandbox that goes on from memory as they were
// when that was put on disk: all of them were sealed, so that what is there is of a start
// that was broken off.
func (b *box) clearAhead(roots []root) error {
	for i := range roots {
		if err := folder.RemoveTree(b.upper(roots[i].N)); err != nil {
			return storage("go on from memory", err)
		}
		roots[i].Fresh = true
	}
	return nil
}

// dropMemory lets a stopped sandbox start from its files the next time.
func (e *Engine) dropMemory(ctx context.Context, b *box) (api.Receipt, error) {
	receipt := api.Receipt{Act: "stop", Kept: []string{"files"}, Lost: []string{"memory", "processes"}}
	if old := b.record().Sandbox.Receipt; old != nil {
		receipt.Hash, receipt.HashPending, receipt.Method = old.Hash, old.HashPending, old.Method
	}
	e.sign(&receipt, e.clock.Now())
	g := e.noGeneration(b)
	err := e.update(ctx, b, func(r *record) {
		r.Memory, r.Sandbox.Receipt = nil, &receipt
		b.refresh(r) // a start from memory that was broken off may have cleared them
	})
	if err != nil {
		return api.Receipt{}, err
	}
	e.over(b, g, bailey.End{Reason: bailey.EndUser, Detail: "its memory was dropped"})
	if receipt.HashPending {
		e.hashStopSoon(b.id)
	}
	return receipt, b.sweepMemory()
}

// sweepMemory removes memory that the record does not name.
func (b *box) sweepMemory() error {
	r := b.record()
	list, err := os.ReadDir(b.dir)
	if err != nil {
		return storage("remove memory that nobody needs", err)
	}
	for _, f := range list {
		used := f.Name() == r.MemoryIn || r.Memory != nil && f.Name() == r.Memory.Dir
		if strings.HasPrefix(f.Name(), memoryPrefix) && !used {
			err = errors.Join(err, folder.RemoveTree(filepath.Join(b.dir, f.Name())))
		}
	}
	if err != nil {
		return storage("remove memory that nobody needs", err)
	}
	return nil
}

// asleep says whether a generation is one that goes on from memory later.
func (r *record) asleep(run int64) bool { return r.Memory != nil && r.Memory.Run == run }
