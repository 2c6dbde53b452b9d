package engine

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// lowWater is how much room the data folder's file system must have for a sandbox
// to be made, in bytes: what runs already must not fail for want of it.
const lowWater = 256 << 20

// roomLeft refuses to make more where the disk is nearly full.
func (e *Engine) roomLeft() error {
	var st unix.Statfs_t
	if err := unix.Statfs(e.home, &st); err != nil {
		return storage("look at the data folder's disk", err)
	}
	mark := int64(lowWater)
	if e.opt.LowWater != 0 {
		mark = e.opt.LowWater
	}
	free := int64(st.Bavail) * st.Bsize
	if free < mark {
		return bailey.Errorf(bailey.CodeDiskFull, "create a sandbox", "see what `bailey gc` can remove, or delete sandboxes and snapshots",
			"the disk of %s has %d MiB left, and %d MiB are kept for those that are there", e.home, free>>20, mark>>20)
	}
	return nil
}

// GC says what on the host belongs to nobody, and unless dry removes it. Only an
// Admin may.
func (e *Engine) GC(ctx context.Context, who Caller, dry bool) ([]api.Orphan, error) {
	if !who.Admin {
		return nil, bailey.Errorf(bailey.CodeForbidden, "collect what belongs to nobody", "use a key with the scope admin", "it is everybody's")
	}
	var list []api.Orphan
	for _, look := range append([]func(ctx context.Context, dry bool) ([]api.Orphan, error){e.orphanFolders, e.orphanKept, e.orphanGroups}, e.hooks.orphans...) {
		found, err := look(ctx, dry)
		list = append(list, found...)
		if err != nil {
			return list, err
		}
	}
	return list, nil
}

// orphanFolders are folders of sandboxes without a record.
func (e *Engine) orphanFolders(_ context.Context, dry bool) (list []api.Orphan, err error) {
	dir := filepath.Join(e.home, sandboxesDir)
	names, err := os.ReadDir(dir)
	if err != nil {
		return nil, storage("list the sandboxes' folders", err)
	}
	for _, f := range names {
		id, _, going := strings.Cut(f.Name(), goneSuffix)
		e.mu.Lock()
		known := e.boxes[f.Name()] != nil || e.pools.has(f.Name())
		e.mu.Unlock()
		if known || going && e.isRemoving(f.Name()) {
			continue
		}
		o := api.Orphan{Kind: "folder", Name: filepath.Join(sandboxesDir, f.Name()), Action: "remove it", Bytes: usage(filepath.Join(dir, f.Name())),
			Why: "no sandbox has the id " + id}
		if going {
			o.Why = "its removal was interrupted"
		}
		if !dry {
			lock, lerr := takeLock(filepath.Join(dir, f.Name(), lockFile))
			if lerr != nil && f.IsDir() {
				o.Why, o.Action = o.Why+", but somebody holds its lock", "leave it"
			} else {
				if lock != nil {
					lock.Close()
				}
				if err := folder.RemoveTree(filepath.Join(dir, f.Name())); err != nil {
					o.Action = "it could not be removed: " + err.Error()
				} else {
					o.Done = true
				}
			}
		}
		list = append(list, o)
	}
	return list, nil
}

// orphanKept is what the keeper holds for sandboxes that have ended.
func (e *Engine) orphanKept(ctx context.Context, dry bool) (list []api.Orphan, err error) {
	if e.keeper == nil {
		return nil, nil
	}
	kept, err := e.keeper.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kept {
		e.mu.Lock()
		known := e.boxes[k.ID] != nil || e.pools.has(k.ID)
		e.mu.Unlock()
		if known {
			continue
		}
		o := api.Orphan{Kind: "sandbox", Name: k.ID, Why: "the keeper holds it, and no record names it", Action: "let go of it, which ends it"}
		if !dry {
			if err := e.keeper.Drop(ctx, k.ID); err != nil {
				return list, err
			}
			o.Done = true
		}
		list = append(list, o)
	}
	return list, nil
}

// orphanGroups are control groups of sandboxes that are not there any more.
func (e *Engine) orphanGroups(ctx context.Context, dry bool) (list []api.Orphan, err error) {
	var names []string
	if dry {
		names = e.linux.Stale(e.alive)
	} else {
		names, err = e.linux.Sweep(ctx, e.alive)
	}
	for _, name := range names {
		list = append(list, api.Orphan{Kind: "cgroup", Name: name, Why: "the sandbox that it was made for has ended", Action: "end what is in it, and remove it", Done: !dry})
	}
	return list, err
}

// sweepOf ends what a crash has left of an earlier generation that no record knew
// of yet, and says whether there was something.
func (e *Engine) sweepOf(ctx context.Context, id string) bool {
	removed, err := e.linux.Sweep(ctx, func(other string) bool { return other != id })
	return err == nil && len(removed) > 0
}

// alive says whether a control group's sandbox may live: one of this engine's, or a
// run of the same data folder.
func (e *Engine) alive(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.boxes[id] != nil || e.pools.has(id) || e.folder.Alive(id)
}

// usage adds up what the files below dir occupy.
func usage(dir string) (n int64) {
	filepath.WalkDir(dir, func(_ string, f fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if fi, err := f.Info(); err == nil {
			if st, ok := fi.Sys().(*unix.Stat_t); ok {
				n += st.Blocks * 512
			} else {
				n += fi.Size()
			}
		}
		return nil
	})
	return n
}
