package image

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"golang.org/x/sys/unix"
)

// How long what nothing needs is kept for who may come back to it.
const (
	keepPartial = 24 * time.Hour     // a download that broke off
	keepStep    = 7 * 24 * time.Hour // a step of a build, since it was last used
)

// Hold keeps Collect from taking what is being made and has no name yet, until
// release is called. Pulls and builds hold.
func (s *Store) Hold() (release func(), err error) {
	f, err := os.Open(filepath.Join(s.dir, "blobs"))
	if err != nil {
		return nil, storage("use the image store", err)
	}
	if err := flock(f, unix.LOCK_SH); err != nil {
		f.Close()
		return nil, storage("use the image store", err)
	}
	return func() { f.Close() }, nil
}

// Collect removes what neither a name nor one of the kept images, by digest, nor
// a step of a recent build needs: images that were pulled or built, their blobs,
// and layers that no sandbox uses. It tells what; dry removes nothing. While
// something is pulled or built it is the error busy.
func (s *Store) Collect(keep map[string]bool, now time.Time, dry bool) ([]api.Orphan, error) {
	lock, err := os.Open(filepath.Join(s.dir, "blobs"))
	if err != nil {
		return nil, storage("clear the image store", err)
	}
	defer lock.Close()
	if err := flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, bailey.Errorf(bailey.CodeBusy, "clear the image store", "try again later", "an image is being pulled or built")
	}
	c := &collector{s: s, now: now, dry: dry, blobs: map[string]bool{}, layers: map[string]bool{}}
	names, err := s.Names()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		c.blobs[strings.TrimPrefix(n.Digest, "sha256:")] = true
		c.image(n.Image)
	}
	for d := range keep {
		c.image(d)
	}
	for _, step := range []func() error{c.steps, c.images, c.looseBlobs, c.looseLayers} {
		if err := step(); err != nil {
			return c.gone, storage("clear the image store", err)
		}
	}
	return c.gone, nil
}

type collector struct {
	s             *Store
	now           time.Time
	dry           bool
	blobs, layers map[string]bool // needed, by hex
	gone          []api.Orphan
}

// image marks what an image needs.
func (c *collector) image(digest string) {
	hexa := strings.TrimPrefix(digest, "sha256:")
	c.blobs[hexa] = true
	_, m, _, err := c.s.manifest(digest)
	if err != nil {
		return // one that was prepared from a file has no blobs
	}
	c.blobs[m.Config.Digest.Hex] = true
	for _, l := range m.Layers {
		c.blobs[l.Digest.Hex] = true
	}
}

// steps marks what steps of builds need, and forgets old ones.
func (c *collector) steps() error {
	return c.each("cache", func(e fs.DirEntry, info fs.FileInfo) error {
		if c.now.Sub(info.ModTime()) > keepStep {
			return c.take("build step", filepath.Join("cache", e.Name()), "it was not used for a week", info.Size())
		}
		var step stepRecord
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && c.s.readJSON("cache", name, &step) {
			c.layers[step.Layer.DiffID], c.blobs[step.Layer.Blob.Digest.Hex] = true, true
		}
		return nil
	})
}

// images forgets images that were pulled or built and that nobody needs.
func (c *collector) images() error {
	return c.each("images", func(e fs.DirEntry, info fs.FileInfo) error {
		hexa := strings.TrimSuffix(e.Name(), ".json")
		var r imageRecord
		if !isDigest(hexa) || !c.s.readJSON("images", hexa, &r) {
			return nil
		}
		if _, err := os.Stat(c.s.blobPath(hexa)); err == nil && !c.blobs[hexa] {
			return c.take("image", filepath.Join("images", e.Name()), "it has no name, and nothing stands on it", info.Size())
		}
		for _, l := range r.Layers {
			c.layers[l] = true
		}
		return nil
	})
}

func (c *collector) looseBlobs() error {
	err := c.each("blobs/sha256", func(e fs.DirEntry, info fs.FileInfo) error {
		if c.blobs[e.Name()] {
			return nil
		}
		return c.take("blob", filepath.Join("blobs/sha256", e.Name()), "no image has it", info.Size())
	})
	if err != nil {
		return err
	}
	return c.each("blobs/partial", func(e fs.DirEntry, info fs.FileInfo) error {
		if c.now.Sub(info.ModTime()) < keepPartial {
			return nil
		}
		return c.take("download", filepath.Join("blobs/partial", e.Name()), "it broke off more than a day ago", info.Size())
	})
}

// looseLayers removes layers; one that a sandbox uses is locked by it.
func (c *collector) looseLayers() error {
	return c.each("layers", func(e fs.DirEntry, _ fs.FileInfo) error {
		if c.layers[e.Name()] || !isDigest(e.Name()) {
			return nil
		}
		r, ok, err := c.s.have(e.Name())
		if !ok || err != nil {
			return nil // damaged: its maker's error says what to do
		}
		d, err := os.Open(c.s.layerDir(e.Name()))
		if err != nil {
			return err
		}
		defer d.Close()
		if flock(d, unix.LOCK_EX|unix.LOCK_NB) != nil {
			return nil
		}
		o := api.Orphan{Kind: "layer", Name: e.Name(), Why: "no image has it and no sandbox uses it", Action: "remove", Bytes: r.Bytes, Done: !c.dry}
		if !c.dry {
			if err := c.s.removeLayer(e.Name()); err != nil {
				return err
			}
		}
		c.gone = append(c.gone, o)
		return nil
	})
}

// removeLayer takes a layer out of sight first: what has a layer's name is whole.
func (s *Store) removeLayer(diffID string) error {
	bench, err := s.bench()
	if err != nil {
		return err
	}
	defer bench.remove()
	if err := os.Rename(s.layerDir(diffID), bench.path("layer")); err != nil {
		return err
	}
	return unpack.RemoveAll(bench.dir, "layer")
}

func (c *collector) take(kind, name, why string, size int64) error {
	if !c.dry {
		if err := os.Remove(filepath.Join(c.s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	c.gone = append(c.gone, api.Orphan{Kind: kind, Name: filepath.Base(name), Why: why, Action: "remove", Bytes: size, Done: !c.dry})
	return nil
}

func (c *collector) each(kind string, f func(fs.DirEntry, fs.FileInfo) error) error {
	list, err := os.ReadDir(filepath.Join(c.s.dir, kind))
	if err != nil {
		return err
	}
	for _, e := range list {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := f(e, info); err != nil {
			return err
		}
	}
	return nil
}
