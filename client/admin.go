package client

import (
	"context"
	"io"
	"net/http"

	"github.com/bailey-sandbox/bailey/api"
)

// Info says what the daemon is and can do.
func (c *Client) Info(ctx context.Context) (api.Info, error) {
	return get[api.Info](ctx, c, "/v1/info", nil)
}

// GC says what on the daemon's host belongs to nobody, and unless dry removes it.
func (c *Client) GC(ctx context.Context, dry bool) ([]api.Orphan, error) {
	l, err := post[api.OrphanList](ctx, c, "/v1/gc", api.GCRequest{Dry: dry})
	return l.Orphans, err
}

// CreateKey makes an API key. Its Token is in the answer only: it is not kept.
func (c *Client) CreateKey(ctx context.Context, spec api.KeySpec) (api.Key, error) {
	return once[api.Key](ctx, c, "/v1/keys", spec)
}

// Keys lists API keys.
func (c *Client) Keys(ctx context.Context) ([]api.Key, error) {
	l, err := get[api.KeyList](ctx, c, "/v1/keys", nil)
	return l.Keys, err
}

// DeleteKey makes an API key worthless at once.
func (c *Client) DeleteKey(ctx context.Context, name string) error {
	return c.remove(ctx, pathf("/keys/%s", name), nil)
}

// CreateWebhook has a URL told of events. Its Secret is in the answer only.
func (c *Client) CreateWebhook(ctx context.Context, spec api.WebhookSpec) (api.Webhook, error) {
	return once[api.Webhook](ctx, c, "/v1/webhooks", spec)
}

// Webhooks lists webhooks.
func (c *Client) Webhooks(ctx context.Context) ([]api.Webhook, error) {
	l, err := get[api.WebhookList](ctx, c, "/v1/webhooks", nil)
	return l.Webhooks, err
}

// DeleteWebhook ends a webhook.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	return c.remove(ctx, pathf("/webhooks/%s", id), nil)
}

// Metrics gives the daemon's metrics as Prometheus reads them. The reader must be
// closed.
func (c *Client) Metrics(ctx context.Context) (io.ReadCloser, error) {
	resp, err := c.do(ctx, call{method: http.MethodGet, path: "/metrics", again: true})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
