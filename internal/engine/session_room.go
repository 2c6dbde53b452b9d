package engine

import (
	"context"
	"time"

	"github.com/bailey-sandbox/bailey"
)

const (
	// keepSessions is how long a closed session with its log and outcomes is kept.
	keepSessions = 30 * 24 * time.Hour
	// maxSessionBytes is how much the sessions of one owner may take in the database.
	maxSessionBytes = 4 << 30
	// rowBytes is what a row costs beside what is in it.
	rowBytes = 256
)

// sessionRoom sets n bytes aside in the database for a session of the owner. Where there
// is no room the owner's oldest closed sessions are forgotten; the error has code
// quota_exceeded. The caller gives back what it has not written: see sessionGrew.
func (e *Engine) sessionRoom(ctx context.Context, owner string, n int64) error {
	for {
		e.sessions.mu.Lock()
		ok := e.sessions.bytes[owner]+n <= e.sessions.most
		if ok {
			e.sessions.bytes[owner] += n
		}
		e.sessions.mu.Unlock()
		if ok {
			return nil
		}
		if gone, err := e.forgetSessionsOf(ctx, owner, e.clock.Now().Add(time.Hour)); err != nil {
			return err
		} else if gone == 0 {
			return bailey.Errorf(bailey.CodeQuotaExceeded, "write to a session", "close sessions that are over: their logs and outcomes then make room",
				"the sessions of one owner may take %d bytes, and no closed one is left to forget", e.sessions.most)
		}
	}
}

// sessionGrew counts what was written without room set aside, or with n less than 0 gives
// room back.
func (e *Engine) sessionGrew(owner string, n int64) {
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	e.sessions.bytes[owner] += n
}

// forgetSessionsOf forgets some closed sessions, of everybody with owner "", and says how
// many.
func (e *Engine) forgetSessionsOf(ctx context.Context, owner string, before time.Time) (int, error) {
	const atOnce = 16
	list, err := e.db.ForgetSessions(ctx, owner, before, atOnce)
	e.sessions.mu.Lock()
	defer e.sessions.mu.Unlock()
	for _, f := range list {
		delete(e.sessions.seats, f.ID)
		e.sessions.bytes[f.Owner] = max(0, e.sessions.bytes[f.Owner]-f.Bytes)
	}
	return len(list), err
}

// forgetSessions forgets what was closed long ago.
func (e *Engine) forgetSessions(ctx context.Context) {
	for ctx.Err() == nil {
		n, err := e.forgetSessionsOf(ctx, "", e.clock.Now().Add(-keepSessions))
		if err != nil && ctx.Err() == nil {
			e.log.Error("forget closed sessions", "error", err)
		}
		if n == 0 || err != nil {
			return
		}
	}
}
