package project

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	settingRow  = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|")
	personalRow = regexp.MustCompile("(?m)^- `([a-z-]+)`: (.+)$")
)

// TestDocument holds docs/project-file.md against the parser: the same
// settings, the same refusals, and an example that is read, with all in it.
func TestDocument(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "project-file.md"))
	if err != nil {
		t.Fatal(err)
	}
	doc := string(b)
	var named []string
	for _, m := range settingRow.FindAllStringSubmatch(doc, -1) {
		named = append(named, m[1])
	}
	slices.Sort(named)
	if want := Names(); !slices.Equal(named, want) {
		t.Errorf("the document describes %v, the parser reads %v", named, want)
	}
	refused := map[string]string{}
	for _, m := range personalRow.FindAllStringSubmatch(doc, -1) {
		refused[m[1]] = m[2]
	}
	for name, why := range personal {
		if refused[name] != why {
			t.Errorf("the document says of %s %q, the parser %q", name, refused[name], why)
		}
		delete(refused, name)
	}
	for name := range refused {
		t.Errorf("the document says that %s is refused, the parser does not", name)
	}
	_, example, _ := strings.Cut(doc, "```yaml\n")
	example, _, ok := strings.Cut(example, "```")
	if !ok {
		t.Fatal("the document has no example")
	}
	if _, err := Parse([]byte(example), "/work"); err != nil {
		t.Errorf("the example: %v", err)
	}
	for _, name := range Names() {
		if !regexp.MustCompile("(?m)^(# )?" + name + ":").MatchString(example) {
			t.Errorf("the example does not have %s", name)
		}
	}
	// What is behind a # in the example is read too.
	for line := range strings.Lines(example) {
		if rest, ok := strings.CutPrefix(line, "# "); ok && settingLine.MatchString(rest) {
			if _, err := Parse([]byte(rest), "/work"); err != nil {
				t.Errorf("the example's line %q: %v", line, err)
			}
		}
	}
}

var settingLine = regexp.MustCompile(`^[a-z-]+: `)
