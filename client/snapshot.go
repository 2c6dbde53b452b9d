package client

import (
	"context"
	"io"
	"iter"
	"net/http"
	"net/url"

	"github.com/bailey-sandbox/bailey/api"
)

// Snapshot freezes the files of the sandbox, running, paused or stopped.
func (s *Sandbox) Snapshot(ctx context.Context, spec api.SnapshotSpec) (api.Snapshot, error) {
	return once[api.Snapshot](ctx, s.c, s.path("/snapshots"), spec)
}

// Fork makes sandboxes that start as this one is now.
func (s *Sandbox) Fork(ctx context.Context, req api.ForkRequest) ([]*Sandbox, error) {
	l, err := once[api.SandboxList](ctx, s.c, s.path("/fork"), req)
	if err != nil {
		return nil, err
	}
	out := make([]*Sandbox, len(l.Sandboxes))
	for i, f := range l.Sandboxes {
		out[i] = s.c.Sandbox(f.ID)
	}
	return out, nil
}

// Checkpoint makes a cheap snapshot for Diff and Undo; name may be empty.
func (s *Sandbox) Checkpoint(ctx context.Context, name string) (api.Snapshot, error) {
	return once[api.Snapshot](ctx, s.c, s.path("/checkpoints"), api.CheckpointRequest{Name: name})
}

// Diff goes through what changed between two snapshots or checkpoints of the
// sandbox; from "" is what it started from, to "" is now.
func (s *Sandbox) Diff(ctx context.Context, from, to string) iter.Seq2[api.Change, error] {
	q := url.Values{}
	if from != "" {
		q.Set("from", from)
	}
	if to != "" {
		q.Set("to", to)
	}
	return entries(ctx, s.c, s.path("/diff"), q, func(e api.Entry) *api.Change { return e.Change })
}

// Undo takes the sandbox's files back.
func (s *Sandbox) Undo(ctx context.Context, req api.UndoRequest) (api.Receipt, error) {
	return once[api.Receipt](ctx, s.c, s.path("/undo"), req)
}

// Bisect finds the first checkpoint at which a command fails.
func (s *Sandbox) Bisect(ctx context.Context, req api.BisectRequest) (api.BisectResult, error) {
	return once[api.BisectResult](ctx, s.c, s.path("/bisect"), req)
}

// Snapshots lists snapshots of one sandbox, or with "" all; checkpoints are among
// them if asked for.
func (c *Client) Snapshots(ctx context.Context, sandbox string, checkpoints bool) ([]api.Snapshot, error) {
	q := url.Values{}
	if sandbox != "" {
		q.Set("sandbox", sandbox)
	}
	if checkpoints {
		q.Set("checkpoints", "true")
	}
	l, err := get[api.SnapshotList](ctx, c, "/v1/snapshots", q)
	return l.Snapshots, err
}

// Snapshot gives a snapshot by id or name.
func (c *Client) Snapshot(ctx context.Context, ref string) (api.Snapshot, error) {
	return get[api.Snapshot](ctx, c, pathf("/snapshots/%s", ref), nil)
}

// DeleteSnapshot deletes a snapshot; what stands on it goes on.
func (c *Client) DeleteSnapshot(ctx context.Context, ref string) error {
	return c.remove(ctx, pathf("/snapshots/%s", ref), nil)
}

// ExportSnapshot gives a snapshot as an OCI layout in a tar, with its policy and
// the head of the audit log. The reader must be closed; one that ends without an
// error has given all.
func (c *Client) ExportSnapshot(ctx context.Context, ref string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, call{method: http.MethodGet, path: pathf("/snapshots/%s/export", ref), again: true})
	if err != nil {
		return nil, err
	}
	return checked(resp), nil
}

// ImportSnapshot takes what ExportSnapshot gave; name may be empty.
func (c *Client) ImportSnapshot(ctx context.Context, name string, r io.Reader) (api.Snapshot, error) {
	q := url.Values{}
	if name != "" {
		q.Set("name", name)
	}
	return ask[api.Snapshot](ctx, c, call{method: http.MethodPost, path: "/v1/snapshots/import", query: q, body: r, size: -1})
}
