package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Sandbox gives a sandbox by id, the start of exactly one id, or name. Looking is
// no activity. Ended ones are found for as long as they are remembered.
func (e *Engine) Sandbox(ctx context.Context, who Caller, ref string) (api.Sandbox, error) {
	b, r, err := e.look(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if b == nil {
		return r.Sandbox, nil
	}
	return e.show(b), nil
}

// Sandboxes lists sandboxes, the oldest first; next goes on.
func (e *Engine) Sandboxes(ctx context.Context, who Caller, q api.SandboxQuery) (list []api.Sandbox, next string, err error) {
	const what = "list the sandboxes"
	limit := q.Limit
	if limit == 0 {
		limit = 100
	}
	if limit < 1 || limit > 1000 {
		return nil, "", bailey.Errorf(bailey.CodeUsage, what, "use 1 to 1000", "a limit of %d is out of range", limit)
	}
	after, id, err := readCursor(q.After)
	if err != nil {
		return nil, "", err
	}
	wants := func(s api.Sandbox) bool {
		if !who.may(s.Owner) || !(s.Created.After(after) || s.Created.Equal(after) && s.ID > id) {
			return false
		}
		for k, v := range q.Labels {
			if have, ok := s.Labels[k]; !ok || have != v {
				return false
			}
		}
		return len(q.States) == 0 || slices.Contains(q.States, s.State)
	}
	var all []api.Sandbox
	for _, b := range e.list() {
		if s := b.record().Sandbox; wants(s) {
			all = append(all, e.show(b))
		}
	}
	if slices.Contains(q.States, api.StateEnded) {
		ended, err := e.ended(ctx, after, id, limit+1, wants)
		if err != nil {
			return nil, "", err
		}
		all = append(all, ended...)
	}
	slices.SortFunc(all, func(a, b api.Sandbox) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	if len(all) > limit {
		all = all[:limit]
		last := all[limit-1]
		next = strconv.FormatInt(last.Created.UnixNano(), 36) + "." + last.ID
	}
	return all, next, nil
}

// ended gives up to limit ended sandboxes that are wanted.
func (e *Engine) ended(ctx context.Context, after time.Time, id string, limit int, wants func(api.Sandbox) bool) (list []api.Sandbox, err error) {
	const page = 500
	for {
		rows, err := e.db.EndedSandboxes(ctx, after, id, page)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			after, id = row.Created, row.ID
			r, err := readRecord(row)
			if err != nil {
				return nil, err
			}
			if wants(r.Sandbox) {
				list = append(list, r.Sandbox)
			}
		}
		if len(rows) < page || len(list) >= limit {
			return list, nil
		}
	}
}

// readCursor reads where a list goes on.
func readCursor(s string) (after time.Time, id string, err error) {
	if s == "" {
		return time.Unix(0, 0), "", nil
	}
	at, id, ok := strings.Cut(s, ".")
	n, perr := strconv.ParseInt(at, 36, 64)
	if !ok || perr != nil || len(id) > 64 {
		return after, "", bailey.Errorf(bailey.CodeUsage, "list the sandboxes", "give what the page before said", "%.40q is no place in a list", s)
	}
	return time.Unix(0, n).UTC(), id, nil
}
