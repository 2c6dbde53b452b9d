package engine

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine/way"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/store/state"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// origin is what a sandbox starts from: a root file system, or that of another
// sandbox with the files that a snapshot of it holds.
type origin struct {
	Template string
	Image    string // with digest
	Digest   string // of the image
	Parent   string // snapshot
	Lineage  string // "" begins one
	Rootfs   *rootfs.Root
	Plan     []folder.Root // workspaces, as they were planned for the parent
	Roots    []root        // with the chain of each; no two sandboxes share one that is not sealed
	Seeds    map[string]string
	UID, GID int    // -1: not said
	Names    string // file of a name table to begin with
	Notes    []string
	// Ready, when given, is called once it runs and before anybody has it.
	Ready func(ctx context.Context, sandbox string) error
	// Level and LevelReason are of the parent; 0 chooses.
	Level       bailey.Isolation
	LevelReason string
	Receipt     *api.Receipt
	// Release, when given, is called once the record says what it starts from.
	Release func()
}

// Create makes a sandbox and returns when it runs. When ctx ends first the
// sandbox is taken back, or deleted. With the idempotency key of an earlier call
// it gives the sandbox of that one.
func (e *Engine) Create(ctx context.Context, who Caller, spec api.SandboxSpec) (api.Sandbox, error) {
	if err := checkSpec(who, spec); err != nil {
		return api.Sandbox{}, err
	}
	if spec.Snapshot != "" {
		var err error
		if spec, err = e.inherit(ctx, who, spec); err != nil {
			return api.Sandbox{}, err
		}
	}
	return e.createFrom(ctx, who, spec, nil)
}

// createFrom is Create for a spec that was checked. Without an origin it is found
// by the spec.
func (e *Engine) createFrom(ctx context.Context, who Caller, spec api.SandboxSpec, from *origin) (api.Sandbox, error) {
	for {
		var w *warm
		why := ""
		if from == nil {
			w, why = e.takeWarm(spec)
		}
		b, earlier, err := e.announce(ctx, who, spec, w, why)
		if w != nil && b == nil && !e.pools.put(w) {
			e.discard(context.WithoutCancel(ctx), w)
		}
		if err != nil {
			return api.Sandbox{}, err
		}
		if b != nil {
			err := e.make(ctx, who, b, from)
			if err != nil {
				terr := e.takeBack(context.WithoutCancel(ctx), b)
				if terr != nil {
					e.log.Error("take a sandbox back", "sandbox", b.id, "error", terr)
				}
				err = errors.Join(err, terr)
				var one *bailey.Error
				if errors.As(err, &one) && errors.Unwrap(err) == nil {
					// The first reason is what the caller can act on.
					return api.Sandbox{}, one
				}
				return api.Sandbox{}, err
			}
			defer b.done()
			if from != nil && from.Receipt != nil && from.Receipt.HashPending {
				e.hashSoon(from.Parent)
			}
			return e.show(b), nil
		}
		// The same key came before. Its sandbox may be being made still.
		e.mu.Lock()
		old := e.boxes[earlier]
		e.mu.Unlock()
		if old == nil {
			_, r, err := e.look(ctx, who, earlier)
			if bailey.CodeOf(err) == bailey.CodeNotFound {
				continue // it was taken back just now
			}
			if err != nil {
				return api.Sandbox{}, err
			}
			return r.Sandbox, nil
		}
		if err := old.begin(ctx); err != nil {
			return api.Sandbox{}, err
		}
		old.done()
		e.mu.Lock()
		there := e.boxes[earlier] == old
		e.mu.Unlock()
		if there {
			return e.show(old), nil
		}
	}
}

// announce writes the row of a sandbox that is going to be made, and gives its
// box with op held; or the id of the sandbox that was made with the same
// idempotency key. w is what it is to be made of, if it was made ahead, and why says
// so or why not.
func (e *Engine) announce(ctx context.Context, who Caller, spec api.SandboxSpec, w *warm, why string) (b *box, earlier string, err error) {
	key := spec.IdempotencyKey
	text, err := json.Marshal(spec)
	if err != nil {
		return nil, "", bailey.Errorf(bailey.CodeUsage, "read the spec", "", "%w", err)
	}
	sum := sha256.Sum256(text)
	now := e.clock.Now().UTC()
	id, machine := newID(), ""
	if w != nil {
		id, machine = w.box.id, w.box.record().MachineID
	} else {
		machine = newMachineID()
	}
	r := &record{Spec: spec, UID: -1, GID: -1, Hostname: id, MachineID: machine, From: api.StateCreating}
	if spec.Name != "" {
		r.Hostname = hostnameOf(spec.Name)
	}
	r.Sandbox = api.Sandbox{
		ID: id, Name: spec.Name, State: api.StateCreating, Generation: 1, Owner: who.Name, Created: now, Lineage: id,
		Env: spec.Env, Limits: spec.Limits, Labels: spec.Labels, Mounts: spec.Mounts, Volumes: spec.Volumes, Workspace: spec.Workspace, Workdir: spec.Workdir,
		Timeout: spec.Timeout, Idle: spec.Idle, Warm: why,
	}
	if r.Life, err = e.lifeOf(who.Name, spec); err != nil {
		return nil, "", err
	}
	b = newBox(e, id, r)
	b.warm = w
	if err := b.begin(ctx); err != nil {
		return nil, "", err
	}
	for _, changing := range e.hooks.changing {
		undo := changing(b, nil, r)
		defer func() {
			if undo != nil && (err != nil || b == nil) {
				undo()
			}
		}()
	}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil, "", bailey.Errorf(bailey.CodeNotAvailable, "create a sandbox", "", "the engine is being closed")
	}
	e.boxes[id] = b
	e.mu.Unlock()
	e.trace("row creating")
	err = e.storeWith(ctx, nil, r, func(tx *sql.Tx) error {
		if key == "" {
			return nil
		}
		earlier, err = state.Claim(ctx, tx, who.Name, key, hex.EncodeToString(sum[:]), id, now)
		if earlier != "" {
			return errEarlier
		}
		return err
	})
	if err != nil {
		e.forget(b)
		if errors.Is(err, errEarlier) {
			return nil, earlier, nil
		}
		return nil, "", err
	}
	for _, told := range e.hooks.told {
		told(b, nil, r)
	}
	return b, "", nil
}

