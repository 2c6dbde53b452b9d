package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// maxCopyDepth is how deep a tree may be nested to be copied: each level
// holds two descriptors.
const maxCopyDepth = 400

// copyRoot copies the root behind fd into layer/tree and writes
// layer/manifest. It gives how much of the limit is left.
func copyRoot(ctx context.Context, fd int, root folder.Root, layer string, limit int64) (int64, error) {
	refused := func(err error) error {
		var e *bailey.Error
		if errors.As(err, &e) || ctx.Err() != nil {
			return err
		}
		return bailey.Errorf(bailey.CodeWorkspaceRefused, "copy the workspace", "", "%w (it has to be copied: %s)", err, root.Why)
	}
	if err := survey(ctx, fd, ".", root, layer, limit); err != nil {
		return 0, refused(err)
	}
	tree := filepath.Join(layer, "tree")
	if err := os.Mkdir(tree, 0o700); err != nil {
		return 0, refused(err)
	}
	to, err := unix.Open(tree, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, refused(err)
	}
	defer unix.Close(to)
	manifest, err := newManifest(filepath.Join(layer, ManifestName))
	if err != nil {
		return 0, refused(err)
	}
	c := &copier{ctx: ctx, top: to, manifest: manifest, limit: limit, left: limit, clones: true, links: map[[2]uint64]string{}}
	err = c.dir(fd, to, ".", 0)
	if cerr := manifest.close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, refused(err)
	}
	return c.left, nil
}

// survey walks the root before anything is written, and says early what
// would fail late: a file that cannot be copied, or too many bytes.
func survey(ctx context.Context, fd int, rel string, root folder.Root, layer string, limit int64) error {
	var total int64
	seen := map[[2]uint64]bool{}
	err := walk(ctx, fd, rel, 0, func(p string, st *unix.Stat_t) error {
		if kind := st.Mode & unix.S_IFMT; kind == unix.S_IFREG {
			key := [2]uint64{st.Dev, st.Ino}
			if st.Nlink > 1 && seen[key] {
				return nil
			} else if st.Nlink > 1 {
				seen[key] = true
			}
			total += st.Blocks * 512
		}
		return copyable(p, st)
	})
	if err != nil {
		return err
	}
	var target unix.Stat_t
	if err := unix.Stat(layer, &target); err != nil {
		return err
	}
	kind, err := kindOf(layer)
	if err != nil {
		return err
	}
	if target.Dev == root.Dev && (kind.name == "xfs" || kind.name == "btrfs" || kind.name == "bcachefs") {
		return nil // clones take no room; what cannot be cloned counts as it is copied
	}
	if total > limit {
		return tooLarge(total, limit)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(layer, &fs); err != nil {
		return err
	}
	if free := int64(fs.Bavail) * fs.Bsize; total > free {
		return bailey.Errorf(bailey.CodeStorage, "copy the workspace", "make room, or set BAILEY_HOME to a larger disk",
			"it has %d bytes, and the data folder's disk has %d left", total, free)
	}
	return nil
}

func tooLarge(total, limit int64) error {
	return bailey.Errorf(bailey.CodeWorkspaceRefused, "copy the workspace", "raise the limit, or work in a smaller folder",
		"it has at least %d bytes, more than the limit of %d for a full copy", total, limit)
}

// copyable says whether a copy of the file would be the same to a program.
func copyable(p string, st *unix.Stat_t) error {
	what := ""
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK, unix.S_IFIFO:
		return nil
	case unix.S_IFSOCK:
		what = "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		what = "a device"
	default:
		what = "a file of an unknown kind"
	}
	return bailey.Errorf(bailey.CodeWorkspaceRefused, "copy the workspace", "remove it, or move it out of the workspace",
		"%q is %s, and a copy of it would not be the same", p, what)
}

// walk calls do for all that lies below the folder fd, in the manifest's
// order, and closes nothing of the caller's.
func walk(ctx context.Context, fd int, rel string, depth int, do func(string, *unix.Stat_t) error) error {
	names, err := entries(ctx, fd, rel, depth)
	if err != nil {
		return err
	}
	for _, name := range names {
		p := path.Join(rel, name)
		var st unix.Stat_t
		if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return &os.PathError{Op: "stat", Path: p, Err: err}
		}
		if err := do(p, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		sub, err := openSub(fd, name, p)
		if err != nil {
			return err
		}
		err = walk(ctx, sub, p, depth+1, do)
		unix.Close(sub)
		if err != nil {
			return err
		}
	}
	return nil
}

