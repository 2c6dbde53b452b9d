package linux

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// Attach shows one more place in a sandbox that runs, or is frozen.
func (in *instance) Attach(ctx context.Context, p driver.Place) error {
	what := "show " + p.Source + " at " + p.Target
	if err := in.attachable(what, p); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return bailey.Errorf(bailey.CodeBusy, what, "", "%w", err)
	}
	id, err := in.id.again(in.spec, p)
	if err != nil {
		return setupError(err)
	}
	defer id.built()
	err = in.visit(id, func(b *builder, pidfd int) {
		b.Do("umask", unix.SYS_UMASK, zero)
		if id.rooted() {
			b.keepOverOwners()
		} else {
			// What is taken of the host has to be taken in a view of it that belongs
			// to the sandbox's user namespace: nothing can be copied from the host's own.
			b.Do("enter the user namespace", unix.SYS_SETNS, spawn.Int(pidfd), spawn.Int(unix.CLONE_NEWUSER))
		}
		if !id.rooted() || p.Kind == driver.CoW { // an overlay's parts are attached somewhere, see hold
			b.Do("copy the host's mounts", unix.SYS_UNSHARE, spawn.Int(unix.CLONE_NEWNS))
			b.Do("detach from the host's mounts", unix.SYS_MOUNT, zero, b.Str("/"), zero, spawn.Int(unix.MS_REC|unix.MS_PRIVATE), zero)
		}
		var mount spawn.Slot
		if p.Kind == driver.CoW {
			mount = b.overlay(p.Target, *p.Overlay, nil)
		} else {
			mount = b.hostMount(p)
		}
		b.Do("enter the sandbox's mounts", unix.SYS_SETNS, spawn.Int(pidfd), spawn.Int(unix.CLONE_NEWNS))
		root := b.Do("open the sandbox's root", unix.SYS_OPENAT, noFD, b.Str("/"), spawn.Int(unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC), zero).Result()
		b.dirs["/"] = ground{root, insideRoot, true}
		b.attach(mount, p.Target, p.IsDir || p.Kind != driver.Bind, insideUser)
	})
	return explainAttach(what, p, err)
}

// attachable refuses what would mean something else than was asked for, or would
// take a wall down.
func (in *instance) attachable(what string, p driver.Place) error {
	bad := func(code bailey.Code, fix, format string, args ...any) error {
		return bailey.Errorf(code, what, fix, format, args...)
	}
	if p.Kind != driver.Bind && p.Kind != driver.CoW && p.Kind != driver.Scratch || p.Kind == driver.CoW && p.Overlay == nil {
		return bad(bailey.CodeUsage, "", "only folders and files of the host can be added")
	}
	if !path.IsAbs(p.Target) || path.Clean(p.Target) != p.Target || p.Target == "/" || strings.IndexByte(p.Target+p.Source, 0) >= 0 {
		return bad(bailey.CodeUsage, "name an absolute path inside", "%q is not a place inside", p.Target)
	}
	for _, top := range []string{"/proc", "/sys", "/dev"} {
		if p.Target == top || strings.HasPrefix(p.Target, top+"/") {
			return bad(bailey.CodeUsage, "choose another place", "%s is the kernel's", top)
		}
	}
	writable := p.Kind != driver.Bind || !p.ReadOnly
	if writable && p.Kind == driver.Bind && p.HostIDs && !in.hostrw {
		return bad(bailey.CodeNotAvailable, "show it read-only or copy-on-write, or make the sandbox with the mount",
			"this sandbox was made without a folder of the host to write to, and its programs could leave set-user-id files there")
	}
	if writable && in.spec.Level == bailey.IsolationProcess && !in.writesAt(p.Target) {
		// The second wall cannot be widened for processes that are behind it.
		return bad(bailey.CodeNotAvailable, "show it read-only, or below a folder that the sandbox writes to, such as its workspace; or use the container level",
			"programs at the process level may write only below the places that were there from the start")
	}
	return nil
}

// writesAt says whether the sandbox's second wall lets it write at p.
func (in *instance) writesAt(p string) bool {
	for _, have := range in.spec.Root.Places {
		writable := have.Kind == driver.CoW || have.Kind == driver.Scratch || have.Kind == driver.Bind && !have.ReadOnly && have.IsDir
		if writable && (p == have.Target || strings.HasPrefix(p, have.Target+"/")) {
			return true
		}
	}
	return false
}

// again makes the namespaces that map files for a sandbox that is there already.
// The caller lets go of them with built.
func (id *identity) again(spec driver.Spec, p driver.Place) (*identity, error) {
	c := &identity{user: id.user, ids: id.ids, joined: id.joined}
	if !id.rooted() {
		return c, nil
	}
	m := rangeMap(id.ids.base, 0, 0)
	var err error
	if c.ns, err = makeUserNS(m, m); err == nil {
		err = c.mapHost()
	}
	if err == nil && levelCaps(spec.Level) != 0 && p.Kind == driver.Bind && p.HostIDs {
		err = c.ownerOnly()
	}
	if err != nil {
		c.built()
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	return c, nil
}

func explainAttach(what string, p driver.Place, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errEnded) {
		return bailey.Errorf(bailey.CodeSandboxLost, what, "", "it has ended")
	}
	var se *spawn.StepError
	if !errors.As(err, &se) {
		return setupError(err)
	}
	if err := noOwners(what, se); err != nil {
		return err
	}
	inside := strings.HasSuffix(se.Step, " in the new root") || strings.HasPrefix(se.Step, "make f") || strings.HasPrefix(se.Step, "mount at ")
	switch {
	case se.Step == "open "+p.Source && (se.Errno == unix.ENOENT || se.Errno == unix.ELOOP || se.Errno == unix.ENOTDIR):
		return bailey.Errorf(bailey.CodeUsage, what, "name what exists, with links resolved", "%w", se)
	case inside && (se.Errno == unix.ELOOP || se.Errno == unix.ENOTDIR || se.Errno == unix.EXDEV):
		return bailey.Errorf(bailey.CodeUsage, what, "choose a path without links", "on the way to %s there is a link or a file: %w", p.Target, se)
	case inside && (se.Errno == unix.EROFS || se.Errno == unix.ENOENT || se.Errno == unix.ENOSPC):
		return bailey.Errorf(bailey.CodeUsage, what, "choose a folder that is there, or a place below one that the sandbox writes to",
			"%s is not there and cannot be made: %w", p.Target, se)
	case se.Errno == unix.EPERM || se.Errno == unix.EACCES:
		return bailey.Errorf(bailey.CodeNotAvailable, what, "make the sandbox with the mount, or run the daemon as root", "the kernel does not let this user: %w", se)
	}
	return bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", se)
}