var errEarlier = errors.New("the key was used before")

// forget takes a box out of the list.
func (e *Engine) forget(b *box) {
	e.mu.Lock()
	delete(e.boxes, b.id)
	e.mu.Unlock()
}

// make makes an announced sandbox. The caller holds op, and takes the sandbox back
// after an error.
func (e *Engine) make(ctx context.Context, who Caller, b *box, from *origin) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	if err := e.admit(ctx, b); err != nil {
		return err
	}
	spec := b.record().Spec
	if from == nil {
		var err error
		if from, err = e.originOf(ctx, who, &spec); err != nil {
			return err
		}
	}
	if from.Release != nil {
		defer from.Release()
	}
	hold, err := e.holdTo(ctx, who, &spec, spec.Workspace)
	if err != nil {
		return err
	}
	level, reason := from.Level, from.LevelReason
	if level == 0 {
		var err error
		if level, reason, err = e.choose(ctx, spec); err != nil {
			return err
		}
	}
	if err := e.checkMounts(spec.Mounts, hold); err != nil {
		return err
	}
	plan := from.Plan
	if err := e.roomLeft(); err != nil {
		return err
	}
	if w := b.warm; w != nil {
		if from.Template == image.HostSource && w.from.Template == image.HostSource && e.hostRoot.fresh(w.from.Rootfs, e.clock.Now()) {
			from = w.from // the host has changed since, and what is ready is not older than what is made anew may be
		}
		if why := w.fits(from, level, hold, spec.Limits); why != "" {
			b.warm = nil
			e.discard(context.WithoutCancel(ctx), w)
			if err := e.update(ctx, b, func(r *record) { r.Sandbox.Warm = why }); err != nil {
				return err
			}
		}
	}
	if b.warm != nil {
		b.moveIn()
	} else if err := b.make(); err != nil {
		return err
	}
	if size, err := e.diskOf(spec); err != nil {
		return err
	} else if size > 0 { // before anything is copied into it
		if err := e.update(ctx, b, func(r *record) { r.Disk = size }); err != nil {
			return err
		}
		if err := e.mountDisk(b); err != nil {
			return err
		}
	}
	if spec.Workspace != "" && plan == nil {
		p, err := e.planWorkspace(ctx, b, spec.Workspace)
		if err != nil {
			return err
		}
		plan = p.Roots
	}
	uid, gid, err := idsOf(spec.User, level)
	if err != nil {
		return err
	}
	err = e.update(ctx, b, func(r *record) {
		r.Plan, r.Digest, r.Seeds, r.UID, r.GID, r.Held = plan, from.Digest, from.Seeds, uid, gid, hold
		if level.OwnRoot() {
			r.Rootfs = from.Rootfs
		}
		r.Roots = slices.Clone(from.Roots)
		for i := range r.Roots {
			r.Roots[i].Fresh = true
		}
		s := &r.Sandbox
		s.Isolation, s.IsolationReason, s.Template, s.Image, s.Parent = level, reason, from.Template, from.Image, from.Parent
		s.Limits = spec.Limits
		s.Notes, s.Receipt = append(s.Notes, from.Notes...), from.Receipt
		if from.Lineage != "" {
			s.Lineage = from.Lineage
		}
	})
	if err == nil && from.Names != "" {
		err = way.CopyNames(from.Names, filepath.Join(b.dir, namesFile))
	}
	if err == nil {
		err = b.hold()
	}
	switch w := b.warm; {
	case err != nil:
	case w == nil:
		err = e.start(ctx, b, api.StateRunning)
	default:
		if err = e.becomes(ctx, b, w); err == nil {
			b.warm = nil // whatever happens to it from here on happens to b
			err = e.enter(ctx, b, w.l, w.g)
			e.pools.forget(b.id)
		}
	}
	if err == nil && from.Ready != nil {
		err = from.Ready(ctx, b.id)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// takeBack removes all of a sandbox that could not be made. The caller holds op
// and loses it with the box.
func (e *Engine) takeBack(ctx context.Context, b *box) error {
	e.trace("take back")
	var err error
	if g := b.generation(); g != nil {
		err = e.end(ctx, b, g, bailey.End{Reason: bailey.EndUser, Detail: "it could not be made"})
	}
	if w := b.warm; w != nil {
		b.warm = nil
		e.discard(ctx, w)
	}
	for _, gone := range e.hooks.gone {
		err = errors.Join(err, gone(ctx, b))
	}
	err = errors.Join(err, e.closeWay(ctx, b), b.close(), e.removeFolder(b.dir))
	err = errors.Join(err, e.db.Update(ctx, func(tx *sql.Tx) error { return state.Unclaim(ctx, tx, b.id) }))
	before := b.record()
	after := before.copyOf()
	after.Sandbox.State = api.StateEnded
	for _, told := range e.hooks.told {
		told(b, before, after)
	}
	e.forget(b)
	b.mu.Lock()
	b.rec = after
	b.mu.Unlock()
	b.done()
	return err
}

// checkMounts refuses mounts that would hand the sandbox the host, or show
// credentials or private data.
func (e *Engine) checkMounts(list []string, h *held) error {
	var mounts []hostview.Mount
	for _, m := range list {
		mount, err := hostview.ParseMount(m, "/", e.host.Home)
		if err != nil {
			return err
		}
		mounts = append(mounts, mount)
	}
	if h != nil {
		mounts = append(mounts, h.Mounts...)
	}
	for _, m := range mounts {
		if err := hostview.CheckMount(hostview.Host{Home: e.host.Home, BaileyHome: e.home}, m, false); err != nil {
			return err
		}
	}
	return nil
}

// planWorkspace decides how a folder of the host is seen, and copies what cannot
// be seen otherwise.
func (e *Engine) planWorkspace(ctx context.Context, b *box, dir string) (*workspace.Plan, error) {
	if err := hostview.CheckWorkspace(hostview.Host{Home: e.host.Home, BaileyHome: e.home}, dir, false); err != nil {
		return nil, err
	}
	p, err := workspace.New(dir, workspace.Options{DataFolder: e.home})
	if err != nil {
		return nil, err
	}
	return p, p.CopyRoots(ctx, b.base())
}

// show gives what is told about a sandbox.
func (e *Engine) show(b *box) api.Sandbox {
	s := b.record().Sandbox
	s.Labels = maps.Clone(s.Labels)
	e.showLife(b, &s)
	s.Ports = e.showPorts(b)
	return s
}

// newID gives an id that is a host name too: 12 letters and digits, of 60 bits.
func newID() string { return strings.ToLower(rand.Text()[:12]) }

func newMachineID() string {
	var id [16]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// hostnameOf makes a host name of a sandbox's name.
func hostnameOf(name string) string {
	return strings.Trim(strings.Map(func(c rune) rune {
		if c == '_' || c == '.' {
			return '-'
		}
		return c
	}, name), "-")
}

// storeWith writes a record's row after more in the same transaction.
func (e *Engine) storeWith(ctx context.Context, before, after *record, more func(tx *sql.Tx) error) error {
	row, err := rowOf(after)
	if err != nil {
		return err
	}
	return e.db.Update(ctx, func(tx *sql.Tx) error {
		if err := more(tx); err != nil {
			return err
		}
		return e.put(ctx, tx, row, before, after)
	})
}

// removeFolder takes a folder out of the way and removes it in the background: a
// death leaves what the next Open removes.
func (e *Engine) removeFolder(dir string) error {
	gone := dir + goneSuffix + strings.ToLower(rand.Text()[:8])
	err := os.Rename(dir, gone)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return storage("remove the sandbox's folder", err)
	}
	e.removeLater(gone)
	return nil
}

// removeLater removes a folder that is out of the way already.
func (e *Engine) removeLater(gone string) {
	name := filepath.Base(gone)
	e.mu.Lock()
	e.going[name] = true
	e.mu.Unlock()
	e.spawn(func(context.Context) {
		e.removals <- struct{}{}
		defer func() { <-e.removals }()
		if err := folder.RemoveTree(gone); err != nil {
			e.log.Error("remove a sandbox's folder", "folder", gone, "error", err)
		}
		e.mu.Lock()
		delete(e.going, name)
		e.mu.Unlock()
	})
}

// removeAtOnce is how many folders are removed at once: what somebody waits for comes
// first when many sandboxes end together.
const removeAtOnce = 2

// isRemoving says that a folder is being removed.
func (e *Engine) isRemoving(name string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.going[name]
}

// goneSuffix is in the names of folders that are being removed.
const goneSuffix = ".gone-"

// keepEnded is how long sandboxes that have ended are remembered.
const keepEnded = 30 * 24 * time.Hour
