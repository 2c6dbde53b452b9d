package engine

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/engine/way"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// gateway is the gate's process, which is started when the first sandbox needs it.
type gateway struct {
	mu   sync.Mutex
	ways *way.Ways
}

// boxWay is a sandbox's way out while it is open.
type boxWay struct {
	opened *control.Opened
	policy control.Policy
}

// held is what a policy says beside what may be reached, as the sandbox is held to it.
type held struct {
	Env       []string         `json:"env,omitempty"`
	Mounts    []hostview.Mount `json:"mounts,omitempty"`
	DenyRead  []string         `json:"deny_read,omitempty"`
	DenyWrite []string         `json:"deny_write,omitempty"`
}

// gate gives the ways out of all sandboxes, starting the gate if there is none.
func (e *Engine) gate() (*way.Ways, error) {
	e.gateway.mu.Lock()
	defer e.gateway.mu.Unlock()
	if e.gateway.ways != nil {
		return e.gateway.ways, nil
	}
	w, err := way.Start(way.Options{
		Home: e.home, Daemon: e.opt.Daemon,
		Listeners: e.listeners,
		Saved: func(sandbox string, state json.RawMessage) error {
			if b := e.boxOf(sandbox); b != nil {
				return e.update(e.ctx, b, func(r *record) { r.Way = state })
			}
			return nil
		},
		Pid: func(sandbox string) int {
			if b := e.boxOf(sandbox); b != nil {
				if g := b.generation(); g != nil {
					return g.instance.Pid()
				}
			}
			return 0
		},
		Denied: func(sandbox string, d control.Denial) {
			e.log.Info("denied", "sandbox", sandbox, "what", d.What, "reason", d.Reason, "rule", d.Rule)
		},
		Lost:   func(words string) { e.log.Error("the gate has died and is started again", "words", words) },
		Broken: func(sandbox string, err error) { e.log.Error("open a way out again", "sandbox", sandbox, "error", err) },
	})
	if err != nil {
		return nil, err
	}
	e.gateway.ways = w
	return w, nil
}

// boxOf gives a sandbox by its whole id.
func (e *Engine) boxOf(id string) *box {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.boxes[id]
}

// openGateway sets the hooks of the way out.
func (e *Engine) openGateway(context.Context) error {
	e.hooks.used = func(ctx context.Context) (map[string]moved, error) {
		e.gateway.mu.Lock()
		w := e.gateway.ways
		e.gateway.mu.Unlock()
		if w == nil {
			return nil, nil
		}
		list, err := w.Used(ctx)
		used := make(map[string]moved, len(list))
		for id, u := range list {
			used[id] = moved{activity: u.Activity, asking: u.Asking > 0}
		}
		return used, err
	}
	e.hooks.adopted = append(e.hooks.adopted, func(ctx context.Context, g *generation) error {
		_, err := e.openWay(ctx, g.box)
		if err == nil {
			err = e.join(ctx, g)
		}
		return err
	})
	return nil
}

// shutGateway ends the gate. The sandboxes' listeners wait for the next one.
func (e *Engine) shutGateway() {
	e.gateway.mu.Lock()
	defer e.gateway.mu.Unlock()
	if e.gateway.ways != nil {
		e.gateway.ways.Shutdown()
		e.gateway.ways = nil
	}
}

// policyOf gives what a spec lets through.
func policyOf(s api.SandboxSpec) (control.Policy, error) {
	p := control.Policy{Allow: s.Allow, Profiles: s.Profiles, Secrets: s.Secrets}
	if len(s.Policy) == 0 || string(s.Policy) == "null" {
		return p, nil
	}
	text := []byte(s.Policy)
	if s.Policy[0] == '"' {
		var t string
		if err := json.Unmarshal(s.Policy, &t); err != nil {
			return p, bailey.Errorf(bailey.CodePolicyInvalid, "read the policy", "give a document as an object or as text", "%w", err)
		}
		text = []byte(t)
	}
	p.Document = &control.Document{Name: "policy", Text: text}
	return p, nil
}

// holdTo finds out what a policy says beside what may be reached, and holds a
// sandbox that is going to be made to it.
func (e *Engine) holdTo(ctx context.Context, who Caller, s *api.SandboxSpec, ws string) (*held, error) {
	p, err := policyOf(*s)
	if err == nil {
		err = mayAsk(who, p)
	}
	if err != nil || p.Document == nil {
		return nil, err
	}
	w, err := e.gate()
	if err != nil {
		return nil, err
	}
	checked, err := w.Check(ctx, p)
	if err != nil {
		return nil, err
	}
	req := run.Request{Limits: s.Limits}
	for name, value := range s.Env {
		req.SetEnv = append(req.SetEnv, name+"="+value)
	}
	asked := len(req.SetEnv)
	session := checked.Session
	session.Ports = nil // who exposes a port is asked for then
	min, err := req.Hold(session, ws)
	if err != nil {
		return nil, err
	}
	if len(req.Mounts) > 0 && !who.Local {
		return nil, bailey.Errorf(bailey.CodeForbidden, "show a folder of the host", "leave folders out of the policy, or use the unix socket on the host itself",
			"callers from elsewhere may not name folders of the host")
	}
	if s.Isolation != bailey.IsolationAuto && s.Isolation < min {
		return nil, bailey.Errorf(bailey.CodeUsage, "choose an isolation level", "choose "+min.String()+", or another policy", "%s is weaker than the policy wants", s.Isolation)
	}
	if s.MinIsolation < min {
		s.MinIsolation = min
	}
	s.Limits = req.Limits
	return &held{Env: req.SetEnv[asked:], Mounts: req.Mounts, DenyRead: req.DenyRead, DenyWrite: req.DenyWrite}, nil
}

