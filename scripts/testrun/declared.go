package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// declaredTests lists, by package, the tests, fuzz targets and checked examples
// that the sources declare for this system.
func declaredTests(ctx context.Context, patterns []string) (map[string][]string, error) {
	out := map[string][]string{}
	var failure error
	err := stream(ctx, "", nil, func(r io.Reader) {
		d := json.NewDecoder(r)
		for {
			var p struct {
				ImportPath, Dir           string
				TestGoFiles, XTestGoFiles []string
			}
			if err := d.Decode(&p); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				failure = err
				return
			}
			for _, f := range append(p.TestGoFiles, p.XTestGoFiles...) {
				names, err := testsOf(filepath.Join(p.Dir, f))
				if err != nil {
					failure = err
					return
				}
				out[p.ImportPath] = append(out[p.ImportPath], names...)
			}
		}
	}, append([]string{"go", "list", "-json=ImportPath,Dir,TestGoFiles,XTestGoFiles"}, patterns...)...)
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	return out, failure
}

// testsOf gives the names of the functions in a file that `go test` calls.
func testsOf(file string) ([]string, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Recv != nil {
			continue
		}
		switch name := fn.Name.Name; {
		case len(fn.Type.Params.List) == 1 && name != "TestMain" && (named(name, "Test") || named(name, "Fuzz")):
			names = append(names, name)
		case len(fn.Type.Params.List) == 0 && named(name, "Example") && checked(f, fn):
			names = append(names, name)
		}
	}
	return names, nil
}

// named tells whether go test takes a name for one of the kind: the word alone,
// or followed by anything but a lower case letter.
func named(name, kind string) bool {
	rest, ok := strings.CutPrefix(name, kind)
	if !ok || rest == "" {
		return ok
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return !unicode.IsLower(r)
}

// checked tells whether an example has an output to compare; others only compile.
func checked(f *ast.File, fn *ast.FuncDecl) bool {
	for _, c := range f.Comments {
		if c.Pos() < fn.Body.Pos() || c.End() > fn.Body.End() {
			continue
		}
		t := strings.ToLower(strings.TrimSpace(c.Text()))
		if strings.HasPrefix(t, "output:") || strings.HasPrefix(t, "unordered output:") {
			return true
		}
	}
	return false
}
