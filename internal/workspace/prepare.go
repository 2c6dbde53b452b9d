package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// Upper gives the upper folder of a root in overlay mode. runDir is the
// run's folder.
func Upper(runDir string, root folder.Root) string { return filepath.Join(runDir, root.Layer, "upper") }

// Work gives the work folder of a root in overlay mode.
func Work(runDir string, root folder.Root) string { return filepath.Join(runDir, root.Layer, "work") }

// Tree gives the copy of a root in copy mode, to be mounted at the root's
// path.
func Tree(runDir string, root folder.Root) string { return filepath.Join(runDir, root.Layer, "tree") }

// Layer gives the folder in which the sandbox's writes to the root lie: Upper
// or Tree.
func Layer(runDir string, root folder.Root) string {
	if root.Mode == folder.ModeCopy {
		return Tree(runDir, root)
	}
	return Upper(runDir, root)
}

// Prepare makes the layers of all roots in the run's folder runDir: an empty
// upper that looks like the root and an empty work folder, or a full copy. A
// root that cannot be shown whole is an error with code workspace_refused.
// What was made before an error goes with the run's folder.
func (p *Plan) Prepare(ctx context.Context, runDir string) error {
	left := p.opts.CopyLimit
	p.looks = nil
	for _, root := range p.Roots {
		layer := filepath.Join(runDir, root.Layer)
		if err := os.MkdirAll(layer, 0o700); err != nil {
			return bailey.Errorf(bailey.CodeStorage, "prepare the workspace", "", "%w", err)
		}
		fd, err := unix.Open(root.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return bailey.Errorf(bailey.CodeWorkspaceRefused, "read the workspace", "", "%s: %w", root.Path, err)
		}
		err = sameRoot(fd, root)
		if err == nil {
			if root.Mode == folder.ModeCopy {
				left, err = copyRoot(ctx, fd, root, layer, left)
			} else {
				err = p.prepareOverlay(fd, runDir, root)
			}
		}
		unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

// sameRoot says whether the descriptor is the folder that was planned.
func sameRoot(fd int, root folder.Root) error {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && (st.Dev != root.Dev || st.Ino != root.Ino) {
		err = errors.New("it has been replaced meanwhile")
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeWorkspaceRefused, "read the workspace", "", "%s: %w", root.Path, err)
	}
	return nil
}

func (p *Plan) prepareOverlay(fd int, runDir string, root folder.Root) error {
	upper := Upper(runDir, root)
	from := fmt.Sprintf("/proc/self/fd/%d/.", fd)
	now, err := lookOf(from)
	if err == nil {
		p.looks = append(p.looks, now)
		err = os.Mkdir(Work(runDir, root), 0o700)
	}
	if err == nil {
		err = os.Mkdir(upper, 0o700)
	}
	if err == nil {
		err = copyAttributes(from, upper)
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, "prepare the workspace's layer", "", "%w", err)
	}
	return nil
}

// copyAttributes gives the folder to the owner, mode, attributes and times of
// the folder from. An ordinary user keeps it as its own where it cannot be
// given away: a workspace of another owner stays usable so.
func copyAttributes(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		return &os.PathError{Op: "stat", Path: from, Err: err}
	}
	xattrs, err := Xattrs(from)
	if err != nil {
		return err
	}
	if err := chown(to, &st); err != nil {
		return err
	}
	if err := setXattrs(to, xattrs); err != nil {
		return err
	}
	if err := unix.Chmod(to, st.Mode&0o7777); err != nil {
		return &os.PathError{Op: "chmod", Path: to, Err: err}
	}
	return setTimes(unix.AT_FDCWD, to, &st)
}

// chown gives path, if need be, to the owner in st.
func chown(path string, st *unix.Stat_t) error {
	err := unix.Lchown(path, int(st.Uid), int(st.Gid))
	if err != nil && errors.Is(err, unix.EPERM) && os.Geteuid() != 0 {
		// One's own group, at least, where the owner is another.
		unix.Lchown(path, -1, int(st.Gid))
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "chown", Path: path, Err: err}
	}
	return nil
}

func setTimes(dir int, name string, st *unix.Stat_t) error {
	err := unix.UtimesNanoAt(dir, name, []unix.Timespec{st.Atim, st.Mtim}, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return &os.PathError{Op: "utimensat", Path: name, Err: err}
	}
	return nil
}

// CopyRoots makes the full copies of the roots in copy mode, as Prepare does, and
// nothing for the others.
func (p *Plan) CopyRoots(ctx context.Context, runDir string) error {
	only := *p
	only.Roots = nil
	for _, r := range p.Roots {
		if r.Mode == folder.ModeCopy {
			only.Roots = append(only.Roots, r)
		}
	}
	return only.Prepare(ctx, runDir)
}

// LookLike gives the folder at path owner, mode, attributes and times of the
// folder like, so that an overlay whose upper folder it is looks the same.
func LookLike(path, like string) error { return copyAttributes(like, path) }
