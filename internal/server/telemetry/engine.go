package telemetry

import (
	"context"
	"io"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server/rest"
)

var tracer = otel.Tracer("github.com/bailey-sandbox/bailey")

// Observe gives an engine whose acts are measured and traced.
func (m *Metrics) Observe(e rest.Engine) rest.Engine { return &observed{e, m} }

type observed struct {
	rest.Engine
	m *Metrics
}

// act begins an act; done ends it and gives how long it took.
func (o *observed) act(ctx context.Context, name, ref string) (context.Context, func(error) float64) {
	begin := time.Now()
	ctx, span := tracer.Start(ctx, "engine."+name, trace.WithAttributes(attribute.String("bailey.sandbox", ref)))
	return ctx, func(err error) float64 {
		if err != nil {
			code := string(bailey.CodeOf(err))
			o.m.failed.WithLabelValues(name, code).Inc()
			span.SetStatus(codes.Error, code)
		}
		span.End()
		return time.Since(begin).Seconds()
	}
}

// timed measures an act without labels of its own.
func timed[T any](ctx context.Context, o *observed, name, ref string, f func(context.Context) (T, error)) (T, error) {
	ctx, done := o.act(ctx, name, ref)
	v, err := f(ctx)
	if took := done(err); err == nil {
		o.m.acts.WithLabelValues(name).Observe(took)
	}
	return v, err
}

func (o *observed) Create(ctx context.Context, who engine.Caller, spec api.SandboxSpec) (api.Sandbox, error) {
	ctx, done := o.act(ctx, "create", "")
	s, err := o.Engine.Create(ctx, who, spec)
	trace.SpanFromContext(ctx).SetAttributes(attribute.String("bailey.sandbox", s.ID), attribute.String("bailey.level", s.Isolation.String()))
	if took := done(err); err == nil {
		o.m.creates.WithLabelValues(s.Isolation.String(), warm(s.Warm)).Observe(took)
		if s.Warm != "" {
			o.m.warm.WithLabelValues(s.Isolation.String(), s.Warm).Inc() // the engine has a few words for it
		}
	}
	return s, err
}

// warm makes one of three words of what a sandbox says.
func warm(s string) string {
	switch s {
	case "":
		return "none"
	case "hit":
		return "hit"
	}
	return "miss"
}

func (o *observed) StartExec(ctx context.Context, who engine.Caller, ref string, spec api.ExecSpec) (api.Exec, error) {
	ctx, done := o.act(ctx, "exec", ref)
	e, err := o.Engine.StartExec(ctx, who, ref, spec)
	result := "started"
	switch {
	case err != nil:
		result = "refused"
	case e.End != nil && e.End.Reason == bailey.EndNotStarted:
		result = "not_started"
	}
	o.m.execs.WithLabelValues(result).Observe(done(err))
	return e, err
}

func (o *observed) Delete(ctx context.Context, who engine.Caller, ref string) error {
	_, err := timed(ctx, o, "delete", ref, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, o.Engine.Delete(ctx, who, ref)
	})
	return err
}

func (o *observed) Pause(ctx context.Context, who engine.Caller, ref string, req api.PauseRequest) (api.Receipt, error) {
	name := "pause"
	if req.ToDisk {
		name = "stop"
	}
	return timed(ctx, o, name, ref, func(ctx context.Context) (api.Receipt, error) { return o.Engine.Pause(ctx, who, ref, req) })
}

func (o *observed) Resume(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error) {
	return timed(ctx, o, "resume", ref, func(ctx context.Context) (api.Sandbox, error) { return o.Engine.Resume(ctx, who, ref) })
}

func (o *observed) Snapshot(ctx context.Context, who engine.Caller, ref string, spec api.SnapshotSpec) (api.Snapshot, error) {
	return timed(ctx, o, "snapshot", ref, func(ctx context.Context) (api.Snapshot, error) { return o.Engine.Snapshot(ctx, who, ref, spec) })
}

func (o *observed) Checkpoint(ctx context.Context, who engine.Caller, ref, name string) (api.Snapshot, error) {
	return timed(ctx, o, "checkpoint", ref, func(ctx context.Context) (api.Snapshot, error) { return o.Engine.Checkpoint(ctx, who, ref, name) })
}

func (o *observed) Fork(ctx context.Context, who engine.Caller, ref string, req api.ForkRequest) ([]api.Sandbox, error) {
	return timed(ctx, o, "fork", ref, func(ctx context.Context) ([]api.Sandbox, error) { return o.Engine.Fork(ctx, who, ref, req) })
}

func (o *observed) Undo(ctx context.Context, who engine.Caller, ref string, req api.UndoRequest) (api.Receipt, error) {
	return timed(ctx, o, "undo", ref, func(ctx context.Context) (api.Receipt, error) { return o.Engine.Undo(ctx, who, ref, req) })
}

func (o *observed) Promote(ctx context.Context, who engine.Caller, ref string, req api.PromoteRequest) (api.Sandbox, error) {
	return timed(ctx, o, "promote", ref, func(ctx context.Context) (api.Sandbox, error) { return o.Engine.Promote(ctx, who, ref, req) })
}

func (o *observed) PullImage(ctx context.Context, who engine.Caller, ref string, each func(api.Progress)) (api.Image, error) {
	return timed(ctx, o, "pull", "", func(ctx context.Context) (api.Image, error) { return o.Engine.PullImage(ctx, who, ref, each) })
}

func (o *observed) BuildTemplate(ctx context.Context, who engine.Caller, spec api.BuildSpec, tar io.Reader, each func(api.Progress)) (api.Template, error) {
	return timed(ctx, o, "build", "", func(ctx context.Context) (api.Template, error) {
		return o.Engine.BuildTemplate(ctx, who, spec, tar, each)
	})
}

func (o *observed) ReadFile(ctx context.Context, who engine.Caller, ref, path string, offset, length int64) (io.ReadCloser, api.FileInfo, error) {
	r, info, err := o.Engine.ReadFile(ctx, who, ref, path, offset, length)
	if err != nil {
		return nil, info, err
	}
	return struct {
		io.Reader
		io.Closer
	}{&counted{r, o.m, "out"}, r}, info, nil
}

func (o *observed) WriteFile(ctx context.Context, who engine.Caller, ref, path string, mode uint32, r io.Reader) (api.Written, error) {
	return o.Engine.WriteFile(ctx, who, ref, path, mode, &counted{r, o.m, "in"})
}

type counted struct {
	r         io.Reader
	m         *Metrics
	direction string
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.m.bytes.WithLabelValues(c.direction).Add(float64(n))
	return n, err
}
