package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// Bounds of a snapshot that is imported.
const (
	maxDocument = 8 << 20  // bytes of a document
	maxBase     = 64 << 30 // bytes of the image below
	maxRoots    = 64
	maxLayers   = 512 // of all places
)

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// basesDir holds images that imported snapshots stand on, each a file.
const basesDir = "bases"

// ImportSnapshot takes what ExportSnapshot wrote, verified by its hashes: the error
// restore_incomplete says what is not as it should be, and then nothing is left.
// What would give a sandbox more than its own files comes not along: secrets,
// volumes and folders of a host.
func (e *Engine) ImportSnapshot(ctx context.Context, who Caller, name string, r io.Reader) (api.Snapshot, error) {
	if name != "" && !nameForm.MatchString(name) {
		return api.Snapshot{}, bailey.Errorf(bailey.CodeUsage, "import a snapshot", "use letters, digits, dots, dashes and underscores, at most 63", "%.80q cannot be a name", name)
	}
	if err := e.roomLeft(); err != nil {
		return api.Snapshot{}, err
	}
	im := &importing{e: e, ctx: ctx, who: who, tar: tar.NewReader(r)}
	began := e.clock.Now()
	d, err := im.read(name)
	if err == nil {
		d.State = state.SnapshotReady
		e.sign(&d.Snapshot.Receipt, began)
		err = e.putSnapshot(ctx, d, func(tx *sql.Tx) error { return e.emitSnapshot(ctx, tx, "snapshot.created", d) })
	}
	if err != nil {
		if im.id != "" {
			err = errors.Join(err, e.dropSnapshot(ctx, im.id))
			os.Remove(e.basePath(im.id))
		}
		var own *bailey.Error
		if errors.As(err, &own) {
			return api.Snapshot{}, own
		}
		return api.Snapshot{}, err
	}
	e.ring()
	return e.tellSnapshot(d), nil
}

// basePath is where the image lies that an imported snapshot stands on.
func (e *Engine) basePath(id string) string { return filepath.Join(e.home, basesDir, id+".tar") }

// importing is one import.
type importing struct {
	e   *Engine
	ctx context.Context
	who Caller
	tar *tar.Reader
	id  string // of the snapshot, once there is a row
}

func damaged(format string, args ...any) error {
	return bailey.Errorf(bailey.CodeRestoreIncomplete, "import a snapshot", "export it again", format, args...)
}

// next goes to the entry that must come now.
func (im *importing) next(name string, limit int64) (*tar.Header, error) {
	h, err := im.tar.Next()
	if err != nil {
		return nil, damaged("%s is missing: %w", name, err)
	}
	if h.Typeflag != tar.TypeReg || h.Name != name || h.Size > limit {
		return nil, damaged("%.100q comes where %s should, of at most %d bytes", h.Name, name, limit)
	}
	return h, nil
}

// document reads a small entry, whose digest has to be the one given unless that is
// "", into v.
func (im *importing) document(name, digest string, v any) error {
	if _, err := im.next(name, maxDocument); err != nil {
		return err
	}
	b, err := io.ReadAll(im.tar)
	if err != nil {
		return damaged("%s: %w", name, err)
	}
	if sum := sha256.Sum256(b); digest != "" && "sha256:"+hex.EncodeToString(sum[:]) != digest {
		return damaged("%s has another content than its name says", name)
	}
	return strictly(name, b, v)
}

func strictly(name string, b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("there is something behind it")
		}
	}
	if err != nil {
		return damaged("%s: %w", name, err)
	}
	return nil
}

func (im *importing) blob(d descriptor, kind string, v any) error {
	if d.MediaType != kind || !digestForm.MatchString(d.Digest) {
		return damaged("a blob of the kind %.80q comes where %s should", d.MediaType, kind)
	}
	return im.document(blobPath(d.Digest), d.Digest, v)
}

