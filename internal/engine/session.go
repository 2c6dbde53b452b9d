package engine

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// The states of a session.
const (
	sessionOpen   = "open"
	sessionClosed = "closed"
)

// session is all that is known about one session: a row of the database, in JSON.
type session struct {
	// Session is what is told; Checkpoint and Events are filled in when it is.
	Session api.Session     `json:"session"`
	Spec    api.SessionSpec `json:"spec"` // as it was asked for
	// Local: whoever made it may name folders of the host.
	Local bool `json:"local,omitempty"`
	// Admin: whoever made it may use what is the host's; see mayAsk.
	Admin bool `json:"admin,omitempty"`
	// Seen is the generation of the present sandbox that Session.Generation counts
	// already. One that was started anew after a loss has a greater one.
	Seen int64 `json:"seen,omitempty"`
	// From is the checkpoint that the present sandbox started from.
	From string `json:"from,omitempty"`
	// Accepted is the last Session.Generation that the caller has accepted.
	Accepted int64 `json:"accepted"`
}

// sessions is what the engine has in mind of sessions.
type sessions struct {
	mu    sync.Mutex
	seats map[string]*seat // by id
	bytes map[string]int64 // in the database, by owner
	most  int64            // maxSessionBytes, or what a test has instead
}

// seat is one session in the engine.
type seat struct {
	id   string
	op   chan struct{} // holds one token while nobody changes the session
	bell bell          // rings when its log has grown

	mu      sync.Mutex
	running map[string]*sessionRun // by exec
}

// seat gives a session's place, made when it is asked for first.
func (e *Engine) seat(id string) *seat {
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	s := e.sessions.seats[id]
	if s == nil {
		s = &seat{id: id, op: make(chan struct{}, 1), running: map[string]*sessionRun{}}
		s.op <- struct{}{}
		e.sessions.seats[id] = s
	}
	return s
}

// begin takes the right to change the session; the caller calls done.
func (s *seat) begin(ctx context.Context) error {
	select {
	case <-s.op:
		return nil
	case <-ctx.Done():
		return bailey.Errorf(bailey.CodeBusy, "change the session "+s.id, "try again", "something else is being done to it: %w", context.Cause(ctx))
	}
}

func (s *seat) done() { s.op <- struct{}{} }

func (e *Engine) openSessions(ctx context.Context) (err error) {
	e.sessions.seats, e.sessions.most = map[string]*seat{}, maxSessionBytes
	if e.sessions.bytes, err = e.db.SessionBytes(ctx); err != nil {
		return err
	}
	e.hooks.opened = append(e.hooks.opened, e.reopenSessions)
	return nil
}

// NewSession makes a session. Its first sandbox is made by the first Execute. With
// the idempotency key of an earlier call it gives the session of that one.
//
// A sandbox of a session is stopped by its timeout where the spec says nothing else:
// its files stay, and the next Execute goes on with them.
func (e *Engine) NewSession(ctx context.Context, who Caller, spec api.SessionSpec) (api.Session, error) {
	const what = "make a session"
	if spec.Sandbox.OnTimeout == "" {
		spec.Sandbox.OnTimeout = api.ActionStop
	}
	if err := checkSession(who, spec); err != nil {
		return api.Session{}, err
	}
	if _, err := e.lifeOf(who.Name, spec.Sandbox); err != nil {
		return api.Session{}, err
	}
	if p, err := policyOf(spec.Sandbox); err != nil {
		return api.Session{}, err
	} else if err := mayAsk(who, p); err != nil {
		return api.Session{}, err
	}
	text, err := json.Marshal(spec)
	if err != nil {
		return api.Session{}, bailey.Errorf(bailey.CodeUsage, what, "", "%w", err)
	}
	sum := sha256.Sum256(text)
	digest := hex.EncodeToString(sum[:])
	now := e.clock.Now().UTC()
	s := &session{Spec: spec, Local: who.Local, Admin: who.Admin, Session: api.Session{ID: "s-" + newID(), Name: spec.Name, Owner: who.Name, State: sessionOpen, Sandboxes: []string{}, Labels: spec.Labels, Created: now}}
	room := int64(len(text) + 4*rowBytes)
	if err := e.sessionRoom(ctx, who.Name, room); err != nil {
		return api.Session{}, err
	}
	err = e.db.Update(ctx, func(tx *sql.Tx) error {
		if err := putSession(ctx, tx, s, digest); err != nil {
			return err
		}
		if err := e.note(ctx, tx, s.Session.ID, "created", map[string]any{"spec": digest}); err != nil {
			return err
		}
		return e.emit(ctx, tx, api.Event{Kind: "session.created", Owner: who.Name, Data: sessionData(s)})
	})
	if err != nil {
		e.sessionGrew(who.Name, -room)
	}
	if errors.Is(err, state.ErrSessionKey) {
		row, ok, err := e.db.SessionByKey(ctx, who.Name, spec.IdempotencyKey)
		switch {
		case err != nil:
			return api.Session{}, err
		case !ok || row.Digest != digest:
			return api.Session{}, bailey.Errorf(bailey.CodeConflict, what, "use another idempotency key", "the key %q was used with another spec", spec.IdempotencyKey)
		}
		return e.tellSession(ctx, row)
	}
	if err != nil {
		return api.Session{}, err
	}
	e.ring()
	return e.SessionOf(ctx, who, s.Session.ID)
}

