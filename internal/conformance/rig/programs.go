//go:build linux

package rig

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Shared is where yards of users other than the caller lie: the caller's own
// temporary folder may be closed to them.
const Shared = "/tmp"

var programs struct {
	sync.Once
	dir  string
	made bool // by this process, which removes it
	err  error

	levels    sync.Once
	levelsErr error
}

// Main runs the tests of a suite. It makes this process the one that inherits
// what a killed bailey leaves behind, so that nothing can get lost, and removes
// the programs afterwards.
func Main(m *testing.M) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "rig: become a subreaper:", err)
		os.Exit(1)
	}
	code := m.Run()
	if programs.made {
		if err := os.RemoveAll(programs.dir); err != nil {
			fmt.Fprintln(os.Stderr, "rig:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Programs builds all programs of Bailey as a release does, but with the
// fault points, once for all tests of the binary, and gives their folder. Where
// ./scripts/test has built them for all, it builds none.
func Programs(t testing.TB) string {
	t.Helper()
	programs.Do(func() {
		if dir := filepath.Join(os.Getenv("BAILEY_TEST_PROGRAMS"), "faults"); filepath.IsAbs(dir) && isFolder(dir) {
			programs.dir = dir
			return
		}
		programs.made = true
		if programs.dir, programs.err = os.MkdirTemp(Shared, "bailey-rig-"); programs.err != nil {
			return
		}
		if programs.err = os.Chmod(programs.dir, 0o755); programs.err != nil {
			return
		}
		root, err := Source()
		if err != nil {
			programs.err = err
			return
		}
		cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", "bailey_faults", "-o", programs.dir+"/",
			"./cmd/...")
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			programs.err = fmt.Errorf("go build: %w: %s", err, out)
		}
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.dir
}

// WithLevels gives the yard programs beside which what stronger levels need lies, too:
// sandboxes for which no level is named are of another one then. ./scripts/levels has
// to have built it.
func (y *Yard) WithLevels() *Yard {
	y.t.Helper()
	y.bin = Levels(y.t)
	return y
}

// Levels gives the folder of those programs.
func Levels(t testing.TB) string {
	t.Helper()
	from := Programs(t)
	bin := filepath.Join(from, "levels")
	programs.levels.Do(func() {
		if programs.made {
			programs.levelsErr = addLevels(from, bin)
		}
	})
	if programs.levelsErr != nil {
		t.Fatal(programs.levelsErr)
	}
	return bin
}

// addLevels makes a folder of the programs in another, and of what levels with a kernel of their own need.
func addLevels(from, bin string) error {
	built := os.Getenv("BAILEY_TEST_PROGRAMS")
	if built != "" {
		built = filepath.Join(built, "levels")
	} else {
		root, err := Source()
		if err != nil {
			return err
		}
		built = filepath.Join(root, "bin")
	}
	list, err := os.ReadDir(from)
	if err == nil {
		err = os.Mkdir(bin, 0o755)
	}
	for _, f := range list {
		err = errors.Join(err, os.Link(filepath.Join(from, f.Name()), filepath.Join(bin, f.Name())))
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"runsc", "bailey-microvm.kit"} {
		if os.Link(filepath.Join(built, name), filepath.Join(bin, name)) == nil {
			continue // large files, and the same file system as a rule
		}
		if out, err := exec.Command("install", "-m", "755", filepath.Join(built, name), filepath.Join(bin, name)).CombinedOutput(); err != nil {
			return fmt.Errorf("./scripts/levels makes it: %w: %s", err, out)
		}
	}
	return nil
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// Source gives the top folder of this repository.
func Source() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", fmt.Errorf("the tests do not run inside the repository")
		}
		dir = parent
	}
}
