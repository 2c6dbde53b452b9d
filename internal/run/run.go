package run

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// Do runs a command and returns when it has ended and its sandbox has gone. An
// error means that it did not run; then nothing of it is left. What fails
// afterwards is in the Outcome.
func (h *Host) Do(ctx context.Context, req Request) (*Outcome, error) {
	defer req.Gate.Close()
	b, err := h.begin(req)
	if err != nil {
		return nil, err
	}
	b.openGate(ctx)
	out := &Outcome{Run: b.run}
	if err := b.execute(ctx, out); err != nil {
		b.abandon()
		return nil, err
	}
	h.trace("finish")
	out.Failed = errors.Join(out.Failed, b.finish(out.End))
	out.Unchanged = b.unchanged && out.Failed == nil
	return out, nil
}

// begin plans a run and makes its record. What the sandbox sees of the host is
// found out meanwhile.
func (h *Host) begin(req Request) (*builder, error) {
	h.trace("plan")
	b, err := h.plan(req)
	if err != nil {
		return nil, err
	}
	// It takes a moment, and whoever writes says what went wrong.
	h.later.tasks.Go(func() { _, _ = h.openLog() })
	h.trace("record")
	if b.run, err = h.record(b); err != nil {
		b.leaveLayers()
		return nil, err
	}
	b.name = b.run.ID()
	return b, nil
}

// abandon takes a run back that never started: there is nothing to tell of it.
func (b *builder) abandon() {
	b.run.Remove()
	b.run.Close()
	b.leaveLayers()
}

// plan decides what the sandbox sees. It reads the host and changes nothing.
func (h *Host) plan(req Request) (*builder, error) {
	dir := req.Dir
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			return nil, bailey.Errorf(bailey.CodeUsage, "use the working folder", "change to a folder that exists", "%w", err)
		}
	}
	if err := hostview.CheckWorkspace(hostview.Host{Home: h.Home, BaileyHome: h.Folder.Path()}, absolute(dir), req.IUnderstand); err != nil {
		return nil, err
	}
	plan, err := workspace.New(dir, workspace.Options{DataFolder: h.Folder.Path(), IUnderstand: req.IUnderstand, ForceCopy: req.ForceCopy})
	if err != nil {
		return nil, err
	}
	b := &builder{req: req, host: h, plan: plan}
	if err := b.chooseOwner(); err != nil {
		return nil, err
	}
	if req.Workdir == "" {
		b.req.Workdir = plan.Dir
	}
	b.chooseUser()
	if req.Level.OwnRoot() {
		if req.Rootfs == nil {
			return nil, bailey.Errorf(bailey.CodeInternal, "create a container", "", "it has no root file system")
		}
		if err := b.checkMounts(); err != nil {
			return nil, err
		}
		return b, b.useLayers()
	}
	b.look(b.viewInput())
	return b, nil
}

// checkMounts refuses what may not be shown in a container.
func (b *builder) checkMounts() error {
	for _, m := range b.req.Mounts {
		if err := hostview.CheckMount(hostview.Host{Home: b.host.Home, BaileyHome: b.host.Folder.Path()}, m, b.req.IUnderstand); err != nil {
			return err
		}
	}
	return nil
}

// viewInput is what the view of the host is computed from.
func (b *builder) viewInput() hostview.Input {
	in := hostview.Input{
		Home: b.host.Home, BaileyHome: b.host.Folder.Path(), UID: b.req.UID, GID: b.req.GID, Username: b.host.User,
		Env: b.host.Env, SetEnv: b.req.SetEnv, Workspace: b.plan.Dir, Mounts: b.req.Mounts, IUnderstand: b.req.IUnderstand, NameServer: b.nameServer(),
	}
	if b.staying != nil {
		in.Hostname, in.MachineID = b.staying.Hostname, b.staying.MachineID
	}
	return in
}

// chooseOwner finds who owns the workspace, and so what the sandbox writes to it;
// without one it is the caller.
func (b *builder) chooseOwner() error {
	b.owner.uid, b.owner.gid = os.Geteuid(), os.Getegid()
	if b.plan.Dir == "" || os.Geteuid() != 0 {
		return nil
	}
	fi, err := os.Stat(b.plan.Dir)
	if err != nil {
		return bailey.Errorf(bailey.CodeWorkspaceRefused, "use the workspace", "", "%w", err)
	}
	b.owner.uid, b.owner.gid = ownerOf(fi)
	return nil
}

// look finds out, in the background, what of the host the sandbox sees: some
// hundred names are looked up, about as long as it takes to make the record
// and the layers. b.view waits for the answer.
func (b *builder) look(in hostview.Input) {
	type answer struct {
		view hostview.View
		err  error
	}
	found := make(chan answer, 1)
	go func() {
		in.GitName, in.GitEmail = hostview.GitUser(in.Home, variable(in.Env, "XDG_CONFIG_HOME"))
		view, err := hostview.Compute(in)
		found <- answer{view, err}
	}()
	b.view = func() (hostview.View, error) {
		a := <-found
		return a.view, a.err
	}
}

