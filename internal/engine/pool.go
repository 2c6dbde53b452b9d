package engine

import (
	"cmp"
	"context"
	"maps"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
)

// Warm says how many sandboxes of a template and level are kept ready. They are
// nobody's: no list has them and no quota counts them.
type Warm struct {
	Template string           // "" or host: the host's own tools
	Level    bailey.Isolation // 0: as create chooses it
	Count    int              // at most MaxWarm
}

// MaxWarm bounds how many sandboxes are kept ready of one kind.
const MaxWarm = 256

// kind is what sandboxes that are made ahead cannot become otherwise.
type kind struct {
	template string
	level    bailey.Isolation
	net      bool // it has a way out, on which a policy can be put
}

// warm is a sandbox that was made ahead. Its box has a record that is in no row.
type warm struct {
	kind kind
	box  *box
	from *origin
	l    layout
	g    *generation
}

// pools are the sandboxes that were made ahead.
type pools struct {
	mu     sync.Mutex
	asked  map[kind]bool // somebody has asked for that kind, or it is the first to be kept
	wanted map[kind]int  // as it was found at the last look
	ready  map[kind][]*warm
	ids    map[string]bool // of all that are there or being made
	closed bool

	wake  chan struct{}
	ended chan struct{} // closed when nothing is made any more
}

// warmMark is a file in the folder of a sandbox that was made ahead: after a crash
// nobody needs it.
const warmMark = "warm"

// refillAfter is how long after one was taken the next is made, while there are
// others: the processor is the taker's for that long.
const refillAfter = 30 * time.Millisecond

// warmRetry is after how long it is tried again to make one ahead when that has
// failed.
const warmRetry = 30 * time.Second

func (e *Engine) openPools(context.Context) error {
	p := &e.pools
	p.asked, p.wanted, p.ready, p.ids = map[kind]bool{}, map[kind]int{}, map[kind][]*warm{}, map[string]bool{}
	p.wake, p.ended = make(chan struct{}, 1), make(chan struct{})
	for _, w := range e.opt.Warm {
		if w.Count < 0 || w.Count > MaxWarm || w.Level != 0 && e.driver[w.Level] == nil {
			return bailey.Errorf(bailey.CodeUsage, "keep sandboxes ready", "use 0 to 256, at a level that `bailey doctor` lists", "%d of the template %q at the level %s cannot be", w.Count, w.Template, w.Level)
		}
	}
	e.hooks.grounds = append(e.hooks.grounds, func(context.Context) (digests []string, err error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, list := range p.ready {
			for _, w := range list {
				if w.from.Digest != "" {
					digests = append(digests, w.from.Digest)
				}
			}
		}
		return digests, nil
	})
	e.hooks.opened = append(e.hooks.opened, func(ctx context.Context) error {
		wanted, err := e.wantedWarm(ctx)
		if err != nil {
			return err
		}
		p.mu.Lock()
		p.wanted = wanted
		p.mu.Unlock()
		e.spawn(e.fillPools)
		e.nudgePools()
		return nil
	})
	e.hooks.closing = append(e.hooks.closing, e.closePools)
	return nil
}

// nudgePools has somebody look whether sandboxes are to be made ahead.
func (e *Engine) nudgePools() {
	select {
	case e.pools.wake <- struct{}{}:
	default:
	}
}

// wantedWarm says how many of each kind are to be ready, without a way out.
func (e *Engine) wantedWarm(ctx context.Context) (map[kind]int, error) {
	wanted := map[kind]int{}
	add := func(template string, level bailey.Isolation, n int) {
		if n > 0 {
			k := kind{template: template, level: level}
			wanted[k] = max(wanted[k], min(n, MaxWarm))
		}
	}
	for _, w := range e.opt.Warm {
		name := w.Template
		if name == "" {
			name = image.HostSource
		} else if name != image.HostSource {
			var err error
			if name, err = templateName(name); err != nil {
				return nil, err
			}
		}
		if w.Level == bailey.IsolationAuto {
			var err error
			if w.Level, _, err = e.choose(ctx, api.SandboxSpec{Template: name}); err != nil {
				return nil, err
			}
		}
		add(name, w.Level, w.Count)
	}
	list, err := e.Templates(ctx, Caller{Admin: true})
	for _, t := range list {
		if t.Digest == "" || t.Warm == 0 {
			continue
		}
		level, _, cerr := e.choose(ctx, api.SandboxSpec{Template: t.Name})
		if cerr != nil {
			return nil, cerr
		}
		add(t.Name, level, t.Warm)
	}
	return wanted, err
}

