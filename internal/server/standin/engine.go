package standin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

// Engine is the engine.
type Engine struct {
	mu       sync.Mutex
	changed  chan struct{} // closed and made anew at each change
	boxes    []*box
	keys     map[string]string // idempotency key to id
	fail     map[string]error
	events   []api.Event
	sessions map[string][]api.SessionEvent
	calls    []string
	touched  int // how often something was activity
}

type box struct {
	api.Sandbox
	execs []*exec
	files map[string]file
}

type file struct {
	data []byte
	mode uint32
}

// New gives an empty engine.
func New() *Engine {
	return &Engine{changed: make(chan struct{}), keys: map[string]string{}, fail: map[string]error{}, sessions: map[string][]api.SessionEvent{}}
}

// Fail has a method give err from now on; nil ends that. "*" is all methods.
func (e *Engine) Fail(method string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail[method] = err
}

// enter begins a method: mu is held afterwards, and given back by the answer.
func (e *Engine) enter(method string, args ...any) (leave func(), err error) {
	e.mu.Lock()
	e.calls = append(e.calls, strings.TrimSuffix(fmt.Sprintln(append([]any{method}, args...)...), "\n"))
	for _, m := range []string{method, "*"} {
		if err := e.fail[m]; err != nil {
			e.mu.Unlock()
			return nil, err
		}
	}
	return e.mu.Unlock, nil
}

// change wakes who waits. mu is held.
func (e *Engine) change() {
	close(e.changed)
	e.changed = make(chan struct{})
}

func (e *Engine) emit(kind string, b *box) {
	e.events = append(e.events, api.Event{Seq: int64(len(e.events) + 1), Time: now(), Kind: kind, Owner: b.Owner, Sandbox: b.ID})
	e.change()
}

func now() time.Time { return time.Now().UTC() }

func (e *Engine) find(who engine.Caller, ref string) (*box, error) {
	for _, b := range e.boxes {
		if (b.ID == ref || b.Name == ref && b.State != api.StateEnded) && (who.Admin || b.Owner == who.Name) {
			return b, nil
		}
	}
	return nil, bailey.Errorf(bailey.CodeNotFound, "find the sandbox "+ref, "", "there is none")
}

func (e *Engine) Create(ctx context.Context, who engine.Caller, spec api.SandboxSpec) (api.Sandbox, error) {
	leave, err := e.enter("Create")
	if err != nil {
		return api.Sandbox{}, err
	}
	defer leave()
	if (spec.Workspace != "" || len(spec.Mounts) > 0) && !who.Local {
		return api.Sandbox{}, bailey.Errorf(bailey.CodeForbidden, "create the sandbox", "use the unix socket", "only callers there may name folders")
	}
	key := who.Name + "\x00" + spec.IdempotencyKey
	if id, ok := e.keys[key]; ok && spec.IdempotencyKey != "" {
		b, err := e.find(who, id)
		if err != nil {
			return api.Sandbox{}, err
		}
		return b.Sandbox, nil
	}
	id := fmt.Sprintf("s%d", len(e.boxes)+1)
	b := &box{files: map[string]file{}, Sandbox: api.Sandbox{
		ID: id, Name: spec.Name, State: api.StateRunning, Generation: 1, Owner: who.Name, Isolation: bailey.IsolationContainer,
		Lineage: id, Workdir: "/", Labels: spec.Labels, Env: spec.Env, Created: now(), Timeout: spec.Timeout, Warm: "hit",
	}}
	e.boxes = append(e.boxes, b)
	e.keys[key] = id
	e.emit("sandbox.created", b)
	return b.Sandbox, nil
}

