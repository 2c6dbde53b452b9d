package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/disk"
)

// mountVolume mounts a volume's file system at its folder, unless it is: two mounts
// of one image would each write what the other does not know.
func (e *Engine) mountVolume(ctx context.Context, name string) error {
	const what = "mount the volume "
	dir := e.volumeDir(name)
	data, img := filepath.Join(dir, volumeData), filepath.Join(dir, diskFile)
	if mounted(data) {
		return nil
	}
	if err := freeOfLoops(ctx, img); err != nil {
		return bailey.Errorf(bailey.CodeBusy, what+name, "try again", "%w", err)
	}
	m, err := disk.Open(img)
	if err != nil {
		return err
	}
	defer m.Close()
	if err := os.Chmod(m.Path(), 0o777); err != nil {
		return storage(what+name, err)
	}
	if err := unix.MoveMount(int(m.File().Fd()), "", unix.AT_FDCWD, data, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return storage(what+name, err)
	}
	return nil
}

// mounted says whether something is mounted at a folder.
func mounted(dir string) bool {
	var st, up unix.Stat_t
	return unix.Lstat(dir, &st) == nil && unix.Lstat(filepath.Dir(dir), &up) == nil && st.Dev != up.Dev
}

// freeOfLoops waits until no loop device has the image: the kernel lets go of the
// last sandbox's a little later than of its processes.
func freeOfLoops(ctx context.Context, img string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		files, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(files, func(f string) bool {
			b, err := os.ReadFile(f)
			return err == nil && string(b) == img+"\n"
		}) {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("its file system is in use by a mount that is not at its place")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// volumeUsers are the sandboxes that have a volume.
func (e *Engine) volumeUsers(name string) (ids []string) {
	for _, b := range e.list() {
		if slices.ContainsFunc(b.record().Sandbox.Volumes, func(v api.VolumeMount) bool { return v.Volume == name }) {
			ids = append(ids, b.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// holdVolume notes that a sandbox needs a volume's mount.
func (e *Engine) holdVolume(name, id string) {
	if e.volumes.held[name] == nil {
		e.volumes.held[name] = map[string]bool{}
	}
	e.volumes.held[name][id] = true
}

// leaveVolumes unmounts what no other sandbox needs. The sandbox's own mounts have
// gone with it.
func (e *Engine) leaveVolumes(b *box) {
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	for name, held := range e.volumes.held {
		if !held[b.id] {
			continue
		}
		delete(held, b.id)
		if len(held) == 0 {
			delete(e.volumes.held, name)
			if err := e.unmountVolume(name); err != nil {
				e.log.Error("unmount a volume", "volume", name, "error", err)
			}
		}
	}
}

func (e *Engine) unmountVolume(name string) error {
	data := filepath.Join(e.volumeDir(name), volumeData)
	if !mounted(data) {
		return nil
	}
	return storageOrNil("unmount the volume "+name, unix.Unmount(data, unix.MNT_DETACH))
}

// closeVolumes unmounts what no sandbox needs that goes on without the engine.
func (e *Engine) closeVolumes(goesOn func(id string) bool) (err error) {
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	for name, held := range e.volumes.held {
		needed := false
		for id := range held {
			needed = needed || goesOn(id)
		}
		if !needed {
			err = errors.Join(err, e.unmountVolume(name))
		}
	}
	return err
}

// orphanVolumes are mounts of volumes that nobody uses.
func (e *Engine) orphanVolumes(_ context.Context, dry bool) (list []api.Orphan, err error) {
	dirs, err := filepath.Glob(filepath.Join(e.home, volumesDir, "*", volumeData))
	if err != nil {
		return nil, err
	}
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	for _, data := range dirs {
		name := filepath.Base(filepath.Dir(data))
		if !mounted(data) || len(e.volumes.held[name]) > 0 {
			continue
		}
		o := api.Orphan{Kind: "mount", Name: data, Why: "no sandbox uses the volume " + name, Action: "unmount it", Done: !dry}
		if !dry {
			if err := e.unmountVolume(name); err != nil {
				return list, err
			}
		}
		list = append(list, o)
	}
	return list, nil
}
