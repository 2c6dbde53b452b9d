package e2b

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// Labels of the front's own; the others of a sandbox are its metadata.
const (
	ownLabel      = "e2b:"
	templateLabel = "e2b:template"  // as it was asked for
	pauseLabel    = "e2b:autopause" // memory or files
	resumeLabel   = "e2b:autoresume"
	networkLabel  = "e2b:network" // none: no access was asked for
)

// newSandbox is a request for a sandbox. What is not in it is ignored, as E2B does.
type newSandbox struct {
	Template        string            `json:"templateID"`
	Timeout         *int64            `json:"timeout"` // seconds
	Metadata        map[string]string `json:"metadata"`
	Env             map[string]string `json:"envVars"`
	Internet        *bool             `json:"allow_internet_access"`
	Network         *network          `json:"network"`
	AutoPause       bool              `json:"autoPause"`
	AutoPauseMemory *bool             `json:"autoPauseMemory"`
	AutoResume      *struct {
		Enabled bool `json:"enabled"`
	} `json:"autoResume"`
	MCP     json.RawMessage `json:"mcp"`
	IAM     json.RawMessage `json:"iam"`
	Volumes []any           `json:"volumeMounts"`
}

// network is what a sandbox is to reach and be reached by.
type network struct {
	AllowOut      []string        `json:"allowOut"`
	DenyOut       []string        `json:"denyOut"`
	Rules         json.RawMessage `json:"rules"`
	Proxy         json.RawMessage `json:"egressProxy"`
	PublicTraffic *bool           `json:"allowPublicTraffic"`
	MaskHost      string          `json:"maskRequestHost"`
	HTTPSPorts    []any           `json:"httpsPorts"`
	Internet      *bool           `json:"allow_internet_access"` // in an update
}

// said says whether a field was given something.
func said(m json.RawMessage) bool {
	switch strings.TrimSpace(string(m)) {
	case "", "null", "{}", "[]":
		return false
	}
	return true
}

// create makes the operation for a generation of the API, whose default timeout is
// given in seconds.
func (s *Server) create(timeout int64) handler {
	return func(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
		var in newSandbox
		if err := read(r, &in); err != nil {
			return 0, nil, err
		}
		spec, err := s.specOf(ctx, who, in, timeout)
		if err != nil {
			return 0, nil, err
		}
		// One that is sent again because its answer was lost gives the same sandbox.
		spec.IdempotencyKey = r.Header.Get("Idempotency-Key")
		b, err := s.engine.Create(ctx, who.Caller, spec)
		if err != nil {
			if bailey.CodeOf(err) == bailey.CodeNotFound {
				err = fail(http.StatusNotFound, fmt.Sprintf("the template %q was not found: %v", in.Template, err))
			}
			return 0, nil, err
		}
		return http.StatusCreated, s.handle(b), nil
	}
}

// specOf translates a request.
func (s *Server) specOf(ctx context.Context, who access.Identity, in newSandbox, timeout int64) (api.SandboxSpec, error) {
	spec := api.SandboxSpec{Env: in.Env, Labels: map[string]string{}}
	switch {
	case said(in.MCP):
		return spec, unsupported("E2B's MCP gateway", "start a server for MCP inside")
	case said(in.IAM):
		return spec, unsupported("identity tokens", "")
	case len(in.Volumes) > 0:
		return spec, unsupported("E2B's volumes", "make the sandbox with Bailey's API, which has volumes of its own")
	}
	for k, v := range in.Metadata {
		if strings.HasPrefix(k, ownLabel) {
			return spec, fail(http.StatusBadRequest, fmt.Sprintf("the metadata's key %q begins with %s, which Bailey has for itself", k, ownLabel))
		}
		spec.Labels[k] = v
	}
	if in.Timeout != nil {
		timeout = *in.Timeout
	}
	d, err := seconds(timeout)
	if err != nil {
		return spec, err
	}
	spec.Timeout.After, spec.OnTimeout = d, api.ActionKill
	resume := in.AutoResume != nil && in.AutoResume.Enabled
	switch files := in.AutoPauseMemory != nil && !*in.AutoPauseMemory; {
	case files && (!in.AutoPause || resume):
		return spec, fail(http.StatusBadRequest, "autoPauseMemory false needs autoPause, and excludes autoResume")
	case files:
		spec.OnTimeout, spec.Labels[pauseLabel] = api.ActionStop, "files"
	case in.AutoPause:
		spec.OnTimeout, spec.Labels[pauseLabel] = api.ActionPause, "memory"
	}
	if resume {
		spec.Labels[resumeLabel] = "true"
	}
	if err := s.origin(ctx, who, in.Template, &spec); err != nil {
		return spec, err
	}
	if spec.Snapshot == "" {
		spec.Isolation = s.opt.Level
	}
	n := network{}
	if in.Network != nil {
		n = *in.Network
	}
	if in.Internet != nil {
		n.Internet = in.Internet
	}
	if spec.Allow, err = s.reach(n); err != nil {
		return spec, err
	}
	if n.Internet != nil && !*n.Internet {
		spec.Labels[networkLabel] = "none"
	}
	return spec, nil
}

