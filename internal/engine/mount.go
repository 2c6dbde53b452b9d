package engine

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/hostview"
)

// mounting is a mount that is being added. It stands in the record from before it
// is tried until it has been or has failed.
type mounting struct {
	Mount  string           `json:"mount,omitempty"`
	Volume *api.VolumeMount `json:"volume,omitempty"`
}

// openMounts has mounts finished that the daemon before has begun. It comes after
// openVolumes.
func (e *Engine) openMounts(context.Context) error {
	e.hooks.adopted = append(e.hooks.adopted, e.goOnMounting)
	return nil
}

// AddMount shows a folder or file of the host, or a volume, in a sandbox that runs,
// waking it if need be, and in all its later generations. mount is as in
// SandboxSpec.Mounts. One that is there already, the same in all, is no error.
func (e *Engine) AddMount(ctx context.Context, who Caller, ref, mount string, v *api.VolumeMount) (api.Sandbox, error) {
	if (mount == "") == (v == nil) {
		return api.Sandbox{}, bailey.Errorf(bailey.CodeUsage, "add a mount", "name one", "it is either a folder of the host or a volume")
	}
	one := api.SandboxSpec{}
	m := mounting{Mount: mount, Volume: v}
	if v != nil {
		one.Volumes = []api.VolumeMount{*v}
	} else {
		one.Mounts = []string{mount}
	}
	if err := checkSpec(who, one); err != nil {
		return api.Sandbox{}, err
	}
	b, err := e.find(ctx, who, ref)
	if err != nil {
		return api.Sandbox{}, err
	}
	if err := b.begin(ctx); err != nil {
		return api.Sandbox{}, err
	}
	defer b.done()
	if err := e.wake(ctx, b); err != nil {
		return api.Sandbox{}, err
	}
	g := b.generation()
	s, ok := g.instance.(driver.Staying)
	if !ok {
		return api.Sandbox{}, bailey.Errorf(bailey.CodeNotAvailable, "add a mount to the sandbox "+b.id, "make the sandbox with it", "nothing can be added at its isolation level")
	}
	r := b.record()
	if m.in(&r.Sandbox) {
		return e.show(b), nil
	}
	place, err := e.placeOf(ctx, b, m)
	if err != nil {
		return api.Sandbox{}, err
	}
	for _, t := range targets(r) {
		if t == place.Target {
			return api.Sandbox{}, bailey.Errorf(bailey.CodeConflict, "add a mount to the sandbox "+b.id, "choose another place", "something is shown at %s already", t)
		}
	}
	if err := e.update(ctx, b, func(r *record) { r.Mounting = &m }); err != nil {
		return api.Sandbox{}, err
	}
	e.trace("mount")
	if err := s.Attach(ctx, place); err != nil {
		return api.Sandbox{}, errors.Join(err, e.update(ctx, b, func(r *record) { r.Mounting = nil }))
	}
	if err := e.update(ctx, b, m.mounted); err != nil {
		return api.Sandbox{}, err
	}
	return e.show(b), nil
}

// in says whether a sandbox has the mount.
func (m mounting) in(s *api.Sandbox) bool {
	if m.Volume != nil {
		return slices.Contains(s.Volumes, *m.Volume)
	}
	return slices.Contains(s.Mounts, m.Mount)
}

// mounted writes that the mount is there.
func (m *mounting) mounted(r *record) {
	r.Mounting = nil
	if m.Volume != nil {
		r.Sandbox.Volumes = append(slices.Clone(r.Sandbox.Volumes), *m.Volume)
	} else {
		r.Sandbox.Mounts = append(slices.Clone(r.Sandbox.Mounts), m.Mount)
	}
}

// targets lists where something is shown in a sandbox.
func targets(r *record) (list []string) {
	for _, root := range r.Roots {
		list = append(list, root.Target)
	}
	for _, v := range r.Sandbox.Volumes {
		list = append(list, v.Target)
	}
	for _, text := range r.Sandbox.Mounts {
		if m, err := hostview.ParseMount(text, "/", "/"); err == nil {
			list = append(list, m.Target)
		}
	}
	return list
}

// placeOf says how a mount is shown.
func (e *Engine) placeOf(ctx context.Context, b *box, m mounting) (driver.Place, error) {
	if m.Volume != nil {
		return e.volumePlace(ctx, b, *m.Volume)
	}
	mount, err := hostview.ParseMount(m.Mount, "/", "/")
	if err != nil {
		return driver.Place{}, err
	}
	if err := hostview.CheckMount(hostview.Host{Home: e.host.Home, BaileyHome: e.home}, mount, false); err != nil {
		return driver.Place{}, err
	}
	source, err := filepath.EvalSymlinks(mount.Source)
	if err != nil {
		return driver.Place{}, bailey.Errorf(bailey.CodeNotFound, "mount "+mount.Source, "", "%w", err)
	}
	fi, err := os.Stat(source)
	if err != nil {
		return driver.Place{}, bailey.Errorf(bailey.CodeNotFound, "mount "+mount.Source, "", "%w", err)
	}
	return driver.Place{Kind: driver.Bind, Source: source, Target: path.Clean(mount.Target), IsDir: fi.IsDir(), ReadOnly: !mount.Writable, HostIDs: true}, nil
}

// goOnMounting finishes what the daemon before began: the mount may be there
// already, and then lies over itself.
func (e *Engine) goOnMounting(ctx context.Context, g *generation) error {
	m := g.box.record().Mounting
	if m == nil {
		return nil
	}
	place, err := e.placeOf(ctx, g.box, *m)
	s, ok := g.instance.(driver.Staying)
	if err == nil && ok {
		err = s.Attach(ctx, place)
	}
	if err != nil { // whoever asked for it was not told that it is there
		e.log.Warn("go on with a mount", "sandbox", g.box.id, "error", err)
		return e.update(ctx, g.box, func(r *record) { r.Mounting = nil })
	}
	return e.update(ctx, g.box, m.mounted)
}
