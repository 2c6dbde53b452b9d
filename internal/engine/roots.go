package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// layout is what a generation is made of.
type layout struct {
	spec    driver.Spec
	workdir string
	roots   []root
	seeds   map[string]string
	notes   []hostview.Note
}

// layOut makes the folders for a sandbox's next generation and describes it. No
// generation runs over them. The caller holds op.
func (e *Engine) layOut(ctx context.Context, b *box) (l layout, err error) {
	e.trace("lay out")
	r := b.record()
	if err := e.mountDisk(b); err != nil {
		return l, err
	}
	here, there := b.base(), b.dir
	if b.disk != nil {
		there = filepath.Join(b.dir, diskPoint)
	}
	l.roots, l.seeds = slices.Clone(r.Roots), maps.Clone(r.Seeds)
	if r.Memory != nil {
		if err := b.clearAhead(l.roots); err != nil {
			return l, err
		}
	}
	if l.seeds == nil {
		l.seeds = map[string]string{}
	}
	used := map[string]bool{}
	made := map[string]bool{}
	req := run.Request{
		Level: r.Sandbox.Isolation, Rootfs: r.Rootfs, UID: r.UID, GID: r.GID, Workdir: e.workdirOf(r), Limits: r.Sandbox.Limits, IUnderstand: true,
	}
	for name, value := range r.Spec.Env {
		req.SetEnv = append(req.SetEnv, name+"="+value)
	}
	slices.Sort(req.SetEnv)
	for _, m := range r.Sandbox.Mounts {
		mount, err := hostview.ParseMount(m, "/", "/")
		if err != nil {
			return l, err
		}
		req.Mounts = append(req.Mounts, mount)
	}
	s := run.Staying{
		ID: r.Sandbox.ID, Hostname: r.Hostname, MachineID: r.MachineID, Here: here, There: there,
		Overlay: func(target string, ground []string, hostIDs bool) (*driver.Overlay, error) {
			i := slices.IndexFunc(l.roots, func(r root) bool { return r.Target == target })
			if i < 0 {
				i = len(l.roots)
				n := 0
				for _, r := range l.roots {
					n = max(n, r.N+1)
				}
				l.roots = append(l.roots, root{N: n, Target: target, Fresh: true})
				made[target] = true
			}
			used[target] = true
			l.roots[i].Ground, l.roots[i].HostIDs = ground, hostIDs
			o, err := e.overlay(b, l.roots[i], there)
			l.roots[i].Fresh = false
			return o, err
		},
	}
	if h := r.Held; h != nil {
		req.SetEnv = append(req.SetEnv, h.Env...)
		req.Mounts = append(req.Mounts, h.Mounts...)
		req.DenyRead, req.DenyWrite = h.DenyRead, h.DenyWrite
	}
	way, err := e.openWay(ctx, b)
	if err != nil {
		return l, err
	}
	if way != nil {
		s.Way, s.Policy = way.opened, way.policy
	}
	if len(r.Plan) > 0 {
		s.Workspace = &workspace.Plan{Dir: r.Plan[0].Path, Roots: r.Plan}
	}
	l.spec, l.notes, err = e.host.Stay(req, s)
	if err != nil {
		return l, err
	}
	if err := e.addVolumes(ctx, b, &l.spec.Root); err != nil {
		return l, err
	}
	l.sow(made)
	l.workdir = l.spec.Workdir
	// Where commands start may be gone when the sandbox starts again; each enters
	// its own.
	l.spec.Workdir = "/"
	l.spec.Entry.Agent, l.spec.Own = e.opt.Init, b.driverDir()
	if b.disk != nil {
		if l.spec.Mount, err = b.disk.Fresh(); err != nil {
			return l, err
		}
		l.spec.MountAt = there
		if err := os.MkdirAll(there, 0o700); err != nil {
			return l, storage("show the sandbox's disk", err)
		}
	}
	return l, nil
}

// diskPoint is an empty folder of a sandbox's, at which whoever builds it, and
// nobody else, sees its disk.
const diskPoint = "disk"

