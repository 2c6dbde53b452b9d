package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// Bounds of a session's log.
const (
	maxSessionEvents = 1_000_000
	maxSessionData   = 1 << 20 // bytes of one event's data
)

// ownKinds are the kinds of events that only the engine writes.
var ownKinds = []string{"created", "provisioned", "execute", "result", "failed", "lost", "accepted", "closed"}

var kindForm = regexp.MustCompile(`^[a-z][a-z0-9_.-]{0,63}$`)

// note appends to a session's log in a transaction.
func (e *Engine) note(ctx context.Context, tx *sql.Tx, session, kind string, data any) error {
	ev := api.SessionEvent{Time: e.clock.Now().UTC(), Kind: kind}
	if data != nil {
		text, err := json.Marshal(data)
		if err != nil {
			return bailey.Errorf(bailey.CodeInternal, "write the log of the session "+session, "", "%w", err)
		}
		ev.Data = text
	}
	_, err := state.PutSessionEvent(ctx, tx, session, ev)
	return err
}

// SessionEvents calls each with a session's log from seq on, of a closed one too.
// With follow it goes on until the session is closed, and all is told, or ctx ends.
func (e *Engine) SessionEvents(ctx context.Context, who Caller, ref string, seq int64, follow bool, each func(api.SessionEvent) error) error {
	row, err := e.findSession(ctx, who, ref)
	if err != nil {
		return err
	}
	seat := e.seat(row.ID)
	for {
		more := seat.bell.wait()
		list, err := e.db.SessionEvents(ctx, row.ID, seq, eventBatch)
		if err != nil {
			return err
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
		if !follow {
			return nil
		}
		if quiet := !seat.busy(); quiet { // asked before: what ends until then rings
			rows, err := e.db.FindSessions(ctx, row.ID)
			if err != nil {
				return err
			}
			if last, err := e.db.LastSessionEvent(ctx, row.ID); err != nil {
				return err
			} else if len(rows) == 1 && rows[0].State == sessionClosed && last < seq {
				return nil
			}
		}
		select {
		case <-more:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.ctx.Done():
			return bailey.Errorf(bailey.CodeDaemonUnavailable, "follow a session's log", "try again, from the last number", "the daemon is going down")
		}
	}
}

// busy says whether the session executes something.
func (s *seat) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.running) > 0
}

// AppendSession adds an event to a session's log: a note, or of a kind of the
// caller's own that is none of the engine's. Its number and time are set.
func (e *Engine) AppendSession(ctx context.Context, who Caller, ref string, ev api.SessionEvent) (api.SessionEvent, error) {
	const what = "add to a session's log"
	if ev.Kind == "" {
		ev.Kind = "note"
	}
	switch {
	case !kindForm.MatchString(ev.Kind):
		return ev, bailey.Errorf(bailey.CodeUsage, what, "use small letters, digits, dots, dashes and underscores, at most 64", "%.80q cannot be a kind", ev.Kind)
	case slices.Contains(ownKinds, ev.Kind):
		return ev, bailey.Errorf(bailey.CodeUsage, what, "use note, or a word of your own", "only Bailey writes events of the kind %s", ev.Kind)
	case len(ev.Data) > maxSessionData:
		return ev, bailey.Errorf(bailey.CodeTooLarge, what, "keep large things in a file, and note where", "the data has %d bytes, and may have %d", len(ev.Data), maxSessionData)
	case len(ev.Data) > 0 && !json.Valid(ev.Data):
		return ev, bailey.Errorf(bailey.CodeUsage, what, "", "the data is no JSON")
	}
	row, err := e.findSession(ctx, who, ref)
	if err != nil {
		return ev, err
	}
	if row.State != sessionOpen {
		return ev, closedError(what, row.ID)
	}
	if n, err := e.db.LastSessionEvent(ctx, row.ID); err != nil {
		return ev, err
	} else if n >= maxSessionEvents {
		return ev, bailey.Errorf(bailey.CodeQuotaExceeded, what, "begin another session", "it has %d events already", n)
	}
	room := int64(len(ev.Data) + rowBytes)
	if err := e.sessionRoom(ctx, row.Owner, room); err != nil {
		return ev, err
	}
	ev.Seq, ev.Time = 0, e.clock.Now().UTC()
	err = e.db.Update(ctx, func(tx *sql.Tx) (err error) {
		ev, err = state.PutSessionEvent(ctx, tx, row.ID, ev)
		return err
	})
	if err != nil {
		e.sessionGrew(row.Owner, -room)
		return ev, err
	}
	e.seat(row.ID).bell.ring()
	return ev, nil
}

func closedError(what, id string) error {
	return bailey.Errorf(bailey.CodeConflict, what, "begin another session", "the session %s is closed", id)
}
