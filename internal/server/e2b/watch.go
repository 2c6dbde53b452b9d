package e2b

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
)

func (c *call) watchDir() {
	st, in, cerr := openStream[fileRequest](c)
	if cerr != nil {
		c.refuse(cerr, 0)
		return
	}
	a, err := c.user()
	if err == nil {
		var p string
		if p, err = c.folder(a, in.Path); err == nil {
			stop := func() {}
			err = c.watching(st.ctx, p, in.Recursive, func() {
				if st.send(message{"start": message{}}) != nil {
					st.cancel()
				}
				stop = st.keepAlive(message{"keepalive": message{}})
			}, func(ev message) error { return st.send(message{"filesystem": ev}) })
			stop()
		}
	}
	st.end(err)
}

// watchers are those whose clients come and ask.
type watchers struct {
	mu  sync.Mutex
	all map[string]*watcher
}

type watcher struct {
	sandbox string
	cancel  context.CancelFunc
	mu      sync.Mutex
	events  []message
	err     error // why nothing comes any more
}

const (
	maxWatchers = 64     // of one sandbox
	maxEvents   = 10_000 // that nobody has fetched
)

func (c *call) createWatcher(a account, in fileRequest) (any, error) {
	p, err := c.folder(a, in.Path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(c.s.closing)
	w := &watcher{sandbox: c.box.ID, cancel: cancel}
	id := strings.ToLower(rand.Text())
	ws := &c.s.watchers
	ws.mu.Lock()
	n := 0
	for _, x := range ws.all {
		if x.sandbox == w.sandbox {
			n++
		}
	}
	if n >= maxWatchers {
		ws.mu.Unlock()
		cancel()
		return nil, connectErrorf("resource_exhausted", "the sandbox has %d watchers: remove one", n)
	}
	if ws.all == nil {
		ws.all = map[string]*watcher{}
	}
	ws.all[id] = w
	ws.mu.Unlock()
	// The request's end is not the watcher's.
	own := *c
	own.r = c.r.WithContext(ctx)
	ready, ended := make(chan struct{}), make(chan struct{})
	c.s.tasks.Go(func() {
		defer close(ended)
		defer cancel()
		err := own.watching(ctx, p, in.Recursive, func() { close(ready) }, w.add)
		w.mu.Lock()
		w.err = err
		if err == nil {
			w.err = connectErrorf("not_found", "what was watched is gone")
		}
		w.mu.Unlock()
	})
	select {
	case <-ready:
		return message{"watcherId": id}, nil
	case <-ended:
	case <-c.ctx().Done():
	}
	ws.drop(id, w.sandbox)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		return nil, c.ctx().Err()
	}
	return nil, w.err
}

func (w *watcher) add(ev message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.events) >= maxEvents {
		return connectErrorf("data_loss", "more than %d events were not fetched: watch anew", maxEvents)
	}
	w.events = append(w.events, ev)
	return nil
}

func (ws *watchers) get(id, sandbox string) (*watcher, error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := ws.all[id]
	if w == nil || w.sandbox != sandbox {
		return nil, connectErrorf("not_found", "watcher with id %s not found", id)
	}
	return w, nil
}

func (ws *watchers) drop(id, sandbox string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.all[id]; w != nil && w.sandbox == sandbox {
		w.cancel()
		delete(ws.all, id)
	}
}

func (c *call) watcherEvents(_ account, in fileRequest) (any, error) {
	w, err := c.s.watchers.get(in.Watcher, c.box.ID)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	events := w.events
	w.events = nil
	if len(events) == 0 && w.err != nil {
		return nil, w.err
	}
	if events == nil {
		events = []message{}
	}
	return message{"events": events}, nil
}

func (c *call) removeWatcher(_ account, in fileRequest) (any, error) {
	if _, err := c.s.watchers.get(in.Watcher, c.box.ID); err != nil {
		return nil, err
	}
	c.s.watchers.drop(in.Watcher, c.box.ID)
	return nil, nil
}
