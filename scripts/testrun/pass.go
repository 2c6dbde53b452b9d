package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// pass is one way of running the tests.
type pass struct {
	name string
	dir  string   // the checkout that it runs in, "" for this one
	env  []string // more variables
	args []string // more arguments of go test
	temp string   // its temporary folder, which must be empty afterwards
	root bool
	who  *account // the user it runs as, nil for the one who started the suite

	// leaves are parts of import paths of packages that it leaves to the others.
	leaves []string
}

// raceLeaves are packages whose work happens in programs that they start, which
// are built without the race detector: with it they take twice the time and
// show nothing more.
var raceLeaves = []string{"/internal/bench/", "/internal/conformance/", "/internal/housekeeping", "/scripts/"}

// ordinaryLeaves are packages whose tests, started by root, do everything as an
// ordinary user too.
var ordinaryLeaves = []string{"/internal/conformance/escape", "/internal/conformance/egress", "/internal/conformance/fault", "/internal/conformance/stay", "/internal/conformance/torture"}

// longest are parts of import paths of the packages that take longest. They are
// started first: beside each of them many short ones run, and none runs alone at the end.
var longest = []string{"/internal/conformance/work", "/internal/engine", "/internal/conformance/egress", "/internal/conformance/fault", "/internal/conformance/stay", "/internal/conformance/torture"}

// takes gives those of the packages that the pass runs, in the order in which they
// are started.
func (p *pass) takes(declared map[string][]string) (packages []string) {
	for pkg := range declared {
		if !slices.ContainsFunc(p.leaves, func(part string) bool { return strings.Contains(pkg, part) }) {
			packages = append(packages, pkg)
		}
	}
	place := func(pkg string) int {
		if i := slices.IndexFunc(longest, func(part string) bool { return strings.HasSuffix(pkg, part) }); i >= 0 {
			return i
		}
		return len(longest)
	}
	slices.SortFunc(packages, func(a, b string) int { return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b)) })
	return packages
}

// passes gives the passes of whoever started the suite, and what takes back
// what they need.
func (s *suite) passes(ctx context.Context, declared map[string][]string) (list []*pass, cleanup func(), err error) {
	base, err := os.MkdirTemp("/tmp", "bt-") // a short name: sockets have little room
	if err != nil {
		return nil, nil, err
	}
	if err := os.Chmod(base, 0o755); err != nil {
		return nil, nil, err
	}
	programs := filepath.Join(base, "programs")
	err = copyPrograms(programs)
	for pkg := range declared {
		if err == nil && strings.Contains(pkg, "/internal/conformance/") {
			err = buildFaulty(ctx, programs)
			break
		}
	}
	if err != nil {
		return nil, nil, errors.Join(err, os.RemoveAll(base))
	}
	root := os.Geteuid() == 0
	name := "user"
	if root {
		name = "root"
	}
	add := func(p *pass) error {
		p.temp = filepath.Join(base, fmt.Sprint("t", len(list)))
		if err := os.Mkdir(p.temp, 0o700); err != nil {
			return err
		}
		p.env = append(p.env, "BAILEY_TEST_PROGRAMS="+programs)
		switch {
		case p.who != nil:
			if err := os.Chown(p.temp, p.who.uid, p.who.gid); err != nil {
				return err
			}
		case p.root: // as /tmp is: some tests become other users
			if err := os.Chmod(p.temp, 0o777|os.ModeSticky); err != nil {
				return err
			}
		}
		list = append(list, p)
		return nil
	}
	err = add(&pass{name: name, root: root, env: []string{"CGO_ENABLED=0"}})
	if err == nil && has("gcc") {
		// Without the variable each process that ends waits for a second first.
		err = add(&pass{name: name + "+race", root: root, env: []string{"CGO_ENABLED=1", "GORACE=atexit_sleep_ms=0"}, args: []string{"-race"}, leaves: s.leaves(raceLeaves)})
	} else if err == nil {
		s.note("nothing ran under the race detector: gcc is not installed")
	}
	var who *account
	cleanup = func() {
		if who != nil {
			if err := who.remove(); err != nil {
				s.fault("remove the user %s: %v", who.name, err)
			}
		}
		if err := os.RemoveAll(base); err != nil {
			s.fault("remove the temporary folder: %v", err)
		}
	}
	if err == nil && root {
		if who, err = newAccount(ctx, base); err == nil {
			err = add(&pass{name: "ordinary", dir: who.source, env: []string{"CGO_ENABLED=0", "GOFLAGS=" + os.Getenv("GOFLAGS") + " -buildvcs=false"}, args: []string{"-exec", who.wrapper()}, who: who, leaves: s.leaves(ordinaryLeaves)})
		}
	}
	if err != nil {
		cleanup()
		return nil, nil, err
	}
	return list, cleanup, nil
}

