package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// eventBatch is how many events are read at once.
const eventBatch = 256

func (e *Engine) openEvents(context.Context) error {
	e.hooks.changed = append(e.hooks.changed, e.emitChange)
	e.hooks.told = append(e.hooks.told, func(_ *box, before, after *record) {
		if before == nil || before.Sandbox.State != after.Sandbox.State {
			e.ring()
		}
	})
	return nil
}

// emit writes an event in the transaction that makes it true. Its number and time
// are set. Once that is committed the caller calls ring.
func (e *Engine) emit(ctx context.Context, tx *sql.Tx, ev api.Event) error {
	ev.Time = e.clock.Now().UTC()
	seq, err := state.PutEvent(ctx, tx, ev)
	if err != nil {
		return err
	}
	return e.ledger.Event(ev, seq) // what cannot be recorded is not done
}

// event writes an event of something that is in no transaction.
func (e *Engine) event(ctx context.Context, ev api.Event) error {
	err := e.db.Update(ctx, func(tx *sql.Tx) error { return e.emit(ctx, tx, ev) })
	e.ring()
	return err
}

// ring wakes those who follow events.
func (e *Engine) ring() { e.events.ring() }

// changeData is what the event of a sandbox's new state tells.
type changeData struct {
	State      api.State     `json:"state"`
	Name       string        `json:"name,omitempty"`
	Generation int64         `json:"generation"`
	Session    string        `json:"session,omitempty"`
	Why        bailey.Reason `json:"why,omitempty"` // when it happened by itself
	End        *bailey.End   `json:"why_ended,omitempty"`
	Error      *bailey.Error `json:"error,omitempty"`
}

// emitChange writes the event of a sandbox's new state with its row.
func (e *Engine) emitChange(ctx context.Context, tx *sql.Tx, before, after *record) error {
	kind := changeKind(before, after)
	if kind == "" {
		return nil
	}
	s := after.Sandbox
	d := changeData{State: s.State, Name: s.Name, Generation: s.Generation, Session: s.Session, Error: s.Error}
	if s.State == api.StateLost || s.State == api.StateEnded {
		d.End = s.End
	}
	if end, ok := actingFor(ctx); ok {
		d.Why = end.Reason
	}
	data, err := json.Marshal(d)
	if err != nil {
		return bailey.Errorf(bailey.CodeInternal, "write an event", "", "%w", err)
	}
	return e.emit(ctx, tx, api.Event{Kind: kind, Owner: s.Owner, Sandbox: s.ID, Data: data})
}

// changeKind names what happened to a sandbox; "" is nothing that is told.
func changeKind(before, after *record) string {
	var from api.State
	if before != nil {
		from = before.Sandbox.State
	}
	to := after.Sandbox.State
	switch {
	case from == to:
		return ""
	case to == api.StateRunning:
		switch {
		case from == api.StateCreating:
			return "sandbox.created"
		case from == api.StatePausing || from == api.StateStopping:
			return "" // taken back
		case after.Sandbox.Generation > before.Sandbox.Generation && after.Unaccepted:
			return "sandbox.restarted"
		}
		return "sandbox.resumed"
	}
	switch to {
	case api.StateQueued, api.StatePaused, api.StateStopped, api.StateLost, api.StateFailed, api.StateEnded:
		return "sandbox." + string(to)
	}
	return "" // on the way: its end is told
}

// Events calls each with what happens from seq on, for as long as ctx lives: 0 is
// from the first that is kept, less than 0 only what is still to come. What is kept no
// more is told as one event of the kind events.dropped, with the numbers from and to
// in its data. Owners see what is theirs, an administrator all. The error is each's,
// or why ctx ended.
func (e *Engine) Events(ctx context.Context, who Caller, seq int64, each func(api.Event) error) error {
	if seq < 0 {
		_, last, err := e.db.EventRange(ctx)
		if err != nil {
			return err
		}
		seq = last + 1
	}
	for {
		more := e.events.wait()
		first, last, err := e.db.EventRange(ctx)
		if err != nil {
			return err
		}
		list, err := e.db.Events(ctx, who.Name, who.Admin, seq, eventBatch)
		if err != nil {
			return err
		}
		if len(list) > 0 && list[0].Seq > seq { // old ones may have been removed just now
			if first, _, err = e.db.EventRange(ctx); err != nil {
				return err
			}
		}
		if seq > 0 && first > seq {
			data, _ := json.Marshal(map[string]int64{"from": seq, "to": first - 1})
			if err := each(api.Event{Seq: first - 1, Time: e.clock.Now().UTC(), Kind: "events.dropped", Data: data}); err != nil {
				return err
			}
		}
		for _, ev := range list {
			if err := each(ev); err != nil {
				return err
			}
			seq = ev.Seq + 1
		}
		if len(list) == eventBatch {
			continue
		}
		// All up to last that is theirs has been told: what of the others' is removed
		// is no gap.
		seq = max(seq, last+1)
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.ctx.Done():
			return bailey.Errorf(bailey.CodeDaemonUnavailable, "follow events", "try again, from the last number", "the daemon is going down")
		}
	}
}

// bell wakes all who wait for it.
type bell struct {
	mu sync.Mutex
	ch chan struct{}
}

// wait gives a channel that is closed at the next ring.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
