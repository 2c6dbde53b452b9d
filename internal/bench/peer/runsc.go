package peer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// RunscFeatures are what a container of Runsc has.
var RunscFeatures = []string{"gVisor by its own command line: no cell around it, no user namespace, no limits, no network", "what is written stays in memory",
	"root file system: the same layers as overlay, mounted by the benchmark before runsc starts", "no workspace, no record"}

// Runsc makes gVisor's containers of one root file system, as its command line does. For root only.
type Runsc struct {
	Program string // absolute
	Dir     string
	Root    *rootfs.Root
}

// flags are the global ones. Control groups are others' work here.
func (r *Runsc) flags() []string {
	return []string{r.Program, "--root", filepath.Join(r.Dir, "state"), "--network=none", "--ignore-cgroups", "--overlay2=root:memory"}
}

func (r *Runsc) id(name string) string {
	return "bailey-bench-" + strconv.Itoa(os.Getpid()) + "-" + name
}

// Prepare writes a bundle. Names are unique among those that run at once.
func (r *Runsc) Prepare(name string, command ...string) (*Container, error) {
	dir := filepath.Join(r.Dir, name)
	failed := func(err error) (*Container, error) {
		return nil, bailey.Errorf(bailey.CodeStorage, "make a bundle for runsc", "", "%w", err)
	}
	type object = map[string]any
	mount := func(kind, at string) object { return object{"type": kind, "source": kind, "destination": at} }
	config, err := json.Marshal(object{
		"ociVersion": "1.0.0", "root": object{"path": "rootfs"}, "hostname": "bailey",
		"process": object{"user": object{"uid": 0, "gid": 0}, "args": command, "cwd": "/", "noNewPrivileges": true,
			"env": []string{"PATH=" + SearchPath, "HOME=/root", "LANG=" + os.Getenv("LANG")}},
		"mounts": []object{mount("proc", "/proc"), mount("tmpfs", "/dev"), mount("sysfs", "/sys"), mount("tmpfs", "/tmp")},
		"linux":  object{"namespaces": []object{{"type": "pid"}, {"type": "network"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	})
	if err != nil {
		return failed(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755), os.WriteFile(filepath.Join(dir, "config.json"), config, 0o600)); err != nil {
		return failed(err)
	}
	views := viewsOf(r.Root, dir)
	return &Container{views: views, program: Program{
		Argv: append(r.flags(), "run", "--bundle", dir, r.id(name)),
		Env:  []string{"PATH=" + SearchPath}, Dir: dir, Flags: unix.CLONE_NEWNS,
		Before: func(s *spawn.Script) {
			s.Do("detach from the host's mounts", unix.SYS_MOUNT, spawn.Int(0), s.Str("/"), spawn.Int(0), spawn.Int(unix.MS_REC|unix.MS_PRIVATE), spawn.Int(0))
			mountViews(s, views)
		},
	}}, nil
}

// Live is a container of Runsc that stays until it is ended.
type Live struct {
	r    *Runsc
	id   string
	done chan struct{}
}

// liveWait is how long a container may take until commands can be run in it.
const liveWait = time.Minute

// Start runs a container in which nothing happens, and waits until commands can be run in it.
func (r *Runsc) Start(ctx context.Context, name string) (*Live, error) {
	c, err := r.Prepare(name, "sleep", "1000000")
	if err != nil {
		return nil, err
	}
	l := &Live{r: r, id: r.id(name), done: make(chan struct{})}
	var ended error
	go func() {
		defer close(l.done)
		_, ended = c.Run("") // it is killed, which is no error of its own
	}()
	late := time.After(liveWait)
	for {
		if l.once("true") == nil {
			return l, nil
		}
		select {
		case <-l.done:
			return nil, fmt.Errorf("runsc has ended: %w", ended)
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), l.Stop())
		case <-late:
			return nil, errors.Join(errors.New("runsc's container does not come up"), l.Stop())
		}
	}
}

func (l *Live) once(command ...string) error {
	args := append(append(l.r.flags()[1:], "exec", l.id), command...)
	if out, err := exec.Command(l.r.Program, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("runsc exec: %w: %s", err, out)
	}
	return nil
}

// Exec runs a command in it that prints nothing.
func (l *Live) Exec(command ...string) (Sample, error) {
	p := Program{Argv: append(append(l.r.flags(), "exec", l.id), command...), Env: []string{"PATH=" + SearchPath}}
	return p.Run("")
}

// Stop ends it and waits.
func (l *Live) Stop() error {
	for {
		out, err := exec.Command(l.r.Program, append(l.r.flags()[1:], "kill", l.id, "KILL")...).CombinedOutput()
		select {
		case <-l.done:
			return nil
		case <-time.After(50 * time.Millisecond):
		}
		if err != nil {
			select {
			case <-l.done:
				return nil
			case <-time.After(liveWait):
				return fmt.Errorf("end runsc's container: %w: %s", err, out)
			}
		}
	}
}
