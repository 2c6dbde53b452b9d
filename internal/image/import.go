package image

import (
	"context"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// ImportedNames begins the names that Import gives, by which an image is kept
// until something else does.
const ImportedNames = "imported/"

// Import takes in the one image of an OCI layout in a tar that nobody vouches for,
// as Export writes it, with its blobs, each compared with its digest.
func (s *Store) Import(ctx context.Context, r io.Reader) (Pulled, error) {
	const what = "import the image"
	release, err := s.Hold()
	if err != nil {
		return Pulled{}, err
	}
	defer release()
	bench, err := s.bench()
	if err != nil {
		return Pulled{}, storage(what, err)
	}
	defer bench.remove()
	f, err := os.OpenFile(bench.path("archive"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return Pulled{}, storage(what, err)
	}
	defer f.Close()
	size, err := io.Copy(f, io.LimitReader(r, s.limits.Bytes+1))
	if err != nil {
		return Pulled{}, storage(what, err)
	}
	if size > s.limits.Bytes {
		return Pulled{}, imageInvalid("it is longer than the %d bytes allowed", s.limits.Bytes)
	}
	b, err := indexTar(f, size)
	if err != nil {
		return Pulled{}, err
	}
	c, err := s.choose(b, selection{})
	if err != nil {
		return Pulled{}, err
	}
	m, cf, err := readImage(b, c.desc)
	if err != nil {
		return Pulled{}, err
	}
	if len(m.Layers) != len(cf.RootFS.DiffIDs) {
		return Pulled{}, imageInvalid("the manifest lists %d layers, the configuration %d", len(m.Layers), len(cf.RootFS.DiffIDs))
	}
	total := c.desc.Size
	for i, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if i > 0 {
			if err := s.acceptable(i-1, d); err != nil {
				return Pulled{}, err
			}
		}
		if err := s.takeBlob(ctx, b, d); err != nil {
			return Pulled{}, err
		}
		total += d.Size
	}
	if err := s.takeBlob(ctx, b, c.desc); err != nil {
		return Pulled{}, err
	}
	d := v1.Descriptor{MediaType: c.desc.MediaType, Size: c.desc.Size, Digest: c.desc.Digest}
	root, err := s.layout(ctx, oneOf{storeBlobs{s}, d}, selection{}, d.Digest.String())
	if err != nil {
		return Pulled{}, err
	}
	n := Name{Name: ImportedNames + root.Digest, Digest: root.Digest, Image: root.Digest, Size: total, Layers: len(m.Layers), Created: time.Now().UTC()}
	return Pulled{n, root}, s.SetName(n)
}

// takeBlob copies a blob into the store, comparing it with its digest.
func (s *Store) takeBlob(ctx context.Context, b blobs, d v1.Descriptor) error {
	return s.fill(ctx, d, func(f *os.File) error {
		in, err := layerBlob(b, d)
		if err != nil {
			return err
		}
		defer in.close()
		if err := f.Truncate(0); err != nil {
			return storage("keep the image", err)
		}
		if _, err := io.Copy(f, in); err != nil {
			return storage("keep the image", err)
		}
		if err := in.verify(); err != nil {
			_ = f.Truncate(0) // or the next download would go on from it
			return err
		}
		return nil
	})
}
