package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver/linux/spawn"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

var echo = []string{"/bin/echo", "hi"}

// bwrapOnce runs a command by bwrap over a folder that is made for it.
func (b *bench) bwrapOnce(ctx context.Context, want string, command ...string) (sample, error) {
	begin := time.Now()
	fresh, err := os.MkdirTemp(b.dir, "fresh-")
	if err != nil {
		return sample{}, err
	}
	if _, err := b.filter.Seek(0, io.SeekStart); err != nil {
		return sample{}, err
	}
	p := program{argv: bwrapArgs(b.bwrap, fresh, b.work, b.host.Home, command...), extra: b.filter, group: b.groups, limits: limits}
	made := time.Since(begin)
	v, err := p.run(ctx, want)
	if v.first > 0 {
		v.first += made
	}
	v.total = time.Since(begin)
	return v, errors.Join(err, os.RemoveAll(fresh)) // see once
}

// withBwrap adds bwrap to the subjects, or says why not.
func (b *bench) withBwrap(subjects []*subject, missing []Missing, want string, command ...string) ([]*subject, []Missing) {
	if b.bwrap == "" {
		return subjects, append(missing, Missing{"bwrap", "it is not installed"})
	}
	return append(subjects, &subject{name: "bwrap", features: b.bwrapFeatures(), once: func(ctx context.Context) (sample, error) {
		return b.bwrapOnce(ctx, want, command...)
	}}), missing
}

// process: one command in a sandbox of its own, from the library.
func (b *bench) process(ctx context.Context) (m Measure, err error) {
	req := b.request(bailey.IsolationProcess, echo...)
	features := b.ourFeatures(bailey.IsolationProcess, "record in the data folder")
	subjects, done, err := b.library(ctx, bailey.Spec{Isolation: bailey.IsolationProcess}, features)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, done()) }()
	subjects = append(subjects, &subject{name: oneCommand, ours: true, features: features, once: func(ctx context.Context) (sample, error) {
		return b.once(ctx, req, "hi\n")
	}})
	subjects, missing := b.withBwrap(subjects, nil, "hi\n", echo...)
	m, err = b.measure(ctx, "process level "+howLibrary, b.opt.Rounds, subjects, missing)
	m.target(prepared, "bwrap", 0.5)
	m.ratio(cold, "bwrap")
	m.ratio(oneCommand, "bwrap")
	return m, err
}

// whole: `bailey run -- true` as a person starts it.
func (b *bench) whole(ctx context.Context) (Measure, error) {
	ours := program{
		argv: []string{b.opt.Bailey, "run", "--", "true"},
		env:  slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, folder.EnvHome+"=") }), dir: b.work,
	}
	if b.groups != nil {
		ours.argv = []string{b.opt.Bailey, "run", "--memory", strconv.FormatInt(limits.Memory, 10), "--pids", strconv.FormatInt(limits.Pids, 10), "--", "true"}
	}
	ours.env = append(ours.env, folder.EnvHome+"="+b.home)
	subjects := []*subject{{name: "bailey run", ours: true, features: b.ourFeatures(bailey.IsolationProcess, "record and change set"),
		once: func(ctx context.Context) (sample, error) { return ours.run(ctx, "") }}}
	subjects, missing := b.withBwrap(subjects, nil, "", "true")
	if b.srt == "" {
		missing = append(missing, Missing{"srt", "it is not installed"})
	} else {
		settings := filepath.Join(b.dir, "srt.json")
		if err := os.WriteFile(settings, []byte(srtSettings), 0o600); err != nil {
			return Measure{}, bailey.Errorf(bailey.CodeStorage, "configure srt", "", "%w", err)
		}
		srt := program{argv: []string{b.srt, "--settings", settings, "-c", "true"}, env: b.srtEnv, dir: b.work}
		subjects = append(subjects, &subject{name: "srt", features: []string{"bwrap with user, mount, pid and net namespaces", "a small system call filter",
			"no memory or pids limit", "workspace written straight through", "the host's whole file system, read-only", "a proxy that allows nothing"},
			once: func(ctx context.Context) (sample, error) { return srt.run(ctx, "") }})
	}
	m, err := b.measure(ctx, "process level as a program: true, until the program has ended", b.opt.Rounds, subjects, missing)
	m.target("bailey run", "bwrap", 1.5)
	m.target("bailey run", "srt", 0.1)
	return m, err
}

