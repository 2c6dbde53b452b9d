package engine

import (
	"context"
	"regexp"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/life"
)

// Bounds of what a hold may be.
const (
	maxHolds    = 100
	maxHoldWhy  = 1024
	longestHold = 7 * 24 * time.Hour
)

// idForm is what ids look like that callers choose.
var idForm = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,128}$`)

// Hold keeps a sandbox awake for a while: idleness does nothing to it meanwhile. Its
// timeout it does not touch. A sandbox that is paused or stopped is woken. The same
// id again sets the hold anew.
func (e *Engine) Hold(ctx context.Context, who Caller, ref string, req api.HoldRequest) (api.Hold, error) {
	const what = "hold a sandbox awake"
	if req.ID == "" {
		req.ID = newID()
	}
	if !idForm.MatchString(req.ID) {
		return api.Hold{}, bailey.Errorf(bailey.CodeUsage, what, "use 1 to 128 letters, digits, dots, dashes, underscores and colons", "%.40q cannot be an id", req.ID)
	}
	if req.For <= 0 || time.Duration(req.For) > longestHold {
		return api.Hold{}, bailey.Errorf(bailey.CodeUsage, what, "set it anew before it ends, if it takes longer", "for %v: it has to be more than 0 and at most %v", time.Duration(req.For), longestHold)
	}
	if len(req.Why) > maxHoldWhy {
		return api.Hold{}, bailey.Errorf(bailey.CodeTooLarge, what, "", "the reason has %d bytes, and may have %d", len(req.Why), maxHoldWhy)
	}
	u, err := e.awake(ctx, who, ref)
	if err != nil {
		return api.Hold{}, err
	}
	defer u.release()
	u.box.alive.mu.Lock()
	n := 0
	for _, h := range u.box.alive.life.Holds {
		if h.ID != req.ID && h.Until.After(e.clock.Now()) {
			n++
		}
	}
	u.box.alive.mu.Unlock()
	if n >= maxHolds {
		return api.Hold{}, bailey.Errorf(bailey.CodeQuotaExceeded, what, "release some", "it has %d holds already", n)
	}
	h := api.Hold{ID: req.ID, Why: req.Why, Until: e.clock.Now().UTC().Add(time.Duration(req.For))}
	return h, e.ask(ctx, u.box, func(l *life.Record, now time.Time) { l.Hold(h, now) })
}

// Release ends a hold. One that is not there is no error.
func (e *Engine) Release(ctx context.Context, who Caller, ref, id string) error {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return err
	}
	return e.ask(ctx, b, func(l *life.Record, now time.Time) { l.Release(id, now) })
}
