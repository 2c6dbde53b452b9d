package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server"
)

// leaving is why the daemon ends. Its context ends with the first reason.
type leaving struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	sig    chan os.Signal
}

var (
	errUpgrade    = errors.New("it is started anew")
	errTerminated = errors.New("it was told to end")
	errKeeperGone = errors.New("the keeper is gone")
)

// newLeaving waits for a signal, or for the keeper's end. The context that main
// gives ends by every signal alike, so it tells too little.
func newLeaving(ctx context.Context, gone <-chan struct{}) *leaving {
	l := &leaving{sig: make(chan os.Signal, 4)}
	l.ctx, l.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	signal.Notify(l.sig, unix.SIGHUP, unix.SIGTERM, unix.SIGINT)
	if ctx.Err() != nil { // by a signal that came before: nothing has begun that would have to be ended
		l.cancel(errUpgrade)
	}
	go func() {
		select {
		case s := <-l.sig:
			if s == unix.SIGHUP && gone != nil {
				l.cancel(errUpgrade)
			} else {
				l.cancel(errTerminated) // without a keeper nobody would start it anew
			}
		case <-gone:
			l.cancel(errKeeperGone)
		case <-l.ctx.Done():
		}
	}()
	return l
}

func (l *leaving) stop() {
	signal.Stop(l.sig)
	l.cancel(nil)
}

func (l *leaving) upgrade() bool { return context.Cause(l.ctx) == errUpgrade }
func (l *leaving) lost() bool    { return context.Cause(l.ctx) == errKeeperGone }

// stopAll stops what runs to disk: processes would not outlive the keeper, and what
// is stopped goes on at its next use. One that cannot be stopped in time ends with
// the daemon and is lost, its files kept.
func stopAll(e *engine.Engine, c server.Config, log *slog.Logger) {
	ctx, cancel := context.WithTimeout(context.Background(), c.DrainTime())
	defer cancel()
	who := engine.Caller{Name: "server", Admin: true}
	q := api.SandboxQuery{States: []api.State{api.StateRunning, api.StatePaused}, Limit: 1000}
	var all sync.WaitGroup
	turns := make(chan struct{}, 8)
	for {
		list, next, err := e.Sandboxes(ctx, who, q)
		if err != nil {
			log.Error("sandboxes cannot be listed, and end with the daemon", "error", err)
			break
		}
		for _, s := range list {
			turns <- struct{}{}
			all.Go(func() {
				defer func() { <-turns }()
				if _, err := e.Pause(ctx, who, s.ID, api.PauseRequest{ToDisk: true}); err != nil && bailey.CodeOf(err) != bailey.CodeSandboxEnded {
					log.Warn("a sandbox cannot be stopped, and ends with the daemon", "sandbox", s.ID, "error", err)
				}
			})
		}
		if q.After = next; next == "" {
			break
		}
	}
	all.Wait()
	log.Info("sandboxes are stopped")
}
