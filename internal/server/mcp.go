package server

import (
	"context"
	"net/http"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/server/mcp"
)

// maxMCP bounds a message of MCP: a file that is written whole is in it.
const maxMCP = 16 << 20

// mcpHandler serves MCP over streamable HTTP. It keeps nothing between requests:
// each is its caller's, with the rights of its key, whatever came before.
// ?sandbox=ID says in which sandbox calls work that name none.
func (s *Server) mcpHandler() http.Handler {
	schemas := sdk.NewSchemaCache()
	return sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		c, err := client.New(client.Options{URL: "http://localhost", Patience: -1, Transport: within{s.api, access.From(r.Context()), s.opt.Log}})
		if err != nil {
			s.opt.Log.Error("serve MCP", "error", err)
			return nil
		}
		opt := mcp.Options{Client: c, Version: s.opt.Version, Schemas: schemas}
		if ref := r.URL.Query().Get("sandbox"); ref != "" {
			opt.Sandbox = func(context.Context) (*client.Sandbox, error) { return c.Sandbox(ref), nil }
		}
		return mcp.New(opt)
	}, &sdk.StreamableHTTPOptions{Stateless: true, MaxRequestBodyBytes: maxMCP, PropagateRequestCancellation: true, Logger: s.opt.Log,
		// Host and Origin are checked for all of the daemon: see access.Guard.
		DisableLocalhostProtection: true})
}
