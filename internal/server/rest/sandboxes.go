package rest

import (
	"context"
	"net/http"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// BySandbox names a sandbox.
type BySandbox struct {
	ID string `path:"id" maxLength:"256" doc:"Id, the start of exactly one id, or name"`
}

func caller(ctx context.Context) engine.Caller { return access.From(ctx).Caller }

func (s *Server) sandboxRoutes() {
	type createIn struct {
		Key  string `header:"Idempotency-Key" maxLength:"128" doc:"Another place for idempotency_key"`
		Body api.SandboxSpec
	}
	add(s, op{id: "create-sandbox", method: http.MethodPost, path: "/sandboxes", summary: "create a sandbox", scope: access.Write, status: http.StatusCreated},
		func(ctx context.Context, in *createIn) (*answer[api.Sandbox], error) {
			if err := oneKey(in.Key, &in.Body.IdempotencyKey); err != nil {
				return nil, err
			}
			return answered(s.engine.Create(ctx, caller(ctx), in.Body))
		})

	type listIn struct {
		States []string `query:"states" doc:"Only in these states; all but ended if there are none"`
		Label  []string `query:"label,explode" doc:"KEY=VALUE that it must have; once for each"`
		Limit  int      `query:"limit" minimum:"1" maximum:"1000" doc:"How many at most; default 100"`
		After  string   `query:"after" maxLength:"256" doc:"The next of the page before"`
	}
	add(s, op{id: "list-sandboxes", method: http.MethodGet, path: "/sandboxes", summary: "list sandboxes", scope: access.Read},
		func(ctx context.Context, in *listIn) (*answer[api.SandboxList], error) {
			labels, err := readLabels(in.Label)
			if err != nil {
				return nil, err
			}
			q := api.SandboxQuery{Labels: labels, Limit: in.Limit, After: in.After}
			for _, st := range in.States {
				q.States = append(q.States, api.State(st))
			}
			l, next, err := s.engine.Sandboxes(ctx, caller(ctx), q)
			return answered(api.SandboxList{Sandboxes: orEmpty(l), Next: next}, err)
		})

	add(s, op{id: "get-sandbox", method: http.MethodGet, path: "/sandboxes/{id}", summary: "look at a sandbox", scope: access.Read},
		func(ctx context.Context, in *BySandbox) (*answer[api.Sandbox], error) {
			return answered(s.engine.Sandbox(ctx, caller(ctx), in.ID))
		})
	add(s, op{id: "delete-sandbox", method: http.MethodDelete, path: "/sandboxes/{id}", summary: "delete a sandbox, from any state, any number of times", scope: access.Write},
		func(ctx context.Context, in *BySandbox) (*nothing, error) {
			return did(s.engine.Delete(ctx, caller(ctx), in.ID))
		})
	add(s, op{id: "get-stats", method: http.MethodGet, path: "/sandboxes/{id}/stats", summary: "see what a sandbox uses", scope: access.Read},
		func(ctx context.Context, in *BySandbox) (*answer[api.Stats], error) {
			return answered(s.engine.Stats(ctx, caller(ctx), in.ID))
		})
	s.lifetimeRoutes()

	type policyIn struct {
		BySandbox
		Body api.PolicyRequest
	}
	add(s, op{id: "update-policy", method: http.MethodPut, path: "/sandboxes/{id}/policy", summary: "put another policy in force", scope: access.Write},
		func(ctx context.Context, in *policyIn) (*answer[api.Sandbox], error) {
			b := in.Body
			return answered(s.engine.UpdatePolicy(ctx, caller(ctx), in.ID, api.SandboxSpec{Policy: b.Policy, Allow: b.Allow, Profiles: b.Profiles, Secrets: b.Secrets}))
		})
	type mountIn struct {
		BySandbox
		Body api.MountRequest
	}
	add(s, op{id: "add-mount", method: http.MethodPost, path: "/sandboxes/{id}/mounts", summary: "show a folder or volume in a running sandbox", scope: access.Write},
		func(ctx context.Context, in *mountIn) (*answer[api.Sandbox], error) {
			if (in.Body.Mount == "") == (in.Body.Volume == nil) {
				return nil, bailey.Errorf(bailey.CodeUsage, "add a mount", "name a mount or a volume", "it has to be one of the two")
			}
			return answered(s.engine.AddMount(ctx, caller(ctx), in.ID, in.Body.Mount, in.Body.Volume))
		})
}

func (s *Server) lifetimeRoutes() {
	type pauseIn struct {
		BySandbox
		Body *api.PauseRequest
	}
	add(s, op{id: "pause-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/pause", summary: "pause a sandbox, in memory or to disk", scope: access.Write},
		func(ctx context.Context, in *pauseIn) (*answer[api.Receipt], error) {
			return answered(s.engine.Pause(ctx, caller(ctx), in.ID, orZero(in.Body)))
		})
	add(s, op{id: "resume-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/resume", summary: "let a paused or stopped sandbox go on", scope: access.Write},
		func(ctx context.Context, in *BySandbox) (*answer[api.Sandbox], error) {
			return answered(s.engine.Resume(ctx, caller(ctx), in.ID))
		})
	type promoteIn struct {
		BySandbox
		Body api.PromoteRequest
	}
	add(s, op{id: "promote-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/promote", summary: "move a sandbox to a stronger isolation level; its processes end", scope: access.Write},
		func(ctx context.Context, in *promoteIn) (*answer[api.Sandbox], error) {
			return answered(s.engine.Promote(ctx, caller(ctx), in.ID, in.Body))
		})
	type extendIn struct {
		BySandbox
		Body api.ExtendRequest
	}
	add(s, op{id: "extend-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/extend", summary: "set how long a sandbox lives, from now on", scope: access.Write},
		func(ctx context.Context, in *extendIn) (*answer[api.Sandbox], error) {
			return answered(s.engine.Extend(ctx, caller(ctx), in.ID, in.Body))
		})
	add(s, op{id: "renew-lease", method: http.MethodPost, path: "/sandboxes/{id}/renew", summary: "renew a sandbox's lease", scope: access.Write},
		func(ctx context.Context, in *BySandbox) (*answer[api.Sandbox], error) {
			return answered(s.engine.Renew(ctx, caller(ctx), in.ID))
		})
	type holdIn struct {
		BySandbox
		Body api.HoldRequest
	}
	add(s, op{id: "hold-sandbox", method: http.MethodPost, path: "/sandboxes/{id}/holds", summary: "keep a sandbox awake", scope: access.Write},
		func(ctx context.Context, in *holdIn) (*answer[api.Hold], error) {
			return answered(s.engine.Hold(ctx, caller(ctx), in.ID, in.Body))
		})
	type releaseIn struct {
		BySandbox
		Hold string `path:"hold" maxLength:"128"`
	}
	add(s, op{id: "release-hold", method: http.MethodDelete, path: "/sandboxes/{id}/holds/{hold}", summary: "no longer keep a sandbox awake", scope: access.Write},
		func(ctx context.Context, in *releaseIn) (*nothing, error) {
			return did(s.engine.Release(ctx, caller(ctx), in.ID, in.Hold))
		})
}

// oneKey puts the header's idempotency key in the place of the body's.
func oneKey(header string, body *string) error {
	if header != "" && *body != "" && header != *body {
		return bailey.Errorf(bailey.CodeUsage, "understand the request", "name it once", "the header Idempotency-Key and the field idempotency_key differ")
	}
	if header != "" {
		*body = header
	}
	return nil
}

func readLabels(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	m := make(map[string]string, len(list))
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if _, twice := m[k]; !ok || k == "" || twice {
			return nil, bailey.Errorf(bailey.CodeUsage, "select by the label "+l, "write label=KEY=VALUE, once for each key", "it is no KEY=VALUE, or comes twice")
		}
		m[k] = v
	}
	return m, nil
}

// orEmpty makes a list an empty one where there is none, so that JSON has [].
func orEmpty[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}