// overlay makes the folders of a writable place.
func (e *Engine) overlay(b *box, r root, there string) (*driver.Overlay, error) {
	const what = "prepare the sandbox's files"
	lower := slices.Clone(r.Ground)
	if r.Chain != "" {
		dirs, err := e.layers.Dirs(r.Chain)
		if err != nil {
			return nil, err
		}
		lower = append(lower, dirs...)
	}
	dir, upper := b.rootDir(r.N), b.upper(r.N)
	_, err := os.Lstat(upper)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !r.Fresh:
		return nil, bailey.Errorf(bailey.CodeRestoreIncomplete, "start the sandbox "+b.id+" from its files", "restore it from a snapshot",
			"the folder %s, with what was written below %s, is not there", upper, r.Target)
	case errors.Is(err, fs.ErrNotExist):
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, storage(what, err)
		}
		// Made under another name, so that there never is one that does not look
		// right.
		making := filepath.Join(dir, ".upper")
		err := anew(making)
		if err == nil {
			top := lower[len(lower)-1]
			if in, ok := strings.CutPrefix(top, there+"/"); ok {
				top = filepath.Join(b.base(), in) // on the sandbox's disk, which only its builder sees there
			}
			err = workspace.LookLike(making, top)
		}
		if err == nil {
			err = os.Rename(making, upper)
		}
		if err != nil {
			return nil, storage(what, err)
		}
	case err != nil:
		return nil, storage(what, err)
	}
	// The kernel has left marks in it by which the next mount would refuse it.
	if err := anew(filepath.Join(dir, "work")); err != nil {
		return nil, storage(what, err)
	}
	return &driver.Overlay{Lower: lower, Layer: filepath.Join(there, rootsDir, strconv.Itoa(r.N)), HostIDs: r.HostIDs}, nil
}

// anew makes an empty folder, in place of one that is there.
func anew(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrExist) {
		if err = folder.RemoveTree(dir); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	return err
}

// sow leaves out generated files and links that were written into a place that
// stays before: what the sandbox has made of them is its own. In a root file
// system one whose content is another now is replaced. made are the places that
// are new.
func (l *layout) sow(made map[string]bool) {
	l.spec.Root.Places = slices.DeleteFunc(l.spec.Root.Places, func(p driver.Place) bool {
		if p.Kind != driver.File && p.Kind != driver.Symlink {
			return false
		}
		in := ""
		for _, r := range l.roots {
			if (r.Target == "/" || strings.HasPrefix(p.Target, r.Target+"/")) && len(r.Target) > len(in) {
				in = r.Target
			}
		}
		switch in {
		case "":
			return false // in memory
		case "/":
			text := p.Content
			if p.Kind == driver.Symlink {
				text = []byte(p.Source)
			}
			sum := sha256.Sum256(text)
			digest := hex.EncodeToString(sum[:])
			if l.seeds[p.Target] == digest {
				return true
			}
			l.seeds[p.Target] = digest
			return false
		}
		return !made[in]
	})
}

// make makes a sandbox's folder and locks it.
func (b *box) make() error {
	if err := os.Mkdir(b.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return storage("make the sandbox's folder", err)
	}
	var err error
	b.lock, err = takeLock(filepath.Join(b.dir, lockFile))
	return err
}

// claim is make and hold, where that is not done yet.
func (b *box) claim() error {
	if b.lock == nil {
		if err := b.make(); err != nil {
			return err
		}
	}
	return b.hold()
}

// hold keeps the layers of the image's store from being removed. After an error none
// is kept.
func (b *box) hold() (err error) {
	r := b.record()
	if r.Rootfs == nil || len(b.held) > 0 {
		return nil
	}
	defer func() {
		if err != nil {
			closeFiles(b.held)
			b.held = nil
		}
	}()
	for _, l := range r.Rootfs.Layers {
		if !strings.HasPrefix(l, b.e.home+"/") {
			continue // a folder of the user's own, used in place
		}
		dir, err := os.Open(filepath.Dir(l))
		if err == nil {
			b.held = append(b.held, dir)
			err = unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		}
		if err != nil {
			return bailey.Errorf(bailey.CodeRestoreIncomplete, "use the layer "+l, "", "%w", err)
		}
	}
	return nil
}

// close lets go of a sandbox's folder.
func (b *box) close() error {
	var err error
	if b.disk != nil {
		err = b.disk.Close()
	}
	for _, f := range b.held {
		f.Close()
	}
	if b.lock != nil {
		b.lock.Close()
	}
	return err
}
