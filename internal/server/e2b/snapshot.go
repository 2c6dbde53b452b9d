package e2b

import (
	"context"
	"net/http"
	"strings"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// Forks and snapshots are of files: at the levels that there are memory is kept by a
// pause only. docs/e2b.md says so.

// maxForks is the most that one request may ask for.
const maxForks = 100

type forked struct {
	Sandbox *handle  `json:"sandbox,omitempty"`
	Error   *failure `json:"error,omitempty"`
}

func (s *Server) fork(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	in := struct {
		Timeout int64 `json:"timeout"`
		Count   int   `json:"count"`
	}{defaultConnect, 1}
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	if in.Count < 1 || in.Count > maxForks {
		return 0, nil, fail(http.StatusBadRequest, "a count is 1 to 100")
	}
	if _, err := seconds(in.Timeout); err != nil {
		return 0, nil, err
	}
	if stateOf(b) != "running" {
		return 0, nil, fail(http.StatusConflict, "the sandbox "+b.ID+" does not run")
	}
	list, err := s.engine.Fork(ctx, who.Caller, b.ID, api.ForkRequest{Count: in.Count})
	if err != nil {
		return 0, nil, err
	}
	out := []forked{}
	for _, c := range list {
		if err := s.extend(ctx, who, c, in.Timeout, false); err != nil {
			out = append(out, forked{Error: failed(err)})
			continue
		}
		h := s.handle(c)
		out = append(out, forked{Sandbox: &h})
	}
	return http.StatusCreated, out, nil
}

type snapshotInfo struct {
	ID    string   `json:"snapshotID"`
	Names []string `json:"names"`
}

func shown(p api.Snapshot) snapshotInfo {
	i := snapshotInfo{ID: p.ID, Names: []string{}}
	if p.Name != "" {
		i.Names = append(i.Names, p.Name)
	}
	return i
}

func (s *Server) snapshot(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	var in struct {
		Name string `json:"name"`
	}
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	p, err := s.engine.Snapshot(ctx, who.Caller, b.ID, api.SnapshotSpec{Name: in.Name})
	return http.StatusCreated, shown(p), err
}

func (s *Server) snapshots(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	q := r.URL.Query()
	list, err := s.engine.Snapshots(ctx, who.Caller, q.Get("sandboxID"), false)
	out := []snapshotInfo{}
	for _, p := range list {
		if !p.Deleted && (q.Get("name") == "" || q.Get("name") == p.Name) {
			out = append(out, shown(p))
		}
	}
	return http.StatusOK, out, err
}

func (s *Server) deleteSnapshot(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	id := strings.TrimSuffix(r.PathValue("id"), ":default")
	return http.StatusNoContent, nil, s.engine.DeleteSnapshot(ctx, who.Caller, id)
}
