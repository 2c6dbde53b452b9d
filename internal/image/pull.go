package image

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image/registry"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Pulled is an image that is in the store, under a name.
type Pulled struct {
	Name Name        `json:"name"`
	Root rootfs.Root `json:"root"`
}

// Pull fetches the image that ref names from its registry, for this machine, and
// unpacks it. Blobs that the store has are not fetched again, one that somebody
// else fetches is waited for, and one whose download broke off goes on where it
// was. each is told how far it is, at most some times a second; calls of it
// follow one another.
//
// Errors have code not_found, unauthorized, rate_limited and registry for what
// the registry says, image_invalid for what it sent, forbidden for what must not
// be asked, usage for a reference that makes no sense.
func (s *Store) Pull(ctx context.Context, c *registry.Client, ref string, each func(api.Progress)) (Pulled, error) {
	r, err := c.Parse(ref)
	if err != nil {
		return Pulled{}, err
	}
	repo, err := c.Repository(r)
	if err != nil {
		return Pulled{}, err
	}
	release, err := s.Hold()
	if err != nil {
		return Pulled{}, err
	}
	defer release()
	p := &puller{s: s, repo: repo, tell: &teller{each: each}}
	p.tell.step("resolve "+r.String(), 0, 0)
	top, err := p.resolve(ctx)
	if err != nil {
		return Pulled{}, err
	}
	b := oneOf{storeBlobs{s}, top}
	chosen, err := s.choose(b, selection{})
	if err != nil {
		return Pulled{}, err
	}
	size, layers, err := p.fetch(ctx, chosen.desc)
	if err != nil {
		return Pulled{}, err
	}
	p.tell.step("unpack", 0, int64(layers))
	root, err := s.layout(ctx, b, selection{}, r.String())
	if err != nil {
		return Pulled{}, err
	}
	n := Name{Name: r.String(), Digest: top.Digest.String(), Image: root.Digest, Size: size, Layers: layers, Created: time.Now().UTC()}
	if err := s.SetName(n); err != nil {
		return Pulled{}, err
	}
	p.tell.step("done", size, size)
	return Pulled{n, root}, nil
}

// puller is one pull.
type puller struct {
	s    *Store
	repo *registry.Repository
	tell *teller
}

// Bounds of what is read to find out which image is meant.
const maxAskedManifests = 64

// resolve fetches the manifest that the reference names and, of an index, the
// indexes in it and the images that do not say for which machine they are.
func (p *puller) resolve(ctx context.Context) (v1.Descriptor, error) {
	raw, hash, mediaType, err := p.repo.Manifest(ctx, "")
	if err != nil {
		return v1.Descriptor{}, err
	}
	d, err := describeManifest(raw, mediaType)
	if err != nil {
		return d, err
	}
	if d.Digest, err = v1.NewHash(hash); err != nil {
		return d, imageInvalid("%w", err)
	}
	if _, err := p.s.keepBlob(raw, d.MediaType); err != nil {
		return d, err
	}
	asked := 0
	return d, p.explore(ctx, raw, d, 0, &asked)
}

// describeManifest finds out what kind of document a manifest is, and refuses
// kinds that nobody can verify or that are no image.
func describeManifest(raw []byte, mediaType types.MediaType) (v1.Descriptor, error) {
	var is struct {
		Version   int             `json:"schemaVersion"`
		MediaType types.MediaType `json:"mediaType"`
	}
	d := v1.Descriptor{Size: int64(len(raw)), MediaType: mediaType}
	if err := json.Unmarshal(raw, &is); err != nil {
		return d, imageInvalid("the manifest is not readable: %w", err)
	}
	if is.MediaType != "" {
		d.MediaType = is.MediaType
	}
	switch {
	case is.Version == 1 || d.MediaType == types.DockerManifestSchema1 || d.MediaType == types.DockerManifestSchema1Signed:
		return d, bailey.Errorf(bailey.CodeImageInvalid, "read the image", "push it again with a program of this decade",
			"its manifest has the first schema, whose layers cannot be verified")
	case !d.MediaType.IsIndex() && !d.MediaType.IsImage():
		return d, imageInvalid("it is no image but a %q", cleanText(string(d.MediaType)))
	}
	return d, nil
}

func (p *puller) explore(ctx context.Context, raw []byte, d v1.Descriptor, depth int, asked *int) error {
	if !d.MediaType.IsIndex() {
		return p.config(ctx, raw) // its platform is in there
	}
	if depth > maxIndexDepth {
		return imageInvalid("its indexes are nested more than %d deep", maxIndexDepth)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return imageInvalid("an index is not readable: %w", err)
	}
	for _, d := range index.Manifests {
		known := d.Platform != nil && d.Platform.Architecture != ""
		if d.Annotations[attachmentType] != "" || !d.MediaType.IsIndex() && (known || !d.MediaType.IsImage()) {
			continue
		}
		if *asked++; *asked > maxAskedManifests {
			return imageInvalid("its index makes us ask for more than %d manifests", maxAskedManifests)
		}
		inner, err := p.manifest(ctx, d)
		if err != nil {
			return err
		}
		if err := p.explore(ctx, inner, d, depth+1, asked); err != nil {
			return err
		}
	}
	return nil
}

