package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// BySnapshot names a snapshot.
type BySnapshot struct {
	ID string `path:"id" maxLength:"256" doc:"Id or name"`
}

func (s *Server) snapshotRoutes() {
	type snapshotIn struct {
		BySandbox
		Body *api.SnapshotSpec
	}
	add(s, op{id: "snapshot-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/snapshots", summary: "freeze a sandbox's files", scope: access.Write, status: http.StatusCreated},
		func(ctx context.Context, in *snapshotIn) (*answer[api.Snapshot], error) {
			return answered(s.engine.Snapshot(ctx, caller(ctx), in.ID, orZero(in.Body)))
		})
	type forkIn struct {
		BySandbox
		Body *api.ForkRequest
	}
	add(s, op{id: "fork-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/fork", summary: "make sandboxes that start as this one is now", scope: access.Write, status: http.StatusCreated},
		func(ctx context.Context, in *forkIn) (*answer[api.SandboxList], error) {
			l, err := s.engine.Fork(ctx, caller(ctx), in.ID, orZero(in.Body))
			return answered(api.SandboxList{Sandboxes: orEmpty(l)}, err)
		})
	type checkpointIn struct {
		BySandbox
		Body *api.CheckpointRequest
	}
	add(s, op{id: "checkpoint-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/checkpoints", summary: "make a cheap snapshot for diff and undo", scope: access.Exec, status: http.StatusCreated},
		func(ctx context.Context, in *checkpointIn) (*answer[api.Snapshot], error) {
			return answered(s.engine.Checkpoint(ctx, caller(ctx), in.ID, orZero(in.Body).Name))
		})
	type diffIn struct {
		BySandbox
		From string `query:"from" maxLength:"256" doc:"A snapshot or checkpoint; default what the sandbox started from"`
		To   string `query:"to" maxLength:"256" doc:"A snapshot or checkpoint; default now"`
	}
	add(s, op{id: "diff-sandbox", method: http.MethodGet, path: "/sandboxes/{id}/diff", summary: "list what changed between two states of a sandbox's files", scope: access.Read,
		answers: eventTypes, schema: api.Entry{}},
		func(ctx context.Context, in *diffIn) (*huma.StreamResponse, error) {
			return s.entries(func(ctx context.Context, send func(api.Entry) error) error {
				return s.engine.Diff(ctx, caller(ctx), in.ID, in.From, in.To, func(c api.Change) error { return send(api.Entry{Change: &c}) })
			})
		})
	type undoIn struct {
		BySandbox
		Body *api.UndoRequest
	}
	add(s, op{id: "undo-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/undo", summary: "take a sandbox's files back", scope: access.Write},
		func(ctx context.Context, in *undoIn) (*answer[api.Receipt], error) {
			return answered(s.engine.Undo(ctx, caller(ctx), in.ID, orZero(in.Body)))
		})
	type bisectIn struct {
		BySandbox
		Body api.BisectRequest
	}
	add(s, op{id: "bisect-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/bisect", summary: "find the first checkpoint at which a command fails", scope: access.Write},
		func(ctx context.Context, in *bisectIn) (*answer[api.BisectResult], error) {
			return answered(s.engine.Bisect(ctx, caller(ctx), in.ID, in.Body))
		})

	type listIn struct {
		Sandbox     string `query:"sandbox" maxLength:"256" doc:"Only of this sandbox"`
		Checkpoints bool   `query:"checkpoints" doc:"Checkpoints too"`
	}
	add(s, op{id: "list-snapshots", method: http.MethodGet, path: "/snapshots", summary: "list snapshots", scope: access.Read},
		func(ctx context.Context, in *listIn) (*answer[api.SnapshotList], error) {
			l, err := s.engine.Snapshots(ctx, caller(ctx), in.Sandbox, in.Checkpoints)
			return answered(api.SnapshotList{Snapshots: orEmpty(l)}, err)
		})
	add(s, op{id: "get-snapshot", method: http.MethodGet, path: "/snapshots/{id}", summary: "look at a snapshot", scope: access.Read},
		func(ctx context.Context, in *BySnapshot) (*answer[api.Snapshot], error) {
			return answered(s.engine.SnapshotOf(ctx, caller(ctx), in.ID))
		})
	add(s, op{id: "delete-snapshot", method: http.MethodDelete, path: "/snapshots/{id}", summary: "delete a snapshot; what stands on it goes on", scope: access.Write},
		func(ctx context.Context, in *BySnapshot) (*nothing, error) {
			return did(s.engine.DeleteSnapshot(ctx, caller(ctx), in.ID))
		})
	add(s, op{id: "export-snapshot", method: http.MethodGet, path: "/snapshots/{id}/export", summary: "read a snapshot as an OCI layout in a tar archive", scope: access.Read, answers: []string{"application/x-tar"}},
		func(ctx context.Context, in *BySnapshot) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.send(c, "application/x-tar", func(ctx context.Context, d *download) error {
					return s.engine.ExportSnapshot(ctx, caller(ctx), in.ID, d)
				})
			}}, nil
		})
	type importIn struct {
		Name string `query:"name" maxLength:"63" doc:"What to call it; optional"`
		upload
	}
	add(s, op{id: "import-snapshot", method: http.MethodPost, path: "/snapshots/import", summary: "take an exported snapshot in", scope: access.Write, body: []string{"application/x-tar"}},
		func(ctx context.Context, in *importIn) (*answer[api.Snapshot], error) {
			if err := in.begin(s.opt.Upload, ""); err != nil {
				return nil, err
			}
			snap, err := s.engine.ImportSnapshot(ctx, caller(ctx), in.Name, &in.upload)
			return answered(snap, in.end(err))
		})
}

// orZero gives what an optional body says.
func orZero[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
