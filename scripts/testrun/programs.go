package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// copyPrograms puts what ./scripts/build built where every user can run it, for
// the tests that start it: otherwise each package would build it again, and the
// ordinary user without anything compiled before.
func copyPrograms(dir string) error {
	list, err := filepath.Glob("bin/*")
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	more := filepath.Join(dir, levelsDir)
	if err == nil {
		err = os.Mkdir(more, 0o755)
	}
	for _, from := range list {
		if err != nil {
			return err
		}
		name := filepath.Base(from)
		if slices.Contains(ofLevels, name) {
			err = copyProgram(from, filepath.Join(more, name))
		} else if err = copyProgram(from, filepath.Join(dir, name)); err == nil {
			err = os.Link(filepath.Join(dir, name), filepath.Join(more, name))
		}
	}
	return err
}

// ofLevels are what scripts/levels makes beside Bailey's programs. Where it lies beside
// them, sandboxes for which no level is named are of another level: tests that want that
// take the programs from the folder levelsDir, where it does.
var ofLevels = []string{"runsc", "bailey-microvm.kit"}

const levelsDir = "levels"

// buildFaulty builds the programs again, with the points at which a suite makes them
// fail, into the folder faultyDir beside the others, and below it once more with what
// levels need: each suite would take a minute for it, and the ordinary user several.
func buildFaulty(ctx context.Context, programs string) error {
	dir := filepath.Join(programs, faultyDir)
	more := filepath.Join(dir, levelsDir)
	if err := os.MkdirAll(more, 0o755); err != nil {
		return err
	}
	out, err := output(ctx, "", []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "bailey_faults", "-o", dir+"/", "./cmd/...")
	if err != nil {
		return fmt.Errorf("build the programs with fault points: %w: %s", err, out)
	}
	built, err := filepath.Glob(filepath.Join(dir, "bailey*"))
	for _, path := range built {
		err = errors.Join(err, written(path), os.Link(path, filepath.Join(more, filepath.Base(path))))
	}
	for _, name := range ofLevels {
		err = errors.Join(err, os.Link(filepath.Join(programs, levelsDir, name), filepath.Join(more, name)))
	}
	return err
}

const faultyDir = "faults"

// written puts a file on disk: see copyProgram.
func written(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// copyProgram writes the copy back to the disk at once: dirty pages would count as
// memory of whoever runs it first.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Chmod(0o755), out.Sync(), out.Close())
}
