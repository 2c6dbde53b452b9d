package e2b

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// sandbox gives the sandbox that a request's path names by its whole id.
func (s *Server) sandbox(ctx context.Context, who access.Identity, r *http.Request) (api.Sandbox, error) {
	asked := r.PathValue("id")
	id, _, _ := strings.Cut(asked, "-") // old ids have a client's behind
	if !isID(id) {
		return api.Sandbox{}, notFound(asked, "")
	}
	b, err := s.engine.Sandbox(ctx, who.Caller, id)
	switch {
	case bailey.CodeOf(err) == bailey.CodeNotFound, err == nil && b.ID != id:
		return b, notFound(asked, "")
	case err != nil:
		return b, err
	case b.State == api.StateEnded || b.State == api.StateDeleting:
		return b, notFound(asked, "it "+endOf(b))
	case b.State == api.StateLost:
		return b, notFound(asked, "it was lost: it "+endOf(b)+"; its files are kept until it is deleted")
	}
	return b, nil
}

// endOf says how a sandbox ended.
func endOf(b api.Sandbox) string {
	if b.End == nil {
		return "has ended"
	}
	how := b.End.String()
	if b.Ended != nil {
		how += " at " + b.Ended.UTC().Format(time.RFC3339)
	}
	return how
}

func (s *Server) get(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	b, err := s.sandbox(ctx, who, r)
	if err == nil && stateOf(b) == "" {
		err = notFound(b.ID, "it is "+string(b.State))
	}
	return http.StatusOK, s.detail(b), err
}

func (s *Server) kill(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	b, err := s.sandbox(ctx, who, r)
	if err != nil && b.State != api.StateLost {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.engine.Delete(ctx, who.Caller, b.ID)
}

// toConnect is a request to connect, resume or extend; times are in seconds.
type toConnect struct {
	Timeout  *int64 `json:"timeout"`
	Duration *int64 `json:"duration"`
}

// extend lets a sandbox live for so long from now, unless longer is what it has and
// only is said.
func (s *Server) extend(ctx context.Context, who access.Identity, b api.Sandbox, n int64, only bool) error {
	d, err := seconds(n)
	if err != nil {
		return err
	}
	if only && (b.Timeout.Never || b.Expires != nil && b.Expires.After(time.Now().Add(time.Duration(d)))) {
		return nil
	}
	_, err = s.engine.Extend(ctx, who.Caller, b.ID, api.ExtendRequest{Timeout: api.Lifetime{After: d}})
	return err
}

// defaultConnect is how many seconds a sandbox lives on that is connected to.
const defaultConnect = 300

func (s *Server) connect(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	var in toConnect
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	n := int64(defaultConnect)
	if in.Timeout != nil {
		n = *in.Timeout
	}
	if _, err := seconds(n); err != nil {
		return 0, nil, err // before anything is woken
	}
	status := http.StatusOK
	if b.State != api.StateRunning {
		status = http.StatusCreated
		if b, err = s.engine.Resume(ctx, who.Caller, b.ID); err != nil {
			return 0, nil, err
		}
	}
	// One that was woken has the time from now that was asked for, another not less than it has.
	if err := s.extend(ctx, who, b, n, status == http.StatusOK); err != nil {
		return 0, nil, err
	}
	return status, s.handle(b), nil
}

func (s *Server) resume(ctx context.Context, who access.Identity, r *http.Request, w http.ResponseWriter) (int, any, error) {
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	if b.State == api.StateRunning {
		return 0, nil, fail(http.StatusConflict, "the sandbox "+b.ID+" is running already")
	}
	return s.connect(ctx, who, r, w)
}

func (s *Server) timeout(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	var in toConnect
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	if in.Timeout == nil {
		return 0, nil, fail(http.StatusBadRequest, "there is no timeout")
	}
	if *in.Timeout <= 0 { // at once
		_, err := s.engine.Extend(ctx, who.Caller, b.ID, api.ExtendRequest{Timeout: api.Lifetime{After: api.Duration(time.Millisecond)}})
		return http.StatusNoContent, nil, err
	}
	return http.StatusNoContent, nil, s.extend(ctx, who, b, *in.Timeout, false)
}

func (s *Server) refresh(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	var in toConnect
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	n := int64(15)
	if in.Duration != nil {
		n = max(*in.Duration, n)
	}
	return http.StatusNoContent, nil, s.extend(ctx, who, b, n, true)
}

func (s *Server) pause(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	var in struct {
		Memory *bool `json:"memory"`
	}
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	if stateOf(b) == "paused" {
		return 0, nil, fail(http.StatusConflict, "the sandbox "+b.ID+" is paused already")
	}
	filesOnly := in.Memory != nil && !*in.Memory
	_, err = s.engine.Pause(ctx, who.Caller, b.ID, api.PauseRequest{ToDisk: filesOnly, FilesOnly: filesOnly})
	return http.StatusNoContent, nil, err
}

// network puts other rules in force, in place of all that were.
func (s *Server) network(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	var in network
	if err := read(r, &in); err != nil {
		return 0, nil, err
	}
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	if stateOf(b) != "running" {
		return 0, nil, fail(http.StatusConflict, "the sandbox "+b.ID+" does not run")
	}
	allow, err := s.reach(in)
	if err != nil {
		return 0, nil, err
	}
	_, err = s.engine.UpdatePolicy(ctx, who.Caller, b.ID, api.SandboxSpec{Allow: allow})
	return http.StatusNoContent, nil, err
}
