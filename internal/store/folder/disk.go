package folder

import (
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/disk"
)

// A run whose layers have a size limit keeps them on a disk of its own: an
// image in its folder, and an empty folder for the sandbox's builder to mount
// it at.
const (
	diskName  = "disk.img"
	pointName = "disk"
)

// MakeDisk gives the run a disk of size bytes for its layers, before anything
// is put there. LayerDir then leads to it.
func (r *Run) MakeDisk(size int64) error {
	if err := disk.Create(filepath.Join(r.dir, diskName), size); err != nil {
		return err
	}
	if err := os.Mkdir(r.DiskPoint(), 0o700); err != nil {
		return bailey.Errorf(bailey.CodeStorage, "make the sandbox's disk", "", "%w", err)
	}
	r.Record.Disk = size
	return r.Save()
}

// DiskPoint is the empty folder at which the sandbox's builder, and nobody
// else, sees the disk.
func (r *Run) DiskPoint() string { return filepath.Join(r.dir, pointName) }

// LayerDir gives the folder that the layers of the record's roots are relative
// to: the run's folder, or its disk, which is mounted, for this process alone,
// until Close.
func (r *Run) LayerDir() (string, error) {
	if r.Record.Disk == 0 {
		return r.dir, nil
	}
	if r.disk == nil {
		m, err := disk.Open(filepath.Join(r.dir, diskName))
		if err != nil {
			return "", err
		}
		r.disk = m
	}
	return r.disk.Path(), nil
}

// Disk gives the mounted disk, or nil for a run that has none, or whose
// LayerDir nobody has asked for.
func (r *Run) Disk() *disk.Mount { return r.disk }
