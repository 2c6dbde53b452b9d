package housekeeping

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// longest is how many lines a file may have: what a person reads in one sitting.
const longest = 700

func TestFilesAreShort(t *testing.T) {
	for _, f := range files(t, ".go", ".s", ".md", ".sh", ".yml", ".yaml", "scripts/build", "scripts/test", "scripts/demo", "scripts/fetch") {
		if n := strings.Count(f.text, "\n"); n > longest {
			t.Errorf("%s has %d lines; at most %d are allowed", f.name, n, longest)
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range list(t, "linux", "./...") {
		name := "doc.go"
		if sources, _ := filepath.Glob(filepath.Join(p.Dir, "*.go")); len(sources) == 1 {
			name = filepath.Base(sources[0]) // a package of one file says it there
		} else if p.Name == "main" && slices.ContainsFunc(sources, func(s string) bool { return filepath.Base(s) == "main.go" }) &&
			!slices.ContainsFunc(sources, func(s string) bool { return filepath.Base(s) == name }) {
			name = "main.go"
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Errorf("%s: %v", p.room(), err)
			continue
		}
		if len(strings.TrimSpace(f.Doc.Text())) < 40 {
			t.Errorf("%s: its %s does not say what the package is for", p.room(), name)
		}
	}
}

// machinePath finds the folders that only the machines this was written on have.
var machinePath = regexp.MustCompile(`(^|[^\w.\-/$}])/(work/(main|shared|brief)|farm/)`)

func TestNoMachinePaths(t *testing.T) {
	for _, f := range files(t, ".go", ".s", ".md", ".txt", ".json", ".yml", ".yaml", ".mod", "Makefile", "scripts/build", "scripts/test", "scripts/demo", "scripts/fetch", ".ci/run") {
		if f.name == "internal/housekeeping/sources_test.go" {
			continue
		}
		for i, line := range strings.Split(f.text, "\n") {
			if machinePath.MatchString(line) {
				t.Errorf("%s:%d names a folder of one machine: %s", f.name, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// TestTestsHideBehindNoTag: a test file with a tag of its own would be left out
// by ./scripts/test without anybody seeing it.
func TestTestsHideBehindNoTag(t *testing.T) {
	allowed := regexp.MustCompile(`^//go:build [!()&| ]*((linux|darwin|unix|amd64|arm64|race)[!()&| ]*)+$`)
	for _, f := range files(t, "_test.go") {
		for line := range strings.Lines(f.text) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "//go:build") && !allowed.MatchString(line) {
				t.Errorf("%s: %s", f.name, line)
			}
			if strings.HasPrefix(line, "package ") {
				break
			}
		}
	}
}

// TestNoVagueNames keeps out the names under which everything and nothing fits.
func TestNoVagueNames(t *testing.T) {
	vague := regexp.MustCompile(`^(utils?|common|helpers?|misc|shared|base|manager)$`)
	for _, p := range list(t, "linux", "./...") {
		if vague.MatchString(filepath.Base(p.Dir)) {
			t.Errorf("the package %s has a name that says nothing", p.room())
		}
	}
	vague = regexp.MustCompile(`^(utils?|common|helpers?|misc)$`)
	for _, f := range files(t, ".go") {
		if vague.MatchString(strings.TrimSuffix(filepath.Base(f.name), ".go")) {
			t.Errorf("the file %s has a name that says nothing", f.name)
		}
	}
}

// codes reads the stable error codes from the root package.
func codes(t *testing.T) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(top, "errors.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if ok && len(v.Values) == 1 && strings.HasPrefix(v.Names[0].Name, "Code") {
			if lit, ok := v.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				out = append(out, strings.Trim(lit.Value, `"`))
			}
		}
		return true
	})
	if len(out) < 10 {
		t.Fatalf("only these codes were found: %v", out)
	}
	return out
}
