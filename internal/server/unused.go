package server

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server/listen"
)

// untilUnused closes left once there has been no sandbox and no request for a
// while. It is woken by events and requests, and does nothing in between.
func (s *Server) untilUnused(ctx context.Context, left chan<- struct{}) {
	var following sync.WaitGroup
	defer following.Wait()
	following.Go(func() {
		// An error leaves the daemon running, until a request moves it.
		err := s.opt.Engine.Events(ctx, nobody, -1, func(api.Event) error { s.move(); return nil })
		if ctx.Err() == nil {
			s.opt.Log.Warn("events cannot be followed", "error", err)
		}
	})
	t := time.NewTimer(s.opt.Linger)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.moved:
			t.Reset(s.opt.Linger)
		case <-t.C:
			if s.unused(ctx) && s.hidden(ctx) {
				close(left)
				return
			}
		}
	}
}

// nobody is on whose behalf the server itself looks.
var nobody = engine.Caller{Name: "server", Admin: true}

func (s *Server) unused(ctx context.Context) bool {
	if s.busy.Load() > 0 {
		return false // its end moves
	}
	list, _, err := s.opt.Engine.Sandboxes(ctx, nobody, api.SandboxQuery{Limit: 1})
	return err == nil && len(list) == 0
}

// hidden takes the socket's name away and looks once more, so that nobody has a
// sandbox made by a daemon that is about to leave. Its own connection is behind all
// that came before; when it is answered those are counted.
func (s *Server) hidden(ctx context.Context) bool {
	name := filepath.Join(s.opt.Home, listen.SocketName)
	aside := name + ".leaving"
	if os.Rename(name, aside) != nil {
		return false
	}
	dir, err := os.Open(s.opt.Home)
	if err == nil {
		defer dir.Close()
		err = ask(ctx, filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(aside)))
	}
	// The server notes a moment later that this connection is closed.
	for i := 0; i < 50 && s.busy.Load() > 0 && ctx.Err() == nil; i++ {
		time.Sleep(10 * time.Millisecond)
	}
	if err == nil && s.unused(ctx) {
		os.Remove(aside) // what is left there is found by nobody
		return true
	}
	if err := os.Rename(aside, name); err != nil {
		s.opt.Log.Error("the socket has lost its name", "error", err)
	}
	return false
}

// ask sends a request to a socket and waits for its answer.
func ask(ctx context.Context, path string) error {
	var d net.Dialer
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", path) },
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// watch counts connections on which something is said or about to be. Those that
// were taken over are counted by their handlers.
func (s *Server) watch(c net.Conn, to http.ConnState) {
	active := to == http.StateNew || to == http.StateActive
	if _, was := s.active.Load(c); was == active {
		return
	}
	if active {
		s.active.Store(c, true)
		s.busy.Add(1)
		return
	}
	s.active.Delete(c)
	s.busy.Add(-1)
	s.move()
}

// secured puts TLS around a listener; nil is none.
func secured(l net.Listener, c *tls.Config) net.Listener {
	if c == nil {
		return l
	}
	return tls.NewListener(l, c)
}
