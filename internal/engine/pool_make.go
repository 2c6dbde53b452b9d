package engine

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
)

// closedPolicy lets nothing through: the way out of a sandbox that was made ahead has
// it until its own is put on it.
const closedPolicy = `"version: 1\n"`

// makeWarm makes a sandbox ahead.
func (e *Engine) makeWarm(ctx context.Context, k kind) (_ *warm, err error) {
	spec := api.SandboxSpec{Isolation: k.level, Template: k.template}
	if k.level == bailey.IsolationProcess && k.template == image.HostSource {
		spec.Template = ""
	}
	if k.net {
		spec.Policy = json.RawMessage(closedPolicy)
	}
	if err := e.roomLeft(); err != nil {
		return nil, err
	}
	from, err := e.originOf(ctx, Caller{Name: "pool", Admin: true}, &spec)
	if err != nil {
		return nil, err
	}
	id := newID()
	uid, gid, err := idsOf("", k.level)
	if err != nil {
		return nil, err
	}
	r := &record{Spec: spec, UID: uid, GID: gid, Hostname: id, MachineID: newMachineID(), From: api.StateCreating, Digest: from.Digest}
	if k.level.OwnRoot() {
		r.Rootfs = from.Rootfs
	}
	r.Sandbox = api.Sandbox{ID: id, State: api.StateCreating, Generation: 1, Created: e.clock.Now().UTC(), Lineage: id, Isolation: k.level, Template: from.Template}
	w := &warm{kind: k, box: newBox(e, id, r), from: from}
	w.box.ahead = true
	<-w.box.op
	e.pools.mu.Lock()
	e.pools.ids[id] = true
	e.pools.mu.Unlock()
	defer func() {
		if err != nil {
			e.discard(context.WithoutCancel(ctx), w)
		}
	}()
	if err := w.box.make(); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(w.box.dir, warmMark), nil, 0o600); err != nil {
		return nil, storage("mark a sandbox that is made ahead", err)
	}
	if err := w.box.hold(); err != nil {
		return nil, err
	}
	if w.l, w.g, err = e.launch(ctx, w.box); err != nil {
		return nil, err
	}
	_, err = w.g.speak(ctx)
	return w, err
}

// discard ends a sandbox that was made ahead, and removes what it had.
func (e *Engine) discard(ctx context.Context, w *warm) {
	var err error
	if w.g != nil {
		w.g.ending.Store(true)
		w.g.cancel()
		err = e.dispose(ctx, w.box, w.g)
		close(w.g.over)
	}
	err = errors.Join(err, e.closeWay(ctx, w.box), w.box.close(), e.removeFolder(w.box.dir))
	if err != nil {
		e.log.Error("end a sandbox that was made ahead", "sandbox", w.box.id, "error", err)
	}
	e.pools.forget(w.box.id)
}
