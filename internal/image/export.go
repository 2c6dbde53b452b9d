package image

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Export writes an image of the store, by its digest, as an OCI layout in a tar,
// with the blobs as they came; name, if not empty, is what it is called in there.
func (s *Store) Export(ctx context.Context, digest, name string, w io.Writer) error {
	d, m, _, err := s.manifest(digest)
	if err != nil {
		return err
	}
	if name != "" {
		d.Annotations = map[string]string{refName: name}
	}
	index, err := json.Marshal(v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex, Manifests: []v1.Descriptor{d}})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	head := func(name string, size int64) error {
		return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size, ModTime: time.Unix(0, 0), Format: tar.FormatPAX})
	}
	for _, f := range []struct {
		name    string
		content []byte
	}{{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index}} {
		if err := head(f.name, int64(len(f.content))); err != nil {
			return err
		}
		if _, err := tw.Write(f.content); err != nil {
			return err
		}
	}
	written := map[string]bool{}
	for _, b := range append([]v1.Descriptor{{Digest: d.Digest, Size: d.Size}, m.Config}, m.Layers...) {
		if written[b.Digest.Hex] {
			continue
		}
		written[b.Digest.Hex] = true
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.exportBlob(tw, head, b); err != nil {
			return err
		}
	}
	return tw.Close()
}

// exportBlob writes one blob, verified on its way.
func (s *Store) exportBlob(tw *tar.Writer, head func(string, int64) error, d v1.Descriptor) error {
	in, err := layerBlob(storeBlobs{s}, d)
	if err != nil {
		return err
	}
	defer in.close()
	if err := head("blobs/sha256/"+d.Digest.Hex, d.Size); err != nil {
		return err
	}
	if _, err := io.Copy(tw, in); err != nil {
		return err
	}
	return in.verify()
}