// leaves is what a pass leaves to others: nothing when packages were named.
func (s *suite) leaves(parts []string) []string {
	if s.everything() {
		return parts
	}
	return nil
}

// runPass runs the tests, two packages at once: most of them wait more than they
// compute. None counts what is on the whole machine.
func (s *suite) runPass(ctx context.Context, p *pass, declared map[string][]string) {
	packages := p.takes(declared)
	if len(packages) == 0 {
		return
	}
	fmt.Printf("\n== %s\n", p.name)
	r := s.results.reader(p.name, os.Stdout)
	command := []string{"go", "test", "-json", "-count=1", "-p=2", "-vet=off", "-timeout=30m"}
	command = append(append(command, p.args...), packages...)
	env := append([]string{"TMPDIR=" + p.temp, "BAILEY_HOME=" + filepath.Join(p.temp, "bailey-home"), "GOTMPDIR=" + os.TempDir()}, p.env...)
	err := stream(ctx, p.dir, env, r.read, command...)
	if ctx.Err() != nil {
		return
	}
	for _, f := range r.faults {
		s.fault("%s: %s", p.name, f)
	}
	if err != nil && len(r.faults) == 0 && !s.results.failedIn(p.name) {
		s.fault("%s: go test: %v", p.name, err)
	}
	s.judgePass(ctx, p, r, declared)
	s.leftBehind(p)
}

// judgePass fails what did not run though it could have.
func (s *suite) judgePass(ctx context.Context, p *pass, r *reader, declared map[string][]string) {
	known := map[need]bool{}
	met := func(n need) bool {
		if v, ok := known[n]; ok {
			return v
		}
		known[n] = s.probe(ctx, p, n)
		return known[n]
	}
	for k, by := range s.results.tests {
		o, ok := by[p.name]
		if !ok || o.action != "skip" {
			continue
		}
		here := func(n need) bool {
			if n.kind == "part" {
				return s.called(key{k.pkg, n.name}, p)
			}
			return met(n)
		}
		if err := judge(o.reason, p.root, here); err != nil {
			s.fault("%s: %s was skipped: %v", p.name, k, err)
		}
	}
	for _, pkg := range p.takes(declared) {
		names := declared[pkg]
		if _, ended := s.results.times[pkg][p.name]; !ended {
			if len(names) > 0 {
				s.fault("%s: %s did not run", p.name, pkg)
			}
			continue
		}
		for _, name := range names {
			if _, ran := s.results.tests[key{pkg, name}][p.name]; !ran && !r.broken[pkg] {
				s.fault("%s: %s is declared and did not run", p.name, key{pkg, name})
			}
		}
	}
}

// called tells whether a test that calls another one has done so in a pass, or
// was skipped itself for a reason, which is judged for itself. Two tests that
// are a part of each other are none.
func (s *suite) called(caller key, p *pass) bool {
	o := s.results.tests[caller][p.name]
	if o.action != "skip" {
		return o.action == "pass"
	}
	n, err := parseNeed(o.reason)
	return err == nil && n.kind != "part"
}

// probe asks, as the pass's user, whether a tool or feature is there.
func (s *suite) probe(ctx context.Context, p *pass, n need) bool {
	self, err := os.Executable()
	if err != nil {
		s.fault("probe: %v", err)
		return true
	}
	command := []string{self, "probe", n.kind, n.name}
	if p.who != nil {
		command = append(p.who.command(), command...)
	}
	cmd := prepare(ctx, "/", []string{"TMPDIR=" + p.temp}, command...)
	out, err := cmd.CombinedOutput()
	switch code := cmd.ProcessState.ExitCode(); {
	case err == nil:
		return true
	case code == probeUnmet:
		return false
	default:
		s.fault("%s: the probe for %s %s ended with %d: %s", p.name, n.kind, n.name, code, out)
		return true
	}
}

// leftBehind fails a pass that left files, mounts or processes.
func (s *suite) leftBehind(p *pass) {
	if b, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.SplitSeq(string(b), "\n") {
			if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], p.temp) {
				s.fault("%s: a mount was left at %s", p.name, f[4])
			}
		}
	}
	entries, err := os.ReadDir(p.temp)
	if err != nil {
		s.fault("%s: %v", p.name, err)
	}
	for _, e := range entries {
		s.fault("%s: left in the temporary folder: %s", p.name, e.Name())
	}
	if p.who != nil {
		for _, proc := range p.who.processes() {
			s.fault("%s: a process was left: %s", p.name, proc)
		}
	}
}
