package engine

import (
	"context"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/disk"
)

// heldDisk is the name by which the keeper holds a sandbox's disk.
const heldDisk = "disk"

// openDisks mounts the disks of sandboxes that do not run: their files are looked at
// and sealed all the same.
func (e *Engine) openDisks(context.Context) error {
	for _, b := range e.list() {
		if b.record().Disk == 0 || b.disk != nil {
			continue
		}
		if err := e.mountDisk(b); err != nil {
			e.log.Error("open a sandbox's disk", "sandbox", b.id, "error", err) // its next start says so too
		}
	}
	return nil
}

// diskOf gives the size of the file system that a sandbox's files are to lie on, 0
// for the data folder's. A limit that cannot be kept is refused.
func (e *Engine) diskOf(spec api.SandboxSpec) (int64, error) {
	if spec.Limits.Disk == 0 {
		return 0, nil
	}
	return spec.Limits.Disk, disk.Available()
}

// mountDisk opens the file system of limited size that a sandbox's files lie on,
// making it at first. It is mounted nowhere: the sandbox's builder is given it, and
// it goes with the last descriptor. The caller holds op.
func (e *Engine) mountDisk(b *box) error {
	size := b.record().Disk
	if b.disk != nil || size == 0 {
		return nil
	}
	img := filepath.Join(b.dir, diskFile)
	if err := makeDisk(img, size); err != nil {
		return err
	}
	if err := freeOfLoops(e.ctx, img); err != nil {
		return storage("open the sandbox's disk", err)
	}
	m, err := disk.Open(img)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.disk = m
	b.mu.Unlock()
	return nil
}

// adoptDisk takes over the descriptor of a sandbox's disk that the keeper has held:
// the disk is mounted already, and must not be mounted twice.
func (e *Engine) adoptDisk(b *box, f *os.File) {
	b.mu.Lock()
	b.disk = disk.Adopt(f)
	b.mu.Unlock()
}