// openWay opens a sandbox's way out, if its policy lets anything through; nil is no
// network. It stays open until closeWay. The caller holds op.
func (e *Engine) openWay(ctx context.Context, b *box) (*boxWay, error) {
	if b.way != nil {
		return b.way, nil
	}
	r := b.record()
	p, err := policyOf(r.Spec)
	if err != nil || p.Empty() {
		return nil, err
	}
	w, err := e.gate()
	if err != nil {
		return nil, err
	}
	e.trace("open the way")
	opened, err := w.Open(ctx, way.Opening{
		Sandbox: b.id, Lineage: r.Sandbox.Lineage, Session: r.Sandbox.Session, Level: r.Sandbox.Isolation, Policy: p,
		Names: filepath.Join(b.dir, namesFile), Saved: r.Way, Root: e.trustRoot(b, r),
	})
	if err != nil {
		return nil, err
	}
	bw := &boxWay{policy: p, opened: &control.Opened{Policy: opened.Policy, Env: opened.Env, Placeholders: opened.Placeholders, Saved: opened.Saved}}
	for _, f := range opened.Files {
		bw.opened.Files = append(bw.opened.Files, control.File{Path: f.Path, Mode: f.Mode, Content: f.Content, Size: int64(len(f.Content))})
	}
	b.way = bw
	return bw, e.update(ctx, b, func(r *record) {
		r.Way, r.Sandbox.Policy, r.Sandbox.Egress = opened.Saved, opened.Policy, driver.EgressTransparent
	})
}

// trustRoot is the root file system that the gate's authority is installed into.
func (e *Engine) trustRoot(b *box, r *record) (root rootfiles.Root) {
	if r.Rootfs == nil {
		return root
	}
	for _, one := range r.Roots {
		if one.Target != "/" {
			continue
		}
		root.Layers = append(root.Layers, one.Ground...)
		if dirs, err := e.layers.Dirs(one.Chain); err == nil {
			root.Layers = append(root.Layers, dirs...)
		}
		if upper := b.upper(one.N); !one.Fresh {
			root.Layers = append(root.Layers, upper)
		}
	}
	if len(root.Layers) == 0 {
		root.Layers = r.Rootfs.Layers
	}
	for _, bind := range r.Rootfs.Binds {
		root.Binds = append(root.Binds, rootfiles.Bind{Source: bind.Source, Target: bind.Target})
	}
	return root
}

// join has the gate serve a generation's listeners.
func (e *Engine) join(ctx context.Context, g *generation) error {
	if g.box.way == nil {
		return nil
	}
	out := g.instance.Outlet()
	if out == nil {
		return bailey.Errorf(bailey.CodeInternal, "connect the sandbox with the gate", "", "it has no outlet")
	}
	g.box.mu.Lock()
	g.outlet = out
	g.box.mu.Unlock()
	w, err := e.gate()
	if err == nil {
		err = w.Attach(ctx, g.box.id, out.TCP, out.UDP)
	}
	return err
}

// part lets go of a generation's listeners.
func (e *Engine) part(ctx context.Context, g *generation) error {
	g.box.mu.Lock()
	out := g.outlet
	g.outlet = nil
	g.box.mu.Unlock()
	if out == nil {
		return nil
	}
	w, err := e.gate()
	if err == nil {
		err = w.Detach(ctx, g.box.id)
	}
	return errors.Join(err, out.TCP.Close(), out.UDP.Close())
}

// closeWay closes a sandbox's way out: what it reaches the next time is looked up
// anew then. The caller holds op.
func (e *Engine) closeWay(ctx context.Context, b *box) error {
	if b.way == nil {
		return nil
	}
	b.way = nil
	w, err := e.gate()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, endWithin) // a gate that does not answer holds no delete
		defer cancel()
		_, err = w.Close(ctx, b.id)
	}
	return err
}

// listeners gives duplicates of a sandbox's listeners, for another gate.
func (e *Engine) listeners(_ context.Context, id string) (tcp, udp *os.File, err error) {
	b := e.boxOf(id)
	if b == nil {
		return nil, nil, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gen == nil || b.gen.outlet == nil {
		return nil, nil, nil
	}
	if tcp, err = duplicate(b.gen.outlet.TCP); err != nil {
		return nil, nil, err
	}
	if udp, err = duplicate(b.gen.outlet.UDP); err != nil {
		tcp.Close()
		return nil, nil, err
	}
	return tcp, udp, nil
}

// withEnv puts variables in the place of those of the same name.
func withEnv(env, more []string) []string {
	out := slices.Clone(env)
	for _, kv := range more {
		name, _, _ := strings.Cut(kv, "=")
		out = slices.DeleteFunc(out, func(have string) bool { return strings.HasPrefix(have, name+"=") })
		out = append(out, kv)
	}
	return out
}
