package testneeds

import (
	"fmt"
	"os"
	"os/exec"
)

// Programs gives a folder with Bailey's programs of the names given: that of the suite,
// which has all of them and is to be written by nobody, or one of its own, in which it
// builds them. They are without the race detector. remove takes the latter away.
func Programs(names ...string) (dir string, remove func(), err error) {
	if dir = os.Getenv("BAILEY_TEST_PROGRAMS"); dir != "" {
		return dir, func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "bailey-programs-"); err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	args := []string{"build", "-o", dir + "/"}
	for _, name := range names {
		args = append(args, "github.com/bailey-sandbox/bailey/cmd/"+name)
	}
	build := exec.Command("go", args...)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	err = os.Chmod(dir, 0o755) // a sandbox's own user runs bailey-init
	if err == nil {
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("go build: %w: %s", err, out)
		}
	}
	if err != nil {
		remove()
		return "", nil, err
	}
	return dir, remove, nil
}
