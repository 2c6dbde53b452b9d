package run

import (
	"slices"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Staying is what a sandbox that stays has in place of a run: every place in it
// that can be written to is an overlay whose writes somebody else keeps.
type Staying struct {
	ID        string
	Hostname  string
	MachineID string // 32 hexadecimal digits
	// Here is the folder for what it needs of files on the host: copies of
	// workspaces, empty folders to stand on, generated files. There is its path for
	// whoever builds the sandbox.
	Here, There string
	// Workspace is how the workspace is seen, with its copies in Here; nil is none.
	Workspace *workspace.Plan
	// Way is what the open way out gives the sandbox; nil is no network.
	Way    *control.Opened
	Policy control.Policy // that it was opened with
	// Overlay gives a writable place over read-only folders of the host, lowest
	// first. hostIDs is as in driver.Overlay.
	Overlay func(target string, ground []string, hostIDs bool) (*driver.Overlay, error)
}

// Stay gives all that the driver has to know of a sandbox that stays, but what is
// run in it. Of req it takes Level, Rootfs, UID, GID, SetEnv, Mounts, Workdir,
// Limits, Nested, IUnderstand and the paths denied. The layers of Rootfs are not marked as being
// in use.
func (h *Host) Stay(req Request, s Staying) (spec driver.Spec, notes []hostview.Note, err error) {
	b := &builder{name: s.ID, staying: &s, req: req, host: h, plan: s.Workspace, base: place{s.Here, s.There}}
	if b.plan == nil {
		b.plan = &workspace.Plan{}
	}
	if err := b.chooseOwner(); err != nil {
		return spec, nil, err
	}
	b.chooseUser()
	var env []string
	if req.Level.OwnRoot() {
		if err := b.checkMounts(); err != nil {
			return spec, nil, err
		}
		if err = b.containerRoot(); err == nil {
			env, err = b.containerEnv()
		}
	} else {
		b.look(b.viewInput())
		var view hostview.View
		view, err = b.processRoot()
		env, notes = view.Env, view.Notes
		if b.req.Workdir == "" {
			b.req.Workdir = view.HomeDir
		}
	}
	if err != nil {
		return spec, nil, err
	}
	hidden, err := b.deny()
	if err != nil {
		return spec, nil, err
	}
	notes = append(notes, hidden...)
	if env, err = b.gateEnv(env, s.Way); err != nil {
		return spec, nil, err
	}
	if err := b.placeTrust(s.Way); err != nil {
		return spec, nil, err
	}
	if b.req.Workdir == "" {
		b.req.Workdir = "/"
	}
	return driver.Spec{
		ID: s.ID, Level: req.Level, Hostname: s.Hostname, Root: b.root, Workdir: b.req.Workdir, Env: env,
		User:   driver.User{UID: b.req.UID, GID: b.req.GID, HostUID: b.owner.uid, HostGID: b.owner.gid},
		Limits: req.Limits, Defaults: Defaults(), Disks: []string{s.Here}, NestedSandboxes: req.Nested,
		Outlet: s.Way != nil,
	}, notes, nil
}

// writable places an overlay that somebody keeps.
func (b *builder) writable(target string, ground []string, hostIDs bool) (driver.Place, error) {
	o, err := b.staying.Overlay(target, ground, hostIDs)
	return driver.Place{Kind: driver.CoW, Target: target, IsDir: true, HostIDs: hostIDs, Overlay: o}, err
}

// keep makes what would be thrown away with a run a place that stays: the home,
// the folder for temporary files, layers in memory and copies of workspaces.
func (b *builder) keep() error {
	if b.staying == nil {
		return nil
	}
	for i, p := range b.root.Places {
		var ground string
		switch {
		case p.Kind == driver.CoW && p.Overlay.Layer == "":
			ground = p.Overlay.Lower[0]
		case p.Kind == driver.Scratch:
			ground = p.Source
		default:
			continue
		}
		kept, err := b.writable(p.Target, []string{ground}, p.HostIDs)
		if err != nil {
			return err
		}
		b.root.Places[i] = kept
	}
	return nil
}

// copied gives the folder of the host that a copy of it shows; false for what is
// none.
func (b *builder) copied(source string) (string, bool) {
	i := slices.IndexFunc(b.plan.Roots, func(r folder.Root) bool {
		return r.Mode == folder.ModeCopy && workspace.Tree(b.base.there, r) == source
	})
	if i < 0 {
		return "", false
	}
	return b.plan.Roots[i].Path, true
}