// maxSeconds is the longest timeout that is a length of time at all: ten years.
const maxSeconds = 10 * 366 * 24 * 3600

func seconds(n int64) (api.Duration, error) {
	if n <= 0 || n > maxSeconds {
		return 0, fail(http.StatusBadRequest, fmt.Sprintf("a timeout of %d seconds is out of range: use 1 to %d", n, maxSeconds))
	}
	return api.Duration(time.Duration(n) * time.Second), nil
}

// defaultTemplates are names of E2B's for a template with nothing special in it.
var defaultTemplates = []string{"", "base"}

// origin says what a sandbox starts from: a snapshot's id, or the name of a template.
func (s *Server) origin(ctx context.Context, who access.Identity, name string, spec *api.SandboxSpec) error {
	asked := name
	if asked == "" {
		asked = "base"
	}
	spec.Labels[templateLabel] = asked
	if to, ok := s.opt.Templates[asked]; ok {
		spec.Template = to
		return nil
	}
	if slices.Contains(defaultTemplates, name) {
		return nil
	}
	snap, err := s.engine.SnapshotOf(ctx, who.Caller, strings.TrimSuffix(name, ":default"))
	switch code := bailey.CodeOf(err); {
	case err == nil && !snap.Deleted:
		spec.Snapshot = snap.ID
	case err == nil, code == bailey.CodeNotFound, code == bailey.CodeUsage, code == bailey.CodeSnapshotGone:
		spec.Template = name
	default:
		return err
	}
	return nil
}

// everything is how E2B's clients write all addresses.
var everything = []string{"0.0.0.0/0", "::/0"}

// reach gives what a sandbox may reach: at most what the configuration lets it.
// Asking for more is an error, and no access at all is always granted.
func (s *Server) reach(n network) ([]string, error) {
	switch {
	case said(n.Rules):
		return nil, unsupported("header transforms by a sandbox's network rules", "secrets of Bailey's are injected by its policy")
	case said(n.Proxy):
		return nil, unsupported("an egress proxy of a sandbox's own", "")
	case n.MaskHost != "":
		return nil, unsupported("maskRequestHost", "")
	case len(n.HTTPSPorts) > 0:
		return nil, unsupported("httpsPorts", "")
	case n.PublicTraffic != nil && !*n.PublicTraffic:
		return nil, unsupported("traffic tokens", "expose ports with `bailey port`, which are private unless they are said to be public")
	}
	none := n.Internet != nil && !*n.Internet
	for _, d := range n.DenyOut {
		if !slices.Contains(everything, d) {
			return nil, unsupported(fmt.Sprintf("denying %q alone", d), "deny 0.0.0.0/0 and allow what is to be reached, or narrow the daemon's e2b.allow")
		}
		none = true
	}
	var allow []string
	for _, a := range n.AllowOut {
		if slices.Contains(everything, a) {
			return nil, fail(http.StatusForbidden, "allowing everything is more than this daemon lets sandboxes reach: "+s.floor())
		}
		if !covered(a, s.opt.Allow) {
			return nil, fail(http.StatusForbidden, fmt.Sprintf("allowing %q is more than this daemon lets sandboxes reach: %s", a, s.floor()))
		}
		allow = append(allow, a)
	}
	if none || len(allow) > 0 {
		return allow, nil
	}
	return slices.Clone(s.opt.Allow), nil
}

func (s *Server) floor() string {
	if len(s.opt.Allow) == 0 {
		return "its configuration's e2b.allow is empty, so that there is no network"
	}
	return "its configuration's e2b.allow is " + strings.Join(s.opt.Allow, ", ")
}

// covered says whether a name, or a pattern *.NAME, is in a list of such, as it is or
// below a pattern. An address has to be in the list itself.
func covered(name string, list []string) bool {
	name = strings.ToLower(name)
	if slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(l, name) }) {
		return true
	}
	if _, err := netip.ParseAddr(name); err == nil || strings.ContainsAny(name, "/:") {
		return false
	}
	return slices.ContainsFunc(list, func(l string) bool {
		suffix, ok := strings.CutPrefix(strings.ToLower(l), "*")
		return ok && strings.HasPrefix(suffix, ".") && strings.HasSuffix(name, suffix) && len(name) > len(suffix)
	})
}

// metadata gives the labels that are no labels of the front's.
func metadata(labels map[string]string) map[string]string {
	m := maps.Clone(labels)
	if m == nil {
		m = map[string]string{}
	}
	maps.DeleteFunc(m, func(k, _ string) bool { return strings.HasPrefix(k, ownLabel) })
	return m
}
