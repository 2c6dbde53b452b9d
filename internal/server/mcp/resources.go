package mcp

import (
	"bytes"
	"context"
	"mime"
	"net/url"
	"path"
	"strings"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/bailey-sandbox/bailey"
)

// resourceMost bounds a resource, which has no offsets, in bytes.
const resourceMost = 4 << 20

// scheme of the addresses of files: bailey://SANDBOX/PATH; without SANDBOX it is the
// server's own.
const scheme = "bailey"

func (s *server) addResources(m *sdk.Server) {
	m.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "file", Title: "A file of a sandbox", Description: "bailey:///PATH is a file of this server's sandbox, bailey://SANDBOX/PATH one of another",
		URITemplate: scheme + "://{sandbox}/{+path}",
	}, s.resource)
	m.AddResourceTemplate(&sdk.ResourceTemplate{
		Name: "own-file", Title: "A file of the sandbox", URITemplate: scheme + ":///{+path}",
	}, s.resource)
}

func (s *server) resource(ctx context.Context, req *sdk.ReadResourceRequest) (*sdk.ReadResourceResult, error) {
	u, err := url.Parse(req.Params.URI)
	if err != nil || u.Scheme != scheme || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	}
	f, err := s.files(ctx, on{Sandbox: u.Host})
	if err != nil {
		return nil, err
	}
	b, info, err := part(ctx, f, u.Path, 0, resourceMost)
	switch {
	case bailey.CodeOf(err) == bailey.CodeNotFound:
		return nil, sdk.ResourceNotFoundError(req.Params.URI)
	case err != nil:
		return nil, err
	case info.Size > resourceMost:
		return nil, bailey.Errorf(bailey.CodeTooLarge, "read "+u.Path, "read it in parts with read_file", "it has %d bytes, more than %d", info.Size, resourceMost)
	}
	c := &sdk.ResourceContents{URI: req.Params.URI, MIMEType: mime.TypeByExtension(path.Ext(u.Path))}
	if utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 {
		c.Text = string(b)
		if c.MIMEType == "" || !strings.HasPrefix(c.MIMEType, "text/") && !strings.Contains(c.MIMEType, "json") && !strings.Contains(c.MIMEType, "xml") {
			c.MIMEType = "text/plain; charset=utf-8"
		}
	} else {
		c.Blob = b
		if c.MIMEType == "" {
			c.MIMEType = "application/octet-stream"
		}
	}
	return &sdk.ReadResourceResult{Contents: []*sdk.ResourceContents{c}}, nil
}
