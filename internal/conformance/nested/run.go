//go:build linux

package nested

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

// Options say what is run in a machine.
type Options struct {
	Top    string // the repository
	Kernel string // a folder of ./scripts/kernel; by default .cache/kernel of the repository
	Cache  string // where the disk with the programs is kept; by default .cache/nested of it

	Packages []string   // patterns, as for `go test`
	Args     []string   // of every test binary, such as -test.run=X
	Users    []bool     // for each pass whether it is the ordinary user's; by default root's alone
	Env      []string   // more of it for the tests
	Seconds  int        // the most that one binary may take; 0 is 3600
	Programs []string   // patterns of programs that the tests build or find; those below the packages are there too
	Commands [][]string // in place of tests: programs, by their paths inside

	Memory int       // MiB; 0 is 3072
	Out    io.Writer // where the tests' output goes, nil for nowhere
}

// Run makes a machine, runs everything in it and gives what came of it.
func Run(ctx context.Context, o Options) (*Result, error) {
	if o.Kernel == "" {
		o.Kernel = filepath.Join(o.Top, ".cache/kernel")
	}
	if o.Cache == "" {
		o.Cache = filepath.Join(o.Top, ".cache/nested")
	}
	if o.Users == nil {
		o.Users = []bool{false}
	}
	if o.Seconds == 0 {
		o.Seconds = 3600
	}
	if o.Memory == 0 {
		o.Memory = 3072
	}
	if o.Out == nil {
		o.Out = io.Discard
	}
	k, err := FindKernel(o.Kernel)
	if err != nil {
		return nil, err
	}
	system, err := systemDisk(o.Cache, k)
	if err != nil {
		return nil, err
	}
	var packages []string
	if len(o.Packages) > 0 {
		if packages, err = packagesOf(o.Top, o.Packages); err != nil {
			return nil, err
		}
		if len(packages) == 0 {
			return nil, fmt.Errorf("no package of %s has tests", strings.Join(o.Packages, " "))
		}
	}
	dir, err := os.MkdirTemp("", "nested-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	tree := filepath.Join(dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, err
	}
	if err := build(o.Top, tree, packages, o.Programs); err != nil {
		return nil, err
	}
	p := o.plan(packages)
	work, start := filepath.Join(dir, "work.ext4"), filepath.Join(dir, "start.cpio")
	if err := workDisk(work, tree, p); err != nil {
		return nil, err
	}
	if err := writeStart(start, k, filepath.Join(tree, "inside")); err != nil {
		return nil, err
	}
	m := machine{kernel: k, start: start, disks: []string{system, work}, memory: o.Memory, processors: min(runtime.NumCPU(), 4)}
	res := newResult(p, o.Out)
	return res, m.boot(ctx, res.event)
}

// plan gives every step of a run.
func (o Options) plan(packages []string) plan.Plan {
	var p plan.Plan
	add := func(user bool, name, dir string, command []string) {
		if user {
			name += " (ordinary user)"
		}
		p.Steps = append(p.Steps, plan.Step{Name: name, Command: command, Dir: dir, Env: o.Env, User: user, Seconds: o.Seconds})
	}
	for _, user := range o.Users {
		for _, c := range o.Commands {
			add(user, strings.Join(c, " "), "/", c)
		}
		for _, dir := range packages {
			args := append([]string{binaryOf(dir), "-test.v", fmt.Sprintf("-test.timeout=%ds", o.Seconds), "-test.paniconexit0"}, o.Args...)
			add(user, "./"+dir, filepath.Join(plan.Source, dir), args)
		}
	}
	return p
}
