package engine

import (
	"context"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
)

// originOf finds what a spec starts from.
func (e *Engine) originOf(ctx context.Context, who Caller, spec *api.SandboxSpec) (*origin, error) {
	if spec.Snapshot != "" {
		o, note, release, err := e.originOfSnapshot(ctx, who, spec)
		if err != nil {
			release()
			return nil, err
		}
		if o != nil {
			o.Release = release
			return o, nil
		}
		o, err = e.originOf(ctx, who, spec)
		if err == nil {
			o.Notes = append(o.Notes, note)
		}
		return o, err
	}
	switch {
	case spec.Isolation == bailey.IsolationProcess && spec.Image == "" && spec.Template == "":
		return &origin{}, nil // it shows the host's own files
	case spec.Image != "":
		return e.originOfImage(ctx, who, spec.Image)
	case spec.Template != "" && spec.Template != image.HostSource:
		return e.originOfTemplate(ctx, spec.Template)
	}
	return e.hostOrigin(ctx)
}
