package engine

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// What a pause to disk keeps at a level that can put memory there, and what it cannot
// keep.
var (
	keptWithMemory = []string{"files", "memory", "processes"}
	lostWithMemory = []string{"connections"}
)

// stopBox ends every process and keeps files, and with memory what the processes were
// doing, where the level can.
func (e *Engine) stopBox(ctx context.Context, b *box, memory bool) (api.Receipt, error) {
	began := e.clock.Now()
	reopen := b.quiet(ctx)
	defer reopen()
	from, g := b.record().Sandbox.State, b.generation()
	memory = memory && g != nil && g.suspends()
	seal, err := e.planStop(b, memory)
	if err != nil {
		return api.Receipt{}, err
	}
	if err := e.transition(ctx, b, api.StateStopping, func(r *record) { r.From, r.Act = from, seal }); err != nil {
		return api.Receipt{}, err
	}
	ctx = context.WithoutCancel(ctx)
	var notes []string
	switch {
	case !memory:
	case seal == nil:
		notes = append(notes, "its memory is not kept, because its files lie on a disk of its own, and are not sealed with it")
	default:
		ran, err := e.suspend(ctx, b, g)
		if ran {
			err = bailey.Errorf(bailey.CodeNotAvailable, "keep the memory of the sandbox "+b.id, "keep its files only (files_only)", "%w", err)
			return api.Receipt{}, errors.Join(err, e.transition(ctx, b, api.StateRunning, func(r *record) { r.From, r.Act = "", nil }))
		}
		if err != nil {
			e.log.Error("keep the memory of a sandbox", "sandbox", b.id, "error", err)
			notes = append(notes, "its memory could not be kept, and it ended: "+err.Error())
		}
	}
	return e.stopped(ctx, b, began, notes...)
}

// planStop says which layers the files of a sandbox that stops become: what is sealed
// has a hash, and is compared with it before it starts again. nil where they lie on a
// disk of the sandbox's own, from which a layer would have to be copied.
func (e *Engine) planStop(b *box, memory bool) (*act, error) {
	r := b.record()
	if r.Act != nil {
		return nil, unfinished("stop the sandbox "+b.id, r.Act)
	}
	if r.Disk > 0 {
		return nil, nil
	}
	plan := sealing{Layers: map[int]string{}, Memory: memory}
	id := "stop-" + newID()
	for _, root := range r.Roots {
		plan.Layers[root.N] = layerID(id, root.N)
	}
	data, err := json.Marshal(plan)
	return &act{Kind: actSeal, Data: data}, err
}

// stopped brings a sandbox that is stopping to its stop.
func (e *Engine) stopped(ctx context.Context, b *box, began time.Time, notes ...string) (api.Receipt, error) {
	if g := b.generation(); g != nil {
		letGo := e.keepMounts(g, b.record())
		defer letGo()
		if err := e.end(ctx, b, g, endFor(ctx)); err != nil {
			e.log.Error("stop a sandbox", "sandbox", b.id, "error", err) // its processes are gone or will be: gc has the rest
		}
	}
	if err := e.closeWay(ctx, b); err != nil {
		e.log.Error("close a sandbox's way out", "sandbox", b.id, "error", err)
	}
	receipt := api.Receipt{Act: "stop", Kept: []string{"files"}, Lost: []string{"memory", "processes"}, Notes: notes}
	if m := b.record().Memory; m != nil {
		receipt.Act, receipt.Kept, receipt.Lost = "pause", keptWithMemory, lostWithMemory
		for _, f := range m.Files {
			receipt.Bytes += f.Size
		}
	}
	heads, release, err := e.sealStop(ctx, b, &receipt)
	defer release()
	if err != nil { // its files are where they were, or in layers already
		receipt.HashPending = false
		receipt.Notes = append(receipt.Notes, "its files have no hash: "+err.Error())
		e.log.Error("seal the files of a sandbox", "sandbox", b.id, "error", err)
	}
	for _, stopped := range e.hooks.stopped {
		if err := stopped(ctx, b, &receipt); err != nil {
			return api.Receipt{}, err
		}
	}
	as := func(r *record) {
		r.From, r.Driver, r.Act, r.MemoryIn = "", nil, nil, ""
		for i, root := range r.Roots {
			if head := heads[root.N]; head != "" {
				r.Roots[i].Chain = head
			}
		}
		b.refresh(r)
	}
	// Once, for the files and for where they are now.
	e.trace("sync")
	if err := syncFS(b.base()); err != nil {
		end := bailey.End{Reason: bailey.EndHostLost, ExitCode: 137, Detail: "its files could not be put on disk: " + err.Error()}
		return api.Receipt{}, errors.Join(storage("put the sandbox's files on disk", err), e.transition(ctx, b, api.StateLost, func(r *record) {
			as(r)
			r.Sandbox.End = &end
		}))
	}
	e.sign(&receipt, began)
	err = e.transition(ctx, b, api.StateStopped, func(r *record) {
		as(r)
		r.Sandbox.Receipt = &receipt
	})
	if err == nil {
		if serr := b.sweepMemory(); serr != nil {
			e.log.Error("memory of a sandbox is left", "sandbox", b.id, "error", serr)
		}
	}
	if err == nil && receipt.HashPending {
		e.hashStopSoon(b.id)
	}
	return receipt, err
}

