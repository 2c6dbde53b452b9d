package rest

import (
	"context"
	"net/http"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

func (s *Server) adminRoutes() {
	add(s, op{id: "get-info", method: http.MethodGet, path: "/info", summary: "see what the daemon is and can do", scope: access.Read},
		func(ctx context.Context, _ *nothing) (*answer[api.Info], error) {
			i, err := s.engine.Info(ctx)
			i.API = "v1"
			if s.opt.Domain != "" {
				i.Domain = s.opt.Domain
			}
			if !caller(ctx).Admin && !caller(ctx).Local {
				i.Home = "" // the host's folders are nobody's business outside
			}
			return answered(i, err)
		})
	type gcIn struct{ Body *api.GCRequest }
	add(s, op{id: "collect-garbage", method: http.MethodPost, path: "/gc", summary: "find and remove what belongs to nobody", scope: access.Admin},
		func(ctx context.Context, in *gcIn) (*answer[api.OrphanList], error) {
			l, err := s.engine.GC(ctx, caller(ctx), orZero(in.Body).Dry)
			return answered(api.OrphanList{Orphans: orEmpty(l)}, err)
		})
	s.keyRoutes()
	s.webhookRoutes()
	s.portRoutes()
	s.exposeRoutes()
}

func (s *Server) keyRoutes() {
	keys := func() (Keys, error) {
		if s.opt.Keys == nil {
			return nil, bailey.Errorf(bailey.CodeNotAvailable, "use API keys", "", "this daemon keeps none")
		}
		return s.opt.Keys, nil
	}
	type createIn struct{ Body api.KeySpec }
	add(s, op{id: "create-key", method: http.MethodPost, path: "/keys", summary: "make an API key; its token is told only now", scope: access.Admin, status: http.StatusCreated},
		func(ctx context.Context, in *createIn) (*answer[api.Key], error) {
			k, err := keys()
			if err != nil {
				return nil, err
			}
			return answered(k.Create(ctx, in.Body))
		})
	add(s, op{id: "list-keys", method: http.MethodGet, path: "/keys", summary: "list API keys", scope: access.Admin},
		func(ctx context.Context, _ *nothing) (*answer[api.KeyList], error) {
			k, err := keys()
			if err != nil {
				return nil, err
			}
			l, err := k.List(ctx)
			return answered(api.KeyList{Keys: orEmpty(l)}, err)
		})
	type byKey struct {
		Name string `path:"name" maxLength:"63"`
	}
	add(s, op{id: "delete-key", method: http.MethodDelete, path: "/keys/{name}", summary: "make an API key worthless", scope: access.Admin},
		func(ctx context.Context, in *byKey) (*nothing, error) {
			k, err := keys()
			if err != nil {
				return nil, err
			}
			return did(k.Delete(ctx, in.Name))
		})
}

func (s *Server) webhookRoutes() {
	hooks := func() (Webhooks, error) {
		if s.opt.Webhooks == nil {
			return nil, bailey.Errorf(bailey.CodeNotAvailable, "use webhooks", "", "this daemon sends none")
		}
		return s.opt.Webhooks, nil
	}
	type createIn struct{ Body api.WebhookSpec }
	add(s, op{id: "create-webhook", method: http.MethodPost, path: "/webhooks", summary: "have a URL told of events; the secret is told only now", scope: access.Admin, status: http.StatusCreated},
		func(ctx context.Context, in *createIn) (*answer[api.Webhook], error) {
			h, err := hooks()
			if err != nil {
				return nil, err
			}
			return answered(h.Create(ctx, caller(ctx).Name, in.Body))
		})
	add(s, op{id: "list-webhooks", method: http.MethodGet, path: "/webhooks", summary: "list webhooks", scope: access.Admin},
		func(ctx context.Context, _ *nothing) (*answer[api.WebhookList], error) {
			h, err := hooks()
			if err != nil {
				return nil, err
			}
			l, err := h.List(ctx)
			return answered(api.WebhookList{Webhooks: orEmpty(l)}, err)
		})
	type byHook struct {
		ID string `path:"id" maxLength:"63"`
	}
	add(s, op{id: "delete-webhook", method: http.MethodDelete, path: "/webhooks/{id}", summary: "end a webhook", scope: access.Admin},
		func(ctx context.Context, in *byHook) (*nothing, error) {
			h, err := hooks()
			if err != nil {
				return nil, err
			}
			return did(h.Delete(ctx, in.ID))
		})
}
