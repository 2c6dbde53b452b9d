package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Templates lists templates.
func (c *Client) Templates(ctx context.Context) ([]api.Template, error) {
	l, err := get[api.TemplateList](ctx, c, "/v1/templates", nil)
	return l.Templates, err
}

// BuildTemplate builds a template of a context, a tar; each, which may be nil, is
// told what goes on.
func (c *Client) BuildTemplate(ctx context.Context, spec api.BuildSpec, tar io.Reader, each func(api.Progress)) (api.Template, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return api.Template{}, bailey.Errorf(bailey.CodeUsage, "write the request", "", "%w", err)
	}
	last, err := c.progress(ctx, call{method: http.MethodPost, path: "/v1/templates", query: url.Values{"spec": {string(text)}}, body: tar, size: -1}, each)
	if err != nil || last.Built == nil {
		return api.Template{}, unfinished(err)
	}
	return *last.Built, nil
}

// DeleteTemplate removes a template; what stands on it goes on.
func (c *Client) DeleteTemplate(ctx context.Context, name string) error {
	return c.remove(ctx, "/v1/templates", url.Values{"name": {name}})
}

// ExportTemplate gives a template as an OCI layout in a tar. The reader must be
// closed; one that ends without an error has given all.
func (c *Client) ExportTemplate(ctx context.Context, name string) (io.ReadCloser, error) {
	resp, err := c.do(ctx, call{method: http.MethodGet, path: "/v1/templates/export", query: url.Values{"name": {name}}, again: true})
	if err != nil {
		return nil, err
	}
	return checked(resp), nil
}

// PullImage pulls an image; each, which may be nil, is told how far it is.
func (c *Client) PullImage(ctx context.Context, ref string, each func(api.Progress)) (api.Image, error) {
	last, err := c.progress(ctx, call{method: http.MethodPost, path: "/v1/images/pull", in: api.PullRequest{Ref: ref}, again: true}, each)
	if err != nil || last.Image == nil {
		return api.Image{}, unfinished(err)
	}
	return *last.Image, nil
}

// progress reads a stream of progress and gives its last event.
func (c *Client) progress(ctx context.Context, r call, each func(api.Progress)) (last api.Progress, err error) {
	err = c.lines(ctx, r, func(b []byte) error {
		p, err := decode[api.Progress](b)
		if err == nil && p.Error != nil {
			err = p.Error
		}
		if err != nil {
			return err
		}
		if last = p; each != nil {
			each(p)
		}
		return nil
	})
	if ctx.Err() != nil {
		return last, context.Cause(ctx)
	}
	if err == errBroken {
		err = c.unavailable(err)
	}
	return last, err
}

// unfinished is the error of a stream of progress that did not tell its result.
func unfinished(err error) error {
	if err == nil {
		err = bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "ask again", "it ended without a result")
	}
	return err
}

// Images lists images.
func (c *Client) Images(ctx context.Context) ([]api.Image, error) {
	l, err := get[api.ImageList](ctx, c, "/v1/images", nil)
	return l.Images, err
}

// DeleteImage removes an image that nothing stands on.
func (c *Client) DeleteImage(ctx context.Context, ref string) error {
	return c.remove(ctx, "/v1/images", url.Values{"ref": {ref}})
}

// CreateVolume makes named storage; limit in bytes, 0 is none.
func (c *Client) CreateVolume(ctx context.Context, name string, limit int64) (api.Volume, error) {
	return once[api.Volume](ctx, c, "/v1/volumes", api.VolumeSpec{Name: name, Limit: limit})
}

// Volumes lists volumes.
func (c *Client) Volumes(ctx context.Context) ([]api.Volume, error) {
	l, err := get[api.VolumeList](ctx, c, "/v1/volumes", nil)
	return l.Volumes, err
}

// DeleteVolume removes a volume that nobody uses.
func (c *Client) DeleteVolume(ctx context.Context, name string) error {
	return c.remove(ctx, pathf("/volumes/%s", name), nil)
}