// sealStop makes the folders that were written to layers, as the record's act says,
// and gives them by root.N. They are kept until release is called: then the record
// has to have them.
func (e *Engine) sealStop(ctx context.Context, b *box, receipt *api.Receipt) (heads map[int]string, release func(), err error) {
	r := b.record()
	release = func() {}
	if r.Act == nil {
		if r.Disk > 0 {
			receipt.Notes = append(receipt.Notes, "its files lie on a disk of its own, and have no hash")
		}
		return nil, release, nil
	}
	var plan sealing
	if err := json.Unmarshal(r.Act.Data, &plan); err != nil {
		return nil, release, bailey.Errorf(bailey.CodeInternal, "stop the sandbox "+b.id, "", "%w", err)
	}
	if err := e.flattenFirst(ctx, r.Roots); err != nil {
		return nil, release, err
	}
	// Until the record has them nobody stands on them.
	release = e.keepLayers(plan.Layers)
	heads = map[int]string{}
	receipt.Method, receipt.HashPending = methodOf(nil), true
	for _, root := range r.Roots {
		l, sealed, err := e.sealRoot(ctx, b, root, plan.Layers[root.N])
		if err != nil {
			return heads, release, err
		}
		if sealed {
			heads[root.N] = l.ID
			e.flattenSoon(l.ID)
		}
	}
	return heads, release, nil
}

// keepLayers keeps layers that no row names yet.
func (e *Engine) keepLayers(list map[int]string) (release func()) {
	e.snaps.mu.Lock()
	defer e.snaps.mu.Unlock()
	for _, id := range list {
		e.snaps.held[id]++
	}
	return func() {
		e.snaps.mu.Lock()
		defer e.snaps.mu.Unlock()
		for _, id := range list {
			if e.snaps.held[id]--; e.snaps.held[id] == 0 {
				delete(e.snaps.held, id)
			}
		}
	}
}

// hashStopSoon has the files of a stopped sandbox hashed in the background.
func (e *Engine) hashStopSoon(id string) {
	e.snaps.mu.Lock()
	e.snaps.stops = append(e.snaps.stops, id)
	e.snaps.mu.Unlock()
	e.nudgeSnapshots()
}

// hashStop finds the content hash of a stopped sandbox's files, and completes its
// receipt. One that goes on already has another.
func (e *Engine) hashStop(ctx context.Context, id string) error {
	b := e.boxOf(id)
	if b == nil {
		return nil
	}
	waits := func(r *record) bool {
		c := r.Sandbox.Receipt
		return r.Sandbox.State == api.StateStopped && c != nil && c.HashPending
	}
	r := b.record()
	if !waits(r) {
		return nil
	}
	var heads []string
	for _, root := range r.Roots {
		heads = append(heads, root.Chain)
	}
	e.holdLayers(heads...)
	defer e.releaseLayers(heads...)
	if !waits(b.record()) {
		return nil // it may have been deleted before they were held
	}
	hash, herr := e.snaps.hash(ctx, &snapDoc{Roots: r.Roots})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if e.hashAgain(id, herr, func() { e.snaps.stops = append(e.snaps.stops, id) }) {
		return herr
	}
	return e.update(ctx, b, func(now *record) {
		if !waits(now) || now.Sandbox.Receipt.Time != r.Sandbox.Receipt.Time {
			return
		}
		c := *now.Sandbox.Receipt
		c.Hash, c.HashPending = hash, false
		if herr != nil {
			c.Notes = append(c.Notes, "the content could not be hashed: "+herr.Error())
		}
		now.Sandbox.Receipt = &c
	})
}