// fillPools makes sandboxes ahead, one after the other: those that somebody waits for
// come first.
func (e *Engine) fillPools(ctx context.Context) {
	p := &e.pools
	defer close(p.ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for ctx.Err() == nil {
			wanted, err := e.wantedWarm(ctx)
			if err != nil {
				e.log.Error("look which sandboxes are to be made ahead", "error", err)
				break
			}
			k, stale, more := p.next(wanted, e.outdated)
			for _, w := range stale {
				e.discard(ctx, w)
			}
			if !more {
				break
			}
			w, err := e.makeWarm(ctx, k)
			if err == nil && p.put(w) {
				continue
			}
			if err == nil { // it is closed
				e.discard(context.WithoutCancel(ctx), w)
				return
			}
			if ctx.Err() == nil {
				e.log.Warn("a sandbox could not be made ahead, and it is tried again", "template", k.template, "level", k.level, "error", err)
				e.clock.AfterFunc(warmRetry, e.nudgePools)
			}
			break
		}
		if p.isClosed() {
			return
		}
	}
}

func (p *pools) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// outdated says that one shows the host as it was: it can be taken for a while, and
// another is made meanwhile.
func (e *Engine) outdated(w *warm) bool {
	return w.from.Template == image.HostSource && !e.hostRoot.current(w.from.Rootfs)
}

// next says of which kind one is to be made, and gives those that are too many:
// outdated ones and the oldest first.
func (p *pools) next(wanted map[kind]int, outdated func(*warm) bool) (k kind, stale []*warm, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = wanted
	for have, list := range p.ready {
		n := wanted[kind{template: have.template, level: have.level}]
		for len(list) > n {
			i := max(0, slices.IndexFunc(list, outdated))
			stale, list = append(stale, list[i]), slices.Delete(slices.Clone(list), i, i+1)
		}
		p.ready[have] = list
	}
	if p.closed {
		return k, stale, false
	}
	for k, n := range wanted {
		for _, k := range []kind{k, {k.template, k.level, true}} {
			good := 0
			for _, w := range p.ready[k] {
				if !outdated(w) {
					good++
				}
			}
			if good < n && (!k.net || p.asked[k]) {
				return k, stale, true
			}
		}
	}
	return k, stale, false
}

// put adds one that is ready; false says that nobody wants it any more.
func (p *pools) put(w *warm) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.ready[w.kind] = append(p.ready[w.kind], w)
	}
	return !p.closed
}

// show tells what is ready of what is to be.
func (p *pools) show() (list []api.Warm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, n := range p.wanted {
		for _, k := range []kind{k, {k.template, k.level, true}} {
			if !k.net || p.asked[k] {
				list = append(list, api.Warm{Template: k.template, Isolation: k.level, Network: k.net, Wanted: n, Ready: len(p.ready[k])})
			}
		}
	}
	slices.SortFunc(list, func(a, b api.Warm) int {
		first := cmp.Or(cmp.Compare(a.Template, b.Template), int(a.Isolation-b.Isolation))
		if first == 0 && b.Network {
			first = -1
		}
		return first
	})
	return list
}

// has says that a sandbox was made ahead, or is being.
func (p *pools) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ids[id]
}

// forget says that it is so no more.
func (p *pools) forget(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ids, id)
}

// closePools ends all that was made ahead.
func (e *Engine) closePools() {
	e.dropWarm(func(*warm) bool { return true }, true)
}

