package mcp

import (
	"context"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
)

// Options say whose sandboxes the tools work on.
type Options struct {
	Client  *client.Client
	Version string // of Bailey
	// Sandbox gives the sandbox of calls that name none, made when the first of
	// them comes. nil: every call names one, and there are tools to make and end them.
	Sandbox func(context.Context) (*client.Sandbox, error)
	Schemas *sdk.SchemaCache // of many servers; nil: none
}

// server is the tools of one server.
type server struct{ Options }

const instructions = `Commands and files here are those of a sandbox, not of the user's machine. It has no network but what its policy allows; a refusal says why and how to ask.
Commands that may take long: start them, then read their output by offset. Output that was cut says from which offset to read on.
Make a checkpoint before what may break things: diff shows what changed since, undo takes it back.`

// New gives a server with all tools.
func New(opt Options) *sdk.Server {
	s := &server{opt}
	m := sdk.NewServer(&sdk.Implementation{Name: "bailey", Title: "Bailey sandbox", Version: opt.Version},
		&sdk.ServerOptions{Instructions: instructions, SchemaCache: opt.Schemas, Capabilities: &sdk.ServerCapabilities{}})
	s.addExec(m)
	s.addFiles(m)
	s.addStates(m)
	s.addOutside(m)
	if opt.Sandbox == nil {
		s.addSandboxes(m)
	}
	s.addResources(m)
	return m
}

// on is what every tool's input has: the sandbox that it is about.
type on struct {
	Sandbox string `json:"sandbox,omitempty" jsonschema:"id or name of the sandbox; left out: the one that this server has"`
}

// box gives the sandbox that a call is about.
func (s *server) box(ctx context.Context, o on) (*client.Sandbox, error) {
	if o.Sandbox != "" {
		return s.Client.Sandbox(o.Sandbox), nil
	}
	if s.Options.Sandbox == nil {
		return nil, bailey.Errorf(bailey.CodeUsage, "find the sandbox", "give sandbox, or make one with create_sandbox", "the call names none")
	}
	return s.Options.Sandbox(ctx)
}

// kind is what a tool does to the world, for those who ask before they call it.
type kind int

const (
	reads    kind = iota // changes nothing
	adds                 // changes, and destroys nothing
	changes              // may overwrite or remove
	executes             // may do anything that the sandbox may, also outside of it
)

// tool describes a tool.
func tool(name, title, description string, k kind) *sdk.Tool {
	yes, no := true, false
	a := &sdk.ToolAnnotations{Title: title, ReadOnlyHint: k == reads, DestructiveHint: &no, OpenWorldHint: &no}
	if k == changes || k == executes {
		a.DestructiveHint = &yes
	}
	if k == executes {
		a.OpenWorldHint = &yes
	}
	return &sdk.Tool{Name: name, Title: title, Description: description, Annotations: a}
}

// add adds a tool whose answer has a text for the model beside the structure.
func add[In, Out any](m *sdk.Server, t *sdk.Tool, f func(ctx context.Context, req *sdk.CallToolRequest, in In) (Out, string, error)) {
	sdk.AddTool(m, t, func(ctx context.Context, req *sdk.CallToolRequest, in In) (*sdk.CallToolResult, Out, error) {
		out, text, err := f(ctx, req, in)
		if err != nil {
			var none Out
			return nil, none, err
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, out, nil
	})
}