// checkSession refuses a spec that makes no sense.
func checkSession(who Caller, spec api.SessionSpec) error {
	// The checks are those of a sandbox, which it has the same fields of.
	as := spec.Sandbox
	if as.IdempotencyKey != "" {
		return bailey.Errorf(bailey.CodeUsage, "make a session", "give the key to the session", "its sandboxes have idempotency keys of their own")
	}
	if err := checkSpec(who, as); err != nil {
		return err
	}
	return checkSpec(who, api.SandboxSpec{IdempotencyKey: spec.IdempotencyKey, Name: spec.Name, Labels: spec.Labels})
}

// SessionOf gives a session by id, the start of exactly one id, or name.
func (e *Engine) SessionOf(ctx context.Context, who Caller, ref string) (api.Session, error) {
	row, err := e.findSession(ctx, who, ref)
	if err != nil {
		return api.Session{}, err
	}
	return e.tellSession(ctx, row)
}

// Sessions lists sessions, the oldest first, that have all the labels.
func (e *Engine) Sessions(ctx context.Context, who Caller, labels map[string]string) ([]api.Session, error) {
	rows, err := e.db.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	list := []api.Session{}
	for _, row := range rows {
		if !who.may(row.Owner) {
			continue
		}
		s, err := e.tellSession(ctx, row)
		if err != nil {
			return nil, err
		}
		all := true
		for k, v := range labels {
			have, ok := s.Labels[k]
			all = all && ok && have == v
		}
		if all {
			list = append(list, s)
		}
	}
	return list, nil
}

// CloseSession ends a session and its sandbox; its log and outcomes are kept for 30 days,
// or until its owner's sessions need the room. What it executes
// ends with the sandbox. One that is closed is no error.
func (e *Engine) CloseSession(ctx context.Context, who Caller, ref string) error {
	row, err := e.findSession(ctx, who, ref)
	if err != nil {
		return err
	}
	seat := e.seat(row.ID)
	if err := seat.begin(ctx); err != nil {
		return err
	}
	defer seat.done()
	s, err := e.session(ctx, row.ID)
	if err != nil {
		return err
	}
	if s.Session.State == sessionOpen {
		s.Session.State = sessionClosed
		err := e.writeSession(ctx, seat, s, "closed", nil, func(tx *sql.Tx) error {
			return e.emit(ctx, tx, api.Event{Kind: "session.closed", Owner: s.Session.Owner, Data: sessionData(s)})
		})
		if err != nil {
			return err
		}
	}
	return e.clearSession(ctx, seat, s)
}

// clearSession removes what a closed session had. The caller holds op.
func (e *Engine) clearSession(ctx context.Context, seat *seat, s *session) error {
	if s.Session.Sandbox == "" {
		return nil
	}
	owner := s.owner()
	if err := e.Delete(ctx, owner, s.Session.Sandbox); err != nil && bailey.CodeOf(err) != bailey.CodeNotFound {
		return err
	}
	for _, cp := range []string{s.Session.Checkpoint, s.From} {
		if err := e.dropCheckpoint(ctx, owner, cp); err != nil {
			return err
		}
	}
	s.Session.Sandbox = ""
	return e.writeSession(ctx, seat, s, "", nil, nil)
}

// dropCheckpoint deletes a checkpoint that a session stood on and that nobody else
// has deleted.
func (e *Engine) dropCheckpoint(ctx context.Context, owner Caller, id string) error {
	if id == "" {
		return nil
	}
	snap, err := e.SnapshotOf(ctx, owner, id)
	if err == nil && snap.Checkpoint {
		err = e.DeleteSnapshot(ctx, owner, id)
	}
	switch bailey.CodeOf(err) {
	case bailey.CodeNotFound, bailey.CodeSnapshotGone:
		return nil
	}
	return err
}

