package engine

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// The kinds of blobs of an exported snapshot. It is an OCI layout in a tar, with one
// manifest of an artefact.
const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
	typeSnapshot = "application/vnd.bailey.snapshot.v1+json" // the configuration
	typePolicy   = "application/vnd.bailey.policy.v1+json"
	typeAudit    = "application/vnd.bailey.audit-head.v1+json"
	typeBase     = "application/vnd.bailey.base.v1.tar" // the image below, itself an OCI layout
)

// Annotations of an exported snapshot.
const (
	noteHash  = "dev.bailey.snapshot.hash"
	noteAudit = "dev.bailey.audit.head"
)

// exported is the configuration of an exported snapshot.
type exported struct {
	Version  int               `json:"version"`
	ID       string            `json:"id"`
	Created  time.Time         `json:"created"`
	Labels   map[string]string `json:"labels,omitempty"`
	Hash     string            `json:"hash"`
	Level    bailey.Isolation  `json:"level"`
	Template string            `json:"template,omitempty"`
	Image    string            `json:"image,omitempty"`
	Digest   string            `json:"digest,omitempty"`
	Account  driver.User       `json:"account"`
	Seeds    map[string]string `json:"seeds,omitempty"`
	Spec     api.SandboxSpec   `json:"spec"` // without its policy
	Roots    []exportedRoot    `json:"roots"`
}

// exportedRoot is a writable place, with its layers in order, the lowest first.
type exportedRoot struct {
	N       int      `json:"n"`
	Target  string   `json:"target"`
	HostIDs bool     `json:"host_ids,omitempty"`
	Layers  []string `json:"layers"` // digests
}

const exportVersion = 1

// exportedPolicy is what a snapshot says about what its sandbox may do.
type exportedPolicy struct {
	Policy   json.RawMessage `json:"policy,omitempty"`
	Allow    []string        `json:"allow,omitempty"`
	Profiles []string        `json:"profiles,omitempty"`
}

