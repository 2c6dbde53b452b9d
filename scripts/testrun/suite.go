package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// suite is one run of ./scripts/test.
type suite struct {
	packages []string // as given; none means everything
	results  *results
	faults   []string // what failed beside tests
	notes    []string // what was not done, for want of a tool
	started  time.Time
}

// everything tells whether no packages were named.
func (s *suite) everything() bool { return len(s.packages) == 0 }

func (s *suite) fault(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Println("FAIL", text)
	s.faults = append(s.faults, text)
}

func (s *suite) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// run does everything, and gives an error only if it could not go on.
func (s *suite) run(ctx context.Context) error {
	if s.everything() {
		s.checkSources(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	// The tests that drive the programs find them built.
	if !s.step(ctx, "build", nil, "./scripts/build") {
		return errors.New("the programs do not build")
	}
	patterns := s.packages
	if s.everything() {
		patterns = []string{"./..."}
	}
	declared, err := declaredTests(ctx, patterns)
	if err != nil {
		return err
	}
	passes, cleanup, err := s.passes(ctx, declared)
	if err != nil {
		return err
	}
	defer cleanup()
	for _, p := range passes {
		s.runPass(ctx, p, declared)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// step runs one command of the suite and shows its output if it fails.
func (s *suite) step(ctx context.Context, name string, env []string, command ...string) bool {
	begin := time.Now()
	out, err := output(ctx, "", env, command...)
	took := time.Since(begin).Round(100 * time.Millisecond)
	if err != nil {
		fmt.Print(out)
		s.fault("%s (%v): %s", name, err, strings.Join(command, " "))
		return false
	}
	fmt.Printf("ok   %s (%v)\n", name, took)
	return true
}

// checkSources is everything that needs no test to run.
func (s *suite) checkSources(ctx context.Context) {
	if out, err := output(ctx, "", nil, "gofmt", "-l", "."); err != nil || out != "" {
		s.fault("gofmt: these files are not formatted: %s %v", strings.Join(strings.Fields(out), " "), err)
	} else {
		fmt.Println("ok   gofmt")
	}
	static := []string{"CGO_ENABLED=0"}
	s.step(ctx, "vet", static, "go", "vet", "./...")
	s.step(ctx, "staticcheck", static, "go", "tool", "-modfile=scripts/tools/go.mod", "staticcheck", "./...")
	if has("shellcheck") {
		if scripts := shellScripts(); len(scripts) > 0 {
			s.step(ctx, "shellcheck", nil, append([]string{"shellcheck"}, scripts...)...)
		}
	} else {
		s.note("shellcheck did not run: it is not installed")
	}
	arm := []string{"GOOS=linux", "GOARCH=arm64", "CGO_ENABLED=0"}
	mac := []string{"GOOS=darwin", "GOARCH=arm64", "CGO_ENABLED=0"}
	s.step(ctx, "build linux/arm64", arm, "go", "build", "./...")
	s.step(ctx, "vet linux/arm64", arm, "go", "vet", "./...")
	s.step(ctx, "vet darwin/arm64", mac, append([]string{"go", "vet"}, portable...)...)
	s.step(ctx, "build darwin/arm64", mac, append([]string{"go", "build"}, portable...)...)
}

// portable is what compiles on macOS. The others need Linux.
var portable = []string{
	".", "./internal/doctor", "./internal/driver", "./internal/driver/seatbelt", "./internal/faults", "./internal/guest", "./internal/hostview",
	"./internal/housekeeping", "./internal/image/rootfs", "./internal/project", "./internal/store/disk", "./internal/terminal", "./internal/testneeds",
	"./scripts/testrun",
}

// shellScripts lists the files under scripts/ and .ci/ that sh runs.
func shellScripts() []string {
	var out []string
	for _, pattern := range []string{"scripts/*", ".ci/*"} {
		names, _ := filepath.Glob(pattern)
		for _, name := range names {
			b, err := os.ReadFile(name)
			if first, _, _ := strings.Cut(string(b), "\n"); err == nil && strings.HasPrefix(first, "#!") && strings.HasSuffix(first, "sh") {
				out = append(out, name)
			}
		}
	}
	return out
}

// finish prints what came of it and gives the exit code. The last line is the
// count, whatever happened.
func (s *suite) finish(err error) int {
	r := s.results
	fmt.Println()
	r.printTimes(os.Stdout)
	for _, n := range s.notes {
		fmt.Println("note:", n)
	}
	skipped := r.skippedEverywhere()
	if len(skipped) > 0 {
		fmt.Println("skipped everywhere:")
		for _, k := range skipped {
			fmt.Printf("  %s: %s\n", k, r.reasonOf(k))
		}
	}
	failed := r.failed()
	for _, k := range failed {
		r.printFailure(os.Stdout, k)
	}
	for _, f := range s.faults {
		fmt.Println("fault:", f)
	}
	bad := len(failed) + len(s.faults)
	if err != nil {
		bad++
	}
	fmt.Printf("took %v\n", time.Since(s.started).Round(time.Second))
	fmt.Printf("%d passed, %d failed, %d skipped\n", r.passed(), bad, len(skipped))
	if bad > 0 || r.passed() == 0 {
		return 1
	}
	return 0
}
