package embedded

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/run"
)

// MaxPrepared bounds how many sandboxes of one Spec are kept ready.
const MaxPrepared = 64

// maxAge is how long a prepared sandbox may wait for Create.
const maxAge = time.Minute

// pools are the sandboxes that are ready, by what they are.
type pools struct {
	mu     sync.Mutex
	byKey  map[string]*pool
	makers sync.WaitGroup
	// ctx ends with the Client.
	ctx context.Context
	end context.CancelFunc
}

func (p *pools) open() {
	p.byKey = map[string]*pool{}
	p.ctx, p.end = context.WithCancel(context.Background())
}

// pool keeps n sandboxes of one kind ready. Its fields are guarded by pools.mu.
type pool struct {
	want  want
	n     int
	ready []prepared // the oldest first
	// making: a goroutine makes what is missing. It ends when nothing is, or with
	// the first failure; the next Create starts another one.
	making bool
	idle   chan struct{} // closed when it ends
	now    chan struct{} // closed to make it begin at once
	err    error         // why it could not go on
	errs   []error       // what could not be given back
}

// prepared is a sandbox that is ready.
type prepared struct {
	*run.Sandbox
	begun time.Time // when it was begun to be made
}

// Prepare keeps n sandboxes (at most MaxPrepared) of exactly this Spec ready, so
// that Create of an equal one takes about as long as starting a command. It
// returns when they are, or with why they cannot be, and then none are kept.
// Each is used once and replaced in the background. An n of 0 ends it.
//
// A prepared sandbox holds nothing of anybody: no command has run in it, and
// nothing has looked at the workspace, so that what the host changes there before
// Create is seen. What else the sandbox sees of the host (which tool folders
// there are, the files of /etc, what single files that are mounted are, the
// image) is as it was when it was prepared. That is at most a minute ago: older
// ones are not used, and after a minute without Create the next one is made anew.
// Waiting costs memory and no processor time.
//
// A workspace that cannot be seen as an overlay, one in which something else is
// shown, and a sandbox with a network cannot be prepared (not_available).
func (c *Client) Prepare(ctx context.Context, spec bailey.Spec, n int) error {
	if n < 0 || n > MaxPrepared {
		return bailey.Errorf(bailey.CodeUsage, "prepare sandboxes", fmt.Sprintf("use 0 to %d", MaxPrepared), "%d is out of range", n)
	}
	w, err := c.want(spec)
	if err != nil {
		return err
	}
	if w.reaches() {
		return bailey.Errorf(bailey.CodeNotAvailable, "prepare sandboxes", "make it when it is needed", "one with a network has a gate of its own, which is not started ahead")
	}
	if n > 0 {
		if err := c.root(ctx, &w); err != nil {
			return err
		}
	}
	w.req.Ahead = true

	ps := &c.pools
	ps.mu.Lock()
	p := ps.byKey[w.key]
	if p == nil {
		p = &pool{}
		ps.byKey[w.key] = p
	}
	p.want, p.n, p.err = w, n, nil
	var over []prepared
	if len(p.ready) > n {
		over, p.ready = p.ready[n:], p.ready[:n:n]
	}
	p.hurry()
	c.refill(p, 0)
	idle := p.idle
	ps.mu.Unlock()
	err = discard(over)
	if n == 0 {
		return errors.Join(err, c.endPool(w.key, p))
	}
	if err == nil {
		select {
		case <-idle:
		case <-ctx.Done():
			err = bailey.Errorf(bailey.CodeBusy, "prepare sandboxes", "", "%w", context.Cause(ctx))
		}
	}
	ps.mu.Lock()
	err = errors.Join(err, p.err)
	ps.mu.Unlock()
	if err != nil {
		return errors.Join(err, c.endPool(w.key, p))
	}
	return nil
}

// refillAfter is how long after a Create its pool is refilled: making a sandbox
// would compete with the first command of the one that was taken for it.
const refillAfter = 10 * time.Millisecond

