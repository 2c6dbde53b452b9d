//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

// giveBuilt does `go build -o OUT PACKAGES` with programs that were built outside.
func giveBuilt(args []string) error {
	if len(args) == 0 || args[0] != "build" {
		return fmt.Errorf("only `go build` is here, not %q", args)
	}
	out, tags := "", "plain"
	args = args[1:]
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, has := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
		args = args[1:]
		if takes := name == "o" || name == "tags" || name == "ldflags"; takes && !has {
			if len(args) == 0 {
				return errors.New("-" + name + " wants a value")
			}
			value, args = args[0], args[1:]
		}
		switch name {
		case "o":
			out = value
		case "tags":
			tags = value
		case "ldflags", "trimpath", "buildvcs":
		default:
			return errors.New("-" + name + " is not known here")
		}
	}
	if out == "" || len(args) == 0 {
		return errors.New("-o and packages are needed")
	}
	top, here, err := module()
	if err != nil {
		return err
	}
	for _, pkg := range args {
		if strings.HasPrefix(pkg, ".") {
			rel, err := filepath.Rel(top, filepath.Join(here, pkg))
			if err != nil {
				return err
			}
			pkg = rel
		} else {
			const module = "github.com/bailey-sandbox/bailey/"
			pkg = strings.TrimPrefix(pkg, module)
		}
		built := []string{path.Join(plan.Programs, tags, pkg)}
		if dir, all := strings.CutSuffix(pkg, "/..."); all {
			if built, err = filepath.Glob(path.Join(plan.Programs, tags, dir, "*")); err != nil || len(built) == 0 {
				return fmt.Errorf("nothing below %s was built outside with %s", dir, tags)
			}
		}
		for _, from := range built {
			to := out
			if fi, err := os.Stat(out); err == nil && fi.IsDir() || strings.HasSuffix(out, "/") {
				to = filepath.Join(out, path.Base(from))
			}
			if err := copyProgram(from, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// module finds the repository around the working folder.
func module() (top, here string, err error) {
	if here, err = os.Getwd(); err != nil {
		return "", "", err
	}
	for top = here; ; top = filepath.Dir(top) {
		if _, err := os.Stat(filepath.Join(top, "go.mod")); err == nil {
			return top, here, nil
		} else if top == "/" {
			return "", "", errors.New("the working folder is in no module")
		}
	}
}

func copyProgram(from, to string) error {
	r, err := os.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	w, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}