// variable gives the value of a variable in an environment; the last one of a
// name counts.
func variable(env []string, name string) (value string) {
	for _, kv := range env {
		if n, v, _ := strings.Cut(kv, "="); n == name {
			value = v
		}
	}
	return value
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
	if b.req.Level.OwnRoot() {
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
	create := h.Folder.Create
	if b.req.Ahead {
		create = h.Folder.Ready
	}
	return create(folder.Record{
		Command: b.req.Command, Workdir: b.req.Workdir, Roots: roots,
		Level: b.req.Level, LevelReason: b.req.LevelReason, Limits: b.req.Limits,
	})
}

// execute builds the sandbox and sees the command to its end.
func (b *builder) execute(ctx context.Context, out *Outcome) error {
	spec, notes, err := b.spec(ctx)
	if err != nil {
		return err
	}
	out.Notes = notes
	spec.Entry.Command = b.req.Command
	after, err := b.guard(ctx)
	if err != nil {
		return err
	}
	b.host.trace("start")
	err = b.logged(func() error { return b.attend(ctx, spec, out) }, out)
	b.host.trace("guard")
	out.Failed = after(ctx)
	if out.Failed != nil && err != nil {
		// It cannot be told how the command ended, but what it left must be.
		return errors.Join(out.Failed, err)
	}
	return err
}

// spec prepares all that the driver needs but what is to be run.
func (b *builder) spec(ctx context.Context) (spec driver.Spec, notes []hostview.Note, err error) {
	b.host.trace("prepare")
	if err := b.openDisk(); err != nil {
		return spec, nil, err
	}
	if !b.req.Writable {
		if err := b.plan.Prepare(ctx, b.base.here); err != nil {
			return spec, nil, err
		}
	}
	var env []string
	if b.req.Level.OwnRoot() {
		if err = b.containerRoot(); err == nil {
			env, err = b.containerEnv()
		}
	} else {
		b.host.trace("view")
		var view hostview.View
		view, err = b.processRoot()
		env, notes = view.Env, view.Notes
	}
	if err != nil {
		return spec, nil, err
	}
	hidden, err := b.deny()
	if err != nil {
		return spec, nil, err
	}
	notes = append(notes, hidden...)
	if b.opened, err = b.way(); err != nil {
		return spec, nil, err
	}
	if env, err = b.gateEnv(env, b.opened); err != nil {
		return spec, nil, err
	}
	if err := b.placeTrust(b.opened); err != nil {
		return spec, nil, err
	}
	spec = driver.Spec{
		ID: b.run.ID(), Level: b.req.Level, Hostname: "bailey", Root: b.root, Workdir: b.req.Workdir, Env: env,
		User:   driver.User{UID: b.req.UID, GID: b.req.GID, HostUID: b.owner.uid, HostGID: b.owner.gid},
		Limits: b.req.Limits, Defaults: Defaults(), Disks: []string{b.run.Dir()}, Own: filepath.Join(b.run.Dir(), "driver"), NestedSandboxes: b.req.Nested,
		Outlet: b.opened != nil,
	}
	if d := b.run.Disk(); d != nil {
		spec.Mount, spec.MountAt = d.File(), b.base.there
	}
	return spec, notes, nil
}

// finish writes down how it ended and removes what is not kept.
func (b *builder) finish(end bailey.End) error {
	b.leaveLayers()
	rec := &b.run.Record
	rec.End, rec.Ended, rec.State = &end, time.Now().UTC(), folder.StateKept
	cleaned := make(chan error)
	go func() { cleaned <- b.clean(rec.Roots) }()
	save := b.run.Save
	if b.unchanged = b.layersEmpty(); b.unchanged {
		save = b.run.SaveSoon
	}
	err := save()
	b.host.trace("saved")
	err = errors.Join(err, <-cleaned)
	b.host.trace("cleaned")
	return err
}

// clean removes what is of no use once the sandbox has gone.
func (b *builder) clean(roots []folder.Root) error {
	paths := []string{filepath.Join(b.base.here, scratchDir)}
	for _, r := range roots {
		if r.Mode == folder.ModeOverlay {
			// The kernel leaves marks in it by which the next mount would refuse it.
			paths = append(paths, workspace.Work(b.base.here, r))
		}
	}
	var err error
	for _, p := range paths {
		if gone, moved := b.run.Shed(p); moved {
			b.host.removeLater(gone)
		} else {
			err = errors.Join(err, folder.RemoveTree(gone))
		}
	}
	return err
}

// layersEmpty says that the command has left nothing in the layers, so that a
// power cut that takes the record with it takes nothing that anybody wants.
// Waiting for the disk would take longer than many a command.
func (b *builder) layersEmpty() bool {
	roots := b.run.Record.Roots
	for _, r := range roots {
		if r.Mode != folder.ModeOverlay || !emptyLayer(workspace.Upper(b.base.here, r), r.Path) {
			return false
		}
	}
	return len(roots) > 0 // without a layer it may have written straight through
}

// emptyLayer says that an overlay's upper folder is empty and hides nothing of
// what lies below it, and that the folder itself is as on the host: its mode and
// attributes can be changed, too.
func emptyLayer(path, host string) bool {
	upper, err := os.Open(path)
	if err != nil {
		return false
	}
	defer upper.Close()
	if _, err = upper.Readdirnames(1); err != io.EOF {
		return false
	}
	is, err := upper.Stat()
	if err != nil {
		return false
	}
	if was, err := os.Stat(host); err != nil || was.Mode() != is.Mode() {
		return false
	}
	list := make([]byte, 4096)
	n, err := unix.Flistxattr(int(upper.Fd()), list)
	if err != nil {
		return errors.Is(err, unix.ENOTSUP)
	}
	for name := range bytes.SplitSeq(list[:n], []byte{0}) {
		// Overlay's own marks but one say nothing. Any other attribute may be
		// the host's as well: whoever looks for changes compares them.
		_, mark, ok := bytes.Cut(name, []byte(".overlay."))
		if len(name) > 0 && (!ok || bytes.Equal(mark, []byte("opaque"))) {
			return false
		}
	}
	return true
}
