package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/store/disk"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// The layout of a volume's folder:
//
//	volumes/NAME/data      its files; the owners of files are ids as sandboxes see them
//	volumes/NAME/disk.img  with a limit: the file system that is mounted at data
const (
	volumesDir = "volumes"
	volumeData = "data"
)

// volumes are locked while one is made, deleted, mounted or given to a sandbox.
type volumes struct {
	mu   sync.Mutex
	held map[string]map[string]bool // by volume: sandboxes that run with it, or are about to
}

// volumeDoc is what is known about a volume: a row of the database, in JSON.
type volumeDoc struct {
	Limit    int64 `json:"limit,omitempty"`
	Deleting bool  `json:"deleting,omitempty"`
}

// openVolumes goes on with what a crash has interrupted.
func (e *Engine) openVolumes(ctx context.Context) error {
	rows, err := e.db.Volumes(ctx, "")
	if err != nil {
		return err
	}
	for _, r := range rows {
		var d volumeDoc
		if err := json.Unmarshal(r.Doc, &d); err != nil {
			e.log.Error("a volume's row", "volume", r.Name, "error", err) // it is in nobody's way
			continue
		}
		if d.Deleting {
			err = e.removeVolume(ctx, r.Name)
		} else {
			err = e.makeVolume(r.Name, d.Limit)
		}
		if err != nil {
			e.log.Error("make a volume whole", "volume", r.Name, "error", err)
		}
	}
	e.volumes.held = map[string]map[string]bool{}
	e.hooks.adopted = append(e.hooks.adopted, func(_ context.Context, g *generation) error {
		e.volumes.mu.Lock()
		defer e.volumes.mu.Unlock()
		for _, v := range g.box.record().Sandbox.Volumes {
			e.holdVolume(v.Volume, g.box.id)
		}
		return nil
	})
	e.hooks.ended = append(e.hooks.ended, func(g *generation, _ bailey.End) { e.leaveVolumes(g.box) })
	e.hooks.gone = append(e.hooks.gone, func(_ context.Context, b *box) error { e.leaveVolumes(b); return nil })
	e.hooks.orphans = append(e.hooks.orphans, e.orphanVolumes)
	return nil
}

func (e *Engine) volumeDir(name string) string { return filepath.Join(e.home, volumesDir, name) }

// CreateVolume makes named storage; limit in bytes, 0 is none. A limit is kept by
// a file system of that size, which takes root.
func (e *Engine) CreateVolume(ctx context.Context, who Caller, name string, limit int64) (api.Volume, error) {
	const what = "create the volume "
	if !nameForm.MatchString(name) {
		return api.Volume{}, bailey.Errorf(bailey.CodeUsage, what+printable(name), "use letters, digits, dots, dashes and underscores, at most 63", "it cannot be a name")
	}
	if limit < 0 || limit > 0 && limit < disk.Min {
		return api.Volume{}, bailey.Errorf(bailey.CodeUsage, what+name, "ask for 4 MiB or more, or no limit", "%d bytes are too few for a file system", limit)
	}
	if limit > 0 {
		if err := disk.Available(); err != nil {
			return api.Volume{}, err
		}
	}
	doc, err := json.Marshal(volumeDoc{Limit: limit})
	if err != nil {
		return api.Volume{}, err
	}
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	now := e.clock.Now().UTC()
	var added bool
	err = e.db.Update(ctx, func(tx *sql.Tx) error {
		added, err = state.AddVolume(ctx, tx, state.Volume{Name: name, Owner: who.Name, Created: now, Doc: doc})
		return err
	})
	if err == nil && !added {
		err = bailey.Errorf(bailey.CodeConflict, what+name, "choose another name", "there is one of that name")
	}
	if err != nil {
		return api.Volume{}, err
	}
	e.trace("row volume")
	if err := e.makeVolume(name, limit); err != nil {
		return api.Volume{}, errors.Join(err, e.removeVolume(context.WithoutCancel(ctx), name))
	}
	return api.Volume{Name: name, Created: now, Limit: limit}, nil
}

// makeVolume makes what is missing of a volume's folder.
func (e *Engine) makeVolume(name string, limit int64) error {
	dir := e.volumeDir(name)
	data := filepath.Join(dir, volumeData)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return storage("make the volume", err)
	}
	if err := os.Mkdir(data, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return storage("make the volume", err)
	}
	if limit == 0 {
		// Whoever a sandbox's user is may write; nobody else of the host can enter.
		return storageOrNil("make the volume", os.Chmod(data, 0o777))
	}
	return makeDisk(filepath.Join(dir, diskFile), limit)
}

func storageOrNil(what string, err error) error {
	if err == nil {
		return nil
	}
	return storage(what, err)
}

// makeDisk makes a file system of a size if it is not there: under another name
// first, so that what has the name is whole.
func makeDisk(path string, size int64) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	making := path + ".new"
	if err := os.Remove(making); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return storage("make the disk", err)
	}
	if err := disk.CreateLasting(making, size); err != nil {
		return err
	}
	return storageOrNil("make the disk", os.Rename(making, path))
}

