package engine

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// allowed says from which states a state can be reached. What is not here is a
// fault in Bailey.
var allowed = map[api.State][]api.State{
	api.StateQueued:   {api.StateCreating},
	api.StateCreating: {api.StateQueued},
	api.StateRunning:  {api.StateCreating, api.StateRunning, api.StateResuming, api.StatePausing, api.StateStopping, api.StateLost},
	api.StatePausing:  {api.StateRunning},
	api.StatePaused:   {api.StatePausing, api.StateResuming, api.StatePaused, api.StateStopping},
	api.StateStopping: {api.StateRunning, api.StatePaused},
	api.StateStopped:  {api.StateStopping, api.StateResuming, api.StateStopped},
	api.StateResuming: {api.StatePaused, api.StateStopped, api.StateLost},
	api.StateLost:     {api.StateRunning, api.StatePausing, api.StatePaused, api.StateStopping, api.StateResuming, api.StateCreating},
	api.StateFailed:   {api.StateCreating, api.StateQueued},
	api.StateDeleting: {api.StateQueued, api.StateCreating, api.StateRunning, api.StatePausing, api.StatePaused, api.StateStopping, api.StateStopped, api.StateResuming, api.StateLost, api.StateFailed, api.StateDeleting},
	api.StateEnded:    {api.StateDeleting},
}

// transition writes that a sandbox is in the state to, and that what change made
// of its record is so. It comes before the act it stands for. The caller holds op.
func (e *Engine) transition(ctx context.Context, b *box, to api.State, change func(*record)) error {
	before := b.record()
	ok := false
	for _, from := range allowed[to] {
		ok = ok || from == before.Sandbox.State
	}
	if !ok {
		return bailey.Errorf(bailey.CodeInternal, "change the sandbox "+b.id, "", "it is %s and cannot become %s", before.Sandbox.State, to)
	}
	return e.write(ctx, b, func(r *record) {
		r.Sandbox.State = to
		if change != nil {
			change(r)
		}
	})
}

// update changes what is known about a sandbox and not its state. The caller need
// not hold op, but changes nothing then that an act relies on.
func (e *Engine) update(ctx context.Context, b *box, change func(*record)) error {
	return e.write(ctx, b, change)
}

// write makes the next record durable and puts it in force.
func (e *Engine) write(ctx context.Context, b *box, change func(*record)) error {
	// Whatever ends ctx, the row is either there or not: nothing waits here.
	ctx = context.WithoutCancel(ctx)
	b.writing.Lock()
	defer b.writing.Unlock()
	before := b.record()
	after := before.copyOf()
	change(after)
	if b.ahead { // nobody's, and in no row
		b.mu.Lock()
		b.rec = after
		b.mu.Unlock()
		return nil
	}
	var undo []func()
	for _, changing := range e.hooks.changing {
		undo = append(undo, changing(b, before, after))
	}
	e.trace("row " + string(after.Sandbox.State))
	if err := e.store(ctx, before, after); err != nil {
		for _, u := range undo {
			u()
		}
		return err
	}
	b.mu.Lock()
	b.rec = after
	b.mu.Unlock()
	for _, told := range e.hooks.told {
		told(b, before, after)
	}
	return nil
}

// store writes a record's row.
func (e *Engine) store(ctx context.Context, before, after *record) error {
	return e.storeWith(ctx, before, after, func(*sql.Tx) error { return nil })
}

// rowOf gives the row of a record.
func rowOf(r *record) (state.Sandbox, error) {
	doc, err := json.Marshal(r)
	if err != nil {
		return state.Sandbox{}, bailey.Errorf(bailey.CodeInternal, "write the record of "+r.Sandbox.ID, "", "%w", err)
	}
	return state.Sandbox{ID: r.Sandbox.ID, Name: r.Sandbox.Name, Owner: r.Sandbox.Owner, State: r.Sandbox.State,
		Created: r.Sandbox.Created, Expires: r.Sandbox.Expires, Doc: doc}, nil
}

// readRecord reads what a row says.
func readRecord(row state.Sandbox) (*record, error) {
	r := &record{}
	if err := json.Unmarshal(row.Doc, r); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "read the record of the sandbox "+row.ID, "restore the state database from a backup", "%w", err)
	}
	return r, nil
}

// put writes a row with all that belongs to it; before is nil for a new one.
func (e *Engine) put(ctx context.Context, tx *sql.Tx, row state.Sandbox, before, after *record) error {
	if err := state.PutSandbox(ctx, tx, row); err != nil {
		return err
	}
	for _, changed := range e.hooks.changed {
		if err := changed(ctx, tx, before, after); err != nil {
			return err
		}
	}
	return nil
}
