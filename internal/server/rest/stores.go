package rest

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// ByName names something in the query, because names of templates and images have
// slashes.
type ByName struct {
	Name string `query:"name" required:"true" maxLength:"256" doc:"NAME:TAG"`
}

func (s *Server) storeRoutes() {
	add(s, op{id: "list-templates", method: http.MethodGet, path: "/templates", summary: "list templates", scope: access.Read},
		func(ctx context.Context, _ *nothing) (*answer[api.TemplateList], error) {
			l, err := s.engine.Templates(ctx, caller(ctx))
			return answered(api.TemplateList{Templates: orEmpty(l)}, err)
		})
	type buildIn struct {
		Spec string `query:"spec" required:"true" maxLength:"65536" doc:"A BuildSpec, as JSON"`
		upload
	}
	add(s, op{id: "build-template", method: http.MethodPost, path: "/templates", summary: "build a template of a context, a tar archive", scope: access.Write,
		body: []string{"application/x-tar"}, answers: eventTypes, schema: api.Progress{}},
		func(ctx context.Context, in *buildIn) (*huma.StreamResponse, error) {
			var spec api.BuildSpec
			if err := strictly([]byte(in.Spec), &spec, "read the spec"); err != nil {
				return nil, err
			}
			if err := in.begin(s.opt.Upload, ""); err != nil {
				return nil, err
			}
			return s.progress(func(ctx context.Context, send func(api.Progress)) (api.Progress, error) {
				t, err := s.engine.BuildTemplate(ctx, caller(ctx), spec, &in.upload, send)
				return api.Progress{Step: "done", Built: &t}, in.end(err)
			})
		})
	add(s, op{id: "delete-template", method: http.MethodDelete, path: "/templates", summary: "remove a template; what stands on it goes on", scope: access.Write},
		func(ctx context.Context, in *ByName) (*nothing, error) {
			return did(s.engine.DeleteTemplate(ctx, caller(ctx), in.Name))
		})
	add(s, op{id: "export-template", method: http.MethodGet, path: "/templates/export", summary: "read a template as an OCI layout in a tar archive", scope: access.Read, answers: []string{"application/x-tar"}},
		func(ctx context.Context, in *ByName) (*huma.StreamResponse, error) {
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.send(c, "application/x-tar", func(ctx context.Context, d *download) error {
					return s.engine.ExportTemplate(ctx, caller(ctx), in.Name, d)
				})
			}}, nil
		})

	add(s, op{id: "list-images", method: http.MethodGet, path: "/images", summary: "list images", scope: access.Read},
		func(ctx context.Context, _ *nothing) (*answer[api.ImageList], error) {
			l, err := s.engine.Images(ctx, caller(ctx))
			return answered(api.ImageList{Images: orEmpty(l)}, err)
		})
	type pullIn struct{ Body api.PullRequest }
	add(s, op{id: "pull-image", method: http.MethodPost, path: "/images/pull", summary: "pull an image", scope: access.Write, answers: eventTypes, schema: api.Progress{}},
		func(ctx context.Context, in *pullIn) (*huma.StreamResponse, error) {
			return s.progress(func(ctx context.Context, send func(api.Progress)) (api.Progress, error) {
				img, err := s.engine.PullImage(ctx, caller(ctx), in.Body.Ref, send)
				return api.Progress{Step: "done", Image: &img}, err
			})
		})
	type imageIn struct {
		Ref string `query:"ref" required:"true" maxLength:"512" doc:"The image's reference"`
	}
	add(s, op{id: "delete-image", method: http.MethodDelete, path: "/images", summary: "remove an image that nothing stands on", scope: access.Write},
		func(ctx context.Context, in *imageIn) (*nothing, error) {
			return did(s.engine.DeleteImage(ctx, caller(ctx), in.Ref))
		})

	type volumeIn struct{ Body api.VolumeSpec }
	add(s, op{id: "create-volume", method: http.MethodPost, path: "/volumes", summary: "make named storage", scope: access.Write, status: http.StatusCreated},
		func(ctx context.Context, in *volumeIn) (*answer[api.Volume], error) {
			return answered(s.engine.CreateVolume(ctx, caller(ctx), in.Body.Name, in.Body.Limit))
		})
	add(s, op{id: "list-volumes", method: http.MethodGet, path: "/volumes", summary: "list volumes", scope: access.Read},
		func(ctx context.Context, _ *nothing) (*answer[api.VolumeList], error) {
			l, err := s.engine.Volumes(ctx, caller(ctx))
			return answered(api.VolumeList{Volumes: orEmpty(l)}, err)
		})
	type byVolume struct {
		Name string `path:"name" maxLength:"63"`
	}
	add(s, op{id: "delete-volume", method: http.MethodDelete, path: "/volumes/{name}", summary: "remove a volume that nobody uses", scope: access.Write},
		func(ctx context.Context, in *byVolume) (*nothing, error) {
			return did(s.engine.DeleteVolume(ctx, caller(ctx), in.Name))
		})
}

// progress answers with how far something is, and at last its result or error.
func (s *Server) progress(run func(ctx context.Context, send func(api.Progress)) (api.Progress, error)) (*huma.StreamResponse, error) {
	return &huma.StreamResponse{Body: func(c huma.Context) {
		s.stream(c, false, func(ctx context.Context, send func(string, any) error) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			last, err := run(ctx, func(p api.Progress) {
				if send("", p) != nil {
					cancel() // nobody is there for whom it would be done
				}
			})
			if err != nil {
				return err
			}
			return send("", last)
		}, func(e *bailey.Error) any { return api.Progress{Step: "failed", Error: e} })
	}}, nil
}
