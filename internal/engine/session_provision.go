package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// ensure makes sure that the session has a sandbox that lives: one that has died is
// provisioned anew, from the last checkpoint where there is one, otherwise from its
// own files, and if they are gone too from what the first started from. Each time is
// another generation. The caller holds op.
func (e *Engine) ensure(ctx context.Context, seat *seat, s *session) error {
	owner := s.owner()
	if s.Session.Sandbox == "" {
		return e.provision(ctx, seat, s)
	}
	b, r, err := e.look(ctx, owner, s.Session.Sandbox)
	if err != nil && bailey.CodeOf(err) != bailey.CodeNotFound {
		return err
	}
	if b != nil {
		if r, err = e.attended(ctx, b); err != nil {
			return err
		}
	}
	switch {
	case r == nil, r.Sandbox.State == api.StateEnded, r.Sandbox.State == api.StateFailed, r.Sandbox.State == api.StateDeleting:
		return e.provision(ctx, seat, s)
	case r.Sandbox.State == api.StateLost && s.Session.Checkpoint != "":
		return e.provision(ctx, seat, s)
	case r.Sandbox.State == api.StateLost:
		made, err := e.Resume(ctx, owner, b.id)
		if err != nil {
			return err
		}
		return e.restarted(ctx, seat, s, made.Generation)
	case r.Unaccepted && r.Sandbox.Generation > s.Seen:
		return e.restarted(ctx, seat, s, r.Sandbox.Generation)
	}
	return nil
}

// attended gives the record of a sandbox to which nobody is doing anything, with its
// loss if it has died just now.
func (e *Engine) attended(ctx context.Context, b *box) (*record, error) {
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	defer b.done()
	if g := b.generation(); g != nil && b.record().Sandbox.State == api.StateRunning {
		select {
		case <-g.instance.Done():
			return b.record(), e.settle(ctx, b, g)
		default:
		}
	}
	return b.record(), nil
}

// provision gives the session a sandbox in place of the one that it has lost, if it
// had one.
func (e *Engine) provision(ctx context.Context, seat *seat, s *session) error {
	owner, checkpoint := s.owner(), s.Session.Checkpoint
	if old := s.Session.Sandbox; old != "" {
		if err := e.noteLoss(ctx, seat, s); err != nil {
			return err
		}
		// What it held since the checkpoint is not what the session goes on from, and
		// it has the name.
		if err := e.Delete(ctx, owner, old); err != nil && bailey.CodeOf(err) != bailey.CodeNotFound {
			return err
		}
	}
	spec := s.Spec.Sandbox
	// A death of the daemon between the sandbox and the row that has it makes no
	// second one.
	spec.IdempotencyKey = fmt.Sprintf("session %s %d", s.Session.ID, s.Session.Generation+1)
	if checkpoint != "" {
		spec.Template, spec.Image, spec.Snapshot = "", "", checkpoint
	}
	made, err := e.createFrom(ctx, owner, spec, nil)
	if err != nil {
		return err
	}
	if b, err := e.find(ctx, owner, made.ID); err == nil {
		err = e.update(ctx, b, func(r *record) { r.Sandbox.Session = s.Session.ID })
		if err != nil {
			return err
		}
	}
	stale := s.From
	s.Session.Sandbox = made.ID
	if !slices.Contains(s.Session.Sandboxes, made.ID) {
		s.Session.Sandboxes = append(s.Session.Sandboxes, made.ID)
	}
	s.Session.Generation++
	s.Seen, s.From = made.Generation, checkpoint
	if s.Session.Generation == 1 {
		s.Accepted = 1 // there was nothing to lose
	}
	err = e.writeSession(ctx, seat, s, "provisioned", provisionedData{Sandbox: made.ID, Generation: s.Session.Generation, Checkpoint: checkpoint, Notes: made.Notes}, nil)
	if err == nil && stale != checkpoint {
		err = e.dropCheckpoint(ctx, owner, stale)
	}
	return err
}

type provisionedData struct {
	Sandbox    string   `json:"sandbox"`
	Generation int64    `json:"generation"`
	Checkpoint string   `json:"checkpoint,omitempty"` // what it started from
	Files      string   `json:"files,omitempty"`      // "kept": its own
	Notes      []string `json:"notes,omitempty"`
}

// restarted says that the session's sandbox was started anew from its own files.
func (e *Engine) restarted(ctx context.Context, seat *seat, s *session, generation int64) error {
	if err := e.noteLoss(ctx, seat, s); err != nil {
		return err
	}
	s.Session.Generation++
	s.Seen = generation
	return e.writeSession(ctx, seat, s, "provisioned", provisionedData{Sandbox: s.Session.Sandbox, Generation: s.Session.Generation, Files: "kept"}, nil)
}

// noteLoss writes into the log how the present sandbox ended.
func (e *Engine) noteLoss(ctx context.Context, seat *seat, s *session) error {
	data := struct {
		Sandbox    string      `json:"sandbox"`
		Generation int64       `json:"generation"`
		End        *bailey.End `json:"why_ended,omitempty"`
	}{Sandbox: s.Session.Sandbox, Generation: s.Session.Generation}
	if _, r, err := e.look(ctx, s.owner(), s.Session.Sandbox); err == nil {
		data.End = r.Sandbox.End
	}
	return e.writeSession(ctx, seat, s, "lost", data, nil)
}

// acceptSession checks the generation that a caller has accepted against the one that
// is there. The error has code sandbox_restarted and carries the new one.
func (e *Engine) acceptSession(ctx context.Context, seat *seat, s *session, seen int64) error {
	n := s.Session.Generation
	switch {
	case seen > n:
		return bailey.Errorf(bailey.CodeUsage, "execute in the session "+s.Session.ID, "send the generation that it has", "it is generation %d, and %d is still to come", n, seen)
	case seen == n && s.Accepted < n:
		s.Accepted = n
		return e.writeSession(ctx, seat, s, "accepted", map[string]int64{"generation": n}, nil)
	case seen == n, seen == 0 && n == 1:
		return nil
	}
	from := "what the first started from"
	switch {
	case s.From != "":
		from = "the checkpoint " + s.From
	case s.Seen > 1:
		from = "its files"
	}
	err := bailey.Errorf(bailey.CodeSandboxRestarted, "execute in the session "+s.Session.ID, fmt.Sprintf("look at what is left and send generation %d", n),
		"its sandbox had died and was started anew from %s: it is generation %d now", from, n)
	err.Generation = n
	return err
}
