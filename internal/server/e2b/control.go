package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// maxJSON bounds a request's JSON, in bytes.
const maxJSON = 4 << 20

// handler answers one operation of the control API. A nil answer has no body.
type handler func(ctx context.Context, who access.Identity, r *http.Request, w http.ResponseWriter) (status int, answer any, err error)

func (s *Server) controlRoutes() *http.ServeMux {
	m := http.NewServeMux()
	add := func(pattern string, scope access.Scope, what string, h handler) {
		m.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, scope, what, h) })
	}
	m.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok\n") })
	add("POST /sandboxes", access.Write, "create a sandbox", s.create(15))
	add("POST /v2/sandboxes", access.Write, "create a sandbox", s.create(300))
	add("GET /sandboxes", access.Read, "list the sandboxes", s.listRunning)
	add("GET /v2/sandboxes", access.Read, "list the sandboxes", s.list)
	add("GET /sandboxes/{id}", access.Read, "look at a sandbox", s.get)
	add("DELETE /sandboxes/{id}", access.Write, "end a sandbox", s.kill)
	add("POST /sandboxes/{id}/connect", access.Write, "connect to a sandbox", s.connect)
	add("POST /v2/sandboxes/{id}/connect", access.Write, "connect to a sandbox", s.connect)
	add("POST /sandboxes/{id}/resume", access.Write, "resume a sandbox", s.resume)
	add("POST /sandboxes/{id}/timeout", access.Write, "set a sandbox's timeout", s.timeout)
	add("POST /sandboxes/{id}/refreshes", access.Write, "extend a sandbox's timeout", s.refresh)
	add("POST /sandboxes/{id}/pause", access.Write, "pause a sandbox", s.pause)
	add("POST /sandboxes/{id}/fork", access.Write, "fork a sandbox", s.fork)
	add("POST /sandboxes/{id}/snapshots", access.Write, "take a snapshot", s.snapshot)
	add("GET /snapshots", access.Read, "list the snapshots", s.snapshots)
	add("DELETE /templates/{id}", access.Write, "delete a snapshot", s.deleteSnapshot)
	add("PUT /sandboxes/{id}/network", access.Write, "change a sandbox's network", s.network)
	add("GET /sandboxes/{id}/metrics", access.Read, "read a sandbox's metrics", s.metrics)
	add("GET /sandboxes/{id}/logs", access.Read, "read a sandbox's logs", s.logs)
	add("GET /v2/sandboxes/{id}/logs", access.Read, "read a sandbox's logs", s.logs)
	for path, what := range map[string][2]string{
		"/templates": {"E2B's templates", "build one with `bailey template build`, and name it"}, "/v2/templates": {"E2B's templates", "build one with `bailey template build`, and name it"},
		"/v3/templates": {"building templates by E2B's API", "build one with `bailey template build`, and name it"},
		"/volumes":      {"E2B's volumes", "Bailey's own are made with `bailey volume create`"}, "/volumecontent": {"E2B's volumes", ""},
		"/secrets": {"E2B's secrets", "Bailey's own are set with `bailey secret set`"}, "/teams": {"teams", "a key is all that there is"},
	} {
		h := func(context.Context, access.Identity, *http.Request, http.ResponseWriter) (int, any, error) {
			return 0, nil, unsupported(what[0], what[1])
		}
		add(path, access.Read, "do that", h)
		add(path+"/", access.Read, "do that", h)
	}
	add("/", access.Read, "do that", func(_ context.Context, _ access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
		return 0, nil, fail(http.StatusNotFound, "there is nothing at "+r.Method+" "+r.URL.Path)
	})
	return m
}

// answer lets a request in and answers it.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, scope access.Scope, what string, h handler) {
	who, f := s.who(r)
	if f == nil {
		if err := who.Needs(scope, what); err != nil {
			f = failed(err)
		}
	}
	if f != nil {
		f.write(w)
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxJSON)
	status, answer, err := h(r.Context(), who, r, w)
	switch {
	case err != nil:
		f := failed(err)
		if f.Code >= http.StatusInternalServerError {
			s.log.Error("a request failed", "front", "e2b", "operation", what, "error", err)
		}
		f.write(w)
	case answer == nil:
		w.WriteHeader(status)
	default:
		writeJSON(w, status, answer)
	}
}

// who gives whose key a request has.
func (s *Server) who(r *http.Request) (access.Identity, *failure) {
	key := r.Header.Get("X-API-KEY")
	if key == "" {
		if scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " "); strings.EqualFold(scheme, "Bearer") {
			key = strings.TrimSpace(token)
		}
	}
	if key == "" {
		return access.Identity{}, fail(http.StatusUnauthorized, "there is no API key: send one as X-API-KEY")
	}
	id, perSecond, wait, err := s.opt.Keys.Admit(r.Context(), ownKey(key))
	if err != nil {
		f := failed(err)
		if bailey.CodeOf(err) == bailey.CodeUnauthorized {
			f = fail(http.StatusUnauthorized, "the API key is not known, or has expired")
		}
		if wait > 0 {
			f.after, f.Limit = int(math.Ceil(wait.Seconds())), int64(perSecond)
		}
		return id, f
	}
	id.Local = false
	return id, nil
}

// read reads a request's JSON; nothing at all leaves into as it is.
func read(r *http.Request, into any) error {
	text, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &failure{Code: http.StatusRequestEntityTooLarge, Message: "the request is too large", Limit: large.Limit, How: "send less at once"}
	}
	if err != nil {
		return fail(http.StatusBadRequest, "the request cannot be read: "+err.Error())
	}
	if len(strings.TrimSpace(string(text))) == 0 {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fail(http.StatusBadRequest, "the request is not what it should be: "+err.Error())
	}
	return nil
}
