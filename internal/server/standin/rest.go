package standin

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

// seen is for methods without a model: it notes the call.
func (e *Engine) seen(method string, args ...any) error {
	leave, err := e.enter(method, args...)
	if err == nil {
		leave()
	}
	return err
}

func (e *Engine) Snapshot(ctx context.Context, who engine.Caller, ref string, spec api.SnapshotSpec) (api.Snapshot, error) {
	return api.Snapshot{ID: "p1", Name: spec.Name, Sandbox: ref, Labels: spec.Labels, Receipt: api.Receipt{Act: "snapshot", Method: "sealed"}}, e.seen("Snapshot", ref, spec.Memory)
}

func (e *Engine) SnapshotOf(ctx context.Context, who engine.Caller, ref string) (api.Snapshot, error) {
	return api.Snapshot{ID: ref}, e.seen("SnapshotOf", ref)
}

func (e *Engine) Snapshots(ctx context.Context, who engine.Caller, sandbox string, checkpoints bool) ([]api.Snapshot, error) {
	return []api.Snapshot{{ID: "p1", Sandbox: sandbox, Checkpoint: checkpoints}}, e.seen("Snapshots", sandbox, checkpoints)
}

func (e *Engine) DeleteSnapshot(ctx context.Context, who engine.Caller, ref string) error {
	return e.seen("DeleteSnapshot", ref)
}

func (e *Engine) Fork(ctx context.Context, who engine.Caller, ref string, req api.ForkRequest) ([]api.Sandbox, error) {
	return make([]api.Sandbox, max(req.Count, 1)), e.seen("Fork", ref, req.Count)
}

func (e *Engine) Checkpoint(ctx context.Context, who engine.Caller, ref, name string) (api.Snapshot, error) {
	return api.Snapshot{ID: "c1", Name: name, Checkpoint: true}, e.seen("Checkpoint", ref, name)
}

func (e *Engine) Diff(ctx context.Context, who engine.Caller, ref, from, to string, each func(api.Change) error) error {
	if err := e.seen("Diff", ref, from, to); err != nil {
		return err
	}
	for i := range 3 {
		if err := each(api.Change{Op: "added", Path: fmt.Sprintf("/f%d", i)}); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) Undo(ctx context.Context, who engine.Caller, ref string, req api.UndoRequest) (api.Receipt, error) {
	return api.Receipt{Act: "undo"}, e.seen("Undo", ref, req.To, req.Steps, req.Kill)
}

func (e *Engine) Promote(ctx context.Context, who engine.Caller, ref string, req api.PromoteRequest) (api.Sandbox, error) {
	return api.Sandbox{ID: ref, Isolation: req.Isolation}, e.seen("Promote", ref, req.Isolation)
}

func (e *Engine) Bisect(ctx context.Context, who engine.Caller, ref string, req api.BisectRequest) (api.BisectResult, error) {
	return api.BisectResult{First: "c3", Tried: []api.BisectStep{}}, e.seen("Bisect", ref, req.Good, req.Args)
}

func (e *Engine) ExportSnapshot(ctx context.Context, who engine.Caller, ref string, w io.Writer) error {
	if err := e.seen("ExportSnapshot", ref); err != nil {
		return err
	}
	_, err := io.WriteString(w, "an archive")
	return err
}

func (e *Engine) ImportSnapshot(ctx context.Context, who engine.Caller, name string, r io.Reader) (api.Snapshot, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return api.Snapshot{}, err
	}
	return api.Snapshot{ID: "p2", Name: name, Bytes: int64(len(b))}, e.seen("ImportSnapshot", name)
}

func (e *Engine) NewSession(ctx context.Context, who engine.Caller, spec api.SessionSpec) (api.Session, error) {
	leave, err := e.enter("NewSession")
	if err != nil {
		return api.Session{}, err
	}
	defer leave()
	id := fmt.Sprintf("n%d", len(e.sessions)+1)
	e.sessions[id] = []api.SessionEvent{{Seq: 1, Kind: "created"}}
	return api.Session{ID: id, Name: spec.Name, Owner: who.Name, State: "open"}, nil
}

func (e *Engine) SessionOf(ctx context.Context, who engine.Caller, ref string) (api.Session, error) {
	leave, err := e.enter("SessionOf")
	if err != nil {
		return api.Session{}, err
	}
	defer leave()
	log, ok := e.sessions[ref]
	if !ok {
		return api.Session{}, bailey.Errorf(bailey.CodeNotFound, "find the session "+ref, "", "there is none")
	}
	return api.Session{ID: ref, State: "open", Events: int64(len(log))}, nil
}

func (e *Engine) Sessions(ctx context.Context, who engine.Caller, labels map[string]string) (list []api.Session, err error) {
	leave, err := e.enter("Sessions", labels)
	if err != nil {
		return nil, err
	}
	defer leave()
	for id := range e.sessions {
		list = append(list, api.Session{ID: id})
	}
	return list, nil
}