// entries reads the names in the folder fd, sorted.
func entries(ctx context.Context, fd int, rel string, depth int) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if depth > maxCopyDepth {
		return nil, fmt.Errorf("%.60q… is nested more than %d folders deep", rel, maxCopyDepth)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return nil, err
	}
	if k := kindOfMagic(int64(fs.Type)); k.fake {
		return nil, fmt.Errorf("%q is a mount of %s, which cannot be copied", rel, k.name)
	}
	dup, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: rel, Err: err}
	}
	d := os.NewFile(uintptr(dup), rel)
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	sort.Strings(names)
	return names, nil
}

func openSub(fd int, name, p string) (int, error) {
	sub, err := unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: p, Err: err}
	}
	return sub, nil
}

type copier struct {
	ctx      context.Context
	top      int // the copy's root
	manifest *manifestWriter
	limit    int64 // bytes that may be copied
	left     int64 // of them, those that still may
	clones   bool  // the last clone worked
	buf      []byte
	links    map[[2]uint64]string // files with several names: the first one's path
}

// dir copies what is in the folder from into the folder to, and then to's
// own attributes.
func (c *copier) dir(from, to int, rel string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstat(from, &st); err != nil {
		return err
	}
	src := fmt.Sprintf("/proc/self/fd/%d/.", from)
	xattrs, err := Xattrs(src)
	if err != nil {
		return err
	}
	var own unix.Stat_t
	if err := unix.Fstat(to, &own); err != nil {
		return err
	}
	e := Entry{Path: rel, Host: IdentityOf(&st), Copy: IdentityOf(&own), Xattrs: HashXattrs(xattrs)}
	if err := c.manifest.add(&e); err != nil {
		return err
	}
	names, err := entries(c.ctx, from, rel, depth)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := c.entry(from, to, name, path.Join(rel, name), depth); err != nil {
			return err
		}
	}
	return copyAttributes(src, fmt.Sprintf("/proc/self/fd/%d/.", to))
}

func (c *copier) entry(from, to int, name, p string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "stat", Path: p, Err: err}
	}
	if err := copyable(p, &st); err != nil {
		return err
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFDIR {
		if err := unix.Mkdirat(to, name, 0o700); err != nil {
			return &os.PathError{Op: "mkdir", Path: p, Err: err}
		}
		a, err := openSub(from, name, p)
		if err != nil {
			return err
		}
		defer unix.Close(a)
		b, err := openSub(to, name, p)
		if err != nil {
			return err
		}
		defer unix.Close(b)
		return c.dir(a, b, p, depth+1)
	}
	src := fmt.Sprintf("/proc/self/fd/%d/%s", from, name)
	dst := fmt.Sprintf("/proc/self/fd/%d/%s", to, name)
	e := Entry{Path: p}
	key := [2]uint64{st.Dev, st.Ino}
	first, linked := c.links[key]
	switch {
	case linked:
		if err := unix.Linkat(c.top, first, to, name, 0); err != nil {
			return &os.PathError{Op: "link", Path: p, Err: err}
		}
	case kind == unix.S_IFLNK:
		target, err := os.Readlink(src)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(target, to, name); err != nil {
			return &os.PathError{Op: "symlink", Path: p, Err: err}
		}
		e.Target = target
	case kind == unix.S_IFIFO:
		if err := unix.Mknodat(to, name, unix.S_IFIFO|0o600, 0); err != nil {
			return &os.PathError{Op: "mkfifo", Path: p, Err: err}
		}
	default:
		if err := c.file(from, to, name, p, &st); err != nil {
			return err
		}
	}
	if st.Nlink > 1 && !linked {
		c.links[key] = p
	}
	xattrs, err := Xattrs(src)
	if err != nil {
		return err
	}
	if !linked {
		if err := chown(dst, &st); err != nil {
			return err
		}
		if err := setXattrs(dst, xattrs); err != nil {
			return err
		}
		if kind != unix.S_IFLNK {
			// After chown, which takes setuid bits away.
			if err := unix.Fchmodat(to, name, st.Mode&0o7777, 0); err != nil {
				return &os.PathError{Op: "chmod", Path: p, Err: err}
			}
		}
		if err := setTimes(to, name, &st); err != nil {
			return err
		}
	}
	var own unix.Stat_t
	if err := unix.Fstatat(to, name, &own, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "stat", Path: p, Err: err}
	}
	e.Host, e.Copy, e.Xattrs = IdentityOf(&st), IdentityOf(&own), HashXattrs(xattrs)
	return c.manifest.add(&e)
}
