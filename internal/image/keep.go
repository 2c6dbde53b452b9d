package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Blobs, as they were pulled or made, are kept beside what was unpacked from
// them: they have the digests that the image names, so that it can be exported
// as it came. They lie in
//
//	blobs/sha256/<hex>      whole
//	blobs/partial/<hex>     what has come so far; locked as blob-<hex>

func (s *Store) blobPath(hex string) string { return filepath.Join(s.dir, "blobs/sha256", hex) }

// storeBlobs is the store's own as a set of named files.
type storeBlobs struct{ s *Store }

func (b storeBlobs) open(name string) (io.ReadCloser, int64, error) {
	hex, ok := digestOfName(name)
	if !ok {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	f, err := os.Open(b.s.blobPath(hex))
	if err != nil {
		return nil, 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	return f, st.Size(), nil
}

func digestOfName(name string) (string, bool) {
	const prefix = "blobs/sha256/"
	if len(name) != len(prefix)+64 || name[:len(prefix)] != prefix || !isDigest(name[len(prefix):]) {
		return "", false
	}
	return name[len(prefix):], true
}

func (s *Store) hasBlob(hex string, size int64) bool {
	st, err := os.Stat(s.blobPath(hex))
	return err == nil && st.Mode().IsRegular() && st.Size() == size
}

// keepBlob keeps a small blob that is in memory.
func (s *Store) keepBlob(b []byte, mediaType types.MediaType) (v1.Descriptor, error) {
	sum := sha256.Sum256(b)
	d := v1.Descriptor{MediaType: mediaType, Size: int64(len(b)), Digest: v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}}
	if s.hasBlob(d.Digest.Hex, d.Size) {
		return d, nil
	}
	bench, err := s.bench()
	if err != nil {
		return d, storage("keep the image", err)
	}
	defer bench.remove()
	if err := writeSynced(bench.path("blob"), b); err != nil {
		return d, storage("keep the image", err)
	}
	return d, storageOrNil("keep the image", os.Rename(bench.path("blob"), s.blobPath(d.Digest.Hex)))
}

// fill makes a blob by what get writes into a file, which may hold the
// beginning of it. It is done by one at a time, and once.
func (s *Store) fill(ctx context.Context, d v1.Descriptor, get func(*os.File) error) error {
	if s.hasBlob(d.Digest.Hex, d.Size) {
		return nil
	}
	unlock, err := s.lock(ctx, "blob-"+d.Digest.Hex)
	if err != nil {
		return storage("wait for another download", err)
	}
	defer unlock()
	if s.hasBlob(d.Digest.Hex, d.Size) {
		return nil
	}
	partial := filepath.Join(s.dir, "blobs/partial", d.Digest.Hex)
	f, err := os.OpenFile(partial, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return storage("keep the image", err)
	}
	defer f.Close()
	if err := get(f); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return storage("keep the image", err)
	}
	return storageOrNil("keep the image", os.Rename(partial, s.blobPath(d.Digest.Hex)))
}

// Name is a name of an image in the store: of a registry's, as it was pulled, or
// another's word for one that was built.
type Name struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // sha256:… that pins it: of the index, where it came from one
	// Image is the digest of the image for this machine, sha256:…; what a sandbox
	// that stands on it keeps.
	Image   string    `json:"image"`
	Size    int64     `json:"size"`   // of its blobs in bytes
	Layers  int       `json:"layers"` // of the image
	Created time.Time `json:"created"`
}

func nameKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])
}

// SetName gives an image of the store a name, in place of what had it.
func (s *Store) SetName(n Name) error {
	return storageOrNil("name the image", s.writeJSON("names", nameKey(n.Name), n))
}

// NameOf finds a name.
func (s *Store) NameOf(name string) (Name, bool) {
	var n Name
	ok := s.readJSON("names", nameKey(name), &n) && n.Name == name
	return n, ok
}

// DropName takes a name away; one that is not there is no error. What it named
// is Collect's.
func (s *Store) DropName(name string) error {
	err := os.Remove(filepath.Join(s.dir, "names", nameKey(name)+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return storageOrNil("take the image's name away", err)
}

// Names lists all names.
func (s *Store) Names() ([]Name, error) {
	files, err := os.ReadDir(filepath.Join(s.dir, "names"))
	if err != nil {
		return nil, storage("list images", err)
	}
	var all []Name
	for _, f := range files {
		var n Name
		if key, ok := strings.CutSuffix(f.Name(), ".json"); ok && s.readJSON("names", key, &n) && nameKey(n.Name) == key {
			all = append(all, n)
		}
	}
	return all, nil
}

// manifest reads an image of the store: its manifest and configuration.
func (s *Store) manifest(digest string) (v1.Descriptor, *v1.Manifest, *v1.ConfigFile, error) {
	hexa, ok := strings.CutPrefix(digest, "sha256:")
	st, err := os.Stat(s.blobPath(hexa))
	if !ok || !isDigest(hexa) || err != nil {
		return v1.Descriptor{}, nil, nil, fmt.Errorf("%w: the image %s is not in the store", fs.ErrNotExist, cleanText(digest))
	}
	d := v1.Descriptor{Digest: v1.Hash{Algorithm: "sha256", Hex: hexa}, Size: st.Size()}
	m, cf, err := readImage(storeBlobs{s}, d)
	if err != nil {
		return d, nil, nil, err
	}
	d.MediaType = m.MediaType
	if d.MediaType == "" {
		d.MediaType = types.OCIManifestSchema1
	}
	return d, m, cf, nil
}
