package workspace

import (
	"errors"
	"fmt"
	"reflect"
	"slices"

	"golang.org/x/sys/unix"

	bailey "github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// look is what an upper folder takes over from its root on the host, but for
// the times.
type look struct {
	uid, gid, mode uint32
	xattrs         []Xattr
}

func lookOf(path string) (look, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return look{}, err
	}
	xattrs, err := Xattrs(path)
	return look{st.Uid, st.Gid, st.Mode, xattrs}, err
}

// Renew makes layers that Prepare made some time ago as good as new: a sandbox
// over them, in which nothing has looked at the workspace yet, sees it as one
// made now would. The error has code conflict where that cannot be, because the
// host has changed in a way that only new layers can follow; a root that was
// copied is always such a case. Whether the folder may be a workspace at all is
// not asked again.
func (p *Plan) Renew(runDir string) error {
	conflict := func(format string, args ...any) error {
		return bailey.Errorf(bailey.CodeConflict, "use the workspace", "prepare it anew", format, args...)
	}
	now := &Plan{Dir: p.Dir, opts: p.opts}
	if err := now.plan(); err != nil {
		return conflict("%w", err)
	}
	if !slices.Equal(now.Roots, p.Roots) || len(p.looks) != len(p.Roots) {
		return conflict("how %s is seen has changed", p.Dir)
	}
	for i, root := range p.Roots {
		if err := renewRoot(root, p.looks[i], Upper(runDir, root)); errors.Is(err, errLook) {
			return conflict("owner, mode or attributes of %s have changed", root.Path)
		} else if err != nil {
			return conflict("%s: %w", root.Path, err)
		}
	}
	return nil
}

var errLook = errors.New("it looks different")

// renewRoot compares a root with what its upper folder was made like, and gives
// the upper folder its times. Those alone can be set while it is mounted: the
// kernel asks the upper folder for them each time.
func renewRoot(root folder.Root, was look, upper string) error {
	fd, err := unix.Open(root.Path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := sameRoot(fd, root); err != nil {
		return err
	}
	now, err := lookOf(fmt.Sprintf("/proc/self/fd/%d/.", fd))
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(now, was) {
		return errLook
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	return setTimes(unix.AT_FDCWD, upper, &st)
}
