package engine

import (
	"context"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/life"
)

// Renew renews a sandbox's lease: its owner lives. Nothing else does but the resume
// of a paused sandbox, and a new daemon, before which nobody could.
func (e *Engine) Renew(ctx context.Context, who Caller, ref string) (api.Sandbox, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if b.record().Life.Lease == nil {
		return api.Sandbox{}, bailey.Errorf(bailey.CodeConflict, "renew the lease of the sandbox "+b.id, "create it with a lease", "it has none")
	}
	if err := e.ask(ctx, b, func(l *life.Record, now time.Time) { l.Renew(now) }); err != nil {
		return api.Sandbox{}, err
	}
	return e.show(b), nil
}
