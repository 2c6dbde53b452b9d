package peer

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// view is one overlay of a container's root.
type view struct{ lower, at, layer string }

// viewsOf gives the overlays that show a root at dir/rootfs, with what is written beside it.
func viewsOf(root *rootfs.Root, dir string) []view {
	lower := make([]string, len(root.Layers))
	for i, l := range root.Layers {
		lower[len(lower)-1-i] = l
	}
	views := []view{{strings.Join(lower, ":"), filepath.Join(dir, "rootfs"), filepath.Join(dir, "layer-0")}}
	for i, b := range root.Binds {
		views = append(views, view{b.Source, filepath.Join(dir, "rootfs", b.Target), filepath.Join(dir, "layer-"+strconv.Itoa(i+1))})
	}
	return views
}

// mountViews adds the steps that mount them.
func mountViews(s *spawn.Script, views []view) {
	for _, v := range views {
		options := "lowerdir=" + v.lower + ",upperdir=" + v.layer + "/upper,workdir=" + v.layer + "/work,index=off,volatile"
		s.Do("mount "+v.at, unix.SYS_MOUNT, s.Str("overlay"), s.Str(v.at), s.Str("overlay"), spawn.Int(0), s.Str(options))
	}
}

// makeLayers makes the folders for what is written.
func makeLayers(views []view, owner int) error {
	for _, v := range views {
		for _, d := range []string{v.layer, v.layer + "/upper", v.layer + "/work"} {
			if err := os.Mkdir(d, 0o755); err != nil {
				return err
			}
		}
		if err := os.Chown(v.layer+"/upper", owner, owner); err != nil {
			return err
		}
	}
	return nil
}

func removeLayers(views []view) (err error) {
	for _, v := range views {
		err = errors.Join(err, os.RemoveAll(v.layer))
	}
	return err
}
