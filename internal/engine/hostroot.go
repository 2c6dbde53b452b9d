package engine

import (
	"context"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// How old a description of the host template may be: until then another create uses
// it, and after the shorter time one is made in the background meanwhile.
const (
	hostRootFresh = 5 * time.Second
	hostRootOld   = time.Minute
)

// hostRoot remembers the host template: to look at the host takes longer than to
// make a sandbox.
type hostRoot struct {
	mu     sync.Mutex
	root   *rootfs.Root
	made   time.Time
	making bool
}

// get gives the template as the host is, or was at most hostRootOld ago.
func (h *hostRoot) get(ctx context.Context, e *Engine) (*rootfs.Root, error) {
	h.mu.Lock()
	age := e.clock.Now().Sub(h.made)
	root := h.root
	refresh := root != nil && age > hostRootFresh && !h.making
	h.making = h.making || refresh
	h.mu.Unlock()
	if root != nil && age >= 0 && age < hostRootOld {
		if refresh {
			e.spawn(func(ctx context.Context) {
				if _, err := h.make(ctx, e); err != nil && ctx.Err() == nil {
					e.log.Error("prepare the host template", "error", err)
				}
			})
		}
		return root, nil
	}
	return h.make(ctx, e)
}

func (h *hostRoot) make(ctx context.Context, e *Engine) (*rootfs.Root, error) {
	began := e.clock.Now()
	root, err := e.images.tool.Prepare(ctx, image.HostSource)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.making = false
	if err != nil {
		return nil, err
	}
	if began.After(h.made) {
		h.root, h.made = &root, began
	}
	return &root, nil
}
