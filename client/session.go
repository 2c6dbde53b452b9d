package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bailey-sandbox/bailey/api"
)

// Session is a handle of a session: one agent task, which outlives its sandboxes.
type Session struct {
	c   *Client
	ref string
}

// NewSession makes a session.
func (c *Client) NewSession(ctx context.Context, spec api.SessionSpec) (*Session, error) {
	if spec.IdempotencyKey == "" {
		spec.IdempotencyKey = rand.Text()
	}
	s, err := post[api.Session](ctx, c, "/v1/sessions", spec)
	if err != nil {
		return nil, err
	}
	return c.Session(s.ID), nil
}

// Session gives a handle by id or name. It asks nobody.
func (c *Client) Session(ref string) *Session { return &Session{c, ref} }

// Sessions lists sessions that have all the labels.
func (c *Client) Sessions(ctx context.Context, labels map[string]string) ([]api.Session, error) {
	q := url.Values{}
	setLabels(q, labels)
	l, err := get[api.SessionList](ctx, c, "/v1/sessions", q)
	return l.Sessions, err
}

// Ref is what the handle was made with.
func (s *Session) Ref() string { return s.ref }

// Info looks at the session.
func (s *Session) Info(ctx context.Context) (api.Session, error) {
	return get[api.Session](ctx, s.c, pathf("/sessions/%s", s.ref), nil)
}

// Execute runs a command in the session's sandbox, which is provisioned anew from
// its last checkpoint when it has died: then the error has code sandbox_restarted
// until the caller sends the new generation, which Info tells.
func (s *Session) Execute(ctx context.Context, req api.ExecuteRequest) (api.ExecResult, error) {
	if req.Exec.ID == "" {
		req.Exec.ID = rand.Text()
	}
	return post[api.ExecResult](ctx, s.c, pathf("/sessions/%s/execute", s.ref), req)
}

// Append adds a note to the session's log.
func (s *Session) Append(ctx context.Context, ev api.SessionEvent) (api.SessionEvent, error) {
	return once[api.SessionEvent](ctx, s.c, pathf("/sessions/%s/events", s.ref), ev)
}

// Events calls each with the session's log from seq on. With follow it goes on,
// through breaks, until ctx ends or the session is closed.
func (s *Session) Events(ctx context.Context, seq int64, follow bool, each func(api.SessionEvent) error) error {
	next := func() call {
		q := url.Values{"seq": {strconv.FormatInt(seq, 10)}, "follow": {strconv.FormatBool(follow)}}
		return call{method: http.MethodGet, path: pathf("/sessions/%s/events", s.ref), query: q, again: true}
	}
	return s.c.follow(ctx, next, func(b []byte) error {
		l, err := decode[api.EventLine](b)
		switch {
		case err != nil:
			return err
		case l.Error != nil:
			return l.Error
		case l.End:
			return errEnded
		case l.Session == nil:
			return nil
		}
		if err := each(*l.Session); err != nil {
			return err
		}
		seq = l.Session.Seq + 1
		return nil
	})
}

// Close ends the session and its sandboxes; its log is kept.
func (s *Session) Close(ctx context.Context) error {
	return s.c.remove(ctx, pathf("/sessions/%s", s.ref), nil)
}

// Events calls each with what happens to anything the caller may see, from seq on,
// through breaks, until ctx ends or each gives an error.
func (c *Client) Events(ctx context.Context, seq int64, each func(api.Event) error) error {
	next := func() call {
		return call{method: http.MethodGet, path: "/v1/events", query: url.Values{"seq": {strconv.FormatInt(seq, 10)}}, again: true}
	}
	return c.follow(ctx, next, func(b []byte) error {
		l, err := decode[api.EventLine](b)
		switch {
		case err != nil:
			return err
		case l.Error != nil:
			return l.Error
		case l.Event == nil:
			return nil
		}
		if err := each(*l.Event); err != nil {
			return err
		}
		seq = l.Event.Seq + 1
		return nil
	})
}