// dropWarm ends those that are chosen; with last nothing is made ahead any more.
func (e *Engine) dropWarm(chosen func(*warm) bool, last bool) {
	p := &e.pools
	p.mu.Lock()
	p.closed = p.closed || last
	var list []*warm
	for k, ready := range p.ready {
		p.ready[k] = slices.DeleteFunc(slices.Clone(ready), func(w *warm) bool {
			if !chosen(w) {
				return false
			}
			list = append(list, w)
			return true
		})
	}
	p.mu.Unlock()
	e.nudgePools()
	for _, w := range list {
		e.discard(context.WithoutCancel(e.ctx), w)
	}
	if last {
		select {
		case <-p.ended: // what was being made is gone
		case <-e.ctx.Done():
		}
	}
}

// takeWarm gives a sandbox that was made ahead and can become what the spec says, or
// why there is none: a word. Neither is said where none are made ahead.
func (e *Engine) takeWarm(spec api.SandboxSpec) (w *warm, why string) {
	p := &e.pools
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wanted) == 0 || p.closed {
		return nil, ""
	}
	refill := e.nudgePools
	defer func() { refill() }()
	k, why := e.kindOf(spec)
	if why != "" {
		return nil, why
	}
	if p.wanted[kind{template: k.template, level: k.level}] == 0 {
		for have := range maps.Keys(p.wanted) {
			if have.template == k.template {
				return nil, "level"
			}
		}
		return nil, "template"
	}
	p.asked[k] = true
	for len(p.ready[k]) > 0 {
		one := p.ready[k][0]
		p.ready[k] = p.ready[k][1:]
		if dead, _ := ended(one.g); !dead {
			if len(p.ready[k]) > 0 { // the taker's first command comes first
				refill = func() { e.clock.AfterFunc(refillAfter, e.nudgePools) }
			}
			return one, "hit"
		}
		e.spawn(func(ctx context.Context) { e.discard(context.WithoutCancel(ctx), one) })
	}
	return nil, "none ready"
}

// kindOf says of which kind a sandbox is, or a word for what cannot be added to one
// that runs.
func (e *Engine) kindOf(s api.SandboxSpec) (k kind, why string) {
	k = kind{template: s.Template, level: s.Isolation}
	if k.level == bailey.IsolationAuto {
		var err error
		if k.level, _, err = e.choose(e.ctx, s); err != nil {
			return k, "level"
		}
	}
	if k.template == "" {
		k.template = image.HostSource
	} else if k.template != image.HostSource {
		var err error
		if k.template, err = templateName(k.template); err != nil {
			return k, "template"
		}
	}
	p, err := policyOf(s)
	if err != nil {
		return k, "policy"
	}
	k.net = !p.Empty()
	l := s.Limits
	switch {
	case s.Snapshot != "":
		return k, "snapshot"
	case s.Image != "":
		return k, "image"
	case s.Workspace != "":
		return k, "workspace"
	case len(s.Mounts) > 0:
		return k, "mounts"
	case len(s.Volumes) > 0:
		return k, "volumes"
	case l.CPUs != 0 || l.Memory != 0 || l.Pids != 0 || l.Disk != 0 || l.IO != 0 || l.Timeout != 0 || l.Output != 0:
		return k, "limits" // a control group has them from its begin on
	case s.User != "" && k.level == bailey.IsolationProcess:
		return k, "user"
	case s.Name != "" && (k.level == bailey.IsolationProcess || os.Geteuid() != 0):
		return k, "name" // the host name is set from outside, in the sandbox's own namespace
	}
	return k, ""
}

// fits says, by a word, why one that was made ahead is not what it should be after
// all; "" is that it is.
func (w *warm) fits(from *origin, level bailey.Isolation, h *held, limits bailey.Limits) string {
	switch {
	case level != w.kind.level:
		return "level"
	case from.Digest != w.from.Digest || !reflect.DeepEqual(from.Rootfs, w.from.Rootfs):
		return "template changed"
	case limits != bailey.Limits{}:
		return "limits" // the policy has some
	case h != nil && len(h.Mounts) > 0:
		return "mounts"
	case h != nil && (len(h.DenyRead) > 0 || len(h.DenyWrite) > 0):
		return "policy paths"
	}
	return ""
}
