package image

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// selection says which image of several is meant; at most one field is set.
type selection struct {
	name   string // as an annotation or tag names it
	digest string // sha256 in hex
}

func (s selection) String() string {
	switch {
	case s.name != "":
		return ":" + s.name
	case s.digest != "":
		return "@sha256:" + s.digest
	}
	return ""
}

// Annotations that carry the name of an image in a layout, the second by
// containerd and Docker, and the one that marks what is no image.
const (
	refName        = "org.opencontainers.image.ref.name"
	imageName      = "io.containerd.image.name"
	attachmentType = "vnd.docker.reference.type"
)

// candidate is one image manifest found in a layout.
type candidate struct {
	desc    v1.Descriptor
	names   []string
	digests []string // its own and those of the indexes above it
	fit     int
}

// Bounds of an index tree.
const (
	maxIndexDepth = 4
	maxManifests  = 10_000
)

// layout prepares one image of an image layout (image-spec, image-layout.md).
func (s *Store) layout(ctx context.Context, b blobs, sel selection, source string) (rootfs.Root, error) {
	c, err := s.choose(b, sel)
	if err != nil {
		return rootfs.Root{}, err
	}
	if r, ok := s.known(c.desc.Digest.Hex); ok {
		return s.root(r, source, true), nil
	}
	m, cf, err := readImage(b, c.desc)
	if err != nil {
		return rootfs.Root{}, err
	}
	rec := imageRecord{Kind: rootfs.KindOCI, Digest: c.desc.Digest.Hex}
	if rec.Config, err = configOf(cf.Config); err != nil {
		return rootfs.Root{}, err
	}
	if len(m.Layers) != len(cf.RootFS.DiffIDs) {
		return rootfs.Root{}, imageInvalid("the manifest lists %d layers, the configuration %d", len(m.Layers), len(cf.RootFS.DiffIDs))
	}
	var parts []part
	for i, d := range m.Layers {
		if !isLayer(d.MediaType) {
			return rootfs.Root{}, imageInvalid("its layer %d has the type %q, which is not a tar, plain or with gzip or zstd", i, cleanText(string(d.MediaType)))
		}
		if _, err := blobName(cf.RootFS.DiffIDs[i]); err != nil {
			return rootfs.Root{}, err
		}
		parts = append(parts, part{cf.RootFS.DiffIDs[i].Hex, func() (input, error) { return layerBlob(b, d) }})
	}
	if rec, err = s.assemble(ctx, rec, parts); err != nil {
		return rootfs.Root{}, err
	}
	return s.root(rec, source, false), nil
}

func isLayer(t types.MediaType) bool {
	switch t {
	case types.OCILayer, types.OCILayerZStd, types.OCIUncompressedLayer, types.DockerLayer, types.DockerUncompressedLayer,
		types.OCIRestrictedLayer, types.OCIUncompressedRestrictedLayer, types.DockerForeignLayer,
		"application/vnd.docker.image.rootfs.diff.tar.zstd":
		return true
	}
	return false
}

func readImage(b blobs, d v1.Descriptor) (*v1.Manifest, *v1.ConfigFile, error) {
	raw, err := readBlob(b, d, maxManifest)
	if err != nil {
		return nil, nil, err
	}
	m, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return nil, nil, imageInvalid("the manifest is not readable: %w", err)
	}
	if raw, err = readBlob(b, m.Config, maxConfig); err != nil {
		return nil, nil, err
	}
	cf, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, nil, imageInvalid("the configuration is not readable: %w", err)
	}
	return m, cf, nil
}

