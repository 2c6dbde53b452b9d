package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
)

// Layer is a layer of the store and the blob as which it is exported.
type Layer struct {
	DiffID  string        `json:"diff_id"` // sha256 of the tar, in hex
	Blob    v1.Descriptor `json:"blob"`
	Entries int64         `json:"entries"`
	Notes   []string      `json:"notes,omitempty"`
}

// Add takes a layer from r, an uncompressed OCI layer that nobody vouches for, and
// keeps it unpacked and as a blob.
func (s *Store) Add(ctx context.Context, r io.Reader) (Layer, error) {
	var l Layer
	bench, err := s.bench()
	if err != nil {
		return l, storage("begin a layer", err)
	}
	defer bench.remove()
	pack, err := s.bench()
	if err != nil {
		return l, storage("begin a layer", err)
	}
	defer pack.remove()
	f, err := os.OpenFile(pack.path("blob"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return l, storage("begin a layer", err)
	}
	defer f.Close()
	sum := sha256.New()
	blob := &counted{w: io.MultiWriter(f, sum)}
	z, err := gzip.NewWriterLevel(blob, gzip.BestSpeed)
	if err != nil {
		return l, err
	}
	plain := sha256.New()
	rec, err := s.unpackTo(ctx, bench, io.TeeReader(r, io.MultiWriter(z, plain)))
	if err != nil {
		return l, err
	}
	if hex.EncodeToString(plain.Sum(nil)) != rec.DiffID {
		return l, bailey.Errorf(bailey.CodeUsage, "add a layer", "give the tar as it is", "it is compressed")
	}
	if err := z.Close(); err != nil {
		return l, storage("keep the layer", err)
	}
	if err := f.Sync(); err != nil {
		return l, storage("keep the layer", err)
	}
	if rec, _, err = s.publish(bench, rec); err != nil {
		return l, err
	}
	hexa := hex.EncodeToString(sum.Sum(nil))
	if err := os.Rename(pack.path("blob"), s.blobPath(hexa)); err != nil {
		return l, storage("keep the layer", err)
	}
	return Layer{
		DiffID: rec.DiffID, Entries: rec.Entries, Notes: rec.Notes,
		Blob: v1.Descriptor{MediaType: types.OCILayer, Size: blob.n, Digest: v1.Hash{Algorithm: "sha256", Hex: hexa}},
	}, nil
}

type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// Whole says whether the store has a layer, unpacked and as a blob.
func (s *Store) Whole(l Layer) bool {
	_, ok, err := s.have(l.DiffID)
	return ok && err == nil && s.hasBlob(l.Blob.Digest.Hex, l.Blob.Size)
}

// Dir is the folder of an unpacked layer, to be used as a lower one.
func (s *Store) Dir(diffID string) string { return s.layerDir(diffID) + "/fs" }

// Write makes an image of layers that are in the store, lowest first, and a
// configuration, whose list of layers is filled in.
func (s *Store) Write(ctx context.Context, name string, cf *v1.ConfigFile, layers []Layer) (Pulled, error) {
	cf = cf.DeepCopy()
	cf.RootFS = v1.RootFS{Type: "layers"}
	m := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1}
	size := int64(0)
	for _, l := range layers {
		cf.RootFS.DiffIDs = append(cf.RootFS.DiffIDs, v1.Hash{Algorithm: "sha256", Hex: l.DiffID})
		m.Layers = append(m.Layers, l.Blob)
		size += l.Blob.Size
	}
	raw, err := json.Marshal(cf)
	if err != nil {
		return Pulled{}, err
	}
	if m.Config, err = s.keepBlob(raw, types.OCIConfigJSON); err != nil {
		return Pulled{}, err
	}
	size += m.Config.Size
	if raw, err = json.Marshal(m); err != nil {
		return Pulled{}, err
	}
	d, err := s.keepBlob(raw, m.MediaType)
	if err != nil {
		return Pulled{}, err
	}
	root, err := s.layout(ctx, oneOf{storeBlobs{s}, d}, selection{}, name)
	if err != nil {
		return Pulled{}, err
	}
	n := Name{Name: name, Digest: d.Digest.String(), Image: d.Digest.String(), Size: size + d.Size, Layers: len(layers), Created: time.Now().UTC()}
	return Pulled{n, root}, s.SetName(n)
}

// Image gives what an image of the store, by its digest, is made of: its
// configuration and layers.
func (s *Store) Image(digest string) (*v1.ConfigFile, []Layer, error) {
	_, m, cf, err := s.manifest(digest)
	if err != nil {
		return nil, nil, err
	}
	if len(m.Layers) != len(cf.RootFS.DiffIDs) {
		return nil, nil, imageInvalid("the manifest lists %d layers, the configuration %d", len(m.Layers), len(cf.RootFS.DiffIDs))
	}
	var layers []Layer
	for i, d := range m.Layers {
		if _, err := blobName(cf.RootFS.DiffIDs[i]); err != nil {
			return nil, nil, err
		}
		rec, _, err := s.have(cf.RootFS.DiffIDs[i].Hex)
		if err != nil {
			return nil, nil, err
		}
		layers = append(layers, Layer{DiffID: cf.RootFS.DiffIDs[i].Hex, Blob: d, Entries: rec.Entries})
	}
	return cf, layers, nil
}

// Named gives the image that a name means, if all of it is in the store.
func (s *Store) Named(name string) (Pulled, bool) {
	n, ok := s.NameOf(name)
	if !ok {
		return Pulled{}, false
	}
	root, ok := s.Root(n.Image, n.Name)
	return Pulled{n, root}, ok
}

// Root describes the image with the digest, if all of it is in the store.
func (s *Store) Root(digest, source string) (rootfs.Root, bool) {
	hexa, ok := strings.CutPrefix(digest, "sha256:")
	if !ok {
		return rootfs.Root{}, false
	}
	r, ok := s.known(hexa)
	if !ok {
		return rootfs.Root{}, false
	}
	return s.root(r, source, true), true
}
