package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// maxProblem bounds what is read of an answer that tells of a failure.
const maxProblem = 1 << 20

// call is one request.
type call struct {
	method, path string
	query        url.Values
	header       http.Header
	in           any       // sent as JSON, unless nil
	body         io.Reader // or this, as it is
	size         int64     // of body, -1 unknown
	again        bool      // may be sent again when nobody knows whether it arrived
}

// do sends a request and gives the answer, whose body the caller closes. An
// answer that is no success is an error.
func (c *Client) do(ctx context.Context, r call) (*http.Response, error) {
	var text []byte
	if r.in != nil {
		var err error
		if text, err = json.Marshal(r.in); err != nil {
			return nil, bailey.Errorf(bailey.CodeUsage, "write the request", "", "%w", err)
		}
		if !r.again {
			r.body, r.size = bytes.NewReader(text), int64(len(text))
		}
	}
	address := c.base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	var sent *untouched
	if r.body != nil {
		sent = &untouched{r: r.body}
		r.body = sent
	}
	wait := newPatience(c.patience)
	for {
		body, size := r.body, r.size
		if body == nil && text != nil {
			body, size = bytes.NewReader(text), int64(len(text))
		}
		req, err := http.NewRequestWithContext(ctx, r.method, address, body)
		if err != nil {
			return nil, bailey.Errorf(bailey.CodeUsage, "write the request", "", "%w", err)
		}
		if body != nil {
			req.ContentLength = size
		}
		c.sign(req.Header)
		for k, v := range r.header {
			req.Header[k] = v
		}
		if text != nil {
			req.Header.Set("Content-Type", "application/json")
		}
		if sent != nil {
			// A connection may have died unnoticed. Nothing happens before the daemon
			// has asked for the body, so until then the request can be sent again.
			req.Header.Set("Expect", "100-continue")
		}
		began := time.Now()
		resp, err := c.http.Do(req)
		if err == nil {
			if resp.StatusCode < 300 || resp.StatusCode == http.StatusSwitchingProtocols {
				return resp, nil
			}
			err := problem(resp)
			// The daemon says that it is about to go, or is not there yet.
			if resp.StatusCode == http.StatusServiceUnavailable && bailey.CodeOf(err) == bailey.CodeDaemonUnavailable && !sent.touched() && wait.more(ctx) {
				continue
			}
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if neverSent(err) {
			wait.left -= time.Since(began)
		}
		retry := !sent.touched() && (r.again || sent != nil || neverSent(err)) && !errors.Is(err, fs.ErrNotExist)
		if !retry || !wait.more(ctx) {
			return nil, c.unavailable(err)
		}
	}
}

// untouched is a body that knows whether anybody has read of it: it can be sent
// once only.
type untouched struct {
	r    io.Reader
	read atomic.Bool
}

func (u *untouched) Read(p []byte) (int, error) {
	u.read.Store(true)
	return u.r.Read(p)
}

func (u *untouched) touched() bool { return u != nil && u.read.Load() }

// sign adds what every request has.
func (c *Client) sign(h http.Header) {
	if c.key != "" {
		h.Set("Authorization", "Bearer "+c.key)
	}
	h.Set("User-Agent", "bailey-client")
}

// json sends a request and reads the answer into out, unless that is nil.
func (c *Client) json(ctx context.Context, r call, out any) error {
	wait := newPatience(c.patience)
	for {
		resp, err := c.do(ctx, r)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err == nil && out != nil:
			if err := json.Unmarshal(text, out); err != nil {
				return bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "", "%w", err)
			}
			return nil
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !r.again || !wait.more(ctx):
			return bailey.Errorf(bailey.CodeDaemonUnavailable, "read the daemon's answer", "", "%w", err)
		}
	}
}

// ask sends a request and gives the answer.
func ask[T any](ctx context.Context, c *Client, r call) (T, error) {
	var out T
	err := c.json(ctx, r, &out)
	return out, err
}

func get[T any](ctx context.Context, c *Client, path string, q url.Values) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodGet, path: path, query: q, again: true})
}

// post is for acts that may be asked for again: their result is a state, or what
// they make has an id of the caller's.
func post[T any](ctx context.Context, c *Client, path string, in any) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodPost, path: path, in: in, again: true})
}

// once is for acts that each time make something anew.
func once[T any](ctx context.Context, c *Client, path string, in any) (T, error) {
	return ask[T](ctx, c, call{method: http.MethodPost, path: path, in: in})
}

func (c *Client) remove(ctx context.Context, path string, q url.Values) error {
	return c.json(ctx, call{method: http.MethodDelete, path: path, query: q, again: true}, nil)
}

// problem reads an answer that is no success.
func problem(resp *http.Response) error {
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxProblem)) // what is there is looked at
	if t, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); t == "application/problem+json" {
		var p api.Problem
		if json.Unmarshal(b, &p) == nil && p.Code != "" {
			return p.Err()
		}
	}
	return bailey.Errorf(bailey.CodeProtocol, "understand the daemon's answer", "see that the address is a Bailey daemon's",
		"it answered %s, and not as Bailey does", resp.Status)
}

func (c *Client) unavailable(err error) error {
	fix := "see that the address is right and the daemon runs there"
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		fix = "start it with: bailey serve"
	}
	return bailey.Errorf(bailey.CodeDaemonUnavailable, "reach the daemon at "+c.where, fix, "%w", err)
}

// neverSent tells that a request has not left this process.
func neverSent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// patience is what is left of the time in which a daemon that is away is waited
// for. While it works on a request it is not away, however long that takes.
type patience struct {
	left, next time.Duration
}

func newPatience(d time.Duration) *patience { return &patience{left: d, next: 10 * time.Millisecond} }

// more waits a while that grows; false is that no time is left.
func (p *patience) more(ctx context.Context) bool {
	if p.left <= 0 {
		return false
	}
	t := time.NewTimer(p.next)
	defer t.Stop()
	p.left -= p.next
	p.next = min(2*p.next, time.Second)
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// pathf builds a path whose arguments are escaped as one segment each.
func pathf(format string, args ...string) string {
	escaped := make([]any, len(args))
	for i, a := range args {
		escaped[i] = url.PathEscape(a)
	}
	return "/v1" + fmt.Sprintf(format, escaped...)
}
