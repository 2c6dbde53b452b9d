package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/changes"
)

// fieldNames gives the names that a struct's fields have in JSON.
func fieldNames(v any) (names []string) {
	t := reflect.TypeOf(v)
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// TestJSONIsDocumented holds docs/cli.md against what `bailey run --json` prints.
func TestJSONIsDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n### What `--json` prints\n")
	section, _, ok := strings.Cut(section, "\n### ")
	if !ok {
		t.Fatal("docs/cli.md does not say what run --json prints")
	}
	names := map[string][]string{
		"an object": fieldNames(result{}), "end": fieldNames(bailey.End{}), "usage": fieldNames(bailey.Usage{}),
		"output": fieldNames(output{}), "error": fieldNames(bailey.Error{}), "a mark": fieldNames(changes.Mark{}),
		"changes_are": {string(fateNone), string(fateKept), string(fateApplied), string(fateDiscarded)},
	}
	for _, r := range []bailey.Reason{
		bailey.EndExit, bailey.EndSignal, bailey.EndTimeout, bailey.EndOOM, bailey.EndDiskFull, bailey.EndPids, bailey.EndOutput, bailey.EndPolicy,
		bailey.EndBudget, bailey.EndEvicted, bailey.EndHostLost, bailey.EndUser, bailey.EndNotStarted,
	} {
		names["end.reason"] = append(names["end.reason"], string(r))
	}
	var change map[string]any
	text, err := changes.Change{Path: "\xff", Op: changes.Modified, Was: changes.File, Is: changes.File, Content: true, Mode: true, Owner: true, Xattr: true,
		OldTarget: "a", Target: "b", Binary: true, Stale: true, Marks: []changes.Mark{{}}}.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &change)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name := range change {
		names["a change"] = append(names["a change"], name)
	}
	for where, list := range names {
		if len(list) < 2 {
			t.Errorf("%s has only the fields %v", where, list)
		}
		for _, name := range list {
			if !strings.Contains(section, "`"+name+"`") {
				t.Errorf("docs/cli.md does not describe %s of %s", name, where)
			}
		}
	}
}
