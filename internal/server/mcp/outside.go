package mcp

import (
	"context"
	"fmt"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey/api"
)

type exposeIn struct {
	on
	Port int     `json:"port" jsonschema:"that a program in the sandbox listens on"`
	For  float64 `json:"link_seconds,omitempty" jsonschema:"how long the link lets in whoever has it; default 3600"`
}

func (s *server) addOutside(m *sdk.Server) {
	add(m, tool("sandbox_info", "Look at the sandbox", "What the sandbox is: isolation level, state, limits, policy, how long it lives.", reads), s.info)
	add(m, tool("expose_port", "Expose a port", "Make a port of the sandbox reachable, and give a link that lets in whoever has it.", adds), s.expose)
	add(m, tool("list_ports", "List exposed ports", "The ports that are reachable from outside.", reads), s.ports)
}

func (s *server) info(ctx context.Context, _ *sdk.CallToolRequest, in on) (out boxOut, text string, err error) {
	box, err := s.box(ctx, in)
	if err != nil {
		return out, "", err
	}
	b, err := box.Info(ctx)
	if err != nil {
		return out, "", err
	}
	out = boxOf(b)
	text = fmt.Sprintf("%s: %s, level %s (%s), working folder %s", out.ID, out.State, out.Isolation, out.Reason, out.Workdir)
	if out.Egress == "" {
		text += ", no network"
	}
	return out, text, nil
}

func (s *server) expose(ctx context.Context, _ *sdk.CallToolRequest, in exposeIn) (out api.PortLink, text string, err error) {
	d, err := seconds("link_seconds", in.For, time.Hour, 30*24*time.Hour)
	if err != nil {
		return out, "", err
	}
	box, err := s.box(ctx, in.on)
	if err != nil {
		return out, "", err
	}
	if _, err = box.Expose(ctx, api.PortRequest{Port: in.Port}); err == nil {
		out, err = box.PortLink(ctx, in.Port, d)
	}
	return out, out.URL, err
}

// portsOut are ports.
type portsOut struct {
	Ports []api.Port `json:"ports"`
}

func (s *server) ports(ctx context.Context, _ *sdk.CallToolRequest, in on) (out portsOut, text string, err error) {
	box, err := s.box(ctx, in)
	if err != nil {
		return out, "", err
	}
	out.Ports, err = box.Ports(ctx)
	for _, p := range out.Ports {
		text += fmt.Sprintf("%d %s\n", p.Port, p.URL)
	}
	if len(out.Ports) == 0 {
		out.Ports, text = []api.Port{}, "[none]"
	}
	return out, text, err
}
