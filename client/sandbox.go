package client

import (
	"context"
	"crypto/rand"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Sandbox is a handle of a sandbox that may or may not be there.
type Sandbox struct {
	c   *Client
	ref string
}

// Create makes a sandbox and returns when it runs. It has an idempotency key in
// any case, so that a call that is made again after a break makes one sandbox.
func (c *Client) Create(ctx context.Context, spec api.SandboxSpec) (*Sandbox, error) {
	s, err := c.CreateInfo(ctx, spec)
	if err != nil {
		return nil, err
	}
	return c.Sandbox(s.ID), nil
}

// CreateInfo is Create for those who want to know what was made.
func (c *Client) CreateInfo(ctx context.Context, spec api.SandboxSpec) (api.Sandbox, error) {
	if spec.IdempotencyKey == "" {
		spec.IdempotencyKey = rand.Text()
	}
	return post[api.Sandbox](ctx, c, "/v1/sandboxes", spec)
}

// Sandbox gives a handle by id, the start of exactly one id, or name. It asks
// nobody.
func (c *Client) Sandbox(ref string) *Sandbox { return &Sandbox{c, ref} }

// Sandboxes gives a page of sandboxes, the oldest first.
func (c *Client) Sandboxes(ctx context.Context, q api.SandboxQuery) (api.SandboxList, error) {
	v := url.Values{}
	states := make([]string, len(q.States))
	for i, s := range q.States {
		states[i] = string(s)
	}
	if len(states) > 0 {
		v.Set("states", strings.Join(states, ","))
	}
	setLabels(v, q.Labels)
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.After != "" {
		v.Set("after", q.After)
	}
	return get[api.SandboxList](ctx, c, "/v1/sandboxes", v)
}

// AllSandboxes goes through all pages.
func (c *Client) AllSandboxes(ctx context.Context, q api.SandboxQuery) iter.Seq2[api.Sandbox, error] {
	return func(yield func(api.Sandbox, error) bool) {
		for {
			page, err := c.Sandboxes(ctx, q)
			if err != nil {
				yield(api.Sandbox{}, err)
				return
			}
			for _, s := range page.Sandboxes {
				if !yield(s, nil) {
					return
				}
			}
			if q.After = page.Next; q.After == "" {
				return
			}
		}
	}
}

// setLabels writes labels as a query has them: label=KEY=VALUE, once for each.
func setLabels(v url.Values, labels map[string]string) {
	for k, val := range labels {
		v.Add("label", k+"="+val)
	}
}

// Ref is what the handle was made with: the id, if the client made the sandbox.
func (s *Sandbox) Ref() string { return s.ref }

func (s *Sandbox) path(format string, args ...string) string {
	return pathf("/sandboxes/%s"+format, append([]string{s.ref}, args...)...)
}

// Info looks at the sandbox. Looking is no activity.
func (s *Sandbox) Info(ctx context.Context) (api.Sandbox, error) {
	return get[api.Sandbox](ctx, s.c, s.path(""), nil)
}

// Delete ends the sandbox and removes its files. It works from every state, any
// number of times.
func (s *Sandbox) Delete(ctx context.Context) error {
	return s.c.remove(ctx, s.path(""), nil)
}

// Pause freezes the sandbox, or with ToDisk ends its processes and keeps its
// files. The receipt tells what was kept.
func (s *Sandbox) Pause(ctx context.Context, req api.PauseRequest) (api.Receipt, error) {
	return post[api.Receipt](ctx, s.c, s.path("/pause"), req)
}

// Resume lets a paused or stopped sandbox go on; of one that runs it is the state.
func (s *Sandbox) Resume(ctx context.Context) (api.Sandbox, error) {
	return post[api.Sandbox](ctx, s.c, s.path("/resume"), nil)
}

// Promote moves the sandbox to a stronger isolation level. Files, environment, policy and names stay; its
// processes end.
func (s *Sandbox) Promote(ctx context.Context, level bailey.Isolation) (api.Sandbox, error) {
	return post[api.Sandbox](ctx, s.c, s.path("/promote"), api.PromoteRequest{Isolation: level})
}

// Extend sets how long the sandbox lives, counted from now.
func (s *Sandbox) Extend(ctx context.Context, req api.ExtendRequest) (api.Sandbox, error) {
	return post[api.Sandbox](ctx, s.c, s.path("/extend"), req)
}

// Renew renews the sandbox's lease.
func (s *Sandbox) Renew(ctx context.Context) (api.Sandbox, error) {
	return post[api.Sandbox](ctx, s.c, s.path("/renew"), nil)
}

// Hold keeps the sandbox awake until it is released or its time is over.
func (s *Sandbox) Hold(ctx context.Context, req api.HoldRequest) (api.Hold, error) {
	if req.ID == "" {
		req.ID = rand.Text()
	}
	return post[api.Hold](ctx, s.c, s.path("/holds"), req)
}

// Release ends a hold. One that is not there is no error.
func (s *Sandbox) Release(ctx context.Context, id string) error {
	return s.c.remove(ctx, s.path("/holds/%s", id), nil)
}

// Stats says what the sandbox uses.
func (s *Sandbox) Stats(ctx context.Context) (api.Stats, error) {
	return get[api.Stats](ctx, s.c, s.path("/stats"), nil)
}

// UpdatePolicy puts another policy in force.
func (s *Sandbox) UpdatePolicy(ctx context.Context, req api.PolicyRequest) (api.Sandbox, error) {
	return ask[api.Sandbox](ctx, s.c, call{method: http.MethodPut, path: s.path("/policy"), in: req, again: true})
}

// AddMount shows a folder of the daemon's host, or a volume, in the running sandbox.
func (s *Sandbox) AddMount(ctx context.Context, req api.MountRequest) (api.Sandbox, error) {
	return once[api.Sandbox](ctx, s.c, s.path("/mounts"), req)
}
