package secrets

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Held are secrets in memory, unsealed, for a process that puts them into
// requests. It may lose its right to the files meanwhile: then whoever has it
// calls Put. Its methods may be called by several goroutines.
type Held struct {
	// Refresh, if it is not nil, is asked for a secret whose file has changed or
	// whose command's value has expired. Set it before the first Get.
	Refresh func(ctx context.Context, name string) (*Current, error)
	// Changed, if it is not nil, tells whether Refresh would give something new.
	Changed func(name string) bool

	mu  sync.RWMutex
	all map[string]*Current
	gen atomic.Uint64
}

// NewHeld gives an empty one.
func NewHeld() *Held { return &Held{all: map[string]*Current{}} }

// Hold unseals secrets. The result follows the store: a value that is set or
// revoked later is seen by the next Get, as long as the files can be read.
// Where they cannot, set Refresh and Changed to something else or to nil, and
// call Put.
func (s *Store) Hold(ctx context.Context, names ...string) (*Held, error) {
	h := NewHeld()
	var mu sync.Mutex
	stamps := map[string]stamp{}
	h.Refresh = func(ctx context.Context, name string) (*Current, error) {
		st, err := s.stamp(name) // before the content: a change between is seen later
		if err != nil {
			return nil, err
		}
		c, err := s.Current(ctx, name)
		if err == nil {
			mu.Lock()
			stamps[name] = st
			mu.Unlock()
		}
		return c, err
	}
	h.Changed = func(name string) bool {
		st, err := s.stamp(name)
		mu.Lock()
		defer mu.Unlock()
		return err != nil || st != stamps[name]
	}
	for _, n := range names {
		c, err := h.Refresh(ctx, n)
		if err != nil {
			return nil, err
		}
		h.Put(c)
	}
	return h, nil
}

// Put brings in a secret, or a newer state of it. The values of the state
// before stay known, so that they are taken out of answers.
func (h *Held) Put(c *Current) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.all[c.Name]; before != nil {
		old := before.Old
		if before.Value != nil {
			old = append(old[:len(old):len(old)], before.Value)
		}
		merged := *c
		for _, o := range old {
			if !merged.has(o) {
				merged.Old = append(merged.Old[:len(merged.Old):len(merged.Old)], o)
			}
		}
		c = &merged
	}
	h.all[c.Name] = c
	h.gen.Add(1)
}

func (c *Current) has(v *Value) bool {
	if c.Value != nil && string(c.Value.b) == string(v.b) {
		return true
	}
	for _, o := range c.Old {
		if string(o.b) == string(v.b) {
			return true
		}
	}
	return false
}

// Get gives a secret as it is now. Where it changed or expired and cannot be had
// again, or its file is gone, that is an error: nothing old is used. Without
// Refresh it is what was last Put.
func (h *Held) Get(ctx context.Context, name string) (*Current, error) {
	c := h.Peek(name)
	expired := c != nil && !c.Expires.IsZero() && time.Now().After(c.Expires)
	if c != nil && (h.Refresh == nil || !expired && (h.Changed == nil || !h.Changed(name))) {
		return c, nil
	}
	if h.Refresh == nil {
		return nil, bailey.Errorf(bailey.CodeNotFound, "use the secret", "", "%s is not held", name)
	}
	fresh, err := h.Refresh(ctx, name)
	if err != nil {
		return nil, err
	}
	h.Put(fresh)
	return h.Peek(name), nil
}

// Peek gives what is held, without asking for news; nil if there is nothing.
func (h *Held) Peek(name string) *Current {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.all[name]
}

// Generation grows with each Put.
func (h *Held) Generation() uint64 { return h.gen.Load() }

// Wipe overwrites all values. Nothing may be using them any more.
func (h *Held) Wipe() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.all {
		if c.Value != nil {
			c.Value.Wipe()
		}
		for _, o := range c.Old {
			o.Wipe()
		}
	}
	clear(h.all)
	h.gen.Add(1)
}