// refill makes what is missing in the background, after a while. pools.mu is held.
func (c *Client) refill(p *pool, after time.Duration) {
	if p.making || len(p.ready) >= p.n && p.idle != nil {
		return
	}
	p.making, p.idle, p.now = true, make(chan struct{}), make(chan struct{})
	now := p.now
	c.pools.makers.Go(func() { c.fill(p, now, after) })
}

// hurry is for somebody who waits until the pool is full. pools.mu is held.
func (p *pool) hurry() {
	if p.now != nil {
		close(p.now)
		p.now = nil
	}
}

func (c *Client) fill(p *pool, now <-chan struct{}, after time.Duration) {
	ps := &c.pools
	select {
	case <-time.After(after):
	case <-now:
	case <-ps.ctx.Done():
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	for len(p.ready) < p.n {
		w, begun := p.want, time.Now()
		ps.mu.Unlock()
		s, err := c.make(ps.ctx, w)
		ps.mu.Lock()
		if err != nil {
			p.err = err
			p.want.req.Rootfs = nil // it may be that: the next try prepares it anew
			break
		}
		p.ready = append(p.ready, prepared{s, begun})
	}
	p.making = false
	close(p.idle)
	if over := len(p.ready) - p.n; over > 0 {
		p.errs = append(p.errs, discard(p.ready[p.n:]))
		p.ready = p.ready[:p.n:p.n]
	}
}

// take gives a sandbox that is ready, or nil. What is ready but of no use any
// more goes.
func (c *Client) take(ctx context.Context, key string) *run.Sandbox {
	ps := &c.pools
	for ctx.Err() == nil { // or what is ready would look dead
		ps.mu.Lock()
		p := ps.byKey[key]
		if p == nil {
			ps.mu.Unlock()
			return nil
		}
		if len(p.ready) == 0 {
			c.refill(p, refillAfter)
			ps.mu.Unlock()
			return nil
		}
		s := p.ready[0]
		p.ready = p.ready[1:]
		ps.mu.Unlock()
		if time.Since(s.begun) < maxAge && s.Take(ctx) == nil {
			ps.mu.Lock()
			c.refill(p, refillAfter)
			ps.mu.Unlock()
			return s.Sandbox
		}
		ps.makers.Go(func() {
			err := discard([]prepared{s})
			ps.mu.Lock()
			defer ps.mu.Unlock()
			p.errs = append(p.errs, err)
		})
	}
	return nil
}

// Settle returns when the Client has nothing to do in the background: what
// Prepare keeps ready is complete, or cannot be, and the files of sandboxes that
// were closed have gone.
func (c *Client) Settle(ctx context.Context) error {
	ps := &c.pools
	ps.mu.Lock()
	var idle []chan struct{}
	for _, p := range ps.byKey {
		p.hurry()
		if p.idle != nil {
			idle = append(idle, p.idle)
		}
	}
	ps.mu.Unlock()
	for _, ended := range idle {
		select {
		case <-ended:
		case <-ctx.Done():
			return bailey.Errorf(bailey.CodeBusy, "wait for prepared sandboxes", "", "%w", context.Cause(ctx))
		}
	}
	return c.host.Wait()
}

func discard(list []prepared) (err error) {
	for _, s := range list {
		err = errors.Join(err, s.Discard(context.Background()))
	}
	return err
}

// endPool gives back what a pool has, and returns when it has gone.
func (c *Client) endPool(key string, p *pool) error {
	ps := &c.pools
	ps.mu.Lock()
	if ps.byKey[key] == p {
		delete(ps.byKey, key)
	}
	p.n = 0
	p.hurry()
	idle := p.idle
	ps.mu.Unlock()
	if idle != nil {
		<-idle
	}
	ps.mu.Lock()
	ready, errs := p.ready, errors.Join(p.errs...)
	p.ready, p.errs = nil, nil
	ps.mu.Unlock()
	return errors.Join(errs, discard(ready))
}

func (c *Client) endPools() error {
	ps := &c.pools
	ps.end()
	ps.mu.Lock()
	list := ps.byKey
	ps.byKey = map[string]*pool{}
	ps.mu.Unlock()
	var errs []error
	for key, p := range list {
		errs = append(errs, c.endPool(key, p))
	}
	ps.makers.Wait()
	return errors.Join(errs...)
}
