package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

// call is a request to what is inside a sandbox, let in.
type call struct {
	s   *Server
	box api.Sandbox
	who engine.Caller // its owner
	w   http.ResponseWriter
	r   *http.Request
}

// gone is the answer about a sandbox that no request can reach; clients take 502 for
// the sandbox's end.
func gone(id, why string) *failure {
	f := fail(http.StatusBadGateway, "The sandbox was not found: "+why)
	f.Sandbox = id
	return f
}

// inside answers a request to a port of a sandbox.
func (s *Server) inside(w http.ResponseWriter, r *http.Request, to place) {
	if to.port == envdPort && opened(w, r) {
		return
	}
	b, err := s.engine.Sandbox(r.Context(), nobody, to.sandbox)
	switch {
	case bailey.CodeOf(err) == bailey.CodeNotFound, err == nil && b.ID != to.sandbox:
		gone(to.sandbox, "there is none of this id").write(w)
		return
	case err != nil:
		failed(err).write(w)
		return
	}
	c := &call{s: s, box: b, who: engine.Caller{Name: b.Owner}, w: w, r: r}
	if to.port != envdPort {
		c.port(to.port)
		return
	}
	s.envd(c)
}

// opened lets pages of any origin ask, and answers whether they may. A token is
// needed, which no browser sends by itself.
func opened(w http.ResponseWriter, r *http.Request) bool {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Access-Control-Allow-Headers", "*")
	h.Set("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
	h.Set("Access-Control-Expose-Headers", "*")
	if r.Method == http.MethodOptions {
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	return false
}

// signed answers a request for a file whose signature is all that says of which sandbox.
func (s *Server) signed(w http.ResponseWriter, r *http.Request) {
	op := "read"
	if r.Method == http.MethodPost {
		op = "write"
	}
	id, ok := s.signer(r.Context(), op, r.URL.Query().Get)
	if !ok {
		unauthorized().write(w)
		return
	}
	s.inside(w, r, place{id, envdPort})
}

func unauthorized() *failure {
	return fail(http.StatusUnauthorized, "unauthorized access, please provide a valid access token or method signing if supported: the token or signature is missing, wrong or has expired")
}

// asleep says why a sandbox cannot be reached; nil: it can, though it may have to wake.
func (c *call) asleep() *failure {
	switch b := c.box; {
	case stateOf(b) == "running", stateOf(b) == "paused" && b.Labels[resumeLabel] != "":
		return nil
	case stateOf(b) == "paused":
		return gone(b.ID, "it is paused: connect to it first, or create it with autoResume")
	case b.State == api.StateEnded, b.State == api.StateLost, b.State == api.StateDeleting:
		return gone(b.ID, "it "+endOf(b))
	default:
		return gone(b.ID, "it is "+string(b.State))
	}
}

// envd answers what envd would.
func (s *Server) envd(c *call) {
	path := c.r.URL.Path
	f := c.asleep()
	if path == "/health" {
		if f == nil && stateOf(c.box) == "paused" {
			f = gone(c.box.ID, "it is paused") // looking is not waking
		}
		if f != nil {
			f.write(c.w)
			return
		}
		c.w.WriteHeader(http.StatusNoContent)
		return
	}
	token := same(c.r.Header.Get("X-Access-Token"), s.token(c.box.ID))
	if path == "/files" {
		if !token && !c.signedFile() {
			unauthorized().write(c.w)
			return
		}
	} else if !token {
		unauthorized().write(c.w)
		return
	}
	if f != nil {
		f.write(c.w)
		return
	}
	service, method, rpc := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case path == "/files" && (c.r.Method == http.MethodGet || c.r.Method == http.MethodHead):
		c.download()
	case path == "/files" && c.r.Method == http.MethodPost:
		c.upload()
	case path == "/metrics" && c.r.Method == http.MethodGet:
		c.envdMetrics()
	case path == "/envs" && c.r.Method == http.MethodGet:
		c.envs()
	case rpc && c.r.Method == http.MethodPost && service == "process.Process":
		c.process(method)
	case rpc && c.r.Method == http.MethodPost && service == "filesystem.Filesystem":
		c.filesystem(method)
	default:
		fail(http.StatusNotFound, "there is nothing at "+c.r.Method+" "+path).write(c.w)
	}
}

func (c *call) ctx() context.Context { return c.r.Context() }

// envs are the sandbox's variables.
func (c *call) envs() {
	env := map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": c.box.ID, "E2B_TEMPLATE_ID": templateOf(c.box)}
	for k, v := range c.box.Env {
		env[k] = v
	}
	writeJSON(c.w, http.StatusOK, env)
}

func (c *call) envdMetrics() {
	m, err := c.s.metric(c.ctx(), c.who, c.box)
	if err != nil {
		failed(err).write(c.w)
		return
	}
	writeJSON(c.w, http.StatusOK, map[string]any{"ts": m.Unix, "cpu_count": m.CPUs, "cpu_used_pct": m.CPU, "mem_total": m.MemoryAll, "mem_used": m.Memory, "mem_cache": m.Cache,
		"mem_total_mib": m.MemoryAll >> 20, "mem_used_mib": m.Memory >> 20, "disk_used": m.Disk, "disk_total": m.DiskAll})
}

// unary reads a request of an RPC that has one answer, and gives that.
func unary[T any](c *call, do func(in T) (any, error)) {
	if t := c.r.Header.Get("Content-Type"); !isJSON(t, "application/json") {
		c.refuse(connectErrorf("unknown", "Bailey speaks the Connect protocol in JSON, not %q", t), http.StatusUnsupportedMediaType)
		return
	}
	text, err := io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxMessage))
	if err != nil {
		c.refuse(connectErrorf("resource_exhausted", "the request cannot be read: %v", err), 0)
		return
	}
	var in T
	if len(bytes.TrimSpace(text)) > 0 {
		if err := json.Unmarshal(text, &in); err != nil {
			c.refuse(connectErrorf("invalid_argument", "the request is not what it should be: %v", err), 0)
			return
		}
	}
	out, err := do(in)
	if err != nil {
		c.refuse(connectErrorOf(err), 0)
		return
	}
	if out == nil {
		out = struct{}{}
	}
	writeJSON(c.w, http.StatusOK, out)
}

// refuse answers with an error of an RPC; status 0 is the code's own.
func (c *call) refuse(e *connectError, status int) {
	if status == 0 {
		status = e.status()
	}
	writeJSON(c.w, status, e)
}