// choose finds the image that sel means and this machine can run.
func (s *Store) choose(b blobs, sel selection) (candidate, error) {
	raw, err := readAll(b, "index.json", maxManifest)
	if err != nil {
		return candidate{}, err
	}
	var all []candidate
	if err := collect(b, raw, candidate{}, 0, &all); err != nil {
		return candidate{}, err
	}
	var named []candidate
	for _, c := range all {
		if sel.name == "" && sel.digest == "" || sel.digest != "" && slices.Contains(c.digests, sel.digest) ||
			sel.name != "" && slices.ContainsFunc(c.names, func(n string) bool { return sameName(n, sel.name) }) {
			named = append(named, c)
		}
	}
	if len(named) == 0 {
		return candidate{}, unselectable(bailey.CodeNotFound, all, "it holds no image %q", cleanText(strings.TrimLeft(sel.String(), ":@")))
	}
	var best []candidate
	var seen []string
	for _, c := range named {
		if c.desc.Platform == nil || c.desc.Platform.Architecture == "" {
			_, cf, err := readImage(b, c.desc)
			if err != nil {
				return candidate{}, err
			}
			c.desc.Platform = &v1.Platform{OS: cf.OS, Architecture: cf.Architecture, Variant: cf.Variant}
		}
		seen = append(seen, c.desc.Platform.String())
		if c.fit = suits(s.machine, *c.desc.Platform); c.fit == 0 {
			continue
		}
		if len(best) > 0 && c.fit > best[0].fit {
			best = nil
		}
		if len(best) == 0 || c.fit == best[0].fit {
			best = append(best, c)
		}
	}
	if len(best) == 0 {
		slices.Sort(seen)
		return candidate{}, bailey.Errorf(bailey.CodeImageInvalid, "read the image", "use an image built for "+s.machine.String(),
			"it is for %s and this machine is %s", cleanText(strings.Join(slices.Compact(seen), ", ")), s.machine.String())
	}
	for _, c := range best[1:] {
		if c.desc.Digest != best[0].desc.Digest {
			return candidate{}, unselectable(bailey.CodeUsage, best, "it holds several images")
		}
	}
	return best[0], nil
}

// collect walks an index and those in it.
func collect(b blobs, raw []byte, above candidate, depth int, all *[]candidate) error {
	if depth > maxIndexDepth {
		return imageInvalid("its indexes are nested more than %d deep", maxIndexDepth)
	}
	index, err := v1.ParseIndexManifest(bytes.NewReader(raw))
	if err != nil {
		return imageInvalid("an index is not readable: %w", err)
	}
	for _, d := range index.Manifests {
		if d.Annotations[attachmentType] != "" {
			continue
		}
		c := candidate{desc: d, names: slices.Clone(above.names), digests: append(slices.Clone(above.digests), d.Digest.Hex)}
		for _, key := range []string{refName, imageName} {
			if n := d.Annotations[key]; n != "" {
				c.names = append(c.names, n)
			}
		}
		switch {
		case d.MediaType.IsIndex():
			inner, err := readBlob(b, d, maxManifest)
			if err != nil {
				return err
			}
			if err := collect(b, inner, c, depth+1, all); err != nil {
				return err
			}
		case d.MediaType.IsImage():
			*all = append(*all, c)
		}
		if len(*all) > maxManifests {
			return imageInvalid("it holds more than %d images", maxManifests)
		}
	}
	return nil
}

// sameName compares an image's name with what a user wrote: all of it, without
// the registry's default parts, or the tag alone.
func sameName(have, want string) bool {
	if have == want || strings.HasSuffix(have, ":"+want) {
		return true
	}
	short := strings.TrimPrefix(strings.TrimPrefix(have, "docker.io/"), "library/")
	return short == want || short == want+":latest"
}

// unselectable lists what there is to choose from.
func unselectable(code bailey.Code, all []candidate, format string, args ...any) error {
	var list []string
	for _, c := range all {
		line := "@" + c.desc.Digest.String()
		if len(c.names) > 0 {
			line = ":" + cleanText(c.names[len(c.names)-1])
		}
		list = append(list, line)
	}
	slices.Sort(list)
	list = slices.Compact(list)
	if len(list) > 20 {
		list = append(list[:20], fmt.Sprintf("… (%d in all)", len(list)))
	}
	fix := "it is empty"
	if len(list) > 0 {
		fix = "put one of these behind the source: " + strings.Join(list, " ")
	}
	return bailey.Errorf(code, "read the image", fix, "%w", fmt.Errorf(format, args...))
}