// reopenSessions goes on with what sessions executed when the engine before ended,
// and with ends that it did not get through with.
func (e *Engine) reopenSessions(ctx context.Context) error {
	open, err := e.db.OpenSessionExecs(ctx)
	if err != nil {
		return err
	}
	for _, x := range open {
		if err := e.resumeRun(x); err != nil {
			return err
		}
	}
	rows, err := e.db.Sessions(ctx)
	if err != nil {
		return err
	}
	for _, row := range rows {
		if row.State != sessionClosed || row.Sandbox == "" {
			continue
		}
		e.spawn(func(ctx context.Context) {
			if err := e.CloseSession(ctx, Caller{Name: row.Owner}, row.ID); err != nil && ctx.Err() == nil {
				e.log.Error("remove what a closed session had", "session", row.ID, "error", err)
			}
		})
	}
	return nil
}

// owner is who a session acts as, with the rights of whoever made it: what its
// policy or image names is looked at when a sandbox is made.
func (s *session) owner() Caller {
	return Caller{Name: s.Session.Owner, Local: s.Local, Admin: s.Admin}
}

// findSession gives the row of the session that ref names.
func (e *Engine) findSession(ctx context.Context, who Caller, ref string) (state.Session, error) {
	rows, err := e.db.FindSessions(ctx, ref)
	if err != nil {
		return state.Session{}, err
	}
	rows = slices.DeleteFunc(rows, func(r state.Session) bool { return !who.may(r.Owner) })
	switch len(rows) {
	case 1:
		return rows[0], nil
	case 0:
		return state.Session{}, bailey.Errorf(bailey.CodeNotFound, "find the session "+ref, "`bailey session ls` lists them", "there is no such session, or it is not yours")
	}
	return state.Session{}, bailey.Errorf(bailey.CodeUsage, "find the session "+ref, "write more of the id", "several ids begin so")
}

// session reads what is known about one.
func (e *Engine) session(ctx context.Context, id string) (*session, error) {
	rows, err := e.db.FindSessions(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(rows) != 1 || rows[0].ID != id {
		return nil, bailey.Errorf(bailey.CodeNotFound, "find the session "+id, "", "it is gone")
	}
	return readSession(rows[0])
}

func readSession(row state.Session) (*session, error) {
	s := &session{}
	if err := json.Unmarshal(row.Doc, s); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "read the session "+row.ID, "restore the state database from a backup", "%w", err)
	}
	s.Session.Checkpoint = row.Checkpoint
	return s, nil
}

// tellSession gives what is told about a session.
func (e *Engine) tellSession(ctx context.Context, row state.Session) (api.Session, error) {
	s, err := readSession(row)
	if err != nil {
		return api.Session{}, err
	}
	s.Session.Events, err = e.db.LastSessionEvent(ctx, row.ID)
	return s.Session, err
}

func putSession(ctx context.Context, tx *sql.Tx, s *session, digest string) error {
	doc, err := json.Marshal(s)
	if err != nil {
		return bailey.Errorf(bailey.CodeInternal, "write the session "+s.Session.ID, "", "%w", err)
	}
	return state.PutSession(ctx, tx, state.Session{ID: s.Session.ID, Name: s.Session.Name, Owner: s.Session.Owner, State: s.Session.State, Sandbox: s.Session.Sandbox,
		Key: s.Spec.IdempotencyKey, Digest: digest, Created: s.Session.Created, Doc: doc})
}

// writeSession makes durable what is known about a session, together with an event of
// its log ("" is none) and more.
func (e *Engine) writeSession(ctx context.Context, seat *seat, s *session, kind string, data any, more func(tx *sql.Tx) error) error {
	ctx = context.WithoutCancel(ctx)
	err := e.db.Update(ctx, func(tx *sql.Tx) error {
		if err := putSession(ctx, tx, s, ""); err != nil {
			return err
		}
		if kind != "" {
			if err := e.note(ctx, tx, s.Session.ID, kind, data); err != nil {
				return err
			}
		}
		if more != nil {
			return more(tx)
		}
		return nil
	})
	if err == nil {
		seat.bell.ring()
		e.ring()
	}
	return err
}

// sessionData is what events of a session tell.
func sessionData(s *session) json.RawMessage {
	data, _ := json.Marshal(map[string]any{"session": s.Session.ID, "name": s.Session.Name, "generation": s.Session.Generation})
	return data
}