// descriptor is a reference to a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// manifest is that of an artefact, or an index.
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        *descriptor       `json:"config,omitempty"`
	Layers        []descriptor      `json:"layers,omitempty"`
	Manifests     []descriptor      `json:"manifests,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// blob is something to be exported.
type blob struct {
	descriptor
	write func(w io.Writer) error
}

func bytesBlob(kind string, b []byte) blob {
	sum := sha256.Sum256(b)
	return blob{descriptor{MediaType: kind, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: int64(len(b))}, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	}}
}

// ExportSnapshot writes a snapshot as an OCI layout in a tar, with its policy, the
// head of the audit log, and the image that it stands on: what is needed to start it
// elsewhere. One that stands on a folder of the host is not_available.
func (e *Engine) ExportSnapshot(ctx context.Context, who Caller, ref string, w io.Writer) error {
	d, err := e.findSnapshot(ctx, who, ref)
	if err != nil {
		return err
	}
	if len(d.Plan) > 0 {
		return bailey.Errorf(bailey.CodeNotAvailable, "export the snapshot "+d.Snapshot.ID, "take it of a sandbox without a workspace", "it stands on the folder %s of this host", d.Plan[0].Path)
	}
	heads := d.heads()
	e.holdLayers(heads...)
	defer e.releaseLayers(heads...)
	dir, err := os.MkdirTemp(e.home, ".export-")
	if err != nil {
		return storage("export a snapshot", err)
	}
	defer os.RemoveAll(dir)
	blobs, notes, err := e.exportBlobs(ctx, d, dir)
	if err != nil {
		return err
	}
	m := manifest{SchemaVersion: 2, MediaType: typeManifest, ArtifactType: typeSnapshot, Config: &blobs[0].descriptor, Annotations: notes}
	for _, b := range blobs[1:] {
		m.Layers = append(m.Layers, b.descriptor)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	top := bytesBlob(typeManifest, text)
	top.Annotations = notes
	index, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: typeIndex, Manifests: []descriptor{top.descriptor}})
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	put := func(name string, b blob) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: b.Size, ModTime: time.Unix(0, 0), Format: tar.FormatPAX}
		if err := tw.WriteHeader(h); err != nil {
			return err
		}
		return b.write(tw)
	}
	if err := put("oci-layout", bytesBlob("", []byte(`{"imageLayoutVersion":"1.0.0"}`))); err != nil {
		return err
	}
	if err := put("index.json", bytesBlob("", index)); err != nil {
		return err
	}
	written := map[string]bool{}
	for _, b := range append([]blob{top}, blobs...) {
		if written[b.Digest] {
			continue
		}
		written[b.Digest] = true
		if err := put(blobPath(b.Digest), b); err != nil {
			return err
		}
	}
	return tw.Close()
}

func blobPath(digest string) string { return "blobs/sha256/" + digest[len("sha256:"):] }

// exportBlobs gives what a snapshot is made of, its configuration first.
func (e *Engine) exportBlobs(ctx context.Context, d *snapDoc, dir string) ([]blob, map[string]string, error) {
	hash, err := e.hashOf(ctx, d)
	if err != nil {
		return nil, nil, err
	}
	if d.Snapshot.Hash != "" && d.Snapshot.Hash != hash {
		return nil, nil, bailey.Errorf(bailey.CodeRestoreIncomplete, "export the snapshot "+d.Snapshot.ID, "", "its layers have the hash %s and not %s", hash, d.Snapshot.Hash)
	}
	spec := d.Spec
	policy := exportedPolicy{spec.Policy, spec.Allow, spec.Profiles}
	spec.Policy, spec.Allow, spec.Profiles = nil, nil, nil
	c := exported{Version: exportVersion, ID: d.Snapshot.ID, Created: d.Snapshot.Created, Labels: d.Snapshot.Labels, Hash: hash, Level: d.Level,
		Template: d.Template, Image: d.Image, Digest: d.Digest, Account: d.Account, Seeds: d.Seeds, Spec: spec}
	var layers []blob
	for _, root := range d.Roots {
		r := exportedRoot{N: root.N, Target: root.Target, HostIDs: root.HostIDs, Layers: []string{}}
		chain, err := e.layers.Chain(root.Chain)
		if err != nil {
			return nil, nil, err
		}
		for _, l := range chain {
			r.Layers = append(r.Layers, l.Hash)
			id := l.ID
			layers = append(layers, blob{descriptor{MediaType: typeLayer, Digest: l.Hash, Size: l.Size}, func(w io.Writer) error { return e.layers.WriteTar(ctx, id, w) }})
		}
		c.Roots = append(c.Roots, r)
	}
	notes := map[string]string{noteHash: hash}
	list := []blob{{}}
	for _, b := range []struct {
		kind string
		v    any
	}{{typePolicy, policy}, {typeAudit, e.auditHead(notes)}} {
		text, err := json.Marshal(b.v)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, bytesBlob(b.kind, text))
	}
	if d.Digest != "" {
		base, err := e.exportBase(ctx, d, dir)
		if err != nil {
			return nil, nil, err
		}
		list = append(list, base)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil, nil, err
	}
	list[0] = bytesBlob(typeSnapshot, text)
	return append(list, layers...), notes, nil
}

// auditHead gives up to where the audit log is on disk; nothing where there is none.
func (e *Engine) auditHead(notes map[string]string) *audit.Head {
	head, err := audit.ReadHead(filepath.Join(e.home, "audit"))
	if err != nil || head == nil {
		return &audit.Head{}
	}
	notes[noteAudit] = head.Hash
	return head
}

// exportBase writes the image that a snapshot stands on into a file.
func (e *Engine) exportBase(ctx context.Context, d *snapDoc, dir string) (blob, error) {
	path := filepath.Join(dir, "base.tar")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return blob{}, storage("export a snapshot", err)
	}
	defer f.Close()
	h := sha256.New()
	if err := e.images.store.Export(ctx, d.Digest, d.Image, io.MultiWriter(f, h)); err != nil {
		return blob{}, err
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return blob{}, storage("export a snapshot", err)
	}
	return blob{descriptor{MediaType: typeBase, Digest: "sha256:" + hex.EncodeToString(h.Sum(nil)), Size: size}, func(w io.Writer) error {
		in, err := os.Open(path)
		if err != nil {
			return err
		}
		defer in.Close()
		_, err = io.Copy(w, in)
		return err
	}}, nil
}
