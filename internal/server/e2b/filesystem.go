package e2b

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// entryInfo is what clients are told about a file.
type entryInfo struct {
	Name        string    `json:"name"`
	Type        string    `json:"type,omitempty"`
	Path        string    `json:"path"`
	Size        string    `json:"size"` // a number of 64 bits is a text in Connect's JSON
	Mode        uint32    `json:"mode"`
	Permissions string    `json:"permissions"`
	Owner       string    `json:"owner"`
	Group       string    `json:"group"`
	Modified    time.Time `json:"modifiedTime"`
	Target      string    `json:"symlinkTarget,omitempty"`
}

const (
	typeFile = "FILE_TYPE_FILE"
	typeDir  = "FILE_TYPE_DIRECTORY"
	// maxEntries bounds a list, which is put in order before it is sent.
	maxEntries = 200_000
	maxDepth   = 256
	maxLinks   = 40
)

// target looks at a file behind links, as far as they are its own; those above it the
// sandbox resolves itself.
func (c *call) target(p string) (api.FileInfo, error) {
	for range maxLinks {
		i, err := c.s.engine.StatFile(c.ctx(), c.who, c.box.ID, p)
		if err != nil || i.Type != "symlink" {
			return i, err
		}
		if path.IsAbs(i.Target) {
			p = path.Clean(i.Target)
		} else {
			p = path.Join(path.Dir(p), i.Target)
		}
	}
	return api.FileInfo{}, bailey.Errorf(bailey.CodeNotFound, "look at "+p, "", "its links have no end")
}

// entry tells about a file; links are told with what they lead to.
func (c *call) entry(i api.FileInfo) entryInfo {
	e := entryInfo{Name: path.Base(i.Path), Path: i.Path, Size: strconv.FormatInt(i.Size, 10), Modified: i.ModTime}
	e.Owner, e.Group = c.names(c.ctx(), i.UID, i.GID)
	mode := modeOf(i)
	e.Permissions = mode.String()
	kind := i.Type
	if i.Type == "symlink" {
		if t, err := c.target(i.Path); err == nil {
			e.Target, kind, mode = t.Path, t.Type, modeOf(t)
		} else {
			e.Target, kind = i.Target, ""
		}
	}
	e.Mode = uint32(mode.Perm())
	switch kind {
	case "file":
		e.Type = typeFile
	case "dir":
		e.Type = typeDir
	}
	return e
}

// modeOf puts what is known about a file into Go's form, which clients show.
func modeOf(i api.FileInfo) fs.FileMode {
	n, _ := strconv.ParseUint(i.Mode, 8, 32) // of the engine's own making
	m := fs.FileMode(n & 0o777)
	for bit, to := range map[uint64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if n&bit != 0 {
			m |= to
		}
	}
	return m | map[string]fs.FileMode{"dir": fs.ModeDir, "symlink": fs.ModeSymlink, "fifo": fs.ModeNamedPipe, "socket": fs.ModeSocket, "char": fs.ModeDevice | fs.ModeCharDevice, "block": fs.ModeDevice}[i.Type]
}

type fileRequest struct {
	Path        string `json:"path"`
	Depth       int    `json:"depth"`
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Recursive   bool   `json:"recursive"`
	Entry       bool   `json:"includeEntry"`
	Watcher     string `json:"watcherId"`
}

func (c *call) filesystem(method string) {
	do := map[string]func(a account, in fileRequest) (any, error){
		"Stat": c.stat, "ListDir": c.listDir, "MakeDir": c.makeDir, "Move": c.move, "Remove": c.remove,
		"CreateWatcher": c.createWatcher, "GetWatcherEvents": c.watcherEvents, "RemoveWatcher": c.removeWatcher,
	}[method]
	switch {
	case method == "WatchDir":
		c.watchDir()
	case do == nil:
		c.refuse(connectErrorf("unimplemented", "filesystem.Filesystem has no %s", method), http.StatusNotFound)
	default:
		unary(c, func(in fileRequest) (any, error) {
			a, err := c.user()
			if err != nil {
				return nil, err
			}
			return do(a, in)
		})
	}
}

// missing says that a path is not there, as clients expect to read it.
func missing(p string, err error) error {
	if bailey.CodeOf(err) == bailey.CodeNotFound {
		return connectErrorf("not_found", "path '%s' does not exist", p)
	}
	return err
}

func (c *call) stat(a account, in fileRequest) (any, error) {
	p, err := a.resolve(in.Path)
	if err != nil {
		return nil, err
	}
	i, err := c.s.engine.StatFile(c.ctx(), c.who, c.box.ID, p)
	if err != nil {
		return nil, missing(p, err)
	}
	return message{"entry": c.entry(i)}, nil
}

// folder gives the path of a folder that is there.
func (c *call) folder(a account, name string) (string, error) {
	p, err := a.resolve(name)
	if err != nil {
		return "", err
	}
	i, err := c.target(p)
	if err != nil {
		return "", missing(p, err)
	}
	if i.Type != "dir" {
		return "", connectErrorf("invalid_argument", "path '%s' is not a directory", p)
	}
	return p, nil
}

