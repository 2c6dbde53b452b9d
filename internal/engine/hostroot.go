package engine

import (
	"context"
	"reflect"
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
	made   time.Time // when the host was looked at for root
	making bool
	was    *rootfs.Root // the one before, which was another
	seen   time.Time    // when the host was last seen to be like that
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
	h.making = false
	h.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if h.put(&root, began) {
		e.nudgePools()
	}
	return &root, nil
}

// put takes a description over for which the host was looked at then, and says whether
// the host has changed since the one before.
func (h *hostRoot) put(root *rootfs.Root, then time.Time) (changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !then.After(h.made) {
		return false
	}
	if changed = h.root != nil && !reflect.DeepEqual(h.root, root); changed {
		h.was, h.seen = h.root, h.made
	}
	h.root, h.made = root, then
	return changed
}

// current says whether a description is the newest, or there is none.
func (h *hostRoot) current(root *rootfs.Root) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.root == nil || reflect.DeepEqual(h.root, root)
}

// fresh says whether get could have given a description just now, but for the luck of
// when the host was looked at: the host was like that at most hostRootOld ago.
func (h *hostRoot) fresh(root *rootfs.Root, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.was != nil && now.Sub(h.seen) < hostRootOld && reflect.DeepEqual(h.was, root)
}