func (im *importing) read(name string) (*snapDoc, error) {
	e := im.e
	var layout struct {
		Version string `json:"imageLayoutVersion"`
	}
	if err := im.document("oci-layout", "", &layout); err != nil {
		return nil, err
	}
	var index, m manifest
	if err := im.document("index.json", "", &index); err != nil {
		return nil, err
	}
	if len(index.Manifests) != 1 {
		return nil, damaged("it has %d manifests and not one", len(index.Manifests))
	}
	if err := im.blob(index.Manifests[0], typeManifest, &m); err != nil {
		return nil, err
	}
	if m.ArtifactType != typeSnapshot || m.Config == nil || len(m.Layers) < 2 || len(m.Layers) > maxLayers {
		return nil, damaged("it is no snapshot")
	}
	var c exported
	if err := im.blob(*m.Config, typeSnapshot, &c); err != nil {
		return nil, err
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	var p exportedPolicy
	if err := im.blob(m.Layers[0], typePolicy, &p); err != nil {
		return nil, err
	}
	var head json.RawMessage
	if err := im.blob(m.Layers[1], typeAudit, &head); err != nil {
		return nil, err
	}
	d := im.begin(name, c, p)
	if err := checkImported(d); err != nil {
		return nil, err
	}
	if err := e.putSnapshot(im.ctx, d, nil); err != nil {
		return nil, err
	}
	im.id = d.Snapshot.ID
	blobs := m.Layers[2:]
	if len(blobs) > 0 && blobs[0].MediaType == typeBase {
		if err := im.base(blobs[0]); err != nil {
			return nil, err
		}
		d.Base = true
		blobs = blobs[1:]
	}
	if err := im.layers(d, c, blobs); err != nil {
		return nil, err
	}
	if _, err := im.tar.Next(); err != io.EOF {
		return nil, damaged("there is more in it than it says")
	}
	hash, err := e.hashOf(im.ctx, d)
	if err != nil {
		return nil, err
	}
	if want := m.Annotations[noteHash]; hash != c.Hash || hash != want {
		return nil, damaged("its files have the hash %s and not %s", hash, c.Hash)
	}
	s := &d.Snapshot
	s.Hash = hash
	s.Receipt.Hash, s.Receipt.Verified = hash, true
	for _, id := range d.Own {
		l, err := e.layers.Get(id)
		if err != nil {
			return nil, err
		}
		s.Bytes += l.Bytes
		s.Receipt.Files += l.Files
	}
	s.Receipt.Bytes = s.Bytes
	return d, nil
}

// check refuses a configuration that cannot be one.
func (c *exported) check() error {
	if c.Version != exportVersion || len(c.Roots) > maxRoots || c.Hash == "" {
		return damaged("its configuration is of another version, or makes no sense")
	}
	if c.Level < bailey.IsolationProcess || c.Level > bailey.IsolationMicroVM {
		return damaged("its files are of the level %s", c.Level)
	}
	seen := map[string]bool{}
	numbers := map[int]bool{}
	for _, r := range c.Roots {
		if !path.IsAbs(r.Target) || path.Clean(r.Target) != r.Target || strings.IndexByte(r.Target, 0) >= 0 || seen[r.Target] || r.N < 0 || r.N > maxRoots || numbers[r.N] {
			return damaged("the place %.100q cannot be", r.Target)
		}
		seen[r.Target], numbers[r.N] = true, true
		for _, digest := range r.Layers {
			if !digestForm.MatchString(digest) {
				return damaged("%.80q is no digest", digest)
			}
		}
	}
	return nil
}

// checkImported refuses what no sandbox here could have been asked for: a sandbox
// that starts from the snapshot inherits it.
func checkImported(d *snapDoc) error {
	err := checkSpec(Caller{}, d.Spec)
	if err == nil {
		err = checkLabels("import a snapshot", d.Snapshot.Labels)
	}
	if err != nil {
		return damaged("what it says of its sandbox: %w", err)
	}
	for _, id := range []int{d.Account.UID, d.Account.GID} {
		if id < 0 || id > math.MaxUint16 {
			return damaged("its commands cannot be of the user %d:%d", d.Account.UID, d.Account.GID)
		}
	}
	return nil
}

// begin makes the document of what is being imported.
func (im *importing) begin(name string, c exported, p exportedPolicy) *snapDoc {
	e := im.e
	s := c.Spec
	kept := api.SandboxSpec{Env: s.Env, Workdir: s.Workdir, User: s.User, Limits: s.Limits, Labels: s.Labels, Policy: p.Policy, Allow: p.Allow, Profiles: p.Profiles}
	d := &snapDoc{
		Snapshot: api.Snapshot{ID: newID(), Name: name, Created: e.clock.Now().UTC(), Labels: c.Labels},
		Owner:    im.who.Name, State: state.SnapshotMaking, Spec: kept, Seeds: c.Seeds, Level: c.Level, Template: c.Template, Image: c.Image, Digest: c.Digest,
		Account: c.Account, Imported: true, Reason: "it is the level of the snapshot",
	}
	d.Lineage = d.Snapshot.ID
	d.Account.HostUID, d.Account.HostGID = os.Geteuid(), os.Getegid()
	d.Snapshot.Receipt = api.Receipt{Act: "import", Kept: []string{"files", "policy", "labels", "environment"}, Snapshot: d.Snapshot.ID, Method: "imported"}
	if len(s.Secrets) > 0 || len(s.Volumes) > 0 || len(s.Mounts) > 0 {
		d.Snapshot.Receipt.Lost = []string{"secrets", "volumes", "mounts"}
	}
	for _, r := range c.Roots {
		own := root{N: r.N, Target: r.Target, HostIDs: r.HostIDs}
		for i := range r.Layers {
			id := layerID(d.Snapshot.ID, r.N) + "." + strconv.Itoa(i)
			d.Own = append(d.Own, id)
			own.Chain = id
		}
		d.Roots = append(d.Roots, own)
	}
	return d
}

// base keeps the image below.
func (im *importing) base(b descriptor) error {
	if !digestForm.MatchString(b.Digest) {
		return damaged("%.80q is no digest", b.Digest)
	}
	h, err := im.next(blobPath(b.Digest), maxBase)
	if err != nil {
		return err
	}
	at := im.e.basePath(im.id)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return storage("import a snapshot", err)
	}
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return storage("import a snapshot", err)
	}
	sum := sha256.New()
	_, err = io.CopyN(io.MultiWriter(f, sum), im.tar, h.Size)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return storage("import a snapshot", err)
	}
	if "sha256:"+hex.EncodeToString(sum.Sum(nil)) != b.Digest {
		return damaged("the image below has another content than its name says")
	}
	return nil
}

