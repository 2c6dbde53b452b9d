package engine

import (
	"context"
	"maps"
	"slices"

	"github.com/bailey-sandbox/bailey/api"
)

// Info says what there is. Levels are tried when they are first asked for.
func (e *Engine) Info(ctx context.Context) (api.Info, error) {
	var list []api.Level
	for _, level := range slices.Sorted(maps.Keys(e.driver)) {
		c := e.can(ctx, level)
		list = append(list, api.Level{Isolation: level, Available: c.Available, Why: c.Why, Fix: c.Fix})
	}
	e.mu.Lock()
	n := len(e.boxes)
	e.mu.Unlock()
	return api.Info{API: "v1", Started: e.started, Home: e.home, Sandboxes: n, Levels: list, Warm: e.pools.show()}, nil
}