func (c *call) listDir(a account, in fileRequest) (any, error) {
	p, err := c.folder(a, in.Path)
	if err != nil {
		return nil, err
	}
	depth := max(in.Depth, 1)
	if depth > maxDepth {
		return nil, connectErrorf("invalid_argument", "a depth is at most %d", maxDepth)
	}
	from := p
	if t, err := c.target(p); err == nil {
		from = t.Path // a link to a folder is followed, and told of as it was asked for
	}
	var list []api.FileInfo
	err = c.s.engine.ListFiles(c.ctx(), c.who, c.box.ID, from, depth, func(i api.FileInfo) error {
		if len(list) >= maxEntries {
			return connectErrorf("resource_exhausted", "there are more than %d entries: list less deep", maxEntries)
		}
		list = append(list, i)
		return nil
	})
	if err != nil {
		return nil, missing(p, err)
	}
	slices.SortFunc(list, func(x, y api.FileInfo) int {
		return slices.Compare(strings.Split(x.Path, "/"), strings.Split(y.Path, "/"))
	})
	entries := make([]entryInfo, 0, len(list))
	for _, i := range list {
		e := c.entry(i)
		e.Path = path.Join(p, strings.TrimPrefix(i.Path, from))
		entries = append(entries, e)
	}
	return message{"entries": entries}, nil
}

func (c *call) makeDir(a account, in fileRequest) (any, error) {
	p, err := a.resolve(in.Path)
	if err != nil {
		return nil, err
	}
	if i, err := c.target(p); err == nil {
		if i.Type == "dir" {
			return nil, connectErrorf("already_exists", "directory already exists: %s", p)
		}
		return nil, connectErrorf("invalid_argument", "path already exists but it is not a directory: %s", p)
	}
	top := c.firstMissing(p)
	if err := c.s.engine.Mkdir(c.ctx(), c.who, c.box.ID, p, 0o755); err != nil {
		return nil, err
	}
	if err := c.own(a, top, true); err != nil {
		return nil, err
	}
	return c.stat(a, fileRequest{Path: p})
}

// firstMissing gives the highest folder of a path that is not there yet.
func (c *call) firstMissing(p string) string {
	for p != "/" {
		if _, err := c.s.engine.StatFile(c.ctx(), c.who, c.box.ID, path.Dir(p)); err == nil {
			break
		}
		p = path.Dir(p)
	}
	return p
}

// own gives what was made to a user that is not the sandbox's own, as whom files are
// made.
func (c *call) own(a account, p string, deep bool) error {
	if a.own {
		return nil
	}
	args := []string{"chown", "-h"}
	if deep {
		args = append(args, "-R")
	}
	x, err := c.s.engine.StartExec(c.ctx(), c.who, c.box.ID, api.ExecSpec{Args: append(args, fmt.Sprintf("%d:%d", a.uid, a.gid), "--", p), Timeout: api.Duration(time.Minute)})
	if err == nil {
		x, err = c.s.engine.WaitExec(c.ctx(), c.who, c.box.ID, x.ID)
	}
	if err != nil {
		return err
	}
	if x.ExitCode == nil || *x.ExitCode != 0 {
		return connectErrorf("permission_denied", "what was written to %s cannot be given to the user '%s'", p, a.name)
	}
	return nil
}

func (c *call) move(a account, in fileRequest) (any, error) {
	from, err := a.resolve(in.Source)
	if err != nil {
		return nil, err
	}
	to, err := a.resolve(in.Destination)
	if err != nil {
		return nil, err
	}
	if _, err := c.s.engine.StatFile(c.ctx(), c.who, c.box.ID, from); err != nil {
		return nil, missing(from, err)
	}
	if _, err := c.s.engine.StatFile(c.ctx(), c.who, c.box.ID, path.Dir(to)); err != nil {
		top := c.firstMissing(path.Dir(to))
		if err := c.s.engine.Mkdir(c.ctx(), c.who, c.box.ID, path.Dir(to), 0o755); err != nil {
			return nil, err
		}
		if err := c.own(a, top, true); err != nil {
			return nil, err
		}
	}
	if err := c.s.engine.MoveFile(c.ctx(), c.who, c.box.ID, from, to); err != nil {
		return nil, err
	}
	return c.stat(a, fileRequest{Path: to})
}

func (c *call) remove(a account, in fileRequest) (any, error) {
	p, err := a.resolve(in.Path)
	if err != nil {
		return nil, err
	}
	err = c.s.engine.RemoveFile(c.ctx(), c.who, c.box.ID, p, true)
	if bailey.CodeOf(err) == bailey.CodeNotFound {
		err = nil
	}
	return nil, err
}

// watching calls each with what changes in a folder, in clients' words, and with
// recursive in all below.
func (c *call) watching(ctx context.Context, p string, recursive bool, ready func(), each func(message) error) error {
	from := p
	if t, err := c.target(p); err == nil {
		from = t.Path
	}
	return c.s.engine.WatchFiles(ctx, c.who, c.box.ID, from, ready, func(ev api.WatchEvent) error {
		name := strings.TrimPrefix(strings.TrimPrefix(ev.Path, from), "/")
		if ev.Op == "overflow" {
			return connectErrorf("data_loss", "more has changed than could be told: watch anew")
		}
		if name == "" || !recursive && strings.Contains(name, "/") {
			return nil
		}
		kind := map[string]string{"create": "CREATE", "write": "WRITE", "remove": "REMOVE", "rename": "RENAME", "attrib": "CHMOD"}[ev.Op]
		if kind == "" {
			return nil
		}
		return each(message{"name": name, "type": "EVENT_TYPE_" + kind})
	})
}
