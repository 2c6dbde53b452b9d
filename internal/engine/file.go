package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// Files are reached as the sandbox's own user, the one that commands run as which
// name none, and by bailey-init, which resolves every path inside the root: no link
// leads out. A sandbox that sleeps is woken. A relative path begins at the working
// folder.

// filing is a use of a sandbox for one request about files. It takes as long as the
// client does, and so is ended when an act on the sandbox has waited for filesWithin.
type filing struct {
	*use
	ctx    context.Context
	cancel context.CancelCauseFunc
	stop   func() bool
	once   sync.Once // the use's release
}

// filesWithin is how long an act waits for requests about files.
const filesWithin = 10 * time.Second

// files wakes the sandbox for a request about files. The caller ends it.
func (e *Engine) files(ctx context.Context, who Caller, ref string) (*filing, error) {
	u, err := e.awake(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	f := &filing{use: u}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.stop = context.AfterFunc(u.gen.ctx, func() { f.cancel(nil) })
	u.box.mu.Lock()
	if u.box.filings == nil {
		u.box.filings = map[*filing]struct{}{}
	}
	u.box.filings[f] = struct{}{}
	u.box.mu.Unlock()
	e.busyNow(u.box)
	return f, nil
}

// letGo gives the use back, once.
func (f *filing) letGo() {
	f.once.Do(func() {
		f.box.mu.Lock()
		delete(f.box.filings, f)
		f.box.mu.Unlock()
		f.release()
	})
}

// endFilings ends the requests about files that go on.
func (b *box) endFilings() {
	b.mu.Lock()
	list := slices.Collect(maps.Keys(b.filings))
	b.mu.Unlock()
	for _, f := range list {
		f.cancel(bailey.Errorf(bailey.CodeBusy, "go on with the files of the sandbox "+b.id, "try again", "something else is done to the sandbox, which has waited for %s", filesWithin))
		f.letGo()
	}
}

// record writes down that files are to be changed, before they are: what cannot be
// recorded is not done. ended says how it ended.
func (f *filing) record(who Caller, act, path, to string) (ended func(sent int64, hash string, err error), err error) {
	a, err := f.box.e.ledger.File(f.box.id, act, path, to, who.Name)
	return func(sent int64, hash string, err error) { a.End(sent, 0, hash, err) }, err
}

func (f *filing) end() {
	f.stop()
	f.cancel(nil)
	f.letGo()
}

// path makes a path absolute.
func (f *filing) path(p string) string {
	if strings.HasPrefix(p, "/") {
		return p
	}
	return strings.TrimSuffix(f.gen.workdir, "/") + "/" + p
}

// failed gives a failure of a request its code: a full disk is told of, too, and a
// sandbox that ended meanwhile is no canceled request.
func (f *filing) failed(ctx context.Context, what string, err error) error {
	switch {
	case err == nil:
		return nil
	case bailey.CodeOf(context.Cause(f.ctx)) == bailey.CodeBusy && ctx.Err() == nil:
		return context.Cause(f.ctx)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		f.box.e.diskFull(f.box)
		return bailey.Errorf(bailey.CodeDiskFull, what, "remove files, or make it with a larger disk", "there is no room left: %w", err)
	case ctx.Err() == nil && f.gen.ctx.Err() != nil:
		return bailey.Errorf(bailey.CodeSandboxLost, what, "try again", "the sandbox ended, or was started anew, under the request")
	}
	return err
}

// fullData is what the event of a full disk tells.
type fullData struct {
	Limit int64 `json:"limit,omitempty"` // the sandbox's, in bytes
}

// diskFull tells that a sandbox has no room left.
func (e *Engine) diskFull(b *box) {
	r := b.record()
	data, _ := json.Marshal(fullData{Limit: r.Disk})
	err := e.event(context.WithoutCancel(e.ctx), api.Event{Kind: "sandbox.disk_full", Owner: r.Sandbox.Owner, Sandbox: b.id, Data: data})
	if err != nil {
		e.log.Error("tell of a full disk", "sandbox", b.id, "error", err)
	}
}

// infoOf puts what is known about a file into the API's words.
func infoOf(p string, i guest.FileInfo) api.FileInfo {
	f := api.FileInfo{Path: p, Type: typeOf(i.Mode), Mode: fmt.Sprintf("%04o", i.Mode&0o7777), UID: i.UID, GID: i.GID, Size: i.Size,
		ModTime: i.ModTime.UTC(), Target: strings.ToValidUTF8(i.Target, "\uFFFD")}
	if !utf8.ValidString(p) {
		f.Path, f.PathBytes = strings.ToValidUTF8(p, "\uFFFD"), []byte(p)
	}
	return f
}

func typeOf(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "file"
	case unix.S_IFDIR:
		return "dir"
	case unix.S_IFLNK:
		return "symlink"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFCHR:
		return "char"
	case unix.S_IFBLK:
		return "block"
	}
	return "unknown"
}

