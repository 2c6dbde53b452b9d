package engine

import (
	"context"
	"slices"

	"github.com/bailey-sandbox/bailey/api"
)

// Stats says what a sandbox uses. Looking is no activity, and wakes nothing: one
// whose processes are not there uses nothing but its files.
func (e *Engine) Stats(ctx context.Context, who Caller, ref string) (api.Stats, error) {
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Stats{}, err
	}
	s := api.Stats{Sent: -1, Received: -1, IdleBilled: e.idleBilled(b)}
	if g := b.generation(); g != nil && g.ctx.Err() == nil {
		now, err := g.instance.Stats(ctx)
		if err != nil {
			return api.Stats{}, err
		}
		s.Memory, s.MemoryPeak, s.Pids, s.CPU = now.Memory, now.MemoryPeak, now.Pids, api.Duration(now.CPU)
	}
	for _, r := range b.record().Roots {
		s.Disk += usage(b.upper(r.N)) + e.sealed(r)
	}
	return s, nil
}

// sealed gives how many bytes of what was written into a root since its sandbox was
// made lie in layers, under what is being written now.
func (e *Engine) sealed(r root) (n int64) {
	chain, err := e.layers.Chain(r.Chain)
	if err != nil {
		return 0 // whoever starts from it is told what is missing
	}
	for _, l := range slices.Backward(chain) {
		if l.ID == r.Base {
			return n
		}
		if l.Bytes > 0 {
			n += l.Bytes
		} else {
			n += usage(l.Dir) // it has not been counted yet
		}
	}
	if r.Base != "" {
		return 0 // flattened with what it started from: nobody can tell the two apart
	}
	return n
}
