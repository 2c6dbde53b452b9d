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

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/bench/peer"
	"github.com/bailey-sandbox/bailey/internal/bench/result"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

var echo = []string{"/bin/echo", "hi"}

// bwrapOnce runs a command by bwrap over a folder that is made for it.
func (b *bench) bwrapOnce(want string, command ...string) (sample, error) {
	begin := time.Now()
	fresh, err := os.MkdirTemp(b.dir, "fresh-")
	if err != nil {
		return sample{}, err
	}
	if _, err := b.filter.Seek(0, io.SeekStart); err != nil {
		return sample{}, err
	}
	p := peer.Program{Argv: bwrapArgs(b.bwrap, fresh, b.work, b.host.Home, command...), Extra: b.filter, Group: b.groups, Limits: limits}
	made := time.Since(begin)
	v, err := p.Run(want)
	if v.First > 0 {
		v.First += made
	}
	v.Total = time.Since(begin)
	return v, errors.Join(err, os.RemoveAll(fresh)) // see once
}

// withBwrap adds bwrap to the subjects, or says why not.
func (b *bench) withBwrap(subjects []*subject, missing []result.Missing, want string, command ...string) ([]*subject, []result.Missing) {
	if b.bwrap == "" {
		return subjects, append(missing, result.Missing{Name: "bwrap", Why: "it is not installed"})
	}
	return append(subjects, &subject{name: "bwrap", features: b.bwrapFeatures(), once: func(context.Context) (sample, error) {
		return b.bwrapOnce(want, command...)
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
	ours := peer.Program{
		Argv: []string{b.opt.Bailey, "run", "--", "true"},
		Env:  slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, folder.EnvHome+"=") }), Dir: b.work,
	}
	if b.groups != nil {
		ours.Argv = []string{b.opt.Bailey, "run", "--memory", strconv.FormatInt(limits.Memory, 10), "--pids", strconv.FormatInt(limits.Pids, 10), "--", "true"}
	}
	ours.Env = append(ours.Env, folder.EnvHome+"="+b.home)
	subjects := []*subject{{name: "bailey run", ours: true, features: b.ourFeatures(bailey.IsolationProcess, "record and change set"),
		once: func(ctx context.Context) (sample, error) { return ours.Run("") }}}
	subjects, missing := b.withBwrap(subjects, nil, "", "true")
	if b.srt == "" {
		missing = append(missing, result.Missing{Name: "srt", Why: "it is not installed"})
	} else {
		settings := filepath.Join(b.dir, "srt.json")
		if err := os.WriteFile(settings, []byte(srtSettings), 0o600); err != nil {
			return Measure{}, bailey.Errorf(bailey.CodeStorage, "configure srt", "", "%w", err)
		}
		srt := peer.Program{Argv: []string{b.srt, "--settings", settings, "-c", "true"}, Env: b.srtEnv, Dir: b.work}
		subjects = append(subjects, &subject{name: "srt", features: []string{"bwrap with user, mount, pid and net namespaces", "a small system call filter",
			"no memory or pids limit", "workspace written straight through", "the host's whole file system, read-only", "a proxy that allows nothing"},
			once: func(ctx context.Context) (sample, error) { return srt.Run("") }})
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
	var missing []result.Missing
	switch {
	case b.crun == "":
		missing = append(missing, result.Missing{Name: "crun", Why: "it is not installed"})
	case os.Geteuid() != 0:
		missing = append(missing, result.Missing{Name: "crun", Why: "its root file system is mounted by root only"})
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
	if err := os.Chmod(b.dir, 0o711); err != nil { // its ids reach the root file system through here
		return nil, bailey.Errorf(bailey.CodeStorage, "make a bundle for crun", "", "%w", err)
	}
	crun := peer.Crun{Program: b.crun, Dir: filepath.Join(b.dir, "crun"), Root: root, Limits: limits}
	c, err := crun.Prepare("bundle", echo...)
	if err != nil {
		return nil, err
	}
	return &subject{name: "crun", features: peer.CrunFeatures, once: func(context.Context) (sample, error) { return c.Run("hi\n") }}, nil
}
