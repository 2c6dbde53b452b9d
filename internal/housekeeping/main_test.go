package housekeeping

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/bailey-sandbox/bailey"

// top is the checkout's folder, from this package's own.
const top = "../.."

// pkg is what `go list` tells about a package.
type pkg struct {
	ImportPath, Dir, Name string
	Standard              bool
	Imports               []string
	Module                *struct{ Path string }
}

// room is the package's path within the module; "." is the root package.
func (p pkg) room() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

// list asks the go command about packages as they are for a system.
func list(t *testing.T, goos string, args ...string) []pkg {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,Name,Standard,Imports,Module"}, args...)...)
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "GOOS="+goos, "GOARCH=amd64", "CGO_ENABLED=0")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, errs.String())
	}
	var all []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// program builds the command line once for all tests, with the others beside it,
// which some commands are handed to.
var program = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "bailey")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", scratch+"/", "./cmd/...")
	cmd.Dir = top
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

func built(t *testing.T) string {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var scratch string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "housekeeping-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(scratch)
		return m.Run()
	}())
}

// file is one text file of the checkout.
type file struct {
	name string // below top, with slashes
	text string
}

// files reads the checkout's files whose names end as asked.
func files(t *testing.T, suffixes ...string) []file {
	t.Helper()
	var all []file
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(top, path)
		if d.IsDir() {
			if slices.Contains([]string{".git", ".cache", "bin"}, name) || d.Name() == "node_modules" {
				return fs.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() || !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			return nil
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // an editor's or another test's, gone already
		}
		all = append(all, file{filepath.ToSlash(name), string(b)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Fatalf("no file ends with %v", suffixes)
	}
	return all
}