// StatFile looks at a file; links are not followed.
func (e *Engine) StatFile(ctx context.Context, who Caller, ref, p string) (api.FileInfo, error) {
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return api.FileInfo{}, err
	}
	defer f.end()
	p = f.path(p)
	i, err := f.client.Lstat(f.ctx, p, f.gen.user)
	if err != nil {
		return api.FileInfo{}, f.failed(ctx, "look at a file in the sandbox", err)
	}
	return infoOf(p, i), nil
}

// ListFiles lists a folder, depth levels deep, 1 to 256; 0 is 1. Its entries come
// in no order, and links are not followed. What is deeper than 256 levels, where
// that many were asked for, is an error.
func (e *Engine) ListFiles(ctx context.Context, who Caller, ref, p string, depth int, each func(api.FileInfo) error) error {
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return err
	}
	defer f.end()
	p = f.path(p)
	var own error // of each, which is not the sandbox's
	err = f.client.List(f.ctx, p, guest.ListOptions{User: f.gen.user, Depth: depth}, func(i guest.FileInfo) error {
		own = each(infoOf(path.Join(p, i.Name), i))
		return own
	})
	if own != nil {
		return own
	}
	return f.failed(ctx, "list a folder in the sandbox", err)
}

// Mkdir makes a folder and those above it; one that is there is no error. mode 0
// is 0755.
func (e *Engine) Mkdir(ctx context.Context, who Caller, ref, p string, mode uint32) error {
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return err
	}
	defer f.end()
	ended, err := f.record(who, "mkdir", f.path(p), "")
	if err != nil {
		return err
	}
	err = f.failed(ctx, "make a folder in the sandbox", f.client.Mkdir(f.ctx, f.path(p), mode, true, f.gen.user))
	ended(0, "", err)
	return err
}

// RemoveFile removes a file or folder, with recursive also one that is not empty.
// A link is removed itself.
func (e *Engine) RemoveFile(ctx context.Context, who Caller, ref, p string, recursive bool) error {
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return err
	}
	defer f.end()
	ended, err := f.record(who, "remove", f.path(p), "")
	if err != nil {
		return err
	}
	err = f.failed(ctx, "remove a file in the sandbox", f.client.Remove(f.ctx, f.path(p), recursive, f.gen.user))
	ended(0, "", err)
	return err
}

// WatchFiles calls each with what changes at and below path; ready is called once
// nothing can be missed any more. It returns when ctx ends, each gives an error, the
// path itself goes (nil) or the sandbox's processes end (sandbox_lost). While the
// sandbox is paused nothing comes.
func (e *Engine) WatchFiles(ctx context.Context, who Caller, ref, p string, ready func(), each func(api.WatchEvent) error) error {
	f, err := e.files(ctx, who, ref)
	if err != nil {
		return err
	}
	defer f.end()
	p = f.path(p)
	var own error
	err = f.client.Watch(f.ctx, p, guest.WatchOptions{User: f.gen.user, Recursive: true}, func() {
		f.letGo() // it must not hold a pause
		if ready != nil {
			ready()
		}
	}, func(ev guest.WatchEvent) error {
		for _, op := range watchOps {
			if ev.Op&op.bit == 0 {
				continue
			}
			if own = each(api.WatchEvent{Path: strings.ToValidUTF8(path.Join(p, ev.Path), "\uFFFD"), Op: op.name}); own != nil {
				return own
			}
		}
		return nil
	})
	if own != nil {
		return own
	}
	return f.failed(ctx, "watch files in the sandbox", err)
}

var watchOps = [...]struct {
	bit  guest.WatchOp
	name string
}{
	{guest.WatchCreate, "create"}, {guest.WatchWrite, "write"}, {guest.WatchRemove, "remove"},
	{guest.WatchRename, "rename"}, {guest.WatchAttrib, "attrib"}, {guest.WatchOverflow, "overflow"},
}
