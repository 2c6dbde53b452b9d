//go:build linux

package nested

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

const module = "github.com/bailey-sandbox/bailey"

// goTool runs go in the repository and gives what it prints.
func goTool(top string, args ...string) (string, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s%s", strings.Join(args, " "), err, out, errs.Bytes())
	}
	return string(out), nil
}

// packagesOf gives the packages with tests that patterns mean, by their folder below the top.
func packagesOf(top string, patterns []string) ([]string, error) {
	out, err := goTool(top, append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...)...)
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, p := range strings.Fields(out) {
		dirs = append(dirs, strings.TrimPrefix(strings.TrimPrefix(p, module), "/"))
	}
	return dirs, nil
}

// build fills the tree of a run's disk: test binaries, the programs that tests
// build, the one that is there in place of Go, and the repository's files.
func build(top, tree string, packages, programs []string) error {
	at := func(inside string) string { return filepath.Join(tree, strings.TrimPrefix(inside, plan.Disk)) }
	for _, dir := range packages {
		if _, err := goTool(top, "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", at(binaryOf(dir)), "./"+dir); err != nil {
			return err
		}
	}
	if _, err := goTool(top, "build", "-trimpath", "-ldflags=-s -w", "-buildvcs=false", "-o", at(plan.Disk+"/inside"), "./internal/conformance/nested/inside"); err != nil {
		return err
	}
	if len(programs) > 0 {
		mains := map[string]bool{}
		patterns := []string{"list", "-f", `{{if eq .Name "main"}}{{.ImportPath}}{{end}}`}
		patterns = append(patterns, programs...)
		for _, dir := range packages {
			patterns = append(patterns, "./"+path.Join(dir, "..."))
		}
		out, err := goTool(top, patterns...)
		if err != nil {
			return err
		}
		for _, p := range strings.Fields(out) {
			mains[strings.TrimPrefix(p, module+"/")] = true
		}
		kinds := []string{"plain"}
		if slices.ContainsFunc(packages, func(dir string) bool { return strings.HasPrefix(dir, "internal/conformance/") }) {
			kinds = append(kinds, "bailey_faults") // what package rig builds
		}
		for dir := range mains {
			for _, tags := range kinds {
				if _, err := goTool(top, "build", "-trimpath", "-ldflags=-s -w", "-buildvcs=false", "-tags", tags, "-o", at(path.Join(plan.Programs, tags, dir)), "./"+dir); err != nil {
					return err
				}
			}
		}
	}
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list the repository's files: %w", err)
	}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		from, to := filepath.Join(top, name), filepath.Join(at(plan.Source), name)
		fi, err := os.Lstat(from)
		if err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := copyFile(from, to, fi); err != nil {
			return err
		}
	}
	return nil
}

// binaryOf is where a package's test binary lies in the machine.
func binaryOf(dir string) string {
	return plan.Disk + "/tests/" + strings.ReplaceAll(path.Join("bailey", dir), "/", "-")
}
