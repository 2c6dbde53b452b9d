package rest

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// maxJSON bounds a request's JSON.
const maxJSON = 4 << 20

// Options configure a Server.
type Options struct {
	Engine   Engine
	Keys     Keys         // nil: no API keys can be made
	Webhooks Webhooks     // nil: none
	Domain   string       // of exposed ports, told by info
	Upload   int64        // the most that a body may have, in bytes; 0 is no bound
	Log      *slog.Logger // nil: none
	// Results is the most output that the answers of all requests have in memory at
	// once, in bytes; 0 is 512 MiB.
	Results int64
}

// Keys is what the operations on API keys need.
type Keys interface {
	Create(ctx context.Context, spec api.KeySpec) (api.Key, error)
	List(ctx context.Context) ([]api.Key, error)
	Delete(ctx context.Context, name string) error
}

// Webhooks is what the operations on webhooks need.
type Webhooks interface {
	Create(ctx context.Context, owner string, spec api.WebhookSpec) (api.Webhook, error)
	List(ctx context.Context) ([]api.Webhook, error)
	Delete(ctx context.Context, id string) error
}

// Server is the API. It is an http.Handler for requests that package access has
// let in.
type Server struct {
	opt     Options
	engine  Engine
	api     huma.API
	mux     *http.ServeMux
	log     *slog.Logger
	closing context.Context
	close   context.CancelFunc
	routes  []string // METHOD PATH of every operation
	results results
}

// New makes the API over an engine.
func New(opt Options) *Server {
	s := &Server{opt: opt, engine: opt.Engine, mux: http.NewServeMux(), log: opt.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.results.most = opt.Results; s.results.most == 0 {
		s.results.most = maxResults
	}
	s.closing, s.close = context.WithCancel(context.Background())
	c := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info: &huma.Info{Title: "Bailey", Version: "v1", Description: "Sandboxes for AI agents that stay: created, executed in, paused, forked. " +
				"Unknown fields and query parameters are errors; every failure is a Problem with a stable code."},
			Components: &huma.Components{
				Schemas:         huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer", Description: "An API key, bailey_…. On the unix socket none is needed."}},
			},
			Security: []map[string][]string{{"key": {}}},
		},
		Formats:                      map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat:                "application/json",
		RejectUnknownQueryParameters: true,
	}
	s.api = humago.New(s.mux, c)
	s.sandboxRoutes()
	s.execRoutes()
	s.outputRoutes()
	s.fileRoutes()
	s.snapshotRoutes()
	s.sessionRoutes()
	s.storeRoutes()
	s.adminRoutes()
	describe(s.api.OpenAPI())
	s.mux.HandleFunc("GET /openapi.json", s.serveDocument)
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		WriteProblem(w, s.noRoute(r))
	})
	return s
}

// Close ends all streams, so that their clients come back to the next daemon.
func (s *Server) Close() { s.close() }

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	defer rc.SetWriteDeadline(time.Time{}) // the connection serves other requests
	if r.Header.Get("Expect") == "" {
		s.mux.ServeHTTP(&bounded{w, rc}, r)
		return
	}
	body := &watched{ReadCloser: r.Body}
	in := r.WithContext(r.Context())
	in.Body = body // not in r, whose kind of body the server has to know
	s.mux.ServeHTTP(&bounded{w, rc}, in)
	if body.open.Load() {
		body.linger(rc)
	}
}

// Pattern says which operation a request is for: METHOD PATH with names in braces
// in the place of values, for metrics and traces. It is "" for none.
func (s *Server) Pattern(r *http.Request) string {
	_, p := s.mux.Handler(r)
	if p == "/" {
		return ""
	}
	return p
}

// noRoute is the error for a request that no operation is for.
func (s *Server) noRoute(r *http.Request) error {
	for _, m := range []string{"GET", "POST", "PUT", "DELETE"} {
		other := r.Clone(r.Context())
		other.Method = m
		if m != r.Method && s.Pattern(other) != "" {
			p := newProblem(bailey.Errorf(bailey.CodeUsage, r.Method+" "+r.URL.Path, "see /openapi.json for what can be said", "only other methods, such as %s, are for this path", m))
			p.Status, p.Title = http.StatusMethodNotAllowed, http.StatusText(http.StatusMethodNotAllowed)
			return p
		}
	}
	return bailey.Errorf(bailey.CodeNotFound, r.Method+" "+r.URL.Path, "see /openapi.json for what can be said", "there is nothing at this path")
}

// op describes an operation.
type op struct {
	id, method, path string
	summary          string
	scope            access.Scope
	status           int      // of success; 0: 200, or 204 without a body
	answers          []string // media types of an answer that is not JSON
	body             []string // media types of a request's body that is not JSON
	schema           any      // what a line or event of a stream is
}

// add registers an operation whose handler's errors are answered as Problems.
func add[I, O any](s *Server, o op, handle func(context.Context, *I) (*O, error)) {
	h := huma.Operation{
		OperationID: o.id, Method: o.method, Path: "/v1" + o.path, Summary: o.summary, DefaultStatus: o.status,
		Description: "Needs the scope " + string(o.scope) + ".",
		Tags:        []string{tag(o.path)},
		// A body is read as a whole, and a client that sends it slowly holds no more.
		MaxBodyBytes: maxJSON, BodyReadTimeout: stalled,
		Responses: map[string]*huma.Response{},
	}
	if len(o.answers) > 0 {
		content := map[string]*huma.MediaType{}
		for _, t := range o.answers {
			content[t] = &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
			if o.schema != nil {
				content[t].Schema = s.schema(o.schema)
			}
		}
		h.Responses["200"] = &huma.Response{Description: "OK", Content: content}
	}
	if len(o.body) > 0 {
		content := map[string]*huma.MediaType{}
		for _, t := range o.body {
			content[t] = &huma.MediaType{Schema: &huma.Schema{Type: "string", Format: "binary"}}
		}
		h.RequestBody = &huma.RequestBody{Required: true, Content: content}
	}
	h.Responses["default"] = &huma.Response{Description: "It failed", Content: map[string]*huma.MediaType{
		"application/problem+json": {Schema: s.schema(problem{})},
	}}
	h.Middlewares = huma.Middlewares{func(c huma.Context, next func(huma.Context)) {
		if err := access.From(c.Context()).Needs(o.scope, o.summary); err != nil {
			_, w := humago.Unwrap(c)
			WriteProblem(w, err)
			return
		}
		var taken int64
		defer func() { s.results.give(taken) }() // the answer is written
		next(huma.WithValue(c, takenKey{}, &taken))
	}}
	s.routes = append(s.routes, o.method+" "+h.Path)
	huma.Register(s.api, h, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err != nil {
			p := newProblem(err)
			if p.Status == http.StatusInternalServerError {
				s.log.Error("a request failed", "operation", o.id, "code", p.Code, "error", err)
			}
			return nil, p
		}
		return out, nil
	})
}

// Routes gives METHOD PATH of every operation, in order.
func (s *Server) Routes() []string {
	r := slices.Clone(s.routes)
	slices.Sort(r)
	return r
}

// answer is an answer with a body and nothing else.
type answer[T any] struct{ Body T }

func answered[T any](v T, err error) (*answer[T], error) {
	if err != nil {
		return nil, err
	}
	return &answer[T]{v}, nil
}

// nothing is an answer without a body.
type nothing struct{}

func did(err error) (*nothing, error) {
	if err != nil {
		return nil, err
	}
	return &nothing{}, nil
}
