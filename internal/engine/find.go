package engine

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// find gives the sandbox that ref names among those that have not ended: by id,
// the start of exactly one id, or name. One that has ended is the error
// sandbox_ended, and one that is none, or is somebody else's, not_found.
func (e *Engine) find(ctx context.Context, who Caller, ref string) (*box, error) {
	b, r, err := e.look(ctx, who, ref)
	if err == nil && b == nil {
		err = endedError("use the sandbox ", r)
	}
	return b, err
}

// look is find, but of a sandbox that has ended it gives the record and no box.
func (e *Engine) look(ctx context.Context, who Caller, ref string) (*box, *record, error) {
	const what = "find the sandbox "
	var hits []*box
	e.mu.Lock()
	if b := e.boxes[ref]; b != nil {
		hits = []*box{b}
	} else if ref != "" {
		for id, b := range e.boxes {
			// What a stranger has named is not there for others: no name of
			// theirs comes before an id of one's own.
			if name := b.record().Sandbox.Name; name == ref && who.may(b.record().Sandbox.Owner) {
				hits = []*box{b}
				break
			} else if len(id) > len(ref) && id[:len(ref)] == ref && who.may(b.record().Sandbox.Owner) {
				hits = append(hits, b)
			}
		}
	}
	e.mu.Unlock()
	if len(hits) > 1 {
		return nil, nil, bailey.Errorf(bailey.CodeUsage, what+ref, "write more of the id", "several ids begin so")
	}
	if len(hits) == 1 {
		if r := hits[0].record(); who.may(r.Sandbox.Owner) {
			return hits[0], r, nil
		}
		return nil, nil, notFound(ref)
	}
	rows, err := e.db.FindSandboxes(ctx, ref)
	if err != nil {
		return nil, nil, err
	}
	var mine []state.Sandbox
	for _, row := range rows {
		if who.may(row.Owner) {
			mine = append(mine, row)
		}
	}
	if len(mine) != 1 {
		return nil, nil, notFound(ref)
	}
	r, err := readRecord(mine[0])
	return nil, r, err
}

func notFound(ref string) error {
	return bailey.Errorf(bailey.CodeNotFound, "find the sandbox "+ref, "`bailey ls` lists them", "there is no such sandbox, or it is not yours")
}
