package image

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"golang.org/x/sys/unix"
)

// layerVersion changes when the same tar is to give other files than before.
const layerVersion = 1

// layerRecord is layer.json.
type layerRecord struct {
	Version int        `json:"version"`
	DiffID  string     `json:"diff_id"`
	IDs     rootfs.IDs `json:"ids"`
	Bytes   int64      `json:"bytes"`
	Entries int64      `json:"entries"`
	Implied []string   `json:"implied,omitempty"` // folders the tar does not describe
	Opaque  bool       `json:"opaque,omitempty"`  // hides all layers below
	Notes   []string   `json:"notes,omitempty"`
}

// input is where a layer is read from, once.
type input struct {
	io.Reader
	// verify is called when all has been unpacked and says whether the source
	// kept its promises; nil if it made none.
	verify func() error
	close  func()
}

func (s *Store) layerDir(diffID string) string { return filepath.Join(s.dir, "layers", diffID) }

// have gives the record of a layer that is whole.
func (s *Store) have(diffID string) (layerRecord, bool, error) {
	var r layerRecord
	b, err := os.ReadFile(filepath.Join(s.layerDir(diffID), "layer.json"))
	if err != nil {
		return r, false, nil
	}
	if err := json.Unmarshal(b, &r); err != nil || r.DiffID != diffID {
		return r, false, bailey.Errorf(bailey.CodeStorage, "use a layer of the image store", "remove "+s.layerDir(diffID), "its record is damaged")
	}
	if r.IDs != s.ids || r.Version != layerVersion {
		return r, false, bailey.Errorf(bailey.CodeStorage, "use a layer of the image store", "remove "+s.layerDir(diffID)+" when nothing uses it",
			"it was unpacked with ids %q (form %d) and now %q (form %d) is wanted", r.IDs, r.Version, s.ids, layerVersion)
	}
	return r, true, nil
}

// layer gives the layer with the uncompressed digest want, unpacking it from
// what open gives if the store does not have it. An empty want means that the
// digest is not known before; it is found by unpacking.
func (s *Store) layer(ctx context.Context, want string, open func() (input, error)) (r layerRecord, reused bool, err error) {
	if want != "" {
		if r, ok, err := s.have(want); ok || err != nil {
			return r, ok, err
		}
		unlock, err := s.lock(ctx, want)
		if err != nil {
			return r, false, storage("wait for another maker of the layer", err)
		}
		defer unlock()
		if r, ok, err := s.have(want); ok || err != nil {
			return r, ok, err
		}
	}
	in, err := open()
	if err != nil {
		return r, false, err
	}
	defer in.close()
	bench, err := s.bench()
	if err != nil {
		return r, false, storage("begin a layer", err)
	}
	defer bench.remove()
	if r, err = s.unpackTo(ctx, bench, in); err != nil {
		return r, false, err
	}
	if want != "" && r.DiffID != want {
		return r, false, bailey.Errorf(bailey.CodeImageInvalid, "unpack the layer", "fetch or build the image again",
			"its content has digest sha256:%s where the image says sha256:%s", r.DiffID, want)
	}
	if in.verify != nil {
		if err := in.verify(); err != nil {
			return r, false, err
		}
	}
	return s.publish(bench, r)
}

func (s *Store) unpackTo(ctx context.Context, bench *workbench, in io.Reader) (layerRecord, error) {
	var r layerRecord
	if err := os.Mkdir(bench.path("fs"), 0o700); err != nil {
		return r, storage("begin a layer", err)
	}
	dir, err := os.Open(bench.path("fs"))
	if err != nil {
		return r, storage("begin a layer", err)
	}
	defer dir.Close()
	opt := unpack.Options{IDs: s.ids, Limits: s.limits}
	if s.ids == rootfs.IDsSingle {
		owners, err := os.OpenFile(bench.path("owners"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return r, storage("begin a layer", err)
		}
		defer owners.Close()
		opt.Owners = owners
	}
	stream, err := unpack.NewStream(ctx, in, s.limits)
	if err != nil {
		return r, err
	}
	defer stream.Close()
	got, err := unpack.Layer(stream, dir, opt)
	if err != nil {
		return r, err
	}
	return layerRecord{
		Version: layerVersion, DiffID: got.DiffID, IDs: s.ids, Bytes: got.Bytes, Entries: got.Entries,
		Implied: got.Implied, Opaque: got.Opaque, Notes: got.Notes,
	}, nil
}

// publish makes the unpacked layer part of the store. Its files reach the disk
// before its name does, so that a power cut leaves a whole layer or none.
func (s *Store) publish(bench *workbench, r layerRecord) (layerRecord, bool, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return r, false, err
	}
	if err := writeSynced(bench.path("layer.json"), b); err != nil {
		return r, false, storage("finish a layer", err)
	}
	if err := unix.Syncfs(int(bench.dir.Fd())); err != nil {
		return r, false, storage("finish a layer", err)
	}
	err = os.Rename(bench.path(""), s.layerDir(r.DiffID))
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		// The same content from another source, or damaged.
		have, ok, herr := s.have(r.DiffID)
		if herr == nil && !ok {
			herr = bailey.Errorf(bailey.CodeStorage, "finish a layer", "remove "+s.layerDir(r.DiffID), "a folder without a record is in its place")
		}
		return have, true, herr
	}
	if err != nil {
		return r, false, storage("finish a layer", err)
	}
	layers, err := os.Open(filepath.Join(s.dir, "layers"))
	if err != nil {
		return r, false, storage("finish a layer", err)
	}
	defer layers.Close()
	return r, false, storageOrNil("finish a layer", layers.Sync())
}

func storageOrNil(what string, err error) error {
	if err == nil {
		return nil
	}
	return storage(what, err)
}
