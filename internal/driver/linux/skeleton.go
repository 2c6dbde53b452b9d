package linux

import (
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
)

// skeleton makes the lowest layer of a root file system: the folders and files that
// something is mounted on, and the folders above them. An image need not have them,
// and making them in the sandbox's own layer would be dozens of changes to a disk,
// each many times dearer than one in memory; nor do they belong into what is kept
// of the sandbox. The root file system of a cell is no different. What an image has in their place is seen instead.
func (b *builder) skeleton(r driver.Root) spawn.Slot {
	dirs, files := skeletonOf(r)
	b.as(insideRoot)
	fs := b.newFS("tmpfs", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV, "mode=0755", "size=1m", "nr_inodes=16k")
	for _, p := range dirs {
		b.Do("make "+p+" of the skeleton", unix.SYS_MKDIRAT, spawn.From(fs), b.Str(p[1:]), spawn.Int(0o755))
	}
	for _, p := range files {
		b.Do("make "+p+" of the skeleton", unix.SYS_MKNODAT, spawn.From(fs), b.Str(p[1:]), spawn.Int(unix.S_IFREG|0o444), zero)
	}
	b.as(hostRoot)
	return fs
}

// skeletonOf lists what is in the skeleton of a root, parents first. Where a file
// and a folder have the same path the folder stays; assemble says what is wrong.
func skeletonOf(r driver.Root) (dirs, files []string) {
	have := map[string]bool{"/": true}
	var add func(p string)
	add = func(p string) {
		if !have[p] {
			add(path.Dir(p))
			have[p] = true
			dirs = append(dirs, p)
		}
	}
	add("/dev")
	add("/proc")
	for _, name := range sysShows {
		if present()[name] != nil {
			add(name)
		}
	}
	for _, p := range r.Places {
		switch p.Kind {
		case driver.CoW, driver.Scratch, driver.Dir:
			add(p.Target)
		case driver.Bind:
			if p.IsDir {
				add(p.Target)
				continue
			}
			add(path.Dir(p.Target))
			files = append(files, p.Target)
		case driver.File, driver.Symlink:
			add(path.Dir(p.Target))
		}
	}
	slices.Sort(files)
	return dirs, slices.DeleteFunc(slices.Compact(files), func(p string) bool { return have[p] })
}