// container: one command in a root file system of its own, from the library.
func (b *bench) container(ctx context.Context) (m Measure, err error) {
	root, err := b.prepareRoot()
	if err != nil {
		return m, err
	}
	req := b.request(bailey.IsolationContainer, echo...)
	req.Rootfs = root
	features := b.ourFeatures(bailey.IsolationContainer, "record in the data folder")
	subjects, done, err := b.library(ctx, bailey.Spec{Isolation: bailey.IsolationContainer}, features)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, done()) }()
	subjects[1].features = append(subjects[1].features, "baileyd is asked for the root file system each time")
	subjects = append(subjects, &subject{name: oneCommand, ours: true, features: features,
		once: func(ctx context.Context) (sample, error) { return b.once(ctx, req, "hi\n") }})
	var missing []Missing
	switch {
	case b.crun == "":
		missing = append(missing, Missing{"crun", "it is not installed"})
	case os.Geteuid() != 0:
		missing = append(missing, Missing{"crun", "its root file system is mounted by root only"})
	default:
		s, err := b.crunSubject(root)
		if err != nil {
			return Measure{}, err
		}
		subjects = append(subjects, s)
	}
	m, err = b.measure(ctx, "container level "+howLibrary, b.opt.Rounds, subjects, missing)
	m.target(prepared, "crun", 0.2)
	m.ratio(cold, "crun")
	m.ratio(oneCommand, "crun")
	return m, err
}

func (b *bench) crunSubject(root *rootfs.Root) (*subject, error) {
	dir := filepath.Join(b.dir, "bundle")
	if err := os.MkdirAll(filepath.Join(dir, "rootfs"), 0o755); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "make a bundle for crun", "", "%w", err)
	}
	if err := os.Chmod(b.dir, 0o711); err != nil { // its ids reach the root file system through here
		return nil, bailey.Errorf(bailey.CodeStorage, "make a bundle for crun", "", "%w", err)
	}
	if err := bundle(dir, echo, "/"); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "make a bundle for crun", "", "%w", err)
	}
	type view struct{ lower, at, layer string }
	lower := make([]string, len(root.Layers))
	for i, l := range root.Layers {
		lower[len(lower)-1-i] = l
	}
	views := []view{{strings.Join(lower, ":"), filepath.Join(dir, "rootfs"), filepath.Join(dir, "layer-0")}}
	for i, bind := range root.Binds {
		views = append(views, view{bind.Source, filepath.Join(dir, "rootfs", bind.Target), filepath.Join(dir, "layer-"+string(rune('1'+i)))})
	}
	const unified = "/sys/fs/cgroup/unified"
	_, hybrid := os.Stat(unified)
	p := program{
		argv: []string{b.crun, "--root", filepath.Join(dir, "state"), "--cgroup-manager=cgroupfs", "run", "--bundle", dir, "bench"},
		env:  []string{"PATH=" + searchPath}, dir: dir, flags: unix.CLONE_NEWNS,
		before: func(s *spawn.Script) {
			none := spawn.Int(0)
			s.Do("detach from the host's mounts", unix.SYS_MOUNT, none, s.Str("/"), none, spawn.Int(unix.MS_REC|unix.MS_PRIVATE), none)
			if hybrid == nil { // crun refuses to run where both versions are mounted
				s.Do("cover "+unified, unix.SYS_MOUNT, s.Str("tmpfs"), s.Str(unified), s.Str("tmpfs"), none, none)
			}
			for _, v := range views {
				options := "lowerdir=" + v.lower + ",upperdir=" + v.layer + "/upper,workdir=" + v.layer + "/work,index=off,volatile"
				s.Do("mount "+v.at, unix.SYS_MOUNT, s.Str("overlay"), s.Str(v.at), s.Str("overlay"), none, s.Str(options))
			}
		},
	}
	return &subject{name: "crun", features: []string{"user, mount, pid, net, ipc, uts and cgroup namespaces", "system call filter: moby's profile",
		"memory and pids limit: its own", "11 capabilities, no_new_privs", "no Landlock",
		"root file system: the same layers as overlay on the same disk, mounted by the benchmark before crun starts, not mapped to the ids of the container",
		"no workspace, no record"},
		once: func(ctx context.Context) (sample, error) {
			begin := time.Now()
			for _, v := range views {
				for _, d := range []string{v.layer, v.layer + "/upper", v.layer + "/work"} {
					if err := os.Mkdir(d, 0o755); err != nil {
						return sample{}, err
					}
				}
				if err := os.Chown(v.layer+"/upper", crunBase, crunBase); err != nil {
					return sample{}, err
				}
			}
			made := time.Since(begin)
			v, err := p.run(ctx, "hi\n")
			if v.first > 0 {
				v.first += made
			}
			v.total = time.Since(begin)
			for _, l := range views {
				err = errors.Join(err, os.RemoveAll(l.layer)) // see once
			}
			return v, err
		}}, nil
}
