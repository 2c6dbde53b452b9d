package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// dockerEntry is one image in the manifest.json of an archive that
// `docker save` writes (moby, image/spec/v1.2.md).
type dockerEntry struct {
	Config   string
	RepoTags []string
	Layers   []string

	digest string
	config *v1.ConfigFile
}

// dockerArchive prepares one image of such an archive. It has no digest of the
// whole image; the configuration's, which names all layers, stands for it.
func (s *Store) dockerArchive(ctx context.Context, b blobs, sel selection, source string) (rootfs.Root, error) {
	raw, err := readAll(b, "manifest.json", maxManifest)
	if err != nil {
		return rootfs.Root{}, err
	}
	var list []dockerEntry
	if err := json.Unmarshal(raw, &list); err != nil {
		return rootfs.Root{}, imageInvalid("manifest.json is not readable: %w", err)
	}
	e, err := s.chooseDocker(b, list, sel)
	if err != nil {
		return rootfs.Root{}, err
	}
	if r, ok := s.known(e.digest); ok {
		return s.root(r, source, true), nil
	}
	rec := imageRecord{Kind: rootfs.KindDocker, Digest: e.digest}
	if rec.Config, err = configOf(e.config.Config); err != nil {
		return rootfs.Root{}, err
	}
	if len(e.Layers) != len(e.config.RootFS.DiffIDs) {
		return rootfs.Root{}, imageInvalid("manifest.json lists %d layers, the configuration %d", len(e.Layers), len(e.config.RootFS.DiffIDs))
	}
	var parts []part
	for i, name := range e.Layers {
		if _, err := blobName(e.config.RootFS.DiffIDs[i]); err != nil {
			return rootfs.Root{}, err
		}
		parts = append(parts, part{e.config.RootFS.DiffIDs[i].Hex, func() (input, error) {
			r, _, err := b.open(name)
			if err != nil {
				return input{}, imageInvalid("the layer %q cannot be read: %w", cleanText(name), err)
			}
			return input{Reader: r, close: func() { r.Close() }}, nil
		}})
	}
	if rec, err = s.assemble(ctx, rec, parts); err != nil {
		return rootfs.Root{}, err
	}
	return s.root(rec, source, false), nil
}

func (s *Store) chooseDocker(b blobs, list []dockerEntry, sel selection) (dockerEntry, error) {
	if len(list) > maxManifests {
		return dockerEntry{}, imageInvalid("it holds more than %d images", maxManifests)
	}
	var found []dockerEntry
	var all []candidate
	for _, e := range list {
		raw, err := readAll(b, e.Config, maxConfig)
		if err != nil {
			return dockerEntry{}, err
		}
		if e.config, err = v1.ParseConfigFile(bytes.NewReader(raw)); err != nil {
			return dockerEntry{}, imageInvalid("the configuration is not readable: %w", err)
		}
		sum := sha256.Sum256(raw)
		e.digest = hex.EncodeToString(sum[:])
		all = append(all, candidate{desc: v1.Descriptor{Digest: v1.Hash{Algorithm: "sha256", Hex: e.digest}}, names: e.RepoTags})
		if sel.name == "" && sel.digest == "" || sel.digest == e.digest ||
			sel.name != "" && slices.ContainsFunc(e.RepoTags, func(n string) bool { return sameName(n, sel.name) }) {
			found = append(found, e)
		}
	}
	if len(found) == 0 {
		return dockerEntry{}, unselectable(bailey.CodeNotFound, all, "it holds no image %q", cleanText(sel.String()))
	}
	for _, e := range found[1:] {
		if e.digest != found[0].digest {
			return dockerEntry{}, unselectable(bailey.CodeUsage, all, "it holds several images")
		}
	}
	e := found[0]
	have := v1.Platform{OS: e.config.OS, Architecture: e.config.Architecture, Variant: e.config.Variant}
	if suits(s.machine, have) == 0 {
		return dockerEntry{}, bailey.Errorf(bailey.CodeImageInvalid, "read the image", "use an image built for "+s.machine.String(),
			"it is for %s and this machine is %s", cleanText(have.String()), s.machine.String())
	}
	return e, nil
}
