package peer

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// CrunFeatures are what a container of Crun has.
var CrunFeatures = []string{"user, mount, pid, net, ipc, uts and cgroup namespaces", "system call filter: moby's profile",
	"memory and pids limit: its own", "11 capabilities, no_new_privs", "no Landlock",
	"root file system: the same layers as overlay on the same disk, mounted by the benchmark before crun starts, not mapped to the ids of the container",
	"no workspace, no record"}

// HostRoot has the program baileyd make the built-in root file system in a store.
func HostRoot(ctx context.Context, baileyd, store string) (*rootfs.Root, error) {
	const what = "prepare the built-in root file system"
	cmd := exec.CommandContext(ctx, baileyd, "image", "prepare", "--json", "--store", store, "host")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeImageInvalid, what, "", "%w", err)
	}
	root, err := rootfs.Parse(out)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeImageInvalid, what, "", "%w", err)
	}
	return &root, nil
}

// Crun makes containers of one root file system. For root only.
type Crun struct {
	Program string // absolute
	Dir     string // others may pass through it, as the container's ids do
	Root    *rootfs.Root
	Limits  bailey.Limits
}

// Container is a bundle that can be run again and again, one run at a time.
type Container struct {
	views   []view
	owner   int // of what is written
	program Program
}

// Prepare writes a bundle. Names are unique among those that run at once.
func (c *Crun) Prepare(name string, command ...string) (*Container, error) {
	dir := filepath.Join(c.Dir, name)
	failed := func(err error) (*Container, error) {
		return nil, bailey.Errorf(bailey.CodeStorage, "make a bundle for crun", "", "%w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		return failed(err)
	}
	unique := "bailey-bench-" + strconv.Itoa(os.Getpid()) + "-" + name
	if err := bundle(dir, unique, command, c.Limits); err != nil {
		return failed(err)
	}
	views := viewsOf(c.Root, dir)
	const unified = "/sys/fs/cgroup/unified"
	_, hybrid := os.Stat(unified)
	return &Container{views: views, owner: crunBase, program: Program{
		Argv: []string{c.Program, "--root", filepath.Join(c.Dir, "state"), "--cgroup-manager=cgroupfs", "run", "--bundle", dir, unique},
		Env:  []string{"PATH=" + SearchPath}, Dir: dir, Flags: unix.CLONE_NEWNS,
		Before: func(s *spawn.Script) {
			none := spawn.Int(0)
			s.Do("detach from the host's mounts", unix.SYS_MOUNT, none, s.Str("/"), none, spawn.Int(unix.MS_REC|unix.MS_PRIVATE), none)
			if hybrid == nil { // crun refuses to run where both versions are mounted
				s.Do("cover "+unified, unix.SYS_MOUNT, s.Str("tmpfs"), s.Str(unified), s.Str("tmpfs"), none, none)
			}
			mountViews(s, views)
		},
	}}, nil
}

// Run makes the container, runs its command, whose output has to be want, and
// takes it away. Files that it leaves are removed when the clock has stopped.
func (c *Container) Run(want string) (Sample, error) {
	begin := time.Now()
	if err := makeLayers(c.views, c.owner); err != nil {
		return Sample{}, err
	}
	made := time.Since(begin)
	v, err := c.program.Run(want)
	if v.First > 0 {
		v.First += made
	}
	v.Total = time.Since(begin)
	return v, errors.Join(err, removeLayers(c.views))
}
