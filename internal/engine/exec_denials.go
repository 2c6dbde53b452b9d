package engine

import (
	"context"
	"time"

	"github.com/bailey-sandbox/bailey/api"
)

// denialsWithin bounds the question what was refused: while a gate that has died
// is replaced it is not answered.
const denialsWithin = 500 * time.Millisecond

// denialKey tells denials apart.
type denialKey struct{ what, rule, reason string }

// denials gives what was refused to a sandbox since the last call: what a command
// was refused that has just ended. Of commands that run at once the one that ends
// first is told. The gate takes all queries for a name within ten seconds for one.
func (e *Engine) denials(ctx context.Context, b *box) []api.Denial {
	e.gateway.mu.Lock()
	w := e.gateway.ways
	e.gateway.mu.Unlock()
	if w == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, denialsWithin)
	defer cancel()
	now, err := w.Denials(ctx, b.id)
	if err != nil || len(now.Denials) == 0 {
		return nil
	}
	e.execs.mu.Lock()
	defer e.execs.mu.Unlock()
	// Only what the gate still knows of is remembered: a sandbox can have any number
	// of names refused.
	seen, told := e.execs.denied[b.id], make(map[denialKey]int64, len(now.Denials))
	e.execs.denied[b.id] = told
	var list []api.Denial
	for _, d := range now.Denials {
		k := denialKey{d.What, d.Rule, d.Reason}
		n := d.Count - seen[k]
		if n < 0 { // another gate counts anew
			n = d.Count
		}
		told[k] = d.Count
		if n > 0 {
			list = append(list, api.Denial{What: d.What, Rule: d.Rule, Reason: d.Reason, Why: d.Why, Ask: d.Ask, Count: n})
		}
	}
	return list
}