func (e *Engine) SessionEvents(ctx context.Context, who engine.Caller, ref string, seq int64, follow bool, each func(api.SessionEvent) error) error {
	for {
		e.mu.Lock()
		log, changed := slices.Clone(e.sessions[ref]), e.changed
		e.mu.Unlock()
		for _, ev := range log {
			if ev.Seq < seq {
				continue
			}
			if err := each(ev); err != nil {
				return err
			}
			if seq = ev.Seq + 1; ev.Kind == "closed" {
				return nil
			}
		}
		if !follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

func (e *Engine) Execute(ctx context.Context, who engine.Caller, ref string, req api.ExecuteRequest) (api.ExecResult, error) {
	return api.ExecResult{Exec: api.Exec{ID: req.Exec.ID, Args: req.Exec.Args, State: api.ExecEnded}, Out: req.Input}, e.seen("Execute", ref, req.Name, req.Generation)
}

func (e *Engine) AppendSession(ctx context.Context, who engine.Caller, ref string, ev api.SessionEvent) (api.SessionEvent, error) {
	leave, err := e.enter("AppendSession", ref)
	if err != nil {
		return ev, err
	}
	defer leave()
	ev.Seq, ev.Time = int64(len(e.sessions[ref])+1), now()
	e.sessions[ref] = append(e.sessions[ref], ev)
	e.change()
	return ev, nil
}

func (e *Engine) CloseSession(ctx context.Context, who engine.Caller, ref string) error {
	_, err := e.AppendSession(ctx, who, ref, api.SessionEvent{Kind: "closed"})
	return err
}

func (e *Engine) GC(ctx context.Context, who engine.Caller, dry bool) ([]api.Orphan, error) {
	return []api.Orphan{{Kind: "cgroup", Name: "bailey/x", Why: "no sandbox has it", Action: "remove", Done: !dry}}, e.seen("GC", dry)
}

func (e *Engine) Info(ctx context.Context) (api.Info, error) {
	return api.Info{Version: "test", Home: "/data", Levels: []api.Level{}}, e.seen("Info")
}

func (e *Engine) CreateVolume(ctx context.Context, who engine.Caller, name string, limit int64) (api.Volume, error) {
	return api.Volume{Name: name, Limit: limit}, e.seen("CreateVolume", name, limit)
}

func (e *Engine) Volumes(ctx context.Context, who engine.Caller) ([]api.Volume, error) {
	return nil, e.seen("Volumes")
}

func (e *Engine) DeleteVolume(ctx context.Context, who engine.Caller, name string) error {
	return e.seen("DeleteVolume", name)
}

func (e *Engine) Templates(ctx context.Context, who engine.Caller) ([]api.Template, error) {
	return []api.Template{{Name: "host:latest", State: "ready"}}, e.seen("Templates")
}

func (e *Engine) BuildTemplate(ctx context.Context, who engine.Caller, spec api.BuildSpec, tar io.Reader, each func(api.Progress)) (api.Template, error) {
	if err := e.seen("BuildTemplate", spec.Name); err != nil {
		return api.Template{}, err
	}
	b, err := io.ReadAll(tar)
	if err != nil {
		return api.Template{}, err
	}
	each(api.Progress{Step: "RUN true", Log: string(b)})
	if spec.Target == "broken" {
		return api.Template{}, bailey.Errorf(bailey.CodeBuildFailed, "build the template", "", "a step failed")
	}
	return api.Template{Name: spec.Name, State: "ready"}, nil
}

func (e *Engine) DeleteTemplate(ctx context.Context, who engine.Caller, name string) error {
	return e.seen("DeleteTemplate", name)
}

func (e *Engine) ExportTemplate(ctx context.Context, who engine.Caller, name string, w io.Writer) error {
	return e.ExportSnapshot(ctx, who, name, w)
}

func (e *Engine) PullImage(ctx context.Context, who engine.Caller, ref string, each func(api.Progress)) (api.Image, error) {
	for i := range int64(3) {
		each(api.Progress{Step: "layer", Done: i, Total: 3})
	}
	return api.Image{Ref: ref, Layers: 3}, e.seen("PullImage", ref)
}

func (e *Engine) Images(ctx context.Context, who engine.Caller) ([]api.Image, error) {
	return nil, e.seen("Images")
}

func (e *Engine) DeleteImage(ctx context.Context, who engine.Caller, ref string) error {
	return e.seen("DeleteImage", ref)
}

func (e *Engine) Expose(ctx context.Context, who engine.Caller, ref string, req api.PortRequest) (api.Port, error) {
	return api.Port{Port: req.Port, Private: !req.Public, Token: engine.TokenPrefix + "x"}, e.seen("Expose", ref, req.Port, req.Public, req.TCP)
}

func (e *Engine) Unexpose(ctx context.Context, who engine.Caller, ref string, port int) error {
	return e.seen("Unexpose", ref, port)
}

func (e *Engine) PortLink(ctx context.Context, who engine.Caller, ref string, port int, d time.Duration) (api.PortLink, error) {
	return api.PortLink{URL: fmt.Sprintf("https://%d-%s/", port, ref), Until: now().Add(d)}, e.seen("PortLink", ref, port, d)
}
