package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

type createIn struct {
	Name      string   `json:"name,omitempty" jsonschema:"a second way to refer to it"`
	Template  string   `json:"template,omitempty" jsonschema:"what it starts from; default: the host's tools"`
	Image     string   `json:"image,omitempty" jsonschema:"or an image's reference"`
	Snapshot  string   `json:"snapshot,omitempty" jsonschema:"or a snapshot"`
	Isolation string   `json:"isolation,omitempty" jsonschema:"auto, process, container, gvisor or microvm; default auto: the strongest that can do it"`
	Allow     []string `json:"allow,omitempty" jsonschema:"HOST[:PORT] that it may reach; default: nothing"`
	Profiles  []string `json:"profiles,omitempty" jsonschema:"profiles of a policy, as registry-readonly"`
	Timeout   float64  `json:"timeout_seconds,omitempty" jsonschema:"how long it lives; default 3600"`
}

type listBoxesOut struct {
	Sandboxes []boxOut `json:"sandboxes"`
}

// boxOut is what is told of a sandbox.
type boxOut struct {
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty"`
	State      string            `json:"state"`
	Generation int64             `json:"generation"`
	Isolation  string            `json:"isolation"`
	Reason     string            `json:"isolation_reason,omitempty"`
	Template   string            `json:"template,omitempty"`
	Image      string            `json:"image,omitempty"`
	Workdir    string            `json:"workdir,omitempty"`
	Workspace  string            `json:"workspace,omitempty"`
	Egress     string            `json:"egress,omitempty"` // "": no network
	Labels     map[string]string `json:"labels,omitempty"`
	Expires    *time.Time        `json:"expires,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
	Ended      string            `json:"ended,omitempty"`
}

func boxOf(s api.Sandbox) boxOut {
	b := boxOut{
		ID: s.ID, Name: s.Name, State: string(s.State), Generation: s.Generation, Isolation: s.Isolation.String(), Reason: s.IsolationReason, Template: s.Template, Image: s.Image,
		Workdir: s.Workdir, Workspace: s.Workspace, Egress: s.Egress, Labels: s.Labels, Expires: s.Expires, Notes: s.Notes,
	}
	if s.End != nil {
		b.Ended = s.End.String()
	}
	return b
}

type deleteIn struct {
	Sandbox string `json:"sandbox" jsonschema:"id or name"`
}

// addSandboxes adds what a server needs that has no sandbox of its own.
func (s *server) addSandboxes(m *sdk.Server) {
	add(m, tool("create_sandbox", "Make a sandbox", "Make a sandbox that stays until its time is over or it is deleted.", adds), s.create)
	add(m, tool("list_sandboxes", "List sandboxes", "The sandboxes that there are.", reads), s.list)
	add(m, tool("delete_sandbox", "Delete a sandbox", "End a sandbox and remove its files.", changes), s.remove)
}

func (s *server) create(ctx context.Context, _ *sdk.CallToolRequest, in createIn) (out boxOut, text string, err error) {
	spec := api.SandboxSpec{Name: in.Name, Template: in.Template, Image: in.Image, Snapshot: in.Snapshot, Allow: in.Allow, Profiles: in.Profiles}
	if in.Isolation != "" {
		if spec.Isolation, err = bailey.ParseIsolation(in.Isolation); err != nil {
			return out, "", err
		}
	}
	const longest = 365 * 24 * time.Hour
	lives, err := seconds("timeout_seconds", in.Timeout, 0, longest)
	if err != nil {
		return out, "", err
	}
	spec.Timeout.After = api.Duration(lives)
	b, err := s.Client.CreateInfo(ctx, spec)
	out = boxOf(b)
	return out, fmt.Sprintf("sandbox %s, level %s (%s)", out.ID, out.Isolation, out.Reason), err
}

func (s *server) list(ctx context.Context, _ *sdk.CallToolRequest, _ struct{}) (out listBoxesOut, text string, err error) {
	out.Sandboxes = []boxOut{}
	var b strings.Builder
	for box, err := range s.Client.AllSandboxes(ctx, api.SandboxQuery{}) {
		if err != nil {
			return out, "", err
		}
		out.Sandboxes = append(out.Sandboxes, boxOf(box))
		fmt.Fprintf(&b, "%s %s %s %s\n", box.ID, box.Name, box.State, box.Isolation)
		if len(out.Sandboxes) == listMost {
			break
		}
	}
	if b.Len() == 0 {
		b.WriteString("[none]")
	}
	return out, b.String(), nil
}

func (s *server) remove(ctx context.Context, _ *sdk.CallToolRequest, in deleteIn) (out done, text string, err error) {
	return done{Path: in.Sandbox}, in.Sandbox + " is deleted", s.Client.Sandbox(in.Sandbox).Delete(ctx)
}
