package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/bailey-sandbox/bailey"
)

// Client fetches from registries. Its methods may be called by any number of
// goroutines at once.
type Client struct {
	config Config
	guard  *guard
	keys   authn.Keychain
	// Pause is how long is waited before the first repetition of a request that
	// failed, 300 ms if nobody says otherwise; it doubles.
	Pause time.Duration
	stall time.Duration // how long nothing may come
}

// New makes a client. Close must be called.
func New(c Config) *Client {
	return &Client{config: c, guard: newGuard(c), keys: authn.DefaultKeychain, Pause: 300 * time.Millisecond, stall: time.Minute}
}

// Close ends idle connections.
func (c *Client) Close() { c.guard.close() }

// Parse reads a reference as Config.Parse does.
func (c *Client) Parse(ref string) (Ref, error) { return c.config.Parse(ref) }

// attempts is how often a request is made that fails without any progress.
const attempts = 4

// Repository is where one image is fetched from: its registry and the mirrors of
// that.
type Repository struct {
	client *Client
	ref    Ref
	places []*place // in the order in which they are asked
}

// place is one host that has the repository.
type place struct {
	repo name.Repository
	mu   sync.Mutex
	http *http.Client // nil until permission has been asked for
}

// Repository names the places of an image.
func (c *Client) Repository(ref Ref) (*Repository, error) {
	r := &Repository{client: c, ref: ref}
	for _, host := range append(append([]string(nil), c.config.Mirrors[ref.Host]...), ref.Host) {
		var opts []name.Option
		if c.config.insecure(host) {
			opts = append(opts, name.Insecure)
		}
		repo, err := name.NewRepository(host+"/"+ref.Repository, opts...)
		if err != nil {
			return nil, bailey.Errorf(bailey.CodeUsage, "understand the image's name", "", "%w", err)
		}
		r.places = append(r.places, &place{repo: repo})
	}
	return r, nil
}

// open asks for permission, once.
func (p *place) open(ctx context.Context, c *Client) (*http.Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.http != nil {
		return p.http, nil
	}
	key, err := c.keys.Resolve(p.repo)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeUnauthorized, "log in to the registry", "look at Docker's config.json and the helpers that it names", "%w", err)
	}
	t, err := transport.NewWithContext(ctx, p.repo.Registry, key, c.guard, []string{p.repo.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	p.http = &http.Client{Transport: t, CheckRedirect: redirects}
	return p.http, nil
}

// get makes one request of a place. from is the first byte that is wanted.
func (r *Repository) get(ctx context.Context, p *place, kind, name string, from int64) (*http.Response, error) {
	client, err := p.open(ctx, r.client)
	if err != nil {
		return nil, r.failed(p, err)
	}
	// transport puts the scheme that the registry was found to speak in its place.
	url := fmt.Sprintf("%s://%s/v2/%s/%s/%s", p.repo.Scheme(), p.repo.RegistryStr(), p.repo.RepositoryStr(), kind, name)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, r.failed(p, err)
	}
	if kind == "manifests" {
		for _, t := range []types.MediaType{types.OCIImageIndex, types.OCIManifestSchema1, types.DockerManifestList, types.DockerManifestSchema2} {
			req.Header.Add("Accept", string(t))
		}
	}
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, r.failed(p, err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusRequestedRangeNotSatisfiable && from > 0 {
		return resp, nil
	}
	err = r.failed(p, transport.CheckError(resp, http.StatusOK))
	resp.Body.Close()
	return nil, err
}

// failed makes an error of what a place answered.
func (r *Repository) failed(p *place, err error) error {
	if own, ok := asRefused(err); ok {
		return own
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	host := p.repo.RegistryStr()
	var status *transport.Error
	if errors.As(err, &status) {
		said := clean(status.Error())
		switch status.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return bailey.Errorf(bailey.CodeUnauthorized, "fetch the image", "see that the name is right, and log in: the credentials of Docker's config.json are used",
				"%s does not let us have it: %s", clean(host), said)
		case http.StatusNotFound:
			return bailey.Errorf(bailey.CodeNotFound, "fetch the image", "see that its name is right", "%s does not have it: %s", clean(host), said)
		case http.StatusTooManyRequests:
			return bailey.Errorf(bailey.CodeRateLimited, "fetch the image", "wait a while, log in, or set a mirror", "%s has been asked too often: %s", clean(host), said)
		}
	}
	var own *bailey.Error
	if errors.As(err, &own) {
		return err
	}
	return unavailable(host, err)
}

// again says whether a request may succeed when it is made once more.
func again(err error) bool { return bailey.CodeOf(err) == bailey.CodeRegistry }

// wait waits before attempt n, from 1.
func (c *Client) wait(ctx context.Context, n int) error {
	t := time.NewTimer(c.Pause << (n - 1))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// MaxManifest is the most that a manifest may have, in bytes: what the
// distribution specification asks registries to accept.
const MaxManifest = 4 << 20

// Manifest fetches a manifest or index, by a digest or else by the reference's
// own tag or digest. With a digest the content is what it says.
func (r *Repository) Manifest(ctx context.Context, digest string) (raw []byte, hash string, mediaType types.MediaType, err error) {
	name := digest
	if name == "" {
		if name = r.ref.Digest; name == "" {
			name = r.ref.Tag
		} else {
			digest = name
		}
	}
	err = r.each(ctx, func(p *place) error {
		resp, err := r.get(ctx, p, "manifests", name, 0)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if raw, err = io.ReadAll(io.LimitReader(resp.Body, MaxManifest+1)); err != nil {
			return unavailable(p.repo.RegistryStr(), err)
		}
		if len(raw) > MaxManifest {
			return malformed("its manifest has more than %d bytes", MaxManifest)
		}
		sum := sha256.Sum256(raw)
		hash = "sha256:" + hex.EncodeToString(sum[:])
		if digest != "" && hash != digest {
			return malformed("%s gave a manifest with the digest %s, asked for %s", clean(p.repo.RegistryStr()), hash, digest)
		}
		if said := resp.Header.Get("Docker-Content-Digest"); said != "" && said != hash {
			return malformed("%s says that the manifest has the digest %s, and it has %s", clean(p.repo.RegistryStr()), clean(said), hash)
		}
		mediaType = types.MediaType(resp.Header.Get("Content-Type"))
		return nil
	})
	return raw, hash, mediaType, err
}

// each asks the places in turn, again while they fail in a way that may pass. Of
// several errors the registry's own counts: a mirror may lack what it likes.
func (r *Repository) each(ctx context.Context, ask func(*place) error) (err error) {
	for _, p := range r.places {
		for n := 1; ; n++ {
			if err = ask(p); err == nil || ctx.Err() != nil {
				return err
			}
			if !again(err) || n == attempts {
				break
			}
			if err := r.client.wait(ctx, n); err != nil {
				return err
			}
		}
	}
	return err
}