// layers makes the layers of every place. A layer that several places have comes
// once.
func (im *importing) layers(d *snapDoc, c exported, blobs []descriptor) error {
	e := im.e
	r := &record{Account: d.Account}
	r.Sandbox.Isolation = d.Level
	first := map[string]string{} // the layer of a digest
	at := 0
	for i, place := range c.Roots {
		parent := ""
		for k, digest := range place.Layers {
			id := layerID(d.Snapshot.ID, place.N) + "." + strconv.Itoa(k)
			ids := e.layerIDs(r, d.Roots[i])
			if at >= len(blobs) || blobs[at].Digest != digest || blobs[at].MediaType != typeLayer {
				return damaged("the layer %s of %s is missing", digest, place.Target)
			}
			at++
			if same := first[digest]; same != "" {
				pr, pw := io.Pipe()
				go func() { pw.CloseWithError(e.layers.WriteTar(im.ctx, same, pw)) }()
				_, err := e.layers.ReadTar(im.ctx, id, parent, pr, ids)
				pr.CloseWithError(err)
				if err != nil {
					return err
				}
			} else if err := im.layer(id, parent, digest, r, d.Roots[i]); err != nil {
				return err
			}
			first[digest] = id
			if got, err := e.layers.Hash(im.ctx, id); err != nil {
				return err
			} else if got != digest {
				return damaged("the layer %s of %s has the hash %s", digest, place.Target, got)
			}
			parent = id
		}
	}
	if at != len(blobs) {
		return damaged("there are layers that nothing stands on")
	}
	return nil
}

// layer reads one layer.
func (im *importing) layer(id, parent, digest string, r *record, root root) error {
	if _, err := im.next(blobPath(digest), 1<<40); err != nil {
		return err
	}
	sum := sha256.New()
	in := io.TeeReader(im.tar, sum)
	if _, err := im.e.layers.ReadTar(im.ctx, id, parent, in, im.e.layerIDs(r, root)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return damaged("the layer %s: %w", digest, err)
	}
	if got := "sha256:" + hex.EncodeToString(sum.Sum(nil)); got != digest {
		return damaged("the layer %s has the content of %s", digest, got)
	}
	return nil
}
