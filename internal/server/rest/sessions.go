package rest

import (
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// BySession names a session.
type BySession struct {
	ID string `path:"id" maxLength:"256" doc:"Id or name"`
}

// FromSeq says where a log of events is read from.
type FromSeq struct {
	Seq  int64  `query:"seq" minimum:"-1" doc:"The first event's number; 0 is the first that is kept, -1 only what is still to come"`
	Last string `header:"Last-Event-ID" maxLength:"20" doc:"Go on behind this event"`
}

func (f FromSeq) first() (int64, error) {
	if f.Last == "" {
		return f.Seq, nil
	}
	n, err := strconv.ParseInt(f.Last, 10, 64)
	if err != nil || n < 0 || n+1 < 0 {
		return 0, bailey.Errorf(bailey.CodeUsage, "go on with the events", "send the id of the last event, or none", "Last-Event-ID %q is no id of an event", f.Last)
	}
	return n + 1, nil
}

func (s *Server) sessionRoutes() {
	type newIn struct {
		Key  string `header:"Idempotency-Key" maxLength:"128" doc:"Another place for idempotency_key"`
		Body api.SessionSpec
	}
	add(s, op{id: "create-session", method: http.MethodPost, path: "/sessions", summary: "make a session", scope: access.Write, status: http.StatusCreated},
		func(ctx context.Context, in *newIn) (*answer[api.Session], error) {
			if err := oneKey(in.Key, &in.Body.IdempotencyKey); err != nil {
				return nil, err
			}
			return answered(s.engine.NewSession(ctx, caller(ctx), in.Body))
		})
	type listIn struct {
		Label []string `query:"label,explode" doc:"KEY=VALUE that it must have; once for each"`
	}
	add(s, op{id: "list-sessions", method: http.MethodGet, path: "/sessions", summary: "list sessions", scope: access.Read},
		func(ctx context.Context, in *listIn) (*answer[api.SessionList], error) {
			labels, err := readLabels(in.Label)
			if err != nil {
				return nil, err
			}
			l, err := s.engine.Sessions(ctx, caller(ctx), labels)
			return answered(api.SessionList{Sessions: orEmpty(l)}, err)
		})
	add(s, op{id: "get-session", method: http.MethodGet, path: "/sessions/{id}", summary: "look at a session", scope: access.Read},
		func(ctx context.Context, in *BySession) (*answer[api.Session], error) {
			return answered(s.engine.SessionOf(ctx, caller(ctx), in.ID))
		})
	add(s, op{id: "close-session", method: http.MethodDelete, path: "/sessions/{id}", summary: "end a session and its sandboxes; its log is kept", scope: access.Write},
		func(ctx context.Context, in *BySession) (*nothing, error) {
			return did(s.engine.CloseSession(ctx, caller(ctx), in.ID))
		})
	type executeIn struct {
		BySession
		Body api.ExecuteRequest
	}
	add(s, op{id: "execute-in-session", method: http.MethodPost, path: "/sessions/{id}/execute", summary: "run a command in a session's sandbox, which is provisioned anew when it has died", scope: access.Exec},
		func(ctx context.Context, in *executeIn) (*answer[api.ExecResult], error) {
			ctx, cancel := s.streaming(ctx)
			defer cancel()
			return answered(s.engine.Execute(ctx, caller(ctx), in.ID, in.Body))
		})
	type appendIn struct {
		BySession
		Body api.SessionEvent
	}
	add(s, op{id: "append-session-event", method: http.MethodPost, path: "/sessions/{id}/events", summary: "add a note to a session's log", scope: access.Exec, status: http.StatusCreated},
		func(ctx context.Context, in *appendIn) (*answer[api.SessionEvent], error) {
			return answered(s.engine.AppendSession(ctx, caller(ctx), in.ID, in.Body))
		})
	type eventsIn struct {
		BySession
		FromSeq
		Follow bool `query:"follow" doc:"Go on until the session is closed"`
	}
	add(s, op{id: "get-session-events", method: http.MethodGet, path: "/sessions/{id}/events", summary: "read a session's log", scope: access.Read, answers: eventTypes, schema: api.EventLine{}},
		func(ctx context.Context, in *eventsIn) (*huma.StreamResponse, error) {
			first, err := in.first()
			if err != nil {
				return nil, err
			}
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.stream(c, false, func(ctx context.Context, send func(string, any) error) error {
					err := s.engine.SessionEvents(ctx, caller(ctx), in.ID, first, in.Follow, func(ev api.SessionEvent) error {
						return send(strconv.FormatInt(ev.Seq, 10), api.EventLine{Session: &ev})
					})
					if err != nil {
						return err
					}
					return send("", api.EventLine{End: true})
				}, func(e *bailey.Error) any { return api.EventLine{Error: e} })
			}}, nil
		})

	add(s, op{id: "get-events", method: http.MethodGet, path: "/events", summary: "be told what happens", scope: access.Read, answers: eventTypes, schema: api.EventLine{}},
		func(ctx context.Context, in *FromSeq) (*huma.StreamResponse, error) {
			first, err := in.first()
			if err != nil {
				return nil, err
			}
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.stream(c, false, func(ctx context.Context, send func(string, any) error) error {
					return s.engine.Events(ctx, caller(ctx), first, func(ev api.Event) error {
						return send(strconv.FormatInt(ev.Seq, 10), api.EventLine{Event: &ev})
					})
				}, func(e *bailey.Error) any { return api.EventLine{Error: e} })
			}}, nil
		})
}
