package run

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Do runs a command and returns when it has ended and its sandbox has gone. An
// error means that it did not run; then nothing of it is left.
func (h *Host) Do(ctx context.Context, req Request) (*Outcome, error) {
	b, view, err := h.begin(req)
	if err != nil {
		return nil, err
	}
	out := &Outcome{Run: b.run, Notes: view.Notes}
	if err := b.execute(ctx, view, out); err != nil {
		b.abandon()
		return nil, err
	}
	h.trace("finish")
	return out, b.finish(out.End)
}

// begin plans a run and makes its record.
func (h *Host) begin(req Request) (*builder, hostview.View, error) {
	h.trace("plan")
	b, view, err := h.plan(req)
	if err != nil {
		return nil, view, err
	}
	h.trace("record")
	b.run, err = h.record(b)
	return b, view, err
}

// abandon takes a run back that never started: there is nothing to tell of it.
func (b *builder) abandon() {
	b.run.Remove()
	b.run.Close()
}

// plan decides what the sandbox sees. It reads the host and changes nothing.
func (h *Host) plan(req Request) (*builder, hostview.View, error) {
	var view hostview.View
	dir := req.Dir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return nil, view, bailey.Errorf(bailey.CodeUsage, "use the working folder", "change to a folder that exists", "%w", err)
		}
	}
	if err := hostview.CheckWorkspace(hostview.Host{Home: h.Home, BaileyHome: h.Folder.Path()}, absolute(dir), req.IUnderstand); err != nil {
		return nil, view, err
	}
	plan, err := workspace.New(dir, workspace.Options{DataFolder: h.Folder.Path(), IUnderstand: req.IUnderstand, ForceCopy: req.ForceCopy})
	if err != nil {
		return nil, view, err
	}
	b := &builder{req: req, host: h, plan: plan}
	fi, err := os.Stat(plan.Dir)
	if err != nil {
		return nil, view, bailey.Errorf(bailey.CodeWorkspaceRefused, "use the workspace", "", "%w", err)
	}
	b.owner.uid, b.owner.gid = ownerOf(fi)
	if os.Geteuid() != 0 {
		b.owner.uid, b.owner.gid = os.Geteuid(), os.Getegid()
	}
	if req.Workdir == "" {
		b.req.Workdir = plan.Dir
	}
	b.chooseUser()
	if req.Level == bailey.IsolationContainer {
		if req.Rootfs == nil {
			return nil, view, bailey.Errorf(bailey.CodeInternal, "create a container", "", "it has no root file system")
		}
		for _, m := range req.Mounts {
			if err := hostview.CheckMount(hostview.Host{Home: h.Home, BaileyHome: h.Folder.Path()}, m, req.IUnderstand); err != nil {
				return nil, view, err
			}
		}
		return b, view, nil
	}
	view, err = hostview.Compute(hostview.Input{
		Home: h.Home, BaileyHome: h.Folder.Path(), UID: b.req.UID, GID: b.req.GID, Username: h.User,
		Env: h.Env, SetEnv: req.SetEnv, Workspace: plan.Dir, Mounts: req.Mounts, IUnderstand: req.IUnderstand,
	})
	return b, view, err
}

// absolute gives dir from the root; what cannot be resolved is refused by
// whoever looks at it.
func absolute(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// chooseUser fills in the ids inside. At the process level the sandbox is the
// workspace's owner under the same ids, so that nothing looks different; a
// container has a root of its own.
func (b *builder) chooseUser() {
	uid, gid := b.owner.uid, b.owner.gid
	if b.req.Level == bailey.IsolationContainer {
		uid, gid = 0, 0
	}
	if uid > 65535 || gid > 65535 {
		uid, gid = 1000, 1000 // a range of ids ends there
	}
	if b.req.UID < 0 {
		b.req.UID = uid
	}
	if b.req.GID < 0 {
		b.req.GID = gid
	}
}

func (h *Host) record(b *builder) (*folder.Run, error) {
	roots := b.plan.Roots
	if b.req.Writable {
		roots = nil
	}
	return h.Folder.Create(folder.Record{
		Command: b.req.Command, Workdir: b.req.Workdir, Roots: roots,
		Level: b.req.Level, LevelReason: b.req.LevelReason, Limits: b.req.Limits,
	})
}

// execute builds the sandbox and sees the command to its end.
func (b *builder) execute(ctx context.Context, view hostview.View, out *Outcome) error {
	spec, err := b.spec(ctx, view)
	if err != nil {
		return err
	}
	spec.Entry.Command = b.req.Command
	after, err := b.guard(ctx)
	if err != nil {
		return err
	}
	b.host.trace("start")
	if err := b.attend(ctx, spec, out); err != nil {
		after(ctx)
		return err
	}
	b.host.trace("guard")
	return after(ctx)
}

// spec prepares all that the driver needs but what is to be run.
func (b *builder) spec(ctx context.Context, view hostview.View) (driver.Spec, error) {
	b.host.trace("prepare")
	if err := b.openDisk(); err != nil {
		return driver.Spec{}, err
	}
	if !b.req.Writable {
		if err := b.plan.Prepare(ctx, b.base.here); err != nil {
			return driver.Spec{}, err
		}
	}
	env := view.Env
	var err error
	if b.req.Level == bailey.IsolationContainer {
		err = b.containerRoot()
		env = b.containerEnv()
	} else {
		err = b.processRoot(view)
	}
	if err != nil {
		return driver.Spec{}, err
	}
	spec := driver.Spec{
		ID: b.run.ID(), Level: b.req.Level, Hostname: "bailey", Root: b.root, Workdir: b.req.Workdir, Env: env,
		User:   driver.User{UID: b.req.UID, GID: b.req.GID, HostUID: b.owner.uid, HostGID: b.owner.gid},
		Limits: b.req.Limits, Defaults: Defaults(), Disks: []string{b.run.Dir()}, NestedSandboxes: b.req.Nested,
	}
	if d := b.run.Disk(); d != nil {
		spec.Mount, spec.MountAt = d.File(), b.base.there
	}
	return spec, nil
}

// finish writes down how it ended and removes what is not kept.
func (b *builder) finish(end bailey.End) error {
	rec := &b.run.Record
	rec.End, rec.Ended, rec.State = &end, time.Now().UTC(), folder.StateKept
	err := b.run.Save()
	b.host.trace("saved")
	errs := []error{err, folder.RemoveTree(filepath.Join(b.base.here, scratchDir))}
	for _, r := range rec.Roots {
		if r.Mode == folder.ModeOverlay {
			// The kernel leaves marks in it by which the next mount would refuse it.
			errs = append(errs, folder.RemoveTree(workspace.Work(b.base.here, r)))
		}
	}
	b.host.trace("cleaned")
	return errors.Join(errs...)
}