func (e *Engine) Sandbox(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error) {
	leave, err := e.enter("Sandbox")
	if err != nil {
		return api.Sandbox{}, err
	}
	defer leave()
	b, err := e.find(who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	return b.Sandbox, nil
}

func (e *Engine) Sandboxes(ctx context.Context, who engine.Caller, q api.SandboxQuery) (list []api.Sandbox, next string, err error) {
	leave, err := e.enter("Sandboxes")
	if err != nil {
		return nil, "", err
	}
	defer leave()
	limit := q.Limit
	if limit == 0 {
		limit = 100
	}
	begin := q.After == ""
	for _, b := range e.boxes {
		if !begin {
			begin = b.ID == q.After
			continue
		}
		if !who.Admin && b.Owner != who.Name || len(q.States) == 0 && b.State == api.StateEnded || len(q.States) > 0 && !slices.Contains(q.States, b.State) {
			continue
		}
		all := true
		for k, v := range q.Labels {
			all = all && b.Labels[k] == v
		}
		if !all {
			continue
		}
		if len(list) == limit {
			return list, list[limit-1].ID, nil
		}
		list = append(list, b.Sandbox)
	}
	return list, "", nil
}

func (e *Engine) Delete(ctx context.Context, who engine.Caller, ref string) error {
	leave, err := e.enter("Delete")
	if err != nil {
		return err
	}
	defer leave()
	b, err := e.find(who, ref)
	if err != nil || b.State == api.StateEnded {
		return err
	}
	b.State, b.End = api.StateEnded, &bailey.End{Reason: bailey.EndUser}
	for _, x := range b.execs {
		x.kill("SIGKILL")
	}
	e.emit("sandbox.ended", b)
	return nil
}

// set changes a sandbox and gives it.
func (e *Engine) set(method string, who engine.Caller, ref, kind string, f func(*box)) (api.Sandbox, error) {
	leave, err := e.enter(method, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	defer leave()
	b, err := e.find(who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if b.State == api.StateEnded {
		return api.Sandbox{}, bailey.Errorf(bailey.CodeSandboxEnded, "use the sandbox "+ref, "", "it is gone")
	}
	f(b)
	if kind != "" {
		e.emit(kind, b)
	}
	return b.Sandbox, nil
}

func (e *Engine) Pause(ctx context.Context, who engine.Caller, ref string, req api.PauseRequest) (api.Receipt, error) {
	r := api.Receipt{Act: "pause", Time: now(), Kept: []string{"files"}}
	_, err := e.set("Pause", who, ref, "sandbox.paused", func(b *box) {
		if b.State = api.StatePaused; req.ToDisk {
			b.State = api.StateStopped
			r.Act, r.Lost = "stop", []string{"processes"}
		}
		b.Receipt = &r
	})
	return r, err
}

func (e *Engine) Resume(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error) {
	return e.set("Resume", who, ref, "sandbox.resumed", func(b *box) { b.State = api.StateRunning })
}

func (e *Engine) Extend(ctx context.Context, who engine.Caller, ref string, req api.ExtendRequest) (api.Sandbox, error) {
	return e.set("Extend", who, ref, "", func(b *box) { b.Timeout, b.Idle = req.Timeout, req.Idle })
}

func (e *Engine) Renew(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error) {
	return e.set("Renew", who, ref, "", func(b *box) {})
}

func (e *Engine) Hold(ctx context.Context, who engine.Caller, ref string, req api.HoldRequest) (api.Hold, error) {
	h := api.Hold{ID: req.ID, Why: req.Why, Until: now().Add(time.Duration(req.For))}
	_, err := e.set("Hold", who, ref, "", func(b *box) { b.WhyAwake = append(b.WhyAwake, "hold:"+req.ID) })
	return h, err
}

func (e *Engine) Release(ctx context.Context, who engine.Caller, ref, id string) error {
	_, err := e.set("Release", who, ref, "", func(b *box) {
		b.WhyAwake = slices.DeleteFunc(b.WhyAwake, func(w string) bool { return w == "hold:"+id })
	})
	return err
}

func (e *Engine) Stats(ctx context.Context, who engine.Caller, ref string) (api.Stats, error) {
	_, err := e.set("Stats", who, ref, "", func(b *box) {})
	return api.Stats{Memory: 1 << 20, Pids: -1}, err
}

func (e *Engine) UpdatePolicy(ctx context.Context, who engine.Caller, ref string, spec api.SandboxSpec) (api.Sandbox, error) {
	return e.set("UpdatePolicy", who, ref, "", func(b *box) { b.Egress = strings.Join(spec.Allow, ",") })
}

func (e *Engine) AddMount(ctx context.Context, who engine.Caller, ref, mount string, v *api.VolumeMount) (api.Sandbox, error) {
	return e.set("AddMount", who, ref, "", func(b *box) {
		if v != nil {
			b.Volumes = append(b.Volumes, *v)
		} else {
			b.Mounts = append(b.Mounts, mount)
		}
	})
}

// Events follows what happens.
func (e *Engine) Events(ctx context.Context, who engine.Caller, seq int64, each func(api.Event) error) error {
	leave, err := e.enter("Events")
	if err != nil {
		return err
	}
	if seq < 0 {
		seq = int64(len(e.events)) + 1
	}
	seq = max(seq, 1)
	leave()
	for {
		e.mu.Lock()
		list, changed := slices.Clone(e.events), e.changed
		e.mu.Unlock()
		for ; seq <= int64(len(list)); seq++ {
			if ev := list[seq-1]; who.Admin || ev.Owner == who.Name {
				if err := each(ev); err != nil {
					return err
				}
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Calls gives METHOD ARGUMENTS of every call so far.
func (e *Engine) Calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}