// volume finds a volume's row.
func (e *Engine) volume(ctx context.Context, name string) (r state.Volume, d volumeDoc, err error) {
	var rows []state.Volume
	if name != "" {
		rows, err = e.db.Volumes(ctx, name)
	}
	if err == nil && len(rows) == 0 {
		err = bailey.Errorf(bailey.CodeNotFound, "use the volume "+printable(name), "`bailey volume ls` lists them", "there is no such volume")
	}
	if err != nil {
		return r, d, err
	}
	if err := json.Unmarshal(rows[0].Doc, &d); err != nil {
		return r, d, bailey.Errorf(bailey.CodeStorage, "use the volume "+name, "", "%w", err)
	}
	if d.Deleting {
		return r, d, bailey.Errorf(bailey.CodeNotFound, "use the volume "+name, "", "it is being deleted")
	}
	return rows[0], d, nil
}

// addVolumes shows a sandbox's volumes.
func (e *Engine) addVolumes(ctx context.Context, b *box, r *driver.Root) error {
	for _, v := range b.record().Sandbox.Volumes {
		p, err := e.volumePlace(ctx, b, v)
		if err != nil {
			return err
		}
		r.Places = append(r.Places, p)
	}
	return nil
}

// volumePlace is how a sandbox sees a volume. Its ids are those inside, so that
// several sandboxes agree on them. It stays mounted until leaveVolumes.
func (e *Engine) volumePlace(ctx context.Context, b *box, v api.VolumeMount) (driver.Place, error) {
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	row, d, err := e.volume(ctx, v.Volume)
	if err != nil {
		return driver.Place{}, err
	}
	if row.Owner != b.record().Sandbox.Owner {
		return driver.Place{}, bailey.Errorf(bailey.CodeForbidden, "use the volume "+v.Volume, "make one of your own", "it is %s's", row.Owner)
	}
	data := filepath.Join(e.volumeDir(v.Volume), volumeData)
	if d.Limit > 0 {
		if err := e.mountVolume(ctx, v.Volume); err != nil {
			return driver.Place{}, err
		}
	}
	e.holdVolume(v.Volume, b.id)
	return driver.Place{Kind: driver.Bind, Target: v.Target, Source: data, IsDir: true, ReadOnly: v.ReadOnly}, nil
}

// Volumes lists volumes: the caller's own, or with Admin all.
func (e *Engine) Volumes(ctx context.Context, who Caller) ([]api.Volume, error) {
	rows, err := e.db.Volumes(ctx, "")
	if err != nil {
		return nil, err
	}
	list := []api.Volume{}
	for _, r := range rows {
		var d volumeDoc
		if err := json.Unmarshal(r.Doc, &d); err != nil || d.Deleting || !who.may(r.Owner) {
			continue
		}
		v := api.Volume{Name: r.Name, Created: r.Created, Limit: d.Limit, Users: e.volumeUsers(r.Name)}
		if d.Limit == 0 {
			v.Size = usage(filepath.Join(e.volumeDir(r.Name), volumeData))
		} else if st, err := os.Stat(filepath.Join(e.volumeDir(r.Name), diskFile)); err == nil {
			if sys, ok := st.Sys().(*unix.Stat_t); ok {
				v.Size = sys.Blocks * 512
			}
		}
		list = append(list, v)
	}
	return list, nil
}

// DeleteVolume removes a volume that nobody uses.
func (e *Engine) DeleteVolume(ctx context.Context, who Caller, name string) error {
	e.volumes.mu.Lock()
	defer e.volumes.mu.Unlock()
	row, d, err := e.volume(ctx, name)
	if err != nil {
		return err
	}
	if !who.may(row.Owner) {
		return bailey.Errorf(bailey.CodeForbidden, "delete the volume "+name, "", "it is %s's", row.Owner)
	}
	if users := e.volumeUsers(name); len(users) > 0 {
		return bailey.Errorf(bailey.CodeConflict, "delete the volume "+name, "delete those first", "sandboxes have it: %v", users)
	}
	d.Deleting = true
	doc, err := json.Marshal(d)
	if err != nil {
		return err
	}
	err = e.db.Update(ctx, func(tx *sql.Tx) error { return state.SetVolume(ctx, tx, name, doc) })
	if err != nil {
		return err
	}
	e.trace("row volume deleting")
	return e.removeVolume(context.WithoutCancel(ctx), name)
}

// removeVolume removes what is there of a volume, and its row at last.
func (e *Engine) removeVolume(ctx context.Context, name string) error {
	dir := e.volumeDir(name)
	if err := e.unmountVolume(name); err != nil {
		return err
	}
	if err := folder.RemoveTree(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return e.db.Update(ctx, func(tx *sql.Tx) error { return state.DropVolume(ctx, tx, name) })
}