// manifest gives a manifest, from the store or the registry.
func (p *puller) manifest(ctx context.Context, d v1.Descriptor) ([]byte, error) {
	if _, err := blobName(d.Digest); err != nil {
		return nil, err
	}
	if d.Size > maxManifest || d.Size < 0 {
		return nil, imageInvalid("a manifest has %d bytes, more than the %d that any image needs", d.Size, maxManifest)
	}
	if p.s.hasBlob(d.Digest.Hex, d.Size) {
		return readBlob(storeBlobs{p.s}, d, maxManifest)
	}
	raw, _, _, err := p.repo.Manifest(ctx, d.Digest.String())
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) != d.Size {
		return nil, imageInvalid("a manifest has %d bytes where its index says %d", len(raw), d.Size)
	}
	_, err = p.s.keepBlob(raw, d.MediaType)
	return raw, err
}

// config fetches the configuration of a manifest.
func (p *puller) config(ctx context.Context, raw []byte) error {
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return imageInvalid("the manifest is not readable: %w", err)
	}
	if _, err := blobName(m.Config.Digest); err != nil {
		return err
	}
	if m.Config.MediaType != types.OCIConfigJSON && m.Config.MediaType != types.DockerConfigJSON {
		return imageInvalid("it is no image to run: its configuration is a %q", cleanText(string(m.Config.MediaType)))
	}
	if m.Config.Size < 0 || m.Config.Size > maxConfig {
		return imageInvalid("its configuration has %d bytes, more than the %d that any image needs", m.Config.Size, maxConfig)
	}
	return p.blob(ctx, m.Config, func(int64) {})
}

func (p *puller) blob(ctx context.Context, d v1.Descriptor, done func(int64)) error {
	err := p.s.fill(ctx, d, func(f *os.File) error { return p.repo.Blob(ctx, d, f, done) })
	if err == nil {
		done(d.Size)
	}
	return err
}

// downloads is how many layers are fetched at once.
const downloads = 3

// fetch brings all of one image into the store: its size in bytes.
func (p *puller) fetch(ctx context.Context, d v1.Descriptor) (size int64, layers int, err error) {
	raw, err := p.manifest(ctx, d)
	if err != nil {
		return 0, 0, err
	}
	if _, err := describeManifest(raw, d.MediaType); err != nil {
		return 0, 0, err
	}
	if err := p.config(ctx, raw); err != nil {
		return 0, 0, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return 0, 0, imageInvalid("the manifest is not readable: %w", err)
	}
	if len(m.Layers) > maxLayers {
		return 0, 0, imageInvalid("the image has %d layers, more than the %d that can be stacked", len(m.Layers), maxLayers)
	}
	for i, l := range m.Layers {
		if err := p.s.acceptable(i, l); err != nil {
			return 0, 0, err
		}
		size += l.Size
	}
	p.tell.begin(m.Layers, size)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	turn := make(chan struct{}, downloads)
	for _, l := range m.Layers {
		all.Add(1)
		go func() {
			defer all.Done()
			turn <- struct{}{}
			defer func() { <-turn }()
			if ctx.Err() != nil {
				return
			}
			if err := p.blob(ctx, l, func(n int64) { p.tell.layer(l.Digest.Hex, n) }); err != nil {
				cancel(err) // the first error counts, the others come of it
			}
		}()
	}
	all.Wait()
	return size + int64(len(raw)) + m.Config.Size, len(m.Layers), context.Cause(ctx)
}

// acceptable says whether a layer may be fetched.
func (s *Store) acceptable(i int, l v1.Descriptor) error {
	if _, err := blobName(l.Digest); err != nil {
		return err
	}
	switch {
	case len(l.URLs) > 0 || l.MediaType == types.DockerForeignLayer || l.MediaType == types.OCIRestrictedLayer || l.MediaType == types.OCIUncompressedRestrictedLayer:
		return bailey.Errorf(bailey.CodeImageInvalid, "fetch the image", "use an image whose layers are all in its registry",
			"its layer %d is a foreign one, that the registry does not hand out", i)
	case !isLayer(l.MediaType):
		return imageInvalid("its layer %d has the type %q, which is not a tar, plain or with gzip or zstd", i, cleanText(string(l.MediaType)))
	case l.Size < 0 || l.Size > s.limits.Bytes:
		return bailey.Errorf(bailey.CodeImageInvalid, "fetch the image", "raise the limit bytes if you trust the image",
			"its layer %d has %d bytes, more than the %d allowed", i, l.Size, s.limits.Bytes)
	}
	return nil
}

// oneOf is blobs of which one manifest is meant.
type oneOf struct {
	storeBlobs
	top v1.Descriptor
}

func (b oneOf) open(name string) (io.ReadCloser, int64, error) {
	if name != "index.json" {
		return b.storeBlobs.open(name)
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{b.top}})
	return io.NopCloser(bytes.NewReader(index)), int64(len(index)), err
}
