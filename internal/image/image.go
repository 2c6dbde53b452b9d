package image

import (
	"context"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// maxLayers is well below the 500 lower layers that overlayfs accepts, so that
// there is room for what a sandbox adds. Builders stop at 127.
const maxLayers = 400

// imageRecord is images/<digest>.json: all that is needed to use an image
// whose layers are in the store.
type imageRecord struct {
	Version int           `json:"version"`
	Kind    rootfs.Kind   `json:"kind"`
	Digest  string        `json:"digest"` // in hex
	Layers  []string      `json:"layers"` // diff ids in hex, lowest first
	Binds   []rootfs.Bind `json:"binds,omitempty"`
	Config  rootfs.Config `json:"config"`
	Notes   []string      `json:"notes,omitempty"`
}

const imageVersion = 1

// known gives the image with the digest if the store has all of it.
func (s *Store) known(digest string) (imageRecord, bool) {
	var r imageRecord
	if !isDigest(digest) || !s.readJSON("images", digest, &r) || r.Version != imageVersion || r.Digest != digest || len(r.Layers) == 0 {
		return imageRecord{}, false
	}
	for _, l := range r.Layers {
		if _, ok, err := s.have(l); !ok || err != nil {
			return imageRecord{}, false
		}
	}
	return r, true
}

func (s *Store) root(r imageRecord, source string, reused bool) rootfs.Root {
	root := rootfs.Root{
		Version: rootfs.Version, Kind: r.Kind, Source: source, Digest: "sha256:" + r.Digest,
		Binds: r.Binds, Config: r.Config, IDs: s.ids, Reused: reused, Notes: r.Notes,
	}
	for _, l := range r.Layers {
		root.Layers = append(root.Layers, filepath.Join(s.layerDir(l), "fs"))
	}
	return root
}

// part is one layer of an image that is being prepared.
type part struct {
	diffID string // in hex; empty when it is not known before unpacking
	open   func() (input, error)
}

// assemble unpacks the parts that are missing and records the image. With an
// empty rec.Digest the image is named after its only layer.
func (s *Store) assemble(ctx context.Context, rec imageRecord, parts []part) (imageRecord, error) {
	if len(parts) == 0 {
		return rec, imageInvalid("the image has no layers: there is nothing in it to run")
	}
	if len(parts) > maxLayers {
		return rec, imageInvalid("the image has %d layers, more than the %d that can be stacked", len(parts), maxLayers)
	}
	var chain []layerRecord
	for _, p := range parts {
		l, _, err := s.layer(ctx, p.diffID, p.open)
		if err != nil {
			return rec, err
		}
		chain = append(chain, l)
		rec.Notes = append(rec.Notes, l.Notes...)
	}
	chain = simplify(chain)
	fix, err := s.describeImplied(ctx, chain)
	if err != nil {
		return rec, err
	}
	chain = append(chain, fix...)
	rec.Version = imageVersion
	for _, l := range chain {
		rec.Layers = append(rec.Layers, l.DiffID)
	}
	if rec.Digest == "" {
		rec.Digest = chain[0].DiffID
	}
	return rec, storageOrNil("record the image", s.writeJSON("images", rec.Digest, rec))
}

// simplify drops what a stack of layers does not show: all below a layer whose
// root is opaque (overlayfs does not look for the mark there), layers without
// entries, and all but the highest of equal layers, which overlayfs refuses
// and which hides the others in every name they have.
func simplify(chain []layerRecord) []layerRecord {
	for i := len(chain) - 1; i > 0; i-- {
		if chain[i].Opaque {
			chain = chain[i:]
			break
		}
	}
	var out []layerRecord
	for i, l := range chain {
		again := slices.ContainsFunc(chain[i+1:], func(o layerRecord) bool { return o.DiffID == l.DiffID })
		if !again && l.Entries > 0 {
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		out = chain[len(chain)-1:]
	}
	return out
}

// configOf takes over what an image says about its start. It bounds nothing
// that exec does not bound, but refuses what could not be passed on.
func configOf(c v1.Config) (rootfs.Config, error) {
	out := rootfs.Config{
		Env: c.Env, User: c.User, Workdir: c.WorkingDir, Entrypoint: c.Entrypoint, Cmd: c.Cmd,
		Labels: c.Labels, StopSignal: c.StopSignal,
	}
	for _, e := range c.Env {
		if i := strings.IndexByte(e, '='); i <= 0 {
			return out, imageInvalid("its environment has the entry %q, which is no NAME=value", cleanText(e))
		}
	}
	for _, s := range slices.Concat(c.Env, c.Entrypoint, c.Cmd, []string{c.User, c.WorkingDir, c.StopSignal}) {
		if strings.IndexByte(s, 0) >= 0 {
			return out, imageInvalid("its configuration has a NUL byte in %q", cleanText(s))
		}
	}
	return out, nil
}
